"""`sealpoint heads`: a database compared with its thread store, and what changes the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.headview import show_heads
from sealpoint.cli.options import (
    AllowUnprovenOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
    require_text,
)
from sealpoint.cli.output import complain, print_json, progress_bar, put, require_command, say
from sealpoint.cli.stores import open_ring, opened
from sealpoint.cli.tally import Tally
from sealpoint.cli.threads import StoreArgument, ThreadsOption, opened_threads, require_threads
from sealpoint.cli.verdict import show_verdict
from sealpoint.crypto import RingCipher
from sealpoint.databases.rows import Progress
from sealpoint.errors import excerpt
from sealpoint.maintenance.adopt import Adoption
from sealpoint.maintenance.headrows import CheckpointRows
from sealpoint.maintenance.heads import HeadCheck
from sealpoint.maintenance.pins import check_pin, make_pin, read_pin, write_pin
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.verification import Verification
from sealpoint.utc import as_utc, format_utc

MAX_REASON_CHARS: Final = 1000
_TRIMMED: Final = ": after a `heads trim` that you know of, replace it with --allow-unproven"

EPILOG: Final = (
    "A thread store remembers which checkpoints a database must have; docs/threads.md. Without --threads or"
    " STORE, it is that of [threads] in the ring file."
)

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, epilog=EPILOG)

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.callback()
def heads(context: typer.Context) -> None:
    """Compare a database with its thread store, and maintain the store."""
    require_command(context)


@app.command()
def verify(
    database: DatabaseArgument = None,
    threads: ThreadsOption = None,
    pin: Annotated[
        Path | None,
        typer.Option(
            "--pin",
            metavar="FILE",
            show_default=False,
            help="An earlier pin, which the store must continue.",
        ),
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
    variable: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Name each checkpoint that is missing or was put back.

    Every checkpoint is compared with the thread store. Exits with 4 if one differs. With --pin, it also finds
    a store that was put back together with the database. `sealpoint verify DB` does the same without the pin,
    and opens all other values too.
    """
    result = Result("heads verify")
    named, remembered = one_database(database, variable, keys), require_threads(threads, keys)
    pinned = None if pin is None else read_pin(pin)
    tally = Tally()
    with opened([named]) as (store,), ExitStack() as stack, progress_bar("heads verify") as move:
        cipher = RingCipher(open_ring(keys, result))
        checkpoints = CheckpointRows(store, cipher)
        known = stack.enter_context(opened_threads(remembered))
        check, part = HeadCheck(checkpoints, known), result.looks_at(store)
        run = Verification(store, cipher, observer=check, columns=checkpoints.with_writes)
        report = render.JsonReport({**result.head(), **part}) if as_json else HeadLines()
        try:
            if pinned is not None:
                result.add(*filter(None, [check_pin(known, pinned)]))
            tally.take(run.events(), report, move)
        finally:  # what was begun on stdout is one object, also if the store is not available further on
            result.add(*tally.reasons(), *check.reasons())
            result.add(Reason.UNBOUND, when=run.unbound.rows > 0)
            counts = {"rows": tally.rows, "failed": tally.failures.count, "heads": check.counts()}
            pin_object = pinned and pinned._asdict()
            report.end(result.end({**counts, "pin": pin_object, "complete": tally.complete}))
            tally.show(causes=not as_json)
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)


class HeadLines(render.LineReport):
    """A line a failure or a finding."""

    def end(self, tail: Mapping[str, Any]) -> None:
        """Print what was counted."""
        if tail["failed"]:
            put(f"checkpoints that do not open: {tail['failed']}")
        show_heads(tail["heads"])
        show_verdict(tail)


