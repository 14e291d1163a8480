"""`sealpoint verify` and `heads`: values opened, and checkpoints compared with a thread store.

Each value that does not open, and each checkpoint that is missing or was put back, is named.
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
        bool, typer.Option("--no-threads", help="Do not use the thread store of the ring file.")
    ] = False,
    pin: PinOption = None,
    limits: LimitsOption = DEFAULT_LIMITS,
) -> None:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it; then the result is not proven, and the exit code 3.
    With a thread store, it also names each checkpoint that is missing or was put back. With --pin, it finds a
    store that was put back together with the database too.
    """
    if no_threads and (threads is not None or pin is not None):
        raise typer.BadParameter("--threads and --pin need the thread store", param_hint="--no-threads")
    run.asks(allow_plaintext=allow_plaintext, bound=bound, no_threads=no_threads)
    pinned = None if pin is None else read_pin(pin)
    with at.opened(run) as store, ExitStack() as stack:
        ring = open_ring(run)
        cipher, remembered = RingCipher(ring), None if no_threads else find_threads(threads, ring.path)
        known = comparison = None
        require_whole(run, remembered is not None, "a thread store is of all threads: add --no-threads")
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            known = stack.enter_context(opened_threads(remembered))
            comparison = HeadCheck(checkpoints, known)
        elif pinned is not None:
            raise typer.BadParameter(
                "it needs a thread store: name it with --threads, or in [threads] of the ring file",
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
                say("`sealpoint rebind DB` binds them; with --unbind it is the reverse")
    run.set_code(allow_unproven=allow_unproven)


def _report_all(
    run: Run, events: Iterable[Event], end: Callable[[int], Document], cipher: RingCipher
) -> None:
    """Follow a run, and print each failure as it comes: there may be more than fit into memory.

    As text only the first, while no value opens. At the end, also if that is early, ``end`` takes the number
    of values and rows that are refused; it records reasons, and returns members of the object.
    """
    refused, differing = Failures(cipher=cipher), Failures()  # from what a thread store remembers
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
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
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
        ("checkpoints whose parent is not there", "orphans", "orphan_places"),
    ):
        count(tail[number], f"{what}: {{}}")
        for place in tail[places][:1]:
            put(f"the first is {place_line(place)}")
    if known := tail["heads"]:
        put(f"the thread store remembers {known['recorded']} checkpoints")
        count(known["not_recorded"], "checkpoints that it does not know: {}")
        for kind, line in _LINES.items():
            count(known[kind], f"checkpoints {line}: {{}}")
    show_verdict(tail)


_LINES: Final = {
    Difference.MISSING: "missing",
    Difference.EARLIER: "in an earlier state",
    Difference.PUT_BACK: "deleted, and put back",
    Difference.OTHER_STORE: "stored beside another thread store",
    Difference.BEHIND: "stored beside a later state of the thread store",
    Difference.LEAVING: "whose deletion began and did not end",
}


_TRIMMED: Final = ": after a `heads trim` that you know of, replace it with --allow-unproven"

GROUP: Final = {
    "help": "Maintain the thread store that a database is compared with.",
    "epilog": "A thread store remembers which checkpoints a database must have; docs/threads.md. Without"
    " --threads or STORE, it is that of [threads] in the ring file.",
}

StoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE", help="A SQLite file or a postgresql:// URL; else that of [threads] in the ring file."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def require_threads(run: Run, named: str | None) -> str:
    """Return the name of the thread store, or refuse the command line."""
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
    """Record what a database has as true.

    For the first use of a thread store, or after a backup was restored on purpose.

    Asks first if the store remembers checkpoints that are not there: they are recorded as deleted. End the
    agents before; nothing is recorded if a checkpoint does not open.
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
            what = f"{lost} checkpoints that the thread store remembers are recorded as deleted"
            if lost and not yes:
                run.confirm(what)
            adoption.carry_out(known, reason)
    run.finds({Reason.UNBOUND: adoption.unbound})
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
    count(document["unbound"], "checkpoints that are not bound to their rows, and were not recorded: {}")


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
    try:
        until = as_utc(datetime.fromisoformat(before))
    except (ValueError, OverflowError):
        raise typer.BadParameter("give a date, as 2026-01-31", param_hint="--before") from None
    with opened_threads(require_threads(run, name)) as store:
        if not yes:
            deleted = f"checkpoints that were deleted before {format_utc(until)}"
            what = f"Thread store {excerpt(store.identity)}: {deleted} can be put back unnoticed"
            what += ", and pins that were made before are no longer proven"
            run.confirm(what)
        forgotten = store.trim(int(until.timestamp()))
        identity = store.identity
    say("replace the pin: `sealpoint heads seal --pin FILE --allow-unproven`; it is not proven any more")
    run.end(
        {"identity": identity, "before": format_utc(until), "forgotten": forgotten},
        lambda _: put(f"deleted checkpoints that are forgotten: {forgotten}"),
    )
