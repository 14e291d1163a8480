"""Options, plans and outcomes of `rotate` and `rebind`, and how they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from sealpoint.admin.cli.frame import Run, stopping
from sealpoint.admin.cli.options import (
    AllowPlaintextOption,
    OneDatabase,
    limits_option,
    number_option,
    open_store,
    warn_of_json,
    warn_of_leftovers,
)
from sealpoint.admin.cli.output import (
    Document,
    ShownFailures,
    Watch,
    complain,
    complain_of_damage,
    put,
    say,
    show_table,
    values_line,
    warn,
    watching,
)
from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance.job import Action, End, Job, Outcome, Phase, Report, Step
from sealpoint.admin.results.events import Event
from sealpoint.admin.results.jobs import BATCH, MAX_LOCK_SECONDS, Batch, Check, Options
from sealpoint.admin.results.reasons import Reason
from sealpoint.admin.results.tags import Kind
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import SealpointError, excerpt
from sealpoint.seal.suites import SUITES
from sealpoint.serde.limits import OWN_LIMITS, Limits

if TYPE_CHECKING:
    from sealpoint.admin.maintenance.scrub import Scrubbed

MAX_PLACES: Final = 5

ACTIONS: Final = {
    Action.NONE: "done",
    Action.ROTATE: "to reseal",
    Action.SEAL: "to seal",
    Action.NEEDS_PLAINTEXT: "skipped: not sealed, add --allow-plaintext",
    Action.NEEDS_LEGACY: "skipped: under LANGGRAPH_AES_KEY, add --allow-legacy",
    Action.NEEDS_REBIND: "skipped: not sealed, `sealpoint rebind` seals it",
    Action.NOT_ASKED: "left as it is",
    Action.NEEDS_KEY: "skipped: the ring has no usable key for it",
    Action.PICKLE: "skipped: a pickle is never sealed unopened",
    Action.OTHER_TYPE: "skipped: its type is not sealed unopened",
    Action.UNRECOGNISED: "skipped: unrecognised tag",
}


Made = TypeVar("Made", bound=Options)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options that `rotate` and `rebind` share."""

    allow_plaintext: AllowPlaintextOption = False
    allow_legacy: Annotated[
        bool, typer.Option("--allow-legacy", help="Also reseal values that LANGGRAPH_AES_KEY encrypts.")
    ] = False
    verify: Annotated[Check, typer.Option("--verify", help="Resealed values to open again at the end.")] = (
        Check.ALL
    )
    scrub: Annotated[
        bool, typer.Option("--scrub", help="Erase old values from a SQLite file, then search for them.")
    ] = False
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=100_000, metavar="ROWS", help="Maximum rows per transaction."),
    ] = BATCH.rows
    rate: Annotated[float | None, number_option("--rate", "ROWS", 0.001, "Maximum rows per second.")] = None
    max_replica_lag: Annotated[
        int | None,
        typer.Option(
            "--max-replica-lag",
            min=1,
            metavar="BYTES",
            help="Postgres: wait while a replica is behind by more WAL than this.",
        ),
    ] = None
    max_lock_ms: Annotated[
        float,
        number_option(
            "--max-lock-ms", "MS", 1, "Make batches smaller if one locks rows for longer.", 3_600_000
        ),
    ] = MAX_LOCK_SECONDS * 1000
    max_seconds: Annotated[float | None, number_option("--max-seconds", "S", 0, "Stop after this time.")] = (
        None
    )
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes to use (Postgres).")] = 1
    limits: Annotated[Limits, limits_option(OWN_LIMITS)] = OWN_LIMITS
    no_key_check: Annotated[
        bool,
        typer.Option("--no-key-check", help="Skip the first test whether each key opens some of its rows."),
    ] = False
    suite: Annotated[str, typer.Option("--suite", help=f"Encryption suite: {' or '.join(SUITES)}.")] = (
        "cobblestone256"
    )

    def for_job(self, run: Run, kind: type[Made], **more: Any) -> Made:
        """Return the options for a job; ``more`` are options that only `rotate` or only `rebind` has."""
        return kind(
            allow_plaintext=self.allow_plaintext,
            allow_legacy=self.allow_legacy,
            batch=Batch(rows=self.batch),
            max_lock_seconds=self.max_lock_ms / 1000,
            rows_per_second=self.rate,
            max_seconds=self.max_seconds,
            max_lag_bytes=self.max_replica_lag,
            workers=self.workers,
            check=self.verify,
            scrub=self.scrub,
            check_keys=not self.no_key_check,
            shard=run.shard,
            limits=self.limits,
            **more,
        )

    def weaker(self) -> dict[str, Any]:
        """Return the options that can weaken the run's answer, for `Run.asks`."""
        names = ("allow_plaintext", "allow_legacy", "verify", "no_key_check")
        return {name: getattr(self, name) for name in names}


