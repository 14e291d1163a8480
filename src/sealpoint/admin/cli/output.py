"""Output: data on stdout, messages about it on stderr.

Control characters in text from a database are escaped: an untrusted database must not move the
cursor.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from itertools import product
from typing import Any, Final, TextIO

import typer

from sealpoint.admin.results.events import WAITING, Event, Failure, Failures, failure_reasons
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.reasons import REFUTING, Reason
from sealpoint.admin.results.result import Result
from sealpoint.errors import EXCERPT_CHARS, SealpointError, excerpt

# An object of `sealpoint.admin.results.result`, or a part of one.
Document = Mapping[str, Any]

MAX_SHOWN: Final = 100

_PIPE_COLUMNS: Final = 10_000  # width of a table in a file or pipe, wide enough to cut nothing
_MIN_COLUMNS: Final = 40  # least width of a terminal, even if it reports less


class _Unread(TextIOWrapper):
    """Replaces stdout after its reader has closed the pipe."""


def is_read() -> bool:
    """Flush stdout; return whether the process that reads stdout received everything."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        return not isinstance(sys.stdout, _Unread)
    discard_rest(sys.stdout)
    return False


def prepare_streams() -> None:
    """Open closed standard streams on /dev/null, and escape characters that a stream's encoding lacks.

    Otherwise a database file could get one of their descriptors 0, 1 and 2, and output be written to it.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_WRONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)  # never closed, as the interpreter's own streams
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_rest(stream: TextIO) -> None:
    """Discard buffered output of a stream whose reader has closed the pipe."""
    with suppress(OSError):  # the stream may have no descriptor
        # Replaces the same descriptor: at exit the interpreter flushes it, and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: object) -> str:
    """Return ``text`` with unprintable characters escaped."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


def escape_id(text: str) -> str:
    """Return an id in the form that `parse_id` reads, safe between single quotes of a shell.

    Unprintable characters, backslashes and single quotes are escaped.
    """
    escapes = {"\\": r"\\", "'": r"\x27"}
    return printable("".join(escapes.get(sign, sign) for sign in text))


def quoted(text: str) -> str:
    """Return an id quoted for a shell."""
    return f"'{escape_id(text)}'"


def print_object(text: str, end: str = "\n") -> bytes:
    """Print a JSON object, or a part of one, as ASCII text from `json.dumps`; return its bytes."""
    printed = text.replace("\x7f", "\\u007f")
    _print(printed, end)
    return f"{printed}{end}".encode()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Numbers are aligned right; ``None`` shows as a dash.

    On a terminal, cells are wrapped between words, and words that are too long for their column are broken.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [tuple(row) for row in rows]
    texts = [["-" if cell is None else printable(cell) for cell in row] for row in cells]
    console = Console(highlight=False)
    console.width = max(console.width, _MIN_COLUMNS) if sys.stdout.isatty() else _PIPE_COLUMNS
    gap, widths = _fit([columns, *texts], console.width)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for number, name in enumerate(columns):
        kinds = {type(row[number]) for row in cells} - {type(None)}
        width = widths[number] if widths else None
        table.add_column(name, justify="right" if kinds == {int} else "left", overflow="fold", width=width)
    for row in texts:
        table.add_row(*map(Text, row))  # not str: rich would read [red] in a value as markup
    # On a closed stdout rich raises SystemExit(1): so capture the lines, and print them here.
    with console.capture() as lines:
        console.print(table)
    for line in lines.get().splitlines():
        _print(line.rstrip())  # may contain style codes for a terminal


