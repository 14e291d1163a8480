"""`sealpoint verify` and `heads`: open values, and compare checkpoints with a thread store.

Both list values that do not open; `verify` also lists checkpoints that are missing or were restored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    REASON,
    AllowPlaintextOption,
    AllowUnprovenOption,
    LimitsOption,
    OneDatabase,
    PinOption,
    ThreadsOption,
    find_ring,
    find_threads,
    open_ring,
    opened_threads,
    require_whole,
)
from sealpoint.admin.cli.output import (
    MAX_SHOWN,
    Document,
    ShownFailures,
    count,
    failure_line,
    failure_object,
    place_line,
    put,
    say,
    show_causes,
    show_verdict,
    watching,
)
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import (
    Adoption,
    Difference,
    Finding,
    HeadCheck,
    check_pin,
    make_pin,
    read_pin,
    write_pin,
)
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Event, Failure, Failures, failure_reasons
from sealpoint.admin.results.reasons import Reason
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import excerpt
from sealpoint.serde.limits import DEFAULT_LIMITS
from sealpoint.utc import as_utc, format_utc


def verify(
    run: Run,
    at: OneDatabase,
    allow_plaintext: AllowPlaintextOption = False,
    bound: Annotated[
        bool,
        typer.Option("--bound", help="Also exit with 3 if a value or a checkpoint is not bound to its row."),
    ] = False,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    no_threads: Annotated[
        bool, typer.Option("--no-threads", help="Ignore the thread store in the ring file.")
    ] = False,
    pin: PinOption = None,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Open every value, and list the values that do not open. No value is shown.

    Exits with 4 if a value does not open, or with 5 if only keys are missing. An unsealed value counts as a
    failure; with --allow-plaintext it is accepted, but the result is not proven, with exit code 3.
    With a thread store, also lists checkpoints that are missing or were restored from an older copy. With
    --pin, also detects that the thread store itself was restored together with the database.
    """
    if no_threads and (threads is not None or pin is not None):
        raise typer.BadParameter("--threads and --pin need the thread store", param_hint="--no-threads")
    run.asks(allow_plaintext=allow_plaintext, bound=bound, no_threads=no_threads)
    pinned = None if pin is None else read_pin(pin)
    with at.opened(run) as store, ExitStack() as stack:
        ring = open_ring(run)
        cipher, remembered = RingCipher(ring), None if no_threads else find_threads(threads, ring.path)
        known = comparison = None
        require_whole(run, remembered is not None, "a thread store covers all threads: add --no-threads")
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            known = stack.enter_context(opened_threads(remembered))
            comparison = HeadCheck(checkpoints, known)
        elif pinned is not None:
            raise typer.BadParameter(
                "a pin needs a thread store: name one with --threads, or in [threads] of the ring file",
                param_hint="--pin",
            )
        check = Verification(
            store,
            cipher,
            allow_plaintext=allow_plaintext,
            observer=comparison,
            require_bound=bound,
            limits=limits,
        )

        def events() -> Iterator[Event]:
            if known is not None and pinned is not None:
                run.result.add(*filter(None, [check_pin(known, pinned)]))
            yield from check.events()

        def end(failed: int) -> Document:
            run.result.add(*check.reasons(), *(comparison.reasons() if comparison else ()))
            return {
                **check.counts(of_range=run.shard is not None),
                "failed": failed,
                "heads": comparison and comparison.counts(),
                "pin": pinned and pinned._asdict(),
            }

        try:
            _report_all(run, events(), end, cipher)
        finally:
            if check.unbound.rows and not run.as_json:
                say("`sealpoint rebind DB` binds rows; with --unbind it undoes the binding")
    run.set_code(allow_unproven=allow_unproven)


