"""`sealpoint verify`: every value opened, and each one named that does not open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabaseArgument,
    ThreadsOption,
    VariableOption,
    find_threads,
    open_ring,
    opened_database,
    opened_threads,
)
from sealpoint.admin.cli.output import (
    Document,
    failure_line,
    failure_object,
    failure_reasons,
    place_line,
    put,
    say,
    show_causes,
    show_verdict,
    watching,
)
from sealpoint.admin.databases.rows import Event, Failure, Failures
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import Difference, HeadCheck, is_finding
from sealpoint.admin.maintenance.result import Reason
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.crypto import RingCipher


def verify(
    run: Run,
    database: DatabaseArgument = None,
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
    variable: VariableOption = None,
) -> None:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it; then the result is not proven, and the exit code 3.
    With a thread store, it also names what is missing, or was put back.
    """
    if threads is not None and no_threads:
        raise typer.BadParameter("--threads names a store", param_hint="--no-threads")
    run.asks(allow_plaintext=allow_plaintext, bound=bound, no_threads=no_threads)
    with opened_database(run, database, variable) as store, ExitStack() as stack:
        ring = open_ring(run)
        cipher, remembered = RingCipher(ring), None if no_threads else find_threads(threads, ring.path)
        heads = None
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            heads = HeadCheck(checkpoints, stack.enter_context(opened_threads(remembered)))
        check = Verification(
            store, cipher, allow_plaintext=allow_plaintext, observer=heads, require_bound=bound
        )

        def end(failed: int) -> Document:
            run.result.add(*check.reasons(), *(heads.reasons() if heads else ()))
            return {**check.counts(), "failed": failed, "heads": heads and heads.counts()}

        try:
            report_all(run, "verify", check.events(), end, _show)
        finally:
            if check.unbound.rows and not run.as_json:
                say("`sealpoint rebind DB` binds them; with --unbind it is the reverse")
    run.set_code(allow_unproven=allow_unproven)


def report_all(
    run: Run,
    title: str,
    events: Iterable[Event],
    end: Callable[[int], Document],
    show: Callable[[Document], None],
) -> None:
    """Follow a run, and print each failure as it comes: there may be more than fit into memory.

    At the end, also if that is early, ``end`` takes the number of values and rows that are refused; it
    records reasons, and returns members of the object. ``show`` prints the object as text.
    """
    refused, differing = Failures(), Failures()  # from what a thread store remembers
    separator = ""

    def take(failed: Failure) -> None:
        nonlocal separator
        (differing if is_finding(failed) else refused).add(failed)
        if run.as_json:
            run.print_object(separator + json.dumps(failure_object(failed)), end="")
            separator = ",\n"
        else:
            put(failure_line(failed))

    with watching(title, take) as watch:
        if run.as_json:
            run.print_object(f'{json.dumps(run.head())[:-1]}, "failures": [')
        try:
            watch.take_all(events)
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            run.result.add(*failure_reasons(refused))
            run.result.add(Reason.NO_ROWS, when=not watch.rows)
            run.result.add(Reason.ENDED_EARLY, when=not watch.is_complete)
            document = run.result.end(
                {"rows": watch.rows, **end(refused.count), "complete": watch.is_complete}
            )
            if run.as_json:
                run.print_object(f"\n], {json.dumps(document)[1:]}")
            else:
                show(document)
                show_causes(refused)
                for hint in filter(None, differing.causes):
                    say(f"hint: {hint}")
            if not watch.is_complete:
                watch.say_how_far()


def _show(tail: Document) -> None:
    """Print how many values open, and under which keys."""
    keys = [f"{part['values']} under {part['key']}" for part in tail["opened"]]
    if plain := tail["accepted"] - tail["legacy"]:
        keys.append(f"{plain} not sealed, and accepted")
    if tail["legacy"]:
        keys.append(f"{tail['legacy']} under LANGGRAPH_AES_KEY, and accepted")
    opened = sum(part["values"] for part in tail["opened"]) + tail["accepted"]
    so_far = "" if tail["complete"] else " read so far"
    put(f"{opened} of {tail['rows']} values{so_far} open{': ' if keys else ''}{', '.join(keys)}")
    if tail["failed"]:
        put(f"refused values and rows: {tail['failed']}")
    for what, number, places in (
        ("values and checkpoints that are not bound to their rows", "unbound", "unbound_places"),
        ("checkpoints whose parent is not there", "orphans", "orphan_places"),
    ):
        if tail[number]:
            put(f"{what}: {tail[number]}")
            for place in tail[places][:1]:
                put(f"the first is {place_line(place)}")
    if tail["heads"]:
        show_heads(tail["heads"])
    show_verdict(tail)


_LINES: Final = {
    Difference.MISSING: "missing",
    Difference.EARLIER: "in an earlier state",
    Difference.PUT_BACK: "deleted, and put back",
    Difference.OTHER_STORE: "stored beside another thread store",
    Difference.BEHIND: "stored beside a later state of the thread store",
    Difference.LEAVING: "whose deletion began and did not end",
}


def show_heads(heads: Document) -> None:
    """Print the member ``heads`` of an object."""
    put(f"the thread store remembers {heads['recorded']} checkpoints")
    if heads["not_recorded"]:
        put(f"checkpoints that it does not know: {heads['not_recorded']}")
    for kind, line in _LINES.items():
        if heads[kind]:
            put(f"checkpoints {line}: {heads[kind]}")