def _fit(lines: Sequence[Sequence[str]], width: int) -> tuple[int, list[int]]:
    """Return the gap between columns, and the column widths: an empty list if not all columns fit."""
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    whole = [max(map(cell_len, cells)) for cells in columns]
    words = [max((cell_len(word) for cell in cells for word in cell.split()), default=1) for cells in columns]
    # If not all words fit, the longest are broken, to at most a third of the line; others stay whole.
    for most, gap in product((width, *range(width // 3, 0, -1)), (2, 1)):
        widths = [min(word, most) for word in words]
        spare = width - sum(widths) - gap * len(columns)  # rich 14.0 also adds a gap after the last column
        if spare >= 0:
            # Columns that need least extra width get it first; the longest column gets the rest.
            for number in sorted(range(len(columns)), key=lambda number: whole[number] - widths[number]):
                more = min(spare, whole[number] - widths[number])
                widths[number] += more
                spare -= more
            return gap, widths
    return 2, []


def put(line: str) -> None:
    """Print one line on stdout, with unprintable characters escaped."""
    _print(printable(line))


def _print(text: str, end: str = "\n") -> None:
    """Write to stdout. If stdout is closed, the run continues."""
    try:
        print(text, end=end)
    except BrokenPipeError:
        discard_rest(sys.stdout)
        sys.stdout = _Unread(open(os.devnull, "wb"), encoding="utf-8")  # noqa: PTH123, SIM115 -- of the process


# Matches a command in a message, up to its placeholder DB.
_COMMAND: Final = re.compile(r"(\b(?:sealpoint|sqlite3)(?: [a-z]+)* )DB\b")
_named: list[str] = []


def name_database(words: str | None) -> None:
    """Set the text that replaces DB in commands within messages, so that users can paste the commands."""
    _named[:] = [] if words is None else [words]


def filled(text: str) -> str:
    """Return a message with DB in its commands replaced by the database's name."""
    return _COMMAND.sub(lambda found: found[1] + _named[0], text) if _named else text


def say(text: str) -> None:
    """Flush stdout, then print a message on stderr."""
    with suppress(OSError):  # the program's last flush reports the error
        sys.stdout.flush()
    _print_message(printable(filled(text)))


def _print_message(text: str) -> None:
    """Write to stderr. If stderr is closed, the run continues."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard_rest(sys.stderr)


def complain(text: str, hint: str = "", kind: str = "error") -> None:
    """Print an error and its hint on stderr."""
    say(f"{kind}: {text}")
    if hint:
        say(f"hint: {hint}")


def complain_of_damage(database: str, damage: Iterable[SealpointError]) -> None:
    """Print the errors of sealed metadata that did not open, and so could not be counted."""
    for error in damage:
        complain(f"{database}: sealed metadata is not counted: {error}", error.hint)


def warn(text: str, hint: str = "") -> None:
    """Print a warning and its hint on stderr."""
    complain(text, hint, "warning")


def require_command(context: typer.Context) -> None:
    """If the command line names a group without a command, print the group's help and exit with 2."""
    if context.invoked_subcommand is None:
        _print_message(context.get_help())
        raise typer.Exit(Exit.USAGE)


class Watch:
    """Shows and keeps the progress of a run over values.

    Attributes:
        rows: Number of values examined so far.
        total: Number of values to examine; ``None`` until it is known.
        changed: Number of values changed so far.
        is_complete: Whether the run has examined all values.
        move: Function that sets the bar by the numbers of done and of all values, and whether the run waits.
    """

    def __init__(self, move: Callable[..., None], failed: Callable[[Failure], object]) -> None:
        self.rows = self.changed = 0
        self.total: int | None = None
        self.is_complete = False
        self.move, self._failed = move, failed

    def take(self, event: Event) -> None:
        """Move the progress bar after a `Progress`; pass a `Failure` to the function ``failed``."""
        if isinstance(event, Failure):
            self._failed(event)
        else:
            self.rows, self.total, self.changed = event.rows, event.total, event.changed
            self.move(event.rows, event.total, event.table == WAITING)

    def take_all(self, events: Iterable[Event]) -> None:
        """Consume all events of a run."""
        for event in events:
            self.take(event)
        self.is_complete = True

    def say_how_far(self) -> None:
        """Print that the run stopped early, and how many values it examined."""
        total = "?" if self.total is None else self.total
        say(f"stopped early: {self.rows} of {total} values were checked")


@contextmanager
def watching(title: str, failed: Callable[[Failure], object] = lambda _: None) -> Iterator[Watch]:
    """Show a progress bar if stderr is a terminal, and yield the `Watch` that moves it."""
    from rich.console import Console

    console = Console(stderr=True)
    console.width = max(console.width, _MIN_COLUMNS)
    if not console.is_terminal:
        yield Watch(lambda *_: None, failed)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # rich must not redirect stdout while the bar is on stderr.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=None)

        def move(done: int, total: int, waits: bool = False) -> None:
            words = title + " waits for replicas" * waits
            bar.update(task, completed=done, total=total, description=words)

        yield Watch(move, failed)


def show_verdict(document: Mapping[str, Any]) -> None:
    """Print the last line of a result: ``ok``, ``not ok: ...`` or ``not proven: ...``.

    Prints no line if the command was not asked whether something is true (`Reason.NOT_ASKED`).
    """
    ok, reasons = document["ok"], document["reasons"]
    if ok:
        put("ok")
    elif ok is False or Reason.NOT_ASKED not in reasons:
        found = "; ".join(reason.sentence for reason in reasons if (reason in REFUTING) is (ok is False))
        put(f"{'not ok' if ok is False else 'not proven'}: {found}")


def count(number: int, line: str) -> None:
    """Print a line with the number in place of ``{}``; print nothing if the number is zero."""
    if number:
        put(line.format(number))


def place_line(place: Mapping[str, Any]) -> str:
    """Return the primary key of a row on one line: numbers, quoted ids, excerpts of long ids."""
    return " ".join(f"{name}={text if type(text) is int else _short(text)}" for name, text in place.items())


def _short(text: object) -> str:
    is_quotable = isinstance(text, str) and "'" in text and len(text) < EXCERPT_CHARS
    return quoted(str(text)) if is_quotable else excerpt(text)


def failure_line(failure: Failure) -> str:
    """Return a failure as one line of text."""
    error = f"{type(failure.error).__name__}: {failure.error}"
    return f"{failure.table} {place_line(failure.place)}: {error}"


def failure_object(failure: Failure) -> dict[str, Any]:
    """Return a failure as members of a JSON object."""
    from sealpoint.admin.maintenance.inspect import plain

    return {
        "table": failure.table,
        "place": plain(failure.place),
        "tag": plain(failure.tag),
        "error": type(failure.error).__name__,
        "message": str(failure.error),
        "hint": getattr(failure.error, "hint", ""),
    }


def show_causes(failures: Failures) -> None:
    """Print each cause of failures with its count and its hint."""
    for hint, counts in failures.causes.items():
        for cause, number in counts.items():
            say(f"{values_line(number)}: {cause}")
        if hint:
            say(f"hint: {hint}")
    for key_id in failures.foreign:
        say(f"none of the values under {key_id!r} opens (`sealpoint verify DB --json` names each)")
        say("hint: name the ring of this database by --keys FILE; if this is its ring, restore a backup")


def values_line(number: int) -> str:
    """Return a number with the word ``value`` or ``values``."""
    return f"{number:,} value" + ("" if number == 1 else "s")


class ShownFailures(Failures):
    """Failures of a run. With ``shown``, the first `MAX_SHOWN` are printed as they occur."""

    def __init__(self, *, shown: bool) -> None:
        super().__init__()
        self._shown = shown

    def add(self, failed: Failure) -> bool:
        """Count a failure; print it if it is one of the first."""
        is_new = super().add(failed)
        if is_new and self._shown:
            if self.count <= MAX_SHOWN:
                complain(failure_line(failed))
            elif self.count == MAX_SHOWN + 1:
                say("more values failed; `sealpoint verify DB` lists all of them")
        return is_new

    def end(self, result: Result) -> dict[str, Any]:
        """Print hints, add the reasons of the failures to the result, and return their JSON members.

        Failures that were printed as text are left out of the JSON members.
        """
        if self._shown:
            show_causes(self)
        result.add(*failure_reasons(self))
        return {
            "failed": self.count,
            "failures": [] if self._shown else [failure_object(failed) for failed in self.kept],
        }