def _report_all(
    run: Run, events: Iterable[Event], end: Callable[[int], Document], cipher: RingCipher
) -> None:
    """Run a verification, and print each failure at once: memory may be too small to collect all failures.

    As text, at most `MAX_SHOWN` failures are printed while no value opens. When the run ends or stops early,
    ``end`` is called with the number of refused values and rows: it adds reasons and returns JSON members.
    """
    refused, differing = Failures(cipher=cipher), Failures()  # differing: rows unlike the thread store
    separator = ""

    def take(failed: Failure) -> None:
        nonlocal separator
        (differing if isinstance(failed, Finding) else refused).add(failed)
        if run.as_json:
            run.print_object(separator + json.dumps(failure_object(failed)), end="")
            separator = ",\n"
        elif refused.count <= MAX_SHOWN or not refused.foreign:
            put(failure_line(failed))

    with watching("verify", take) as watch:
        if run.as_json:
            run.print_object(f'{json.dumps(run.head())[:-1]}, "failures": [')
        try:
            watch.take_all(events)
        finally:  # complete the JSON object on stdout, also if reading the database fails
            run.result.add(*failure_reasons(refused))
            run.finds({Reason.NO_ROWS: not watch.rows, Reason.ENDED_EARLY: not watch.is_complete})
            document = run.result.end(
                {"rows": watch.rows, **end(refused.count), "complete": watch.is_complete}
            )
            if run.as_json:
                run.print_object(f"\n], {json.dumps(document)[1:]}")
            else:
                _show(document)
                show_causes(refused)
                for hint in filter(None, differing.causes):
                    say(f"hint: {hint}")
            if not watch.is_complete:
                watch.say_how_far()


def _show(tail: Document) -> None:
    keys = [f"{part['values']} under {part['key']}" for part in tail["opened"]]
    if plain := tail["accepted"] - tail["legacy"]:
        keys.append(f"{plain} not sealed, and accepted")
    if tail["legacy"]:
        keys.append(f"{tail['legacy']} under LANGGRAPH_AES_KEY, and accepted")
    opened = sum(part["values"] for part in tail["opened"]) + tail["accepted"]
    so_far = "" if tail["complete"] else " read so far"
    put(f"{opened} of {tail['rows']} values{so_far} open{': ' if keys else ''}{', '.join(keys)}")
    count(tail["failed"], "refused values and rows: {}")
    for what, number, places in (
        ("values and checkpoints that are not bound to their rows", "unbound", "unbound_places"),
        ("checkpoints whose parent is missing", "orphans", "orphan_places"),
    ):
        count(tail[number], f"{what}: {{}}")
        for place in tail[places][:1]:
            put(f"the first is {place_line(place)}")
    if known := tail["heads"]:
        put(f"the thread store remembers {known['recorded']} checkpoints")
        count(known["not_recorded"], "checkpoints that the thread store does not have: {}")
        for kind, line in _LINES.items():
            count(known[kind], f"checkpoints {line}: {{}}")
    show_verdict(tail)


_LINES: Final = {
    Difference.MISSING: "missing",
    Difference.EARLIER: "in an earlier state",
    Difference.PUT_BACK: "deleted, and put back",
    Difference.OTHER_STORE: "stored while another thread store was in use",
    Difference.BEHIND: "stored while the thread store was in a later state",
    Difference.LEAVING: "whose deletion began but did not complete",
}


_TRIMMED: Final = ": if you ran `heads trim` since, replace the pin with --allow-unproven"

GROUP: Final = {
    "help": "Maintain the thread store, a log of checkpoints that must exist.",
    "epilog": "`sealpoint verify` compares a database with its thread store; see docs/threads.md. Without"
    " --threads or STORE, commands use the thread store of [threads] in the ring file.",
}

StoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE", help="A SQLite file or a postgresql:// URL. Default: [threads] in the ring file."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")]


def require_threads(run: Run, named: str | None) -> str:
    """Return the path or URL of the thread store; refuse the command line if no thread store is named."""
    store = None if named is None and find_ring(run) is None else find_threads(named, run.keys)
    if store is None:
        raise typer.BadParameter(
            "name the thread store, or add [threads] to the ring file", param_hint="STORE"
        )
    return store


