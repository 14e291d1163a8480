"""What `rotate` and `rebind` share: the plan of a job, the job, its outcome, and how these are shown."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
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
    make_plan,
    require_keys,
)
from sealpoint.admin.maintenance.result import Check, Options, Reason
from sealpoint.admin.maintenance.scrub import Scrubbed
from sealpoint.admin.maintenance.workers import Stop
from sealpoint.crypto import RingCipher
from sealpoint.crypto.suites import SUITES
from sealpoint.errors import SealpointError

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
class Words:
    """What a command says about its job."""

    actions: Mapping[Action, str]
    column: str  # of the actions, in the table of a plan
    changed: str  # the member that counts the changed values
    done: str  # what is so when all values are changed
    advice: Mapping[Action, str]  # for what is left
    late: str  # for what is left because it was written meanwhile
    left: Reason
    first: str = ""  # what is to be done before the plan is carried out


class Change:
    """A job over one database, or its plan."""

    scrubs = True

    def __init__(self, run: Run, database: str, cipher: RingCipher, options: Options, words: Words) -> None:
        self._run, self._database, self._cipher = run, database, cipher
        self._options, self._words = options, words

    def _open_rows(self, store: RowStore, stack: ExitStack, *, writable: bool) -> RowStore:
        return store

    def _require_fitting(self, store: RowStore) -> None:
        require_keys(store, self._cipher.ring, self._options)

    def _make_plan(self, rows: RowStore, damage: list[SealpointError]) -> list[Step]:
        return make_plan(rows, self._cipher.ring, self._options, damage)

    def _make_job(self, store: RowStore, rows: RowStore, stop: Stop, report: Report) -> Job:
        return Job(store, self._cipher, self._options, stop=stop, report=report, url=self._database)

    def _count_late(self, outcome: Outcome) -> int:
        return outcome.left - outcome.count(*self._words.advice)

    def show(self) -> None:
        """Show the plan."""
        damage = list[SealpointError]()
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self._database)))
            rows = self._open_rows(store, stack, writable=False)
            self._require_fitting(store)
            self._run.looks_at(store)
            plan = self._make_plan(rows, damage)
        self._run.finds(
            {
                Reason.NOT_APPLIED: True,
                Reason.DAMAGED: damage,
                Reason.NO_ROWS: not plan,
                Reason.KEYS_MISSING: any(step.action is Action.NEEDS_KEY for step in plan),
            }
        )
        self._run.end(self._plan_members(plan, applied=False), self._show_plan)
        if not self._run.as_json:
            if self._words.first and any(step.action in (Action.ROTATE, Action.SEAL) for step in plan):
                say(self._words.first)
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
                "action": self._words.actions[action],
            }
            for share, action in plan
        ]
        return {"key": self._cipher.ring.require_active().id, "applied": applied, "plan": steps}

    def _show_plan(self, document: Document) -> None:
        columns = ("table", "kind", "key", "rows", "bytes", self._words.column)
        show_table(columns, (step.values() for step in document["plan"]))

    def apply(self) -> None:
        """Carry the plan out."""
        failures = ShownFailures(shown=not self._run.as_json)
        with ExitStack() as stack:
            store = stack.enter_context(closing(open_store(self._database, writable=True)))
            rows = self._open_rows(store, stack, writable=True)
            self._run.looks_at(store)
            plan = self._make_plan(rows, [])
            with stopping() as stop, _reporting(failures) as report:
                outcome = self._make_job(store, rows, stop, report).run()
        if outcome.end is End.UNSCRUBBED and outcome.problem is not None:
            complain(str(outcome.problem), outcome.problem.hint)
        self._record(outcome, plan)
        members = {**self._plan_members(plan, applied=True), **self._outcome_members(outcome, failures)}
        self._run.end(members, lambda document: self._show_outcome(outcome, failures, document))

    def _record(self, outcome: Outcome, plan: list[Step]) -> None:
        """Record why an outcome does not show that all values are as they are to be."""
        is_changed = outcome.end in (End.COMPLETE, End.UNSCRUBBED)
        self._run.finds(
            {
                Reason.NO_ROWS: not any(step.share.rows for step in plan),
                Reason.ENDED_EARLY: outcome.end is not End.COMPLETE,
                self._words.left: outcome.left,
                Reason.PLAINTEXT_ALLOWED: outcome.plaintext,
                Reason.LEGACY_ALLOWED: outcome.legacy,
                Reason.KEY_CHECK_WAIVED: not self._options.check_keys,
                Reason.NOT_VERIFIED: is_changed and self._options.check is Check.NONE,
                Reason.SAMPLED: is_changed and self._options.check is Check.SAMPLE,
                **(scrub_reasons(outcome.scrubbed) if outcome.scrubbed else {}),
            }
        )

    def _outcome_members(self, outcome: Outcome, failures: ShownFailures) -> dict[str, Any]:
        scrubbed = outcome.scrubbed
        return {
            self._words.changed: outcome.changed,
            "raced": outcome.raced,
            "plaintext": outcome.plaintext,
            "legacy": outcome.legacy,
            "left": outcome.left,
            **failures.end(self._run.result),
            "stopped": outcome.end is not End.COMPLETE,
            "verified": outcome.verified,
            **({"scrubbed": scrubbed and scrubbed_object(scrubbed)} if self.scrubs else {}),
            "seconds": round(outcome.seconds, 3),
            "longest_lock_ms": round(outcome.longest_lock_seconds * 1000, 1),
        }

    def _show_outcome(self, outcome: Outcome, failures: ShownFailures, document: Document) -> None:
        """Print an outcome as a table, and below it how the job ended and what to do about the rest."""
        changed = self._words.changed
        columns = (changed, "raced", "failed", "left", "verified", "seconds", "longest lock, ms")
        names = (*columns[:-1], "longest_lock_ms")
        show_table(columns, [[document[name] for name in names]])
        if outcome.end is End.LOCKED and outcome.problem is not None:
            say(f"stopped early: {outcome.problem}; {outcome.problem.hint}")
        elif outcome.end is not End.COMPLETE:
            say(_ENDS[outcome.end].format(done=self._words.done))
        else:
            late = 0 if failures.count else max(0, self._count_late(outcome))
            left = [(line, outcome.count(action)) for action, line in self._words.advice.items()]
            for line, number in (*left, (self._words.late, late)):
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
