"""`sealpoint verify`: every value opened, and each one named that does not open."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowPlaintextOption,
    AllowUnprovenOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    VariableOption,
)
from sealpoint.cli.output import progress_bar, say
from sealpoint.cli.stores import open_ring, opened
from sealpoint.cli.tally import Tally
from sealpoint.cli.threads import ThreadsOption, find_threads, opened_threads
from sealpoint.crypto import RingCipher
from sealpoint.maintenance.headrows import CheckpointRows
from sealpoint.maintenance.heads import HeadCheck
from sealpoint.maintenance.result import Result
from sealpoint.maintenance.verification import Verification


def verify(
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
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Open every value, and name each one that does not open. Nothing is shown of what is in them.

    Exits with 4 if there is one, or with 5 if only keys are missing. A value that is not sealed counts as
    one, unless --allow-plaintext accepts it; then the result is not proven, and the exit code 3.
    With a thread store, it also names what is missing, or was put back.
    """
    if threads is not None and no_threads:
        raise typer.BadParameter("--threads names a store", param_hint="--no-threads")
    result = Result("verify", {"allow_plaintext": allow_plaintext, "bound": bound, "no_threads": no_threads})
    named = one_database(database, variable, keys)
    tally = Tally()
    with opened([named]) as (store,), progress_bar("verify") as move, ExitStack() as stack:
        ring = open_ring(keys, result)
        cipher, remembered = RingCipher(ring), None if no_threads else find_threads(threads, ring.path)
        heads = None
        if remembered is not None:
            checkpoints = CheckpointRows(store, cipher, allow_plaintext=allow_plaintext)
            heads = HeadCheck(checkpoints, stack.enter_context(opened_threads(remembered)))
        part = result.looks_at(store)
        report = render.JsonReport({**result.head(), **part}) if as_json else render.LineReport()
        run = Verification(
            store, cipher, allow_plaintext=allow_plaintext, observer=heads, require_bound=bound
        )
        try:
            tally.take(run.events(), report, move)
        finally:  # what was begun on stdout is one object, also if the file is damaged further on
            result.add(*tally.reasons(), *run.reasons(), *(heads.reasons() if heads else ()))
            counts = {"rows": tally.rows, **run.counts(), "failed": tally.failures.count}
            counts["heads"] = heads and heads.counts()
            report.end(result.end({**counts, "complete": tally.complete}))
            tally.show(causes=not as_json)
            if run.unbound.rows and not as_json:
                say("`sealpoint rebind DB` binds them; with --unbind it is the reverse")
    return result_code(result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)
