"""`sealpoint verify`: every value opened, and each one named that does not open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from sealpoint.admin.cli import render
from sealpoint.admin.cli.databases import (
    ThreadsOption,
    find_threads,
    one_database,
    open_ring,
    opened,
    opened_threads,
)
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabaseArgument,
    VariableOption,
)
from sealpoint.admin.cli.output import progress_bar, say
from sealpoint.admin.cli.render import Tally
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import HeadCheck
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
) -> Exit:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it; then the result is not proven, and the exit code 3.
    With a thread store, it also names what is missing, or was put back.
    """
    if threads is not None and no_threads:
        raise typer.BadParameter("--threads names a store", param_hint="--no-threads")
    run.asks(allow_plaintext=allow_plaintext, bound=bound, no_threads=no_threads)
    named, result, tally = one_database(run, database, variable), run.result, Tally()
    with opened([named]) as (store,), progress_bar("verify") as move, ExitStack() as stack:
        ring = open_ring(run)
        cipher, remembered = RingCipher(ring), None if no_threads else find_threads(threads, ring.path)
        heads = None
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            heads = HeadCheck(checkpoints, stack.enter_context(opened_threads(remembered)))
        part = result.looks_at(store)
        report = render.JsonReport(run, {**result.head(), **part}) if run.as_json else render.LineReport()
        check = Verification(
            store, cipher, allow_plaintext=allow_plaintext, observer=heads, require_bound=bound
        )
        try:
            tally.take(check.events(), report, move)
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            result.add(*tally.reasons(), *check.reasons(), *(heads.reasons() if heads else ()))
            counts = {"rows": tally.rows, **check.counts(), "failed": tally.failures.count}
            counts["heads"] = heads and heads.counts()
            report.end(result.end({**counts, "complete": tally.complete}))
            tally.show(causes=not run.as_json)
            if check.unbound.rows and not run.as_json:
                say("`sealpoint rebind DB` binds them; with --unbind it is the reverse")
    return run.code(allow_unproven=allow_unproven)