def require_database(run: Run, at: OneDatabase, job: JobOptions) -> str:
    """Return the path or URL of the database of a job.

    Refuses an unknown suite, several workers for a SQLite file, and ``--scrub`` for Postgres.
    """
    database = at.find(run)
    is_file = kind_of(database).is_file
    if job.suite not in SUITES:
        raise typer.BadParameter(f"the suites are {', '.join(sorted(SUITES))}", param_hint="--suite")
    if job.workers > 1 and is_file:
        raise typer.BadParameter("SQLite allows one writer at a time", param_hint="--workers")
    if is_file:
        warn_of_leftovers(Path(database))
    if job.scrub and not is_file:
        raise typer.BadParameter(NO_SCRUB, param_hint="--scrub")
    if job.scrub:
        _warn_of_scrub(Path(database))
    return database


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job over one database, or its plan, with the texts that the command prints about it."""

    run: Run
    database: str
    cipher: RingCipher
    options: Options
    job: Callable[..., Job] = Job
    thread: str | None = None  # if set, only rows of this thread are changed
    actions: Mapping[Action, str]
    column: str  # heading of the column of actions in the plan
    changed: str  # JSON member with the number of changed values
    done: str  # text to print if all values are changed
    advice: Mapping[Action, str]  # text to print about values that were skipped
    late: str  # text to print about values that were written during the run
    left: Reason
    first: Sequence[str] = ()  # steps to take before the job: for savers, and for items

    @contextmanager
    def _opened(self, *, writable: bool) -> Iterator[tuple[RowStore, Job]]:
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self.database, self.run, writable=writable)))
            job = self.job(store, self.cipher, self.options, self.database, writable=writable)
            yield store, stack.enter_context(closing(job))

    def _plan(self, job: Job, damage: list[SealpointError]) -> list[Step]:
        plan = job.plan(damage)
        if self.thread is not None and not plan and not damage:
            raise typer.BadParameter(
                f"no rows of thread {excerpt(self.thread)}; `sealpoint inspect DB` lists the ids",
                param_hint="--thread",
            )
        warn_of_json(share for share, action in plan if action is Action.SEAL)
        return plan

    def show(self) -> None:
        """Print what the job would change; change nothing."""
        damage = list[SealpointError]()
        with watching(self.run.command), self._opened(writable=False) as (store, job):
            job.require_fitting()
            self.run.looks_at(store)
            plan = self._plan(job, damage)
        self.run.finds(
            {
                Reason.NOT_APPLIED: True,
                Reason.DAMAGED: damage,
                Reason.NO_ROWS: not plan,
                Reason.KEYS_MISSING: any(step.action is Action.NEEDS_KEY for step in plan),
            }
        )
        columns = ("table", "kind", "key", "rows", "bytes", self.column)
        self.run.end(
            self._plan_members(plan, applied=False),
            lambda document: show_table(columns, (step.values() for step in document["plan"])),
        )
        if not self.run.as_json:
            changed = (step.share for step in plan if step.action in (Action.ROTATE, Action.SEAL))
            for is_item in sorted({share.table == ITEMS.label for share in changed}) if self.first else ():
                say(self.first[is_item])
            self._say_what_stays(plan)
            say("--apply carries it out")
        complain_of_damage(store.name, damage)

    def _plan_members(self, plan: list[Step], *, applied: bool) -> dict[str, Any]:
        return {
            "key": self.cipher.ring.require_active().id,
            "applied": applied,
            "plan": [
                {
                    "table": share.table,
                    # On Postgres a row may have no value: its kind is unknown, and its metadata is readable.
                    "kind": Kind.PLAINTEXT if (share.kind, action) == _NO_VALUE else share.kind,
                    "key": share.key_id,
                    "rows": share.rows,
                    "bytes": share.size_bytes,
                    "action": self.actions[action],
                }
                for share, action in plan
            ],
        }

    def apply(self) -> None:
        """Run the job, and print its outcome."""
        failures = ShownFailures(shown=not self.run.as_json)
        with self._opened(writable=True) as (store, job):
            self.run.looks_at(store)
            with watching(self.run.command):
                plan = self._plan(job, [])
            with stopping(self.run) as stop, _reporting(self.run.command, failures) as report:
                outcome = job.run(stop, report)
        if outcome.end is End.UNSCRUBBED and outcome.problem is not None:
            complain(str(outcome.problem), outcome.problem.hint)
        is_changed, scrubbed = outcome.end in (End.COMPLETE, End.UNSCRUBBED), outcome.scrubbed
        self.run.finds(
            {
                Reason.NO_ROWS: not any(step.share.rows for step in plan),
                Reason.ENDED_EARLY: outcome.end is not End.COMPLETE,
                self.left: outcome.left,
                Reason.PLAINTEXT_ALLOWED: outcome.plaintext,
                Reason.LEGACY_ALLOWED: outcome.legacy,
                Reason.KEY_CHECK_WAIVED: not self.options.check_keys,
                Reason.NOT_VERIFIED: is_changed and self.options.check is Check.NONE,
                Reason.SAMPLED: is_changed and self.options.check is Check.SAMPLE,
                **(scrub_reasons(scrubbed) if scrubbed else {}),
            }
        )
        members = {
            **self._plan_members(plan, applied=True),
            self.changed: outcome.changed,
            **{name: getattr(outcome, name) for name in ("raced", "plaintext", "legacy", "left")},
            **failures.end(self.run.result),
            "stopped": outcome.end is not End.COMPLETE,
            "verified": outcome.verified,
            "scrubbed": scrubbed and scrubbed._asdict(),
            "seconds": round(outcome.seconds, 3),
            "longest_lock_ms": round(outcome.longest_lock_seconds * 1000, 1),
        }
        self.run.end(members, lambda document: self._show_outcome(outcome, failures, document))
        if not self.run.as_json:
            self._say_what_stays(plan)

    def _say_what_stays(self, plan: list[Step]) -> None:
        """Print how many values are already under the active key, and so keep their present compression."""
        wanted = self.options.compress
        done = [step.share for step in plan if step.action is Action.NONE]
        stay = sum(share.rows for share in done if ("zst" in share.flags) is not wanted)
        if wanted is not None and stay:
            key_id = self.cipher.ring.require_active().id
            say(_sentence(f"{{values}} {{stay}} as before: already sealed under {key_id}", stay))

    def _show_outcome(self, outcome: Outcome, failures: ShownFailures, document: Document) -> None:
        changed = self.changed
        columns = (changed, "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
        names = (*columns[:-1], "longest_lock_ms")
        show_table(columns, [[document[name] for name in names]])
        if outcome.end is End.LOCKED and outcome.problem is not None:
            say(f"stopped early: {outcome.problem}; {outcome.problem.hint}")
        elif outcome.end is not End.COMPLETE:
            say(_ENDS[outcome.end].format(done=self.done))
        else:
            late = 0 if failures.count else max(0, outcome.left - outcome.count(*self.advice))
            left = [(line, outcome.count(action)) for action, line in self.advice.items()]
            for line, number in (*left, (self.late, late)):
                if number:
                    say(_sentence(line, number))
        if outcome.scrubbed:
            put(search_result(outcome.scrubbed))
            if outcome.scrubbed.found and outcome.pending:
                say("a process still writes rows unsealed or under an old key: end the process and run again")


_NO_VALUE: Final = (Kind.UNKNOWN, Action.ROTATE)
_ENDS: Final = {
    End.STOPPED: "stopped early: run the same command again; it continues where it stopped",
    End.UNVERIFIED: "stopped before the final check: the {done}; check them with `sealpoint verify DB`",
    End.UNSCRUBBED: (
        "the {done}, but old bytes may still be in the file. Run the same command again when no process"
        " reads the file: it then searches for old tags, but not for old values"
    ),
}


def _sentence(line: str, number: int) -> str:
    ones = {"are": "is", "have": "has", "stay": "stays", "it": "it", "threads": "that thread"}
    many = {"are": "are", "have": "have", "stay": "stay", "it": "them", "threads": "those threads"}
    pickles = f"{number:,} pickle" + ("" if number == 1 else "s")
    words = ones if number == 1 else many
    return line.format(values=values_line(number), pickles=pickles, **words)


def scrub_reasons(scrubbed: Scrubbed) -> dict[Reason, object]:
    """Return reasons why old values may still be in a scrubbed file; true values mark those that apply."""
    return {
        Reason.OLD_CONTENT_FOUND: scrubbed.found,
        Reason.OLD_TEXT_READABLE: scrubbed.readable,
        Reason.OLD_VALUES_NOT_SEARCHED: not scrubbed.fragments,
    }


def _listed(names: Iterable[str]) -> str:
    shown = [*names]
    more = len(shown) - MAX_PLACES
    return ", ".join(shown[:MAX_PLACES]) + (f" and {more} more places" if more > 0 else "")


def search_result(scrubbed: Scrubbed) -> str:
    """Return the findings of the search for old values after a scrub, as text."""
    places = [*map(excerpt, scrubbed.columns), *(f"{file} at byte {place}" for file, place in scrubbed.found)]
    found = f"found: {_listed(places)}" if places else "found nothing"
    looked_for = f"for a sample of {scrubbed.fragments} fragments of old values and for old tags"
    if not scrubbed.fragments:  # a job that changes nothing has no old values
        why = "the old values are readable" if scrubbed.unsearched else "this run has changed no values"
        looked_for = f"only for old tags, because {why}"
    if scrubbed.readable:
        found += f"; text of old values is also readable in {_listed(map(excerpt, scrubbed.readable))}"
    if scrubbed.unsearched:
        found += f"; {scrubbed.unsearched} sampled values are readable there in full, so not searched for"
    return f"searched {scrubbed.searched_bytes} bytes {looked_for}: {found}"


@contextmanager
def _reporting(command: str, failures: ShownFailures) -> Iterator[Report]:
    """Show a progress bar for each phase of a job, and collect failures."""
    watch = Watch(lambda *_: None, failures.add)
    with ExitStack() as bar:

        def report(event: Phase | Event) -> None:
            nonlocal watch
            if not isinstance(event, Phase):
                watch.take(event)
                return
            bar.close()
            title = command if event is Phase.ROTATE else event.value
            watch = bar.enter_context(watching(title, failures.add))

        yield report


_NOTICED_SECONDS: Final = 1.0
NO_SCRUB: Final = "Postgres has its own means to clear old rows out of tables, WAL and replicas: VACUUM FULL"


def _warn_of_scrub(path: Path) -> None:
    """If a database is large, or open in other processes, warn how long a scrub will lock it."""
    from sealpoint.admin.maintenance.scrub import forecast

    expected = forecast(path)
    if not expected.processes and expected.lock_seconds < _NOTICED_SECONDS:
        return
    users = f", which {' and '.join(expected.processes)} have open" if expected.processes else ""
    warn(
        f"--scrub will write {expected.size_bytes:,} bytes and lock {path} for about"
        f" {max(1, round(expected.lock_seconds))} s or longer{users}",
        "writers wait that long, and fail if their timeout is shorter (Python's default is 5 s):"
        " leave out --scrub, and scrub when the agents are stopped",
    )
