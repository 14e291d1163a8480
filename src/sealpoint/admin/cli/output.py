"""Output: data on stdout, messages about it on stderr.

Text from a database is shown with its control characters escaped: an untrusted one must not move
the cursor.
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

_PIPE_COLUMNS: Final = 10_000  # nothing is cut off in a file; lines are only as long as they must be
_MIN_COLUMNS: Final = 40  # of a terminal, whatever it says of itself


class _Unread(TextIOWrapper):
    """Takes the place of a stdout whose reader has closed it."""


def is_read() -> bool:
    """Whether all that was printed went to a reader. Writes what is left of it."""
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        return not isinstance(sys.stdout, _Unread)
    discard_rest(sys.stdout)
    return False


def prepare_streams() -> None:
    """Open what stands in for streams that were closed, and let each show what its encoding lacks, escaped.

    In this order each takes the number of the one it stands in for, and no database gets that.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_WRONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)  # as the interpreter's own streams: never closed
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_rest(stream: TextIO) -> None:
    """Discard what is still to be flushed to a stream whose reader has closed it."""
    with suppress(OSError):  # it may have no file
        # On the same descriptor: the interpreter flushes it at exit, and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: object) -> str:
    """Return ``text`` with everything escaped that is not a printable character."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


def escape_id(text: str) -> str:
    """Return an id that `parse_id` reads back, also as a shell passes it on between single quotes.

    What does not print is escaped, and so are backslashes and single quotes.
    """
    escapes = {"\\": r"\\", "'": r"\x27"}
    return printable("".join(escapes.get(sign, sign) for sign in text))


def quoted(text: str) -> str:
    """Return an id as it can be pasted into a shell."""
    return f"'{escape_id(text)}'"


def print_object(text: str, end: str = "\n") -> bytes:
    """Print an object, or the next part of one, as `json.dumps` gives it: with ASCII alone; return it."""
    printed = text.replace("\x7f", "\\u007f")
    _print(printed, end)
    return f"{printed}{end}".encode()


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Numbers are set to the right, ``None`` shows as a dash.

    On a terminal cells are wrapped between words; the longest are folded where there is no room for them.
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
    # When stdout is closed rich raises SystemExit(1): captured, the lines are printed by `put`.
    with console.capture() as lines:
        console.print(table)
    for line in lines.get().splitlines():
        _print(line.rstrip())  # with the styles of a terminal


def _fit(lines: Sequence[Sequence[str]], width: int) -> tuple[int, list[int]]:
    """Return the gap between columns, and their widths; no widths if there are too many columns."""
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    whole = [max(map(cell_len, cells)) for cells in columns]
    words = [max((cell_len(word) for cell in cells for word in cell.split()), default=1) for cells in columns]
    # If not all words fit, the longest are folded, to a third of the line or less, and others stay whole.
    for most, gap in product((width, *range(width // 3, 0, -1)), (2, 1)):
        widths = [min(word, most) for word in words]
        spare = width - sum(widths) - gap * len(columns)  # rich 14.0 counts one behind the last column, too
        if spare >= 0:
            # Columns that lack least are served first; what is left goes to the one with the longest texts.
            for number in sorted(range(len(columns)), key=lambda number: whole[number] - widths[number]):
                more = min(spare, whole[number] - widths[number])
                widths[number] += more
                spare -= more
            return gap, widths
    return 2, []


def put(line: str) -> None:
    """Print one line, escaped as by `printable`."""
    _print(printable(line))


def _print(text: str, end: str = "\n") -> None:
    """Write to stdout. A closed stdout does not end the run."""
    try:
        print(text, end=end)
    except BrokenPipeError:
        discard_rest(sys.stdout)
        sys.stdout = _Unread(open(os.devnull, "wb"), encoding="utf-8")  # noqa: PTH123, SIM115 -- of the process


# A command in a message, and the place of the database in it.
_COMMAND: Final = re.compile(r"(\b(?:sealpoint|sqlite3)(?: [a-z]+)* )DB\b")
_named: list[str] = []


def name_database(words: str | None) -> None:
    """Set what stands for DB in the commands that messages name, so that they can be pasted."""
    _named[:] = [] if words is None else [words]


def filled(text: str) -> str:
    """Return a message with the database in the commands that it names."""
    return _COMMAND.sub(lambda found: found[1] + _named[0], text) if _named else text


def say(text: str) -> None:
    """Print a message on stderr, below the data that was printed before."""
    with suppress(OSError):  # the end of the program finds it again
        sys.stdout.flush()
    _print_message(printable(filled(text)))


def _print_message(text: str) -> None:
    """Write to stderr. A closed stderr ends no work."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard_rest(sys.stderr)


def complain(text: str, hint: str = "", kind: str = "error") -> None:
    """Print an error and what to do about it, on stderr."""
    say(f"{kind}: {text}")
    if hint:
        say(f"hint: {hint}")


def complain_of_damage(database: str, damage: Iterable[SealpointError]) -> None:
    """Print what of a database could not be counted."""
    for error in damage:
        complain(f"{database}: sealed metadata is not counted: {error}", error.hint)