def adopt(
    run: Run,
    at: OneDatabase,
    reason: Annotated[str, REASON] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Create the thread store if there is none.")
    ] = False,
    threads: ThreadsOption = None,
    yes: YesOption = False,
) -> None:
    """Record a database's checkpoints in the thread store as correct.

    For the first use of a thread store, or after a backup was restored on purpose.

    Checkpoints that the thread store remembers and the database lacks are recorded as deleted, after a
    confirmation prompt. Stop the agents before. If a checkpoint does not open, nothing is recorded.
    """
    run.asks(reason=reason)
    remembered, failures = require_threads(run, threads), ShownFailures(shown=not run.as_json)
    with at.opened(run) as store, ExitStack() as stack:
        watch = stack.enter_context(watching("heads adopt", failures.add))
        failures.cipher = cipher = RingCipher(open_ring(run))
        checkpoints = CheckpointRows(store, cipher)
        adoption = Adoption(checkpoints)
        watch.take_all(
            Verification(store, cipher, observer=adoption, columns=checkpoints.with_writes).events()
        )
        known = stack.enter_context(opened_threads(remembered, create=create))
        adoption.compare(known)
        body = {**adoption.counts(known), "identity": known.identity}
        if not failures.count:
            lost = len(adoption.deleted) - adoption.unfinished
            what = f"{lost} checkpoints that the database lacks are recorded as deleted"
            if lost and not yes:
                run.confirm(what)
            adoption.carry_out(known, reason)
    run.finds({Reason.UNBOUND: adoption.unbound})
    run.end({**body, "adopted": not failures.count, **failures.end(run.result)}, _show_adoption)


def _show_adoption(document: Document) -> None:
    if document["adopted"]:
        put(
            f"recorded {document['stored']} checkpoints as stored and {document['deleted']} as deleted;"
            f" {document['same']} had been recorded before"
        )
        for identity in document["other_stores"]:
            put(f"checkpoints that name the thread store {identity} are accepted")
    else:
        put("nothing was recorded")
    count(document["unbound"], "checkpoints not recorded because they are not bound to their rows: {}")


def seal(
    run: Run,
    name: StoreArgument = None,
    pin: Annotated[
        Path | None, typer.Option("--pin", metavar="FILE", help="Write the pin to this file.")
    ] = None,
    allow_unproven: AllowUnprovenOption = False,
) -> None:
    """Print a pin: one hash over all events of a thread store.

    Keep the pin where agents cannot write. An earlier pin in FILE is replaced only if the store continues its
    log. After `sealpoint heads trim` this cannot be proven: the command exits with 3 and keeps the earlier
    pin, unless --allow-unproven is given.
    """
    result, remembered = run.result, require_threads(run, name)
    # Not `exists`: a link to an unmounted volume does not mean that there is no earlier pin.
    before = read_pin(pin) if pin is not None and os.path.lexists(pin) else None
    with opened_threads(remembered) as store:
        why = None if before is None else check_pin(store, before)
        if why not in (None, Reason.PIN_EMPTY):  # a pin over no events can always be replaced
            result.add(why)
        made = make_pin(store)
    # An attacker who can write to the thread store can also claim there that events were trimmed.
    if pin is not None and (not result.reasons or (allow_unproven and Reason.PIN_TRIMMED in result.reasons)):
        write_pin(pin, made)
    elif pin is not None:
        say(f"{pin} was not replaced{_TRIMMED if result.ok is None else ''}")
    result.stated = {"pin": made._asdict()}
    run.end({"pin": made._asdict()}, _show_pin, allow_unproven=allow_unproven)


def _show_pin(document: Document) -> None:
    pin = document["pin"]
    put(f"thread store {pin['store']}: {pin['events']} events, the last has number {pin['until']}")
    put(f"root {pin['root']}")


def trim(
    run: Run,
    name: StoreArgument = None,
    before: Annotated[
        str,
        typer.Option(
            "--before", metavar="DATE", show_default=False, help="Date or time in UTC, as 2026-01-31."
        ),
    ] = "",
    yes: YesOption = False,
) -> None:
    """Remove records of checkpoints that were deleted before a date.

    After that, `verify` cannot detect that such a checkpoint was restored, and earlier pins can no longer be
    proven: make a new pin.
    """
    try:
        until = as_utc(datetime.fromisoformat(before))
    except (ValueError, OverflowError):
        raise typer.BadParameter("give a date, as 2026-01-31", param_hint="--before") from None
    with opened_threads(require_threads(run, name)) as store:
        if not yes:
            deleted = f"checkpoints that were deleted before {format_utc(until)}"
            what = f"Thread store {excerpt(store.identity)}: {deleted} can be put back unnoticed"
            what += ", and earlier pins are no longer proven"
            run.confirm(what)
        forgotten = store.trim(int(until.timestamp()))
        identity = store.identity
    say("earlier pins are no longer proven: replace them, `sealpoint heads seal --pin FILE --allow-unproven`")
    run.end(
        {"identity": identity, "before": format_utc(until), "forgotten": forgotten},
        lambda _: put(f"records of deleted checkpoints removed: {forgotten}"),
    )
