"""`sealpoint report`: databases, keys and a thread store in one document for an assessor."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from sealpoint.cli.databases import all_databases
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabasesArgument,
    JsonOption,
    KeysOption,
    VariablesOption,
    require_text,
)
from sealpoint.cli.output import print_object, progress_bar, say, warn
from sealpoint.cli.reportview import show_report
from sealpoint.cli.stores import find_entries, opened
from sealpoint.cli.threads import ThreadsOption, find_threads, opened_threads
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.databases.rows import RowStore
from sealpoint.errors import KeyRingError
from sealpoint.evidence.report import Report, render_page
from sealpoint.evidence.report.changes import find_changes
from sealpoint.evidence.report.database import Move, read_heads, read_part
from sealpoint.evidence.report.document import text_of
from sealpoint.evidence.report.page import load_template
from sealpoint.evidence.report.period import Period, parse_period
from sealpoint.evidence.report.why import Why
from sealpoint.keys.ringfile import find_ring_file
from sealpoint.maintenance.pins import Pin, check_pin, read_pin
from sealpoint.maintenance.result import Reason, Result


def report(
    databases: DatabasesArgument = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="A..B",
            show_default=False,
            help="List what changed from A to B, both included: dates as 2026-01-31, or times; UTC.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            show_default=False,
            help="Write the page, HTML: sealpoint[evidence].",
        ),
    ] = None,
    json_out: Annotated[
        Path | None,
        typer.Option("--json-out", metavar="FILE", show_default=False, help="Write the object, JSON."),
    ] = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    pin: Annotated[
        Path | None,
        typer.Option(
            "--pin",
            metavar="FILE",
            show_default=False,
            help="A pin that the thread store must be a continuation of.",
        ),
    ] = None,
    variables: VariablesOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Answer what an assessor asks, on one page.

    Each question has a verdict: shown, refuted or not shown. Every value is opened, all from one state of
    each database. Exits with 3 if an answer is not shown, unless --allow-unproven is given. No text of a
    database is quoted.
    """
    named = all_databases(databases, variables)
    if not named:
        raise typer.BadParameter("name at least one database: DB, or --db-env NAME", param_hint="DB...")
    made = Report(Result("report", {"allow_plaintext": allow_plaintext}), allow_plaintext, _period(period))
    if out is not None:
        load_template()  # before an hour of reading
    made.command = _command_line(
        databases or (), variables or (), period=period, threads=threads, pin=pin, keys=keys,
        allow_plaintext=allow_plaintext,
    )  # fmt: skip
    pinned = None if pin is None else read_pin(pin)
    cipher = _find_keys(keys, made)
    made.changes = find_changes(made.period)
    with opened(named) as stores, progress_bar("report") as move:
        for store in stores:
            part = read_part(
                store, made.result, cipher, made.entries, allow_plaintext=allow_plaintext, move=_whole(move)
            )
            made.parts.append(part)
        _compare(made, stores, cipher, _store_of(threads, keys, made), pinned, _whole(move))
    document = made.document()
    text = text_of(document)
    if json_out is not None:
        _write(json_out, text)
    if out is not None:
        _write(out, render_page(document))
    if as_json:
        print_object(text.removesuffix("\n"))
    else:
        show_report(document)
    return _code(made.result, document, Exit.DONE if allow_unproven else Exit.FOUND)


def _period(text: str | None) -> Period | None:
    try:
        return None if text is None else parse_period(text)
    except ValueError:
        hint = "give two dates, as 2026-01-01..2026-03-31, the earlier one first"
        raise typer.BadParameter(hint, param_hint="--period") from None


def _find_keys(keys: Path | None, made: Report) -> RingCipher | None:
    """Read the ring, and load its material if that is available: without it there is a report too."""
    made.entries = find_entries(keys, made.result)
    if made.entries is None:
        say("no ring file was found: no value is opened")
        return None
    try:
        return RingCipher(KeyRing.load(find_ring_file(keys)).load_material())
    except KeyRingError as error:
        made.keys_problem = type(error).__name__
        warn(f"no value is opened: {error}", error.hint)
        return None


def _store_of(threads: str | None, keys: Path | None, made: Report) -> str | None:
    """Return the thread store that the command line or the ring names."""
    if threads is None and made.entries is None:
        return None
    return find_threads(threads, keys)


def _compare(
    made: Report,
    stores: list[RowStore],
    cipher: RingCipher | None,
    name: str | None,
    pin: Pin | None,
    move: Move,
) -> None:
    """Compare the one database with its thread store, and that with its pin."""
    if name is None:
        if pin is not None:
            raise typer.BadParameter("name the thread store of the pin", param_hint="--threads")
        return
    with ExitStack() as stack:
        known = stack.enter_context(opened_threads(name))
        made.threads, made.pin = known.identity, pin
        if pin is not None:
            made.pin_reason = check_pin(known, pin)
        if len(stores) > 1:
            made.no_heads = Why.SEVERAL_DATABASES
        elif cipher is None or made.parts[0].damage:
            made.no_heads = Reason.NOT_OPENED if cipher is None else Reason.DAMAGED
        else:
            made.parts[0].heads = read_heads(stores[0], cipher, known, move)
            made.no_heads = None


def _whole(move: Any) -> Move:
    """Return what moves a bar that has no end where the number of values is not known."""

    def step(done: int, total: int | None) -> None:
        move(done, total)

    return step


def _command_line(
    databases: list[str] | tuple[str, ...], variables: list[str] | tuple[str, ...], **options: object
) -> str:
    """Return the command that makes this report again."""
    words = ["sealpoint", "report", *databases]
    words += [word for name in variables for word in ("--db-env", name)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [flag, str(value)]
    return shlex.join(words)


def _write(path: Path, text: str) -> None:
    """Write a file in one step; a report of an earlier run is replaced.

    Raises:
        OSError: If it cannot be written.
    """
    require_text(str(path), "FILE")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        fresh.unlink(missing_ok=True)


def _code(result: Result, document: dict[str, Any], unproven: Exit) -> Exit:
    """Return the exit code: that of the reasons of all commands, then that of the report."""
    code = result_code(result, unproven=unproven)
    if code not in (Exit.DONE, unproven):
        return code
    if document["ok"] is None:
        return unproven
    return Exit.DONE if document["ok"] else Exit.FOUND