def warn(text: str, hint: str = "") -> None:
    """Print a warning, on stderr; the command continues."""
    complain(text, hint, "warning")


def require_command(context: typer.Context) -> None:
    """Print the help and end with code 2, if no command of a group was named."""
    if context.invoked_subcommand is None:
        _print_message(context.get_help())
        raise typer.Exit(Exit.USAGE)


class Watch:
    """Follows a run over values.

    Attributes:
        rows: How many it has examined.
        total: How many there are, as far as is known.
        changed: How many it has changed.
        is_complete: Whether it came to its end.
        move: Moves the bar: how many of how many are done, and if it is given, whether the run waits.
    """

    def __init__(self, move: Callable[..., None], failed: Callable[[Failure], object]) -> None:
        self.rows = self.changed = 0
        self.total: int | None = None
        self.is_complete = False
        self.move, self._failed = move, failed

    def take(self, event: Event) -> None:
        """Move the bar, or hand on a failure."""
        if isinstance(event, Failure):
            self._failed(event)
        else:
            self.rows, self.total, self.changed = event.rows, event.total, event.changed
            self.move(event.rows, event.total, event.table == WAITING)

    def take_all(self, events: Iterable[Event]) -> None:
        """Follow a run to its end."""
        for event in events:
            self.take(event)
        self.is_complete = True

    def say_how_far(self) -> None:
        """Say that the run has not come to its end, and how far it came."""
        total = "?" if self.total is None else self.total
        say(f"stopped early: {self.rows} of {total} values were checked")


@contextmanager
def watching(title: str, failed: Callable[[Failure], object] = lambda _: None) -> Iterator[Watch]:
    """Show a bar on stderr, if that is a terminal, and yield what follows a run."""
    from rich.console import Console

    console = Console(stderr=True)
    console.width = max(console.width, _MIN_COLUMNS)
    if not console.is_terminal:
        yield Watch(lambda *_: None, failed)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Data keeps its own stream while the bar is on the other.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=None)

        def move(done: int, total: int, waits: bool = False) -> None:
            words = title + " waits for replicas" * waits
            bar.update(task, completed=done, total=total, description=words)

        yield Watch(move, failed)


def show_verdict(document: Mapping[str, Any]) -> None:
    """Print the last line of a text: ``ok``, or what is not so, or why nothing is proven.

    A command that was not asked whether something is so has none.
    """
    ok, reasons = document["ok"], document["reasons"]
    if ok:
        put("ok")
    elif ok is False or Reason.NOT_ASKED not in reasons:
        found = "; ".join(reason.sentence for reason in reasons if (reason in REFUTING) is (ok is False))
        put(f"{'not ok' if ok is False else 'not proven'}: {found}")


def count(number: int, line: str) -> None:
    """Print a line with a number in the place of ``{}``, unless the number is zero."""
    if number:
        put(line.format(number))


def place_line(place: Mapping[str, Any]) -> str:
    """The columns of a row on one line: numbers, ids between single quotes, excerpts of what is long."""
    return " ".join(f"{name}={text if type(text) is int else _short(text)}" for name, text in place.items())


def _short(text: object) -> str:
    is_quotable = isinstance(text, str) and "'" in text and len(text) < EXCERPT_CHARS
    return quoted(str(text)) if is_quotable else excerpt(text)


def failure_line(failure: Failure) -> str:
    """A failure on one line."""
    error = f"{type(failure.error).__name__}: {failure.error}"
    return f"{failure.table} {place_line(failure.place)}: {error}"


def failure_object(failure: Failure) -> dict[str, Any]:
    """A failure as JSON."""
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
    """Print each cause with its count, and below what to do."""
    for hint, counts in failures.causes.items():
        for cause, number in counts.items():
            say(f"{values_line(number)}: {cause}")
        if hint:
            say(f"hint: {hint}")
    for key_id in failures.foreign:
        say(f"none of the values under {key_id!r} opens (`sealpoint verify DB --json` names each)")
        say("hint: use the ring of this database: --keys FILE; if this is the one, restore a backup")


def values_line(number: int) -> str:
    """How many values, for people."""
    return f"{number:,} value" + ("" if number == 1 else "s")


class ShownFailures(Failures):
    """Failures of a run, of which the first `MAX_SHOWN` are printed as they come, if they are to be shown."""

    def __init__(self, *, shown: bool) -> None:
        super().__init__()
        self._shown = shown

    def add(self, failed: Failure) -> bool:
        """Count a failure, and print it."""
        is_new = super().add(failed)
        if is_new and self._shown:
            if self.count <= MAX_SHOWN:
                complain(failure_line(failed))
            elif self.count == MAX_SHOWN + 1:
                say("there are more; `sealpoint verify DB` names all of them")
        return is_new

    def end(self, result: Result) -> dict[str, Any]:
        """Print what to do about them, record why a result is not true, and return the members of an object.

        Those that were printed one by one are not members.
        """
        if self._shown:
            show_causes(self)
        result.add(*failure_reasons(self))
        return {
            "failed": self.count,
            "failures": [] if self._shown else [failure_object(failed) for failed in self.kept],
        }
