"""`sealpoint verify`: every value opened, and each one named that does not open."""

from __future__ import annotations

from contextlib import ExitStack

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.headview import show_hints
from sealpoint.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
)
from sealpoint.cli.output import progress_bar, say, say_how_far
from sealpoint.cli.stores import open_ring, opened
from sealpoint.cli.threads import ThreadsOption, find_threads, opened_threads
from sealpoint.crypto import RingCipher
from sealpoint.databases.failures import Failures
from sealpoint.databases.rows import Progress
from sealpoint.maintenance.headrows import CheckpointRows
from sealpoint.maintenance.heads import HeadCheck, is_finding
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.verification import Verification


def verify(
    database: DatabaseArgument = None,
    allow_plaintext: AllowPlaintextOption = False,
    allow_unproven: AllowUnprovenOption = False,
    threads: ThreadsOption = None,
    variable: VariableOption = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it; then the result is not proven, and the exit code 3.
    With a thread store, it also names what is missing, or was put back.
    """
    result = Result("verify", {"allow_plaintext": allow_plaintext})
    named = one_database(database, variable)
    rows, total, failures, findings, complete = 0, None, Failures(), Failures(), False
    with opened([named]) as (store,), progress_bar("verify") as move, ExitStack() as stack:
        ring = open_ring(keys, result)
        cipher, remembered = RingCipher(ring), find_threads(threads, ring.path)
        heads = None
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            heads = HeadCheck(checkpoints, stack.enter_context(opened_threads(remembered)))
        part = result.looks_at(store)
        report = render.JsonReport({**result.head(), **part}) if as_json else render.LineReport()
        run = Verification(store, cipher, allow_plaintext=allow_plaintext, heads=heads)
        try:
            for event in run.events():
                if isinstance(event, Progress):
                    rows, total = event.rows, event.total
                    move(rows, total)
                else:
                    (findings if is_finding(event) else failures).add(event)
                    report.add(event)
            complete = True
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            result.add(*render.failure_reasons(failures), *run.reasons())
            result.add(Reason.NO_ROWS, when=not rows)
            result.add(Reason.ENDED_EARLY, when=not complete)
            counts = {"rows": rows, **run.counts(), "failed": failures.count, "complete": complete}
            report.end(result.end(counts))
            if not as_json:
                render.show_causes(failures)
                show_hints(findings)
                if Reason.UNBOUND in run.reasons():
                    say("`sealpoint rebind DB` binds them; with --unbind it is the reverse")
            if not complete:
                say_how_far(rows, total)
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)
