"""`sealpoint report`: databases, keys, a ledger and a thread store in one document for an assessor.

Code that reads the ledger is imported only where a report needs it.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    AllowStoreOption,
    AllowUnprovenOption,
    DatabasesArgument,
    PinOption,
    ThreadsOption,
    VariablesOption,
    find_databases,
    find_entries,
    find_threads,
    opened,
    opened_threads,
    require_text,
)
from sealpoint.admin.cli.output import MAX_SHOWN, Document, count, put, say, show_table, warn, watching
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.evidence.report.document import Report, load_template, render_page, text_of
from sealpoint.admin.evidence.report.sources import (
    Changes,
    Move,
    Period,
    Why,
    find_changes,
    parse_period,
    read_heads,
    read_part,
)
from sealpoint.admin.keys.change import ring_digest
from sealpoint.admin.keys.files import write_whole
from sealpoint.admin.maintenance.heads import Pin, check_pin, read_pin
from sealpoint.admin.results.reasons import Reason
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import KeyRingError, OutputError
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile


def report(
    run: Run,
    databases: DatabasesArgument = None,
    period: Annotated[
        str | None,
        typer.Option(
            "--period",
            metavar="A..B",
            help="List changes from A to B, both included: dates as 2026-01-31, or times; UTC.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write HTML; needs sealpoint[evidence].")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json-out", metavar="FILE", help="Write JSON.")] = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_store: AllowStoreOption = None,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    pin: PinOption = None,
    vkey: Annotated[
        str | None,
        typer.Option(
            "--vkey",
            metavar="KEY",
            help="The ledger's verifier key, which `ledger init` printed, or a file with it.",
        ),
    ] = None,
    ledger_pin: Annotated[
        Path | None,
        typer.Option("--ledger-pin", metavar="FILE", help="An earlier head of the ledger, kept elsewhere."),
    ] = None,
    variables: VariablesOption = None,
) -> None:
    """Answer an assessor's questions on one page.

    Each question has a verdict: shown, refuted or not shown. Every value is opened, in one snapshot of each
    database. Exits with 3 if a verdict is refuted or not shown; --allow-unproven accepts "not shown". The
    report quotes no text from a database.
    """
    repeated = {
        "period": period,
        "threads": threads,
        "pin": pin,
        "vkey": vkey,
        "ledger_pin": ledger_pin,
        "keys": run.keys,
        "allow_plaintext": allow_plaintext,
        "allow_store": allow_store,
    }
    names, ring_file = find_databases(run, databases, variables)
    run.asks(allow_plaintext=allow_plaintext, allow_store=allow_store)
    made = Report(run.result, _period(period))
    _prepare_files(out, json_out)  # fail here, not after an hour of reading
    made.command = _command_line(databases or (), variables or (), repeated)
    pinned = None if pin is None else read_pin(pin)
    cipher = _find_keys(run, made)
    made.changes = _find_changes(run, made, vkey, ledger_pin)
    with opened(names, ring_file=ring_file) as stores, watching("report") as watch:
        for store in stores:
            made.parts.append(
                read_part(
                    store, run.result, cipher, made.entries, allow_plaintext=allow_plaintext, move=watch.move
                )
            )
        # Without a ring file, only the command line can name a thread store.
        name = None if threads is None and made.entries is None else find_threads(threads, run.keys)
        _compare(made, stores, cipher, name, pinned, watch.move)
    document = made.document()
    text = text_of(document)
    if json_out is not None:
        write_whole(json_out, text)
    if out is not None:
        write_whole(out, render_page(document))
    if run.as_json:
        run.print_object(text.removesuffix("\n"))
    else:
        _show(document)
    run.set_code(allow_unproven=allow_unproven)


def _period(text: str | None) -> Period | None:
    if text is None:
        return None
    try:
        period = parse_period(text)
    except ValueError:
        raise typer.BadParameter(
            "give two dates, as 2026-01-01..2026-03-31, the earlier one first", param_hint="--period"
        ) from None
    if period.start > datetime.now(UTC):
        raise typer.BadParameter("the period begins in the future", param_hint="--period")
    return period


def _find_keys(run: Run, made: Report) -> RingCipher | None:
    """Read the ring, and load its key material if available; without key material, no value is opened."""
    made.entries = find_entries(run)
    if made.entries is None:
        say("no ring file was found: values are not opened")
        return None
    try:
        return RingCipher(KeyRing.load(run.ring_file).load_material())
    except KeyRingError as error:
        made.keys_problem = type(error).__name__
        warn(f"values are not opened: {error}", error.hint)
        return None


def _find_changes(run: Run, made: Report, vkey: str | None, pin: Path | None) -> Changes | None:
    table = None if made.entries is None else RingFile(run.ring_file).ledger
    if table is None or made.entries is None:
        if vkey is not None or pin is not None:
            raise typer.BadParameter("the ring file names no ledger", param_hint="--vkey, --ledger-pin")
        return None
    from sealpoint.admin.cli.ledger import read_key, read_pin_file

    key = None if vkey is None else read_key(vkey)
    return find_changes(
        table.folder,
        made.period,
        ring_digest(made.entries),
        key,
        [] if pin is None else [read_pin_file(pin, "--ledger-pin")],
    )


def _compare(
    made: Report,
    stores: list[RowStore],
    cipher: RingCipher | None,
    name: str | None,
    pin: Pin | None,
    move: Move,
) -> None:
    if name is None:
        if pin is not None:
            raise typer.BadParameter("name the thread store that the pin belongs to", param_hint="--threads")
        return
    with opened_threads(name) as known:
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


def _command_line(databases: Sequence[str], variables: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the command that makes this report again, without the options for output files."""
    words = ["sealpoint", "report", *databases]
    words += [word for name in variables for word in ("--db-env", name)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value not in (None, False):
            words += [flag, str(value)]
    return shlex.join(words)


def _prepare_files(out: Path | None, json_out: Path | None) -> None:
    if out is not None and out == json_out:
        raise typer.BadParameter("--out and --json-out need different files", param_hint="--json-out")
    for file in (out, json_out):
        if file is not None:
            _require_replaceable(file)
    if out is not None:
        load_template()


_MARK: Final = b"urn:sealpoint:report:"
_MARK_WITHIN: Final = 512  # the mark is in these first bytes of an HTML or JSON report


def _require_replaceable(path: Path) -> None:
    """Refuse to overwrite a file that is not a report, such as a ring or database."""
    require_text(str(path), "FILE")
    path.parent.stat()
    if not os.path.lexists(path):
        return
    if path.is_file():  # not a pipe: opening a pipe would wait
        with path.open("rb") as file:
            if _MARK in file.read(_MARK_WITHIN):
                return
    raise OutputError(f"{path} exists, and is not a report", hint="name another file")


def _show(document: Document) -> None:
    questions = document["questions"]
    show_table(
        ("question", "answer", "why"),
        [
            (
                each["label"],
                each["verdict"],
                "; ".join(reason["sentence"] for reason in each["reasons"]) or None,
            )
            for each in questions
        ],
    )
    put("")
    for part in document["databases"]:
        opening = part["opening"]
        opened = sum(each["values"] for each in opening["opened"]) if opening else 0
        put(f"{part['database']['name']}: {opened} of {part['rows']} values opened")
    count(len(document["exceptions"]), "exceptions: {}")
    for each in document["exceptions"][:MAX_SHOWN]:
        put(" ".join(filter(None, ["-", each["exception"], each["key"]])))
    if document["erasures"]:
        from sealpoint.admin.cli.erase import show_erasures

        show_erasures(document)
    verdicts = Counter(each["verdict"] for each in questions)
    found = [f"{verdicts[word]} {word}" for word in ("refuted", "not shown") if verdicts[word]]
    head = "not ok" if document["ok"] is False else "not proven"
    put("ok" if document["ok"] else f"{head}: of {len(questions)} questions {', '.join(found)}")
