"""`sealpoint rotate` and `scrub`: every value under the active key, and old contents out of the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.change import (
    ACTIONS,
    Change,
    Words,
    require_fitting,
    scrub_reasons,
    scrubbed_object,
    search_result,
)
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
    one_database,
    open_ring,
    opened_database,
    warn_of_leftovers,
)
from sealpoint.admin.cli.output import put, say, show_table, warn
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import BATCH, Batch
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.job import Action
from sealpoint.admin.maintenance.result import Check, Options, Reason
from sealpoint.admin.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.admin.maintenance.scrub import Scrubbed, forecast
from sealpoint.admin.maintenance.scrub import scrub as scrub_file
from sealpoint.crypto import RingCipher

_NOTICED_SECONDS: Final = 1.0
_NO_SCRUB: Final = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
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
) -> None:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = one_database(run, database, variable)
    require_fitting(named, workers=workers, suite=suite)
    is_file = kind_of(named).is_file
    if scrub and not is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="--scrub")
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
    (change.apply if apply else change.show)()


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


def scrub(
    run: Run,
    database: Annotated[str, typer.Argument(metavar="DB", help="A SQLite file.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Scrub; without it, only show what that takes.")
    ] = False,
) -> None:
    """Clear old contents out of a SQLite file and its log.

    Then searches both for tags of retired keys. Without --apply it shows for how long the file will be
    locked and how much disk that takes. Only `rotate --scrub` also searches for old values, because it has
    read them.
    """
    if not kind_of(database).is_file:
        raise typer.BadParameter(_NO_SCRUB, param_hint="DB")
    result, path = run.result, Path(database)
    ring = open_ring(run)
    with opened_database(run, database, None) as store:
        rows = sum(count.rows for count in store.count())
    estimate, found = _estimate(path), None
    if apply:
        with holding(path):
            found = scrub_file(path, ring)
        result.add(*scrub_reasons(found))
        result.add(Reason.NO_ROWS, when=not rows)
    else:
        result.add(Reason.NOT_APPLIED)
    body = {"applied": apply, "estimate": estimate, "scrubbed": found and scrubbed_object(found)}
    run.end(body, lambda _: _show_scrub(estimate, found))
    if not (apply or run.as_json):
        say("--apply carries it out")


def _show_scrub(estimate: dict[str, Any], found: Scrubbed | None) -> None:
    columns = ("bytes to write", "free bytes on disk", "lock, about s", "used by")
    show_table(columns, [[", ".join(cell) if isinstance(cell, list) else cell for cell in estimate.values()]])
    if found is not None:
        put(search_result(found))


def _estimate(path: Path) -> dict[str, Any]:
    """Return what a scrub takes: SQLite writes the file twice, once beside it or in its log."""
    expected = forecast(path)
    return {
        "size_bytes": 2 * expected.size_bytes,
        "free_bytes": shutil.disk_usage(path.resolve().parent).free,
        "lock_seconds": max(1, round(expected.lock_seconds)),
        "processes": list(expected.processes),
    }
