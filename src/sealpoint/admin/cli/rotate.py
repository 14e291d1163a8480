"""`sealpoint rotate`: every value under the active key, while agents run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.admin.cli.change import ACTIONS, Change, Words, require_fitting
from sealpoint.admin.cli.databases import one_database, open_ring, warn_of_leftovers
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import (
    AllowLegacyOption,
    AllowPlaintextOption,
    ApplyOption,
    BatchOption,
    CheckOption,
    DatabaseArgument,
    MaxLockOption,
    MaxSecondsOption,
    NoKeyCheckOption,
    RateOption,
    SuiteOption,
    VariableOption,
    WorkersOption,
)
from sealpoint.admin.cli.output import warn
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import BATCH, Batch
from sealpoint.admin.maintenance.job import Action
from sealpoint.admin.maintenance.result import Check, Options, Reason
from sealpoint.admin.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.admin.maintenance.scrub import forecast
from sealpoint.crypto import RingCipher

_NOTICED_SECONDS: Final = 1.0
_RESEAL: Final = "put {it} again sealed, or delete {threads}"
_ADVICE: Final = {
    Action.NEEDS_PLAINTEXT: "{values} {are} not sealed: --allow-plaintext seals {it}",
    Action.NEEDS_LEGACY: "{values} {are} under LANGGRAPH_AES_KEY: --allow-legacy reseals {it}",
    Action.PICKLE: f"{{pickles}} {{stay}}: read {{it}} with LangGraph and {_RESEAL}",
    Action.OTHER_TYPE: f"{{values}} of other types {{stay}}: read {{it}} as the writer did and {_RESEAL}",
    Action.UNRECOGNISED: "{values} {have} an unrecognised tag: `sealpoint status DB` shows {it}",
}


def rotate(
    run: Run,
    database: DatabaseArgument = None,
    apply: ApplyOption = False,
    allow_plaintext: AllowPlaintextOption = False,
    allow_legacy: AllowLegacyOption = False,
    verify: CheckOption = Check.ALL,
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Clear old contents out of a SQLite file, and search it for them.")
    ] = False,
    batch: BatchOption = BATCH.rows,
    rate: RateOption = None,
    max_lock_ms: MaxLockOption = MAX_LOCK_SECONDS * 1000,
    max_seconds: MaxSecondsOption = None,
    workers: WorkersOption = 1,
    no_key_check: NoKeyCheckOption = False,
    suite: SuiteOption = "cobblestone256",
    variable: VariableOption = None,
) -> Exit:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = one_database(run, database, variable)
    require_fitting(named, workers=workers, suite=suite)
    is_file = kind_of(named).is_file
    if scrub and not is_file:
        cause = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
        raise typer.BadParameter(cause, param_hint="--scrub")
    if is_file:
        warn_of_leftovers(Path(named))
    if scrub:
        _warn_of_scrub(Path(named))
    options = Options(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        batch=Batch(rows=batch),
        max_lock_seconds=max_lock_ms / 1000,
        rows_per_second=rate,
        max_seconds=max_seconds,
        workers=workers,
        check=verify,
        scrub=scrub,
        check_keys=not no_key_check,
    )
    run.asks(
        allow_plaintext=allow_plaintext,
        allow_legacy=allow_legacy,
        verify=verify.value,
        no_key_check=no_key_check,
    )
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    cipher = RingCipher(open_ring(run), suite, follow=False)
    key_id = cipher.ring.require_active().id
    words = Words(
        actions=ACTIONS,
        column=f"under {key_id}",
        changed="resealed",
        done="values are resealed",
        advice=_ADVICE,
        late=f"{{values}} written meanwhile {{are}} not under {key_id!r}: run again",
        left=Reason.VALUES_LEFT,
    )
    change = Change(run, named, cipher, options, words)
    return change.apply() if apply else change.show()


def _warn_of_scrub(path: Path) -> None:
    """Warn for how long a scrub will lock a database that is large, or that other processes have open."""
    expected = forecast(path)
    if not expected.processes and expected.lock_seconds < _NOTICED_SECONDS:
        return
    users = f", which {' and '.join(expected.processes)} have open" if expected.processes else ""
    warn(
        f"--scrub will write {expected.size_bytes:,} bytes and lock {path} for about"
        f" {max(1, round(expected.lock_seconds))} s or longer{users}",
        "writers wait that long, and fail if their timeout is shorter (in Python 5 s, if nothing else is"
        " said): rotate without --scrub, and scrub when the agents are stopped",
    )