@app.command()
def adopt(
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
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Record what a database has as true.

    For the first use of a thread store, or after a backup was restored on purpose.

    Asks first if the store remembers checkpoints that are not there: they are recorded as deleted. End the
    agents before; nothing is recorded if a checkpoint does not open.
    """
    require_text(reason, "--reason")
    if not reason.strip() or len(reason) > MAX_REASON_CHARS:
        raise typer.BadParameter(f"give 1 to {MAX_REASON_CHARS} characters", param_hint="--reason")
    result, failures = Result("heads adopt", {"reason": reason}), render.ShownFailures(shown=not as_json)
    named, remembered = one_database(database, variable, keys), require_threads(threads, keys)
    with opened([named]) as (store,), ExitStack() as stack, progress_bar("heads adopt") as move:
        cipher = RingCipher(open_ring(keys, result))
        checkpoints, part = CheckpointRows(store, cipher), result.looks_at(store)
        adoption = Adoption(checkpoints)
        run = Verification(store, cipher, observer=adoption, columns=checkpoints.with_writes)
        for event in run.events():
            if isinstance(event, Progress):
                move(event.rows, event.total)
            else:
                failures.add(event)
        known = stack.enter_context(opened_threads(remembered, create=create))
        adoption.compare(known)
        body = {**part, **adoption.counts(known), "identity": known.identity}
        if not failures.count:
            lost = len(adoption.deleted) - adoption.unfinished
            what = f"{lost} checkpoints that the thread store remembers are recorded as deleted"
            if lost and not yes and (code := _ask(what)):
                return code
            adoption.carry_out(known, reason)
    failures.show_causes()
    result.add(*render.failure_reasons(failures))
    result.add(Reason.UNBOUND, when=adoption.unbound > 0)
    body |= {"adopted": not failures.count, "failed": failures.count, "failures": failures.objects()}
    return _end(result, body, _show_adoption, as_json=as_json)


def _end(
    result: Result, body: Mapping[str, Any], show: Callable[[Mapping[str, Any]], None], *, as_json: bool
) -> Exit:
    """Print a result, and return the code that it ends in."""
    document = result.document(body)
    if as_json:
        print_json(document)
    else:
        show(document)
        show_verdict(document)
    return result_code(result)


def _show_adoption(document: Mapping[str, Any]) -> None:
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
    name: StoreArgument = None,
    pin: Annotated[
        Path | None,
        typer.Option("--pin", metavar="FILE", show_default=False, help="Write the pin to this file."),
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Print a pin: one hash over all events of a thread store.

    Keep it where the agents cannot write. A pin that is in FILE is replaced only if the store continues it.
    After `sealpoint heads trim` that is not shown: exits with 3, and keeps the pin without --allow-unproven.
    """
    result = Result("heads seal")
    remembered = require_threads(name, keys)
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
    _end(result, {"pin": made._asdict()}, _show_pin, as_json=as_json)
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)


def _show_pin(document: Mapping[str, Any]) -> None:
    pin = document["pin"]
    put(f"thread store {pin['store']}: {pin['events']} events, the last has number {pin['until']}")
    put(f"root {pin['root']}")


@app.command()
def trim(
    name: StoreArgument = None,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="DATE", show_default=False, help="As 2026-01-31, or with a time; UTC."
        ),
    ] = "",
    yes: YesOption = False,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Forget checkpoints that were deleted before a date.

    Then nothing shows any more that one of them was put back, and pins that were made before are no longer
    proven: make a new one.
    """
    result, until = Result("heads trim"), _read_time(before)
    with opened_threads(require_threads(name, keys)) as store:
        if not yes:
            deleted = f"checkpoints that were deleted before {format_utc(until)}"
            what = f"Thread store {excerpt(store.identity)}: {deleted} can be put back unnoticed"
            code = _ask(f"{what}, and pins that were made before are no longer proven")
            if code:
                return code
        forgotten = store.trim(int(until.timestamp()))
        identity = store.identity
    say("replace the pin: `sealpoint heads seal --pin FILE --allow-unproven`; it is not proven any more")
    body = {"identity": identity, "before": format_utc(until), "forgotten": forgotten}
    return _end(result, body, _show_trim, as_json=as_json)


def _show_trim(document: Mapping[str, Any]) -> None:
    put(f"deleted checkpoints that are forgotten: {document['forgotten']}")


def _read_time(text: str) -> datetime:
    try:
        return as_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise typer.BadParameter("give a date, as 2026-01-31", param_hint="--before") from None


def _ask(what: str) -> Exit | None:
    """Ask before something is given up; return how the command ends, unless it is agreed to."""
    if not sys.stdin.isatty():
        complain(
            f"{what}: there is no terminal to ask for confirmation", "use --yes to do it without being asked"
        )
        return Exit.USAGE
    say(f"{what}. To confirm, type yes:")
    if sys.stdin.readline().strip() == "yes":
        return None
    say("Nothing was done.")
    return Exit.STOPPED
