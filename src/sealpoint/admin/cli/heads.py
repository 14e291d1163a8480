"""`sealpoint heads`: a database compared with its thread store, and what changes the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowUnprovenOption,
    DatabaseArgument,
    ThreadsOption,
    VariableOption,
    open_ring,
    opened_database,
    opened_threads,
    require_text,
    require_threads,
)
from sealpoint.admin.cli.output import (
    Document,
    ShownFailures,
    put,
    require_command,
    say,
    show_verdict,
    watching,
)
from sealpoint.admin.cli.verify import report_all, show_heads
from sealpoint.admin.databases.rows import Event
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import Adoption, HeadCheck, check_pin, make_pin, read_pin, write_pin
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.crypto import RingCipher
from sealpoint.errors import excerpt
from sealpoint.utc import as_utc, format_utc

MAX_REASON_CHARS: Final = 1000
_TRIMMED: Final = ": after a `heads trim` that you know of, replace it with --allow-unproven"

EPILOG: Final = (
    "A thread store remembers which checkpoints a database must have; docs/threads.md. Without --threads or"
    " STORE, it is that of [threads] in the ring file."
)

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, epilog=EPILOG)

StoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE", help="A SQLite file or a postgresql:// URL; else that of [threads] in the ring file."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.callback()
def heads(context: typer.Context) -> None:
    """Compare a database with its thread store, and maintain the store."""
    require_command(context)


@app.command()
def verify(
    run: Run,
    database: DatabaseArgument = None,
    threads: ThreadsOption = None,
    pin: Annotated[
        Path | None,
        typer.Option("--pin", metavar="FILE", help="An earlier pin, which the store must continue."),
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
    variable: VariableOption = None,
) -> None:
    """Name each checkpoint that is missing or was put back.

    Every checkpoint is compared with the thread store. Exits with 4 if one differs. With --pin, it also finds
    a store that was put back together with the database. `sealpoint verify DB` does the same without the pin,
    and opens all other values too.
    """
    result, remembered = run.result, require_threads(run, threads)
    pinned = None if pin is None else read_pin(pin)
    with opened_database(run, database, variable) as store, ExitStack() as stack:
        cipher = RingCipher(open_ring(run))
        checkpoints = CheckpointRows(store, cipher)
        known = stack.enter_context(opened_threads(remembered))
        check = HeadCheck(checkpoints, known)
        values = Verification(store, cipher, observer=check, columns=checkpoints.with_writes)

        def events() -> Iterator[Event]:
            if pinned is not None:
                result.add(*filter(None, [check_pin(known, pinned)]))
            yield from values.events()

        def end(failed: int) -> Document:
            result.add(*check.reasons())
            result.add(Reason.UNBOUND, when=values.unbound.rows > 0)
            return {"failed": failed, "heads": check.counts(), "pin": pinned and pinned._asdict()}

        report_all(run, "heads verify", events(), end, _show_comparison)
    run.set_code(allow_unproven=allow_unproven)


def _show_comparison(tail: Document) -> None:
    if tail["failed"]:
        put(f"checkpoints that do not open: {tail['failed']}")
    show_heads(tail["heads"])
    show_verdict(tail)


@app.command()
def adopt(
    run: Run,
    database: DatabaseArgument = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", show_default=False, help="Why, for the record.")
    ] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Create the thread store if there is none.")
    ] = False,
    threads: ThreadsOption = None,
    yes: YesOption = False,
    variable: VariableOption = None,
) -> None:
    """Record what a database has as true.

    For the first use of a thread store, or after a backup was restored on purpose.

    Asks first if the store remembers checkpoints that are not there: they are recorded as deleted. End the
    agents before; nothing is recorded if a checkpoint does not open.
    """
    require_text(reason, "--reason")
    if not reason.strip() or len(reason) > MAX_REASON_CHARS:
        raise typer.BadParameter(f"give 1 to {MAX_REASON_CHARS} characters", param_hint="--reason")
    run.asks(reason=reason)
    remembered, failures = require_threads(run, threads), ShownFailures(shown=not run.as_json)
    with opened_database(run, database, variable) as store, ExitStack() as stack:
        watch = stack.enter_context(watching("heads adopt", failures.add))
        cipher = RingCipher(open_ring(run))
        checkpoints = CheckpointRows(store, cipher)
        adoption = Adoption(checkpoints)
        values = Verification(store, cipher, observer=adoption, columns=checkpoints.with_writes)
        watch.take_all(values.events())
        known = stack.enter_context(opened_threads(remembered, create=create))
        adoption.compare(known)
        body = {**adoption.counts(known), "identity": known.identity}
        if not failures.count:
            lost = len(adoption.deleted) - adoption.unfinished
            what = f"{lost} checkpoints that the thread store remembers are recorded as deleted"
            if lost and not yes:
                run.confirm(what, "yes", "yes", repeat=True)
            adoption.carry_out(known, reason)
    run.result.add(Reason.UNBOUND, when=adoption.unbound > 0)
    run.end({**body, "adopted": not failures.count, **failures.end(run.result)}, _show_adoption)


def _show_adoption(document: Document) -> None:
    if document["adopted"]:
        put(
            f"recorded {document['stored']} checkpoints as stored and {document['deleted']} as deleted;"
            f" {document['same']} were recorded already"
        )
        for identity in document["other_stores"]:
            put(f"checkpoints that name the thread store {identity} are accepted")
    else:
        put("nothing was recorded")
    if document["unbound"]:
        put(f"checkpoints that are not bound to their rows, and were not recorded: {document['unbound']}")


@app.command()
def seal(
    run: Run,
    name: StoreArgument = None,
    pin: Annotated[
        Path | None, typer.Option("--pin", metavar="FILE", help="Write the pin to this file.")
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
) -> None:
    """Print a pin: one hash over all events of a thread store.

    Keep it where the agents cannot write. A pin that is in FILE is replaced only if the store continues it.
    After `sealpoint heads trim` that is not shown: exits with 3, and keeps the pin without --allow-unproven.
    """
    result, remembered = run.result, require_threads(run, name)
    # Not `exists`: a link to a volume that is not mounted is no first pin.
    before = read_pin(pin) if pin is not None and os.path.lexists(pin) else None
    with opened_threads(remembered) as store:
        why = None if before is None else check_pin(store, before)
        if why not in (None, Reason.PIN_EMPTY):  # a pin of no events has nothing to lose
            result.add(why)
        made = make_pin(store)
    # An attacker who can write the store can make it say that events were trimmed.
    if pin is not None and (not result.reasons or (allow_unproven and Reason.PIN_TRIMMED in result.reasons)):
        write_pin(pin, made)
    elif pin is not None:
        say(f"{pin} is kept as it was{_TRIMMED if result.ok is None else ''}")
    result.stated = {"pin": made._asdict()}
    run.end({"pin": made._asdict()}, _show_pin, allow_unproven=allow_unproven)


def _show_pin(document: Document) -> None:
    pin = document["pin"]
    put(f"thread store {pin['store']}: {pin['events']} events, the last has number {pin['until']}")
    put(f"root {pin['root']}")


@app.command()
def trim(
    run: Run,
    name: StoreArgument = None,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="DATE", show_default=False, help="As 2026-01-31, or with a time; UTC."
        ),
    ] = "",
    yes: YesOption = False,
) -> None:
    """Forget checkpoints that were deleted before a date.

    Then nothing shows any more that one of them was put back, and pins that were made before are no longer
    proven: make a new one.
    """
    until = _read_time(before)
    with opened_threads(require_threads(run, name)) as store:
        if not yes:
            deleted = f"checkpoints that were deleted before {format_utc(until)}"
            what = f"Thread store {excerpt(store.identity)}: {deleted} can be put back unnoticed"
            what += ", and pins that were made before are no longer proven"
            run.confirm(what, "yes", "yes", repeat=True)
        forgotten = store.trim(int(until.timestamp()))
        identity = store.identity
    say("replace the pin: `sealpoint heads seal --pin FILE --allow-unproven`; it is not proven any more")
    body = {"identity": identity, "before": format_utc(until), "forgotten": forgotten}
    run.end(body, lambda _: put(f"deleted checkpoints that are forgotten: {forgotten}"))


def _read_time(text: str) -> datetime:
    try:
        return as_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise typer.BadParameter("give a date, as 2026-01-31", param_hint="--before") from None
