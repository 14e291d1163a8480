"""How `sealpoint report` is carried out. Apart from the command: it loads what other commands do not need."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import typer

from sealpoint.cli.databases import find_databases
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.ledger import read_key, read_pin_file
from sealpoint.cli.options import require_text
from sealpoint.cli.output import print_object, progress_bar, say, warn
from sealpoint.cli.reportview import show_report
from sealpoint.cli.stores import find_entries, opened
from sealpoint.cli.threads import find_threads, opened_threads
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.databases.rows import RowStore
from sealpoint.errors import KeyRingError, OutputExistsError
from sealpoint.evidence.report import Report, render_page
from sealpoint.evidence.report.changes import Changes, find_changes
from sealpoint.evidence.report.database import Move, read_heads, read_part
from sealpoint.evidence.report.document import text_of
from sealpoint.evidence.report.page import load_template
from sealpoint.evidence.report.period import Period, parse_period
from sealpoint.evidence.report.why import Why
from sealpoint.keys.digest import ring_digest
from sealpoint.keys.ringfile import RingFile, find_ring_file
from sealpoint.maintenance.pins import Pin, check_pin, read_pin
from sealpoint.maintenance.result import Reason, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line asks for; its options by their names."""

    databases: Sequence[str]
    variables: Sequence[str]
    period: str | None
    out: Path | None
    json_out: Path | None
    allow_plaintext: bool
    allow_unproven: bool
    threads: str | None
    pin: Path | None
    vkey: str | None
    ledger_pin: Path | None
    keys: Path | None
    as_json: bool


def make_report(asked: Asked) -> Exit:
    """Make a report, write its files, and print it."""
    looked = find_databases(asked.databases, asked.variables, asked.keys)
    result = Result("report", {"allow_plaintext": asked.allow_plaintext})
    made = Report(result, asked.allow_plaintext, _period(asked.period))
    _prepare_files(asked)  # before an hour of reading
    made.command = _command_line(asked)
    pinned = None if asked.pin is None else read_pin(asked.pin)
    cipher = _find_keys(asked.keys, made)
    made.changes = _find_changes(asked, made)
    with opened(looked.names, ring_file=looked.ring_file) as stores, progress_bar("report") as move:
        for store in stores:
            allow = asked.allow_plaintext
            part = read_part(store, result, cipher, made.entries, allow_plaintext=allow, move=move)
            made.parts.append(part)
        _compare(made, stores, cipher, _store_of(asked, made), pinned, move)
    document = made.document()
    text = text_of(document)
    if asked.json_out is not None:
        _write(asked.json_out, text)
    if asked.out is not None:
        _write(asked.out, render_page(document))
    if asked.as_json:
        print_object(text.removesuffix("\n"))
    else:
        show_report(document)
    return _code(result, document, Exit.DONE if asked.allow_unproven else Exit.FOUND)


def _period(text: str | None) -> Period | None:
    if text is None:
        return None
    try:
        period = parse_period(text)
    except ValueError:
        hint = "give two dates, as 2026-01-01..2026-03-31, the earlier one first"
        raise typer.BadParameter(hint, param_hint="--period") from None
    if period.start > datetime.now(UTC):
        raise typer.BadParameter("the period has not begun", param_hint="--period")
    return period


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


def _find_changes(asked: Asked, made: Report) -> Changes | None:
    """Read the ledger that the ring names."""
    table = None if made.entries is None else RingFile(find_ring_file(asked.keys)).ledger
    vkey, pin = asked.vkey, asked.ledger_pin
    if table is None or made.entries is None:
        if vkey is not None or pin is not None:
            raise typer.BadParameter("the ring file names no ledger", param_hint="--vkey, --ledger-pin")
        return None
    key = None if vkey is None else read_key(vkey)
    pins = [] if pin is None else [read_pin_file(pin, "--ledger-pin")]
    return find_changes(table.folder, made.period, ring_digest(made.entries), key, pins)


def _store_of(asked: Asked, made: Report) -> str | None:
    """Return the thread store that the command line or the ring names."""
    if asked.threads is None and made.entries is None:
        return None
    return find_threads(asked.threads, asked.keys)


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


_REPEATED: Final = ("period", "threads", "pin", "vkey", "ledger_pin", "keys", "allow_plaintext")
"""Options that a second run has too; files that it writes are chosen anew."""


def _command_line(asked: Asked) -> str:
    """Return the command that makes this report again."""
    words = ["sealpoint", "report", *asked.databases]
    words += [word for name in asked.variables for word in ("--db-env", name)]
    for name in _REPEATED:
        flag, value = f"--{name.replace('_', '-')}", getattr(asked, name)
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [flag, str(value)]
    return shlex.join(words)


def _prepare_files(asked: Asked) -> None:
    """Refuse files that cannot be written, and load what the page is made with."""
    if asked.out is not None and asked.out == asked.json_out:
        raise typer.BadParameter("the page and the object are two files", param_hint="--json-out")
    for file in (asked.out, asked.json_out):
        if file is not None:
            _require_replaceable(file)
    if asked.out is not None:
        load_template()


_MARK: Final = b"urn:sealpoint:report:"
_MARK_WITHIN: Final = 512
"""Where the bytes stand that a page and an object begin with."""


def _require_replaceable(path: Path) -> None:
    """Refuse a name at which there is something else than a report, or nothing can be written.

    Raises:
        OutputExistsError: If there is another file: a ring, a database.
        OSError: If its folder is missing, or the file cannot be read.
    """
    require_text(str(path), "FILE")
    path.parent.stat()
    if not os.path.lexists(path):
        return
    if path.is_file():  # and not a pipe, at which opening would wait
        with path.open("rb") as file:
            if _MARK in file.read(_MARK_WITHIN):
                return
    raise OutputExistsError(f"{path} is there already, and is not a report", hint="name another file")


def _write(path: Path, text: str) -> None:
    """Write a file in one step; a report of an earlier run is replaced.

    Raises:
        OSError: If it cannot be written.
    """
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
