"""What `rotate` and `rebind` share: the plan of a job, the job, its outcome, and how these are shown."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from sealpoint.admin.cli.frame import Run
from sealpoint.admin.cli.options import one_database, open_store, warn_of_leftovers
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
    watching,
)
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import Event, RowStore
from sealpoint.admin.maintenance.job import (
    Action,
    End,
    Job,
    Outcome,
    Phase,
    Report,
    Step,
)
from sealpoint.admin.maintenance.result import Check, Options, Reason
from sealpoint.admin.maintenance.scrub import Scrubbed
from sealpoint.admin.maintenance.workers import Stop
from sealpoint.crypto import RingCipher
from sealpoint.crypto.suites import SUITES
from sealpoint.errors import SealpointError, excerpt

MAX_PLACES: Final = 5

ACTIONS: Final = {
    Action.NONE: "done",
    Action.ROTATE: "to reseal",
    Action.SEAL: "to seal",
    Action.NEEDS_PLAINTEXT: "skipped: not sealed, add --allow-plaintext",
    Action.NEEDS_LEGACY: "skipped: under LANGGRAPH_AES_KEY, add --allow-legacy",
    Action.NEEDS_KEY: "skipped: the ring has no usable key for it",
    Action.PICKLE: "skipped: a pickle is never sealed unopened",
    Action.OTHER_TYPE: "skipped: its type is not sealed unopened",
    Action.UNRECOGNISED: "skipped: unrecognised tag",
}


def require_database(
    run: Run, argument: str | None, variable: str | None, *, workers: int, suite: str
) -> tuple[str, bool]:
    """Return the database of a job, and whether it is a file.

    Refuses a suite that is not known, and several workers for a SQLite file.
    """
    database = one_database(run, argument, variable)
    is_file = kind_of(database).is_file
    if suite not in SUITES:
        raise typer.BadParameter(f"known are {', '.join(sorted(SUITES))}", param_hint="--suite")
    if workers > 1 and is_file:
        raise typer.BadParameter("SQLite lets one process write at a time", param_hint="--workers")
    if is_file:
        warn_of_leftovers(Path(database))
    return database, is_file


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM and SIGHUP end a run between two batches; a second one ends it where it is.

    A third one does nothing, so that temporary files are still removed. A signal that is ignored, as
    SIGHUP is under nohup, is still ignored.
    """
    stop, ending = Stop(), False

    def ask(number: int, _: object) -> None:
        nonlocal ending
        if stop.is_set():
            if ending:
                return
            ending = True
            raise KeyboardInterrupt
        stop.set()
        say(f"{signal.Signals(number).name}: ending after this batch; once more ends at once")

    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job over one database, or its plan, and what the command says about it."""

    run: Run
    database: str
    cipher: RingCipher
    options: Options
    job: Callable[..., Job] = Job
    thread: str | None = None  # the only one whose rows are changed
    scrubs: bool = False  # whether it has an option for that
    actions: Mapping[Action, str]
    column: str  # of the actions, in the table of a plan
    changed: str  # the member that counts the changed values
    done: str  # what is so when all values are changed
    advice: Mapping[Action, str]  # for what is left
    late: str  # for what is left because it was written meanwhile
    left: Reason
    first: str = ""  # what is to be done before the plan is carried out

    @contextmanager
    def _opened(self, *, writable: bool) -> Iterator[tuple[RowStore, Job]]:
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self.database, writable=writable)))
            job = self.job(store, self.cipher, self.options, self.database, writable=writable)
            yield store, stack.enter_context(closing(job))

    def _plan(self, job: Job, damage: list[SealpointError]) -> list[Step]:
        plan = job.plan(damage)
        if self.thread is not None and not plan and not damage:
            cause = f"no rows of thread {excerpt(self.thread)}; `sealpoint inspect DB` lists the ids"
            raise typer.BadParameter(cause, param_hint="--thread")
        return plan

    def show(self) -> None:
        """Show the plan."""
        damage = list[SealpointError]()
        with self._opened(writable=False) as (store, job):
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
        self.run.end(self._plan_members(plan, applied=False), self._show_plan)
        if not self.run.as_json:
            if self.first and any(step.action in (Action.ROTATE, Action.SEAL) for step in plan):
                say(self.first)
            say("--apply carries it out")
        complain_of_damage(store.name, damage)

    def _plan_members(self, plan: list[Step], *, applied: bool) -> dict[str, Any]:
        steps = [
            {
                "table": share.table,
                "kind": share.kind,
                "key": share.key_id,
                "rows": share.rows,
                "bytes": share.size_bytes,
                "action": self.actions[action],
            }
            for share, action in plan
        ]
        return {"key": self.cipher.ring.require_active().id, "applied": applied, "plan": steps}

    def _show_plan(self, document: Document) -> None:
        columns = ("table", "kind", "key", "rows", "bytes", self.column)
        show_table(columns, (step.values() for step in document["plan"]))

    def apply(self) -> None:
        """Carry the plan out."""
        failures = ShownFailures(shown=not self.run.as_json)
        with self._opened(writable=True) as (store, job):
            self.run.looks_at(store)
            plan = self._plan(job, [])
            with stopping() as stop, _reporting(failures) as report:
                outcome = job.run(stop, report)
        if outcome.end is End.UNSCRUBBED and outcome.problem is not None:
            complain(str(outcome.problem), outcome.problem.hint)
        self._record(outcome, plan)
        members = {**self._plan_members(plan, applied=True), **self._outcome_members(outcome, failures)}
        self.run.end(members, lambda document: self._show_outcome(outcome, failures, document))

    def _record(self, outcome: Outcome, plan: list[Step]) -> None:
        """Record why an outcome does not show that all values are as they are to be."""
        is_changed = outcome.end in (End.COMPLETE, End.UNSCRUBBED)
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
                **(scrub_reasons(outcome.scrubbed) if outcome.scrubbed else {}),
            }
        )

    def _outcome_members(self, outcome: Outcome, failures: ShownFailures) -> dict[str, Any]:
        scrubbed = outcome.scrubbed
        return {
            self.changed: outcome.changed,
            "raced": outcome.raced,
            "plaintext": outcome.plaintext,
            "legacy": outcome.legacy,
            "left": outcome.left,
            **failures.end(self.run.result),
            "stopped": outcome.end is not End.COMPLETE,
            "verified": outcome.verified,
            **({"scrubbed": scrubbed and scrubbed_object(scrubbed)} if self.scrubs else {}),
            "seconds": round(outcome.seconds, 3),
            "longest_lock_ms": round(outcome.longest_lock_seconds * 1000, 1),
        }

    def _show_outcome(self, outcome: Outcome, failures: ShownFailures, document: Document) -> None:
        """Print an outcome as a table, and below it how the job ended and what to do about the rest."""
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
                say("rows are still written unsealed or under an old key: end that writer and run again")


_ENDS: Final = {
    End.STOPPED: "stopped early: run the same command again; it continues where it stopped",
    End.UNVERIFIED: "stopped early: the {done}; check them with `sealpoint verify DB`",
    End.UNSCRUBBED: (
        "the {done}; their old bytes may still be in the file. Run the same command again"
        " when nothing reads it: it can then search for old tags, and not for the old values"
    ),
}


def _sentence(line: str, number: int) -> str:
    """Fill in a number, and the words that depend on it."""
    ones = {"are": "is", "have": "has", "stay": "stays", "it": "it", "threads": "that thread"}
    many = {"are": "are", "have": "have", "stay": "stay", "it": "them", "threads": "those threads"}
    pickles = f"{number:,} pickle" + ("" if number == 1 else "s")
    words = ones if number == 1 else many
    return line.format(values=values_line(number), pickles=pickles, **words)


def scrub_reasons(scrubbed: Scrubbed) -> dict[Reason, object]:
    """Return when a scrub does not show that nothing old is left in the file."""
    return {Reason.OLD_CONTENT_FOUND: scrubbed.found, Reason.OLD_VALUES_NOT_SEARCHED: not scrubbed.fragments}


def scrubbed_object(scrubbed: Scrubbed) -> dict[str, Any]:
    """Return what a scrub found as JSON."""
    return {**scrubbed._asdict(), "found": [list(place) for place in scrubbed.found]}


def search_result(scrubbed: Scrubbed) -> str:
    """Say what a scrub searched, and what it found."""
    places = [f"{file} at byte {place}" for file, place in scrubbed.found[:MAX_PLACES]]
    more = len(scrubbed.found) - len(places)
    found = f"found: {', '.join(places)}" if places else "found nothing"
    found += f" and {more} more places" if more else ""
    looked_for = f"for a sample of {scrubbed.fragments} fragments of old values and for old tags"
    if not scrubbed.fragments:  # a job that changes nothing has none
        looked_for = "only for old tags, because this run has resealed no values"
    return f"searched {scrubbed.searched_bytes} bytes {looked_for}: {found}"


@contextmanager
def _reporting(failures: ShownFailures) -> Iterator[Report]:
    """Show a bar for each phase of a job but the scrub, and collect failures."""
    watch = Watch(lambda *_: None, failures.add)
    with ExitStack() as bar:

        def report(event: Phase | Event) -> None:
            nonlocal watch
            if not isinstance(event, Phase):
                watch.take(event)
                return
            bar.close()
            if event is not Phase.SCRUB:
                watch = bar.enter_context(watching(event.value, failures.add))

        yield report
