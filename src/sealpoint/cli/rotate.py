"""`sealpoint rotate`: every value under the active key, while agents run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Final, Self

import typer

from sealpoint.cli import render
from sealpoint.cli.databases import one_database
from sealpoint.cli.exits import Exit, result_code
from sealpoint.cli.options import (
    AllowLegacyOption,
    AllowPlaintextOption,
    ApplyOption,
    BatchOption,
    CheckOption,
    DatabaseArgument,
    JsonOption,
    KeysOption,
    MaxLockOption,
    MaxSecondsOption,
    NoKeyCheckOption,
    RateOption,
    SuiteOption,
    VariableOption,
    WorkersOption,
)
from sealpoint.cli.outcome import outcome_object, outcome_reasons, plan_rows, show_outcome
from sealpoint.cli.output import complain, complain_of_damage, print_json, progress_bar, say, show_table, warn
from sealpoint.cli.signals import stopping
from sealpoint.cli.stores import open_ring, open_store, warn_of_leftovers
from sealpoint.cli.verdict import show_verdict
from sealpoint.crypto import RingCipher
from sealpoint.crypto.suites import SUITES
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import BATCH, Batch, Event
from sealpoint.errors import SealpointError
from sealpoint.keys.databasetable import is_url
from sealpoint.maintenance.job import Action, End, Job, Phase, make_plan, require_keys
from sealpoint.maintenance.options import Check, Options
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.rotate import MAX_LOCK_SECONDS
from sealpoint.maintenance.scrub import forecast

_NOTICED_SECONDS: Final = 1.0


def rotate(
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
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Reseal every value under the active key, while agents run. Shows the plan; --apply does it.

    Can be stopped at any point (Ctrl-C finishes the batch) and started again: it continues where it stopped.
    """
    named = one_database(database, variable, keys)
    require_fitting(named, workers=workers, suite=suite)
    if scrub and is_url(named):
        cause = "Postgres keeps old rows where only its own means reach: VACUUM FULL, WAL, replicas"
        raise typer.BadParameter(cause, param_hint="--scrub")
    if not is_url(named):
        warn_of_leftovers(Path(named))
        if scrub:
            warn_of_scrub(Path(named))
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
    # The plan names one key: another that is promoted during the run must not change what it seals with.
    result = Result(
        "rotate",
        {
            "allow_plaintext": allow_plaintext,
            "allow_legacy": allow_legacy,
            "verify": verify.value,
            "no_key_check": no_key_check,
        },
    )
    cipher = RingCipher(open_ring(keys, result), suite, follow=False)
    return (_apply if apply else _show)(named, cipher, options, result, as_json=as_json)


def warn_of_scrub(path: Path) -> None:
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


def require_fitting(database: str, *, workers: int, suite: str) -> None:
    """Refuse a suite that is not known, and several workers for a SQLite file.

    Raises:
        BadParameter: If one of them does not fit.
    """
    if suite not in SUITES:
        raise typer.BadParameter(f"known are {', '.join(sorted(SUITES))}", param_hint="--suite")
    if workers > 1 and not is_url(database):
        raise typer.BadParameter("SQLite lets one process write at a time", param_hint="--workers")


def _show(database: str, cipher: RingCipher, options: Options, result: Result, *, as_json: bool) -> Exit:
    key_id = cipher.ring.require_active().id
    with closing(open_store(database)) as store:
        require_keys(store, cipher.ring, options)
        damage: list[SealpointError] = []
        part, plan = result.looks_at(store), make_plan(store, cipher.ring, options, damage)
    result.add(Reason.NOT_APPLIED)
    result.add(Reason.DAMAGED, when=bool(damage))
    result.add(Reason.NO_ROWS, when=not plan)
    result.add(Reason.KEYS_MISSING, when=any(step.action is Action.NEEDS_KEY for step in plan))
    document = result.document({**part, "key": key_id, "applied": False, "plan": plan_rows(plan)})
    if as_json:
        print_json(document)
    else:
        rows = [list(row.values()) for row in document["plan"]]
        show_table(("table", "kind", "key", "rows", "bytes", f"under {key_id}"), rows)
        show_verdict(document)
        say("--apply carries it out")
    complain_of_damage(part["database"]["name"], damage)
    return result_code(result)


def _apply(database: str, cipher: RingCipher, options: Options, result: Result, *, as_json: bool) -> Exit:
    key_id = cipher.ring.require_active().id
    failures = render.ShownFailures(shown=not as_json)
    with closing(open_store(database, writable=True)) as store:
        part, plan = result.looks_at(store), make_plan(store, cipher.ring, options, damage=[])
        with stopping() as stop, Reporter(failures) as report:
            outcome = Job(store, cipher, options, stop=stop, report=report, url=database).run()
    if outcome.end is End.UNSCRUBBED and outcome.problem is not None:
        complain(str(outcome.problem), outcome.problem.hint)
    result.add(*render.failure_reasons(failures))
    result.add(*outcome_reasons(outcome, options, sum(step.share.rows for step in plan)))
    head = {**part, "key": key_id, "applied": True, "plan": plan_rows(plan)}
    document = result.document({**head, **outcome_object(outcome, failures)})
    if as_json:
        print_json(document)
    else:
        failures.show_causes()
        show_outcome(outcome, document, key_id, failed=bool(failures.count))
        show_verdict(document)
    return result_code(result)


class Reporter:
    """Shows a bar for each phase of a job but the scrub, and collects failures."""

    def __init__(self, failures: render.ShownFailures) -> None:
        self._failures = failures
        self._bar = ExitStack()
        self._move: Callable[[int, int], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def __call__(self, event: Phase | Event) -> None:
        """Take what a job reports."""
        if isinstance(event, Phase):
            self._bar.close()
            if event is not Phase.SCRUB:
                self._move = self._bar.enter_context(progress_bar(event.value))
        elif isinstance(event, Failure):
            self._failures.add(event)
        elif self._move is not None:
            self._move(event.rows, event.total)
