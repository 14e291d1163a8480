"""Output: data on stdout, messages about it on stderr.

Text from a database is shown with its control characters escaped: an untrusted one must not move
the cursor.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import Any, Final, TextIO

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.maintenance.result import REFUTING, Reason
from sealpoint.errors import SealpointError

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


def print_json(document: Mapping[str, Any]) -> None:
    """Print the one object of a command that was given ``--json``."""
    print_object(json.dumps(document, indent=2))


def print_object(text: str, end: str = "\n") -> None:
    """Print an object, or the next part of one, as `json.dumps` gives it: with ASCII alone."""
    _print(text.replace("\x7f", "\\u007f"), end)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Numbers are set to the right, ``None`` shows as a dash.

    On a terminal cells are wrapped between words; words are folded only where there is no room for them.
    """
    cells = [tuple(row) for row in rows]
    texts = [["-" if cell is None else printable(cell) for cell in row] for row in cells]
    console = Console(highlight=False)
    console.width = max(console.width, _MIN_COLUMNS) if sys.stdout.isatty() else _PIPE_COLUMNS
    gap, widths = _fit([columns, *texts], console.width)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for number, name in enumerate(columns):
        kinds = {type(row[number]) for row in cells} - {type(None)}
        justify: JustifyMethod = "right" if kinds == {int} else "left"
        table.add_column(name, justify=justify, overflow="fold", width=widths[number] if widths else None)
    for row in texts:
        table.add_row(*map(Text, row))  # not str: rich would read [red] in a value as markup
    # When stdout is closed rich raises SystemExit(1): captured, the lines are printed by `put`.
    with console.capture() as lines:
        console.print(table)
    for line in lines.get().splitlines():
        _print(line.rstrip())  # with the styles of a terminal


def _fit(lines: Sequence[Sequence[str]], width: int) -> tuple[int, list[int]]:
    """Return the gap between columns, and their widths if every word fits into its column; else no widths."""
    columns = list(zip(*lines, strict=True))
    whole = [max(map(cell_len, cells)) for cells in columns]
    words = [max((cell_len(word) for cell in cells for word in cell.split()), default=1) for cells in columns]
    for gap in (2, 1):
        spare = width - sum(words) - gap * (len(columns) - 1)
        if spare >= 0:
            widths = list(words)
            # Columns that lack least are served first; what is left goes to the one with the longest texts.
            for number in sorted(range(len(columns)), key=lambda number: whole[number] - words[number]):
                more = min(spare, whole[number] - words[number])
                widths[number] += more
                spare -= more
            return gap, widths
    return 2, []


def put(line: str) -> None:
    """Print one line, escaped as by `printable`."""
    _print(printable(line))


def print_text(text: str) -> None:
    """Print lines that were checked to have no control characters, unchanged."""
    _print(text, end="")


def _print(text: str, end: str = "\n") -> None:
    """Write to stdout. A closed stdout does not end the run."""
    try:
        print(text, end=end)
    except BrokenPipeError:
        discard_rest(sys.stdout)
        sys.stdout = _Unread(open(os.devnull, "wb"), encoding="utf-8")  # noqa: PTH123, SIM115 -- of the process


def say(text: str) -> None:
    """Print a message on stderr, below the data that was printed before."""
    with suppress(OSError):  # the end of the program meets it again
        sys.stdout.flush()
    _print_message(printable(text))


def _print_message(text: str) -> None:
    """Write to stderr. A closed stderr ends no work."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard_rest(sys.stderr)


def say_how_far(rows: int, total: int | None) -> None:
    """Say that a run has not come to its end, and how far it came."""
    say(f"stopped early: {rows} of {'?' if total is None else total} values were checked")


def complain(text: str, hint: str = "") -> None:
    """Print an error and what to do about it, on stderr."""
    say(f"error: {text}")
    if hint:
        say(f"hint: {hint}")


def complain_of_damage(database: str, damage: Iterable[SealpointError]) -> None:
    """Print what of a database could not be counted."""
    for error in damage:
        complain(f"{database}: sealed metadata is not counted: {error}", error.hint)


def warn(text: str, hint: str = "") -> None:
    """Print a warning, on stderr; the command continues."""
    say(f"warning: {text}")
    if hint:
        say(f"hint: {hint}")


def require_command(context: typer.Context) -> None:
    """Print the help and end with code 2, if no command of a group was named."""
    if context.invoked_subcommand is None:
        _print_message(context.get_help())
        raise typer.Exit(Exit.USAGE)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, if that is a terminal; yields what takes how many of how many are done."""
    console = Console(stderr=True)
    console.width = max(console.width, _MIN_COLUMNS)
    if not console.is_terminal:
        yield lambda *_: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Data keeps its own stream while the bar is on the other.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(title, total=None)

        def move(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield move


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
