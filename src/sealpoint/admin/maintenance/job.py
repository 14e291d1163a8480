"""A rotation job: plan, rotate, verify and scrub, according to its options.

The module is independent of a terminal: phases, progress and failures are reported to a callback, and the
outcome is returned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from sealpoint.admin.databases.cells import Selection
from sealpoint.admin.databases.kinds import kind_of
from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance.rotate import BeforeChange, outstanding, require_own_ring, try_rows
from sealpoint.admin.maintenance.status import Share, status
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.maintenance.workers import Assignment, Pace, Work, rotate_as, rotating, run_in_processes
from sealpoint.admin.results.events import Event, Events, Failures, Progress
from sealpoint.admin.results.jobs import Check, Options, Stop
from sealpoint.admin.results.tags import Kind
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import LockedError, MaintenanceError, ScrubError, SealpointError, StoppedError
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.keys import LEGACY
from sealpoint.seal.tag import PICKLE

if TYPE_CHECKING:  # not needed for a SQLite file
    from sealpoint.admin.databases.sqlite.rows import SqliteRows
    from sealpoint.admin.maintenance.scrub import Sample, Scrubbed

SAMPLE_EVERY: Final = 100


class Action(StrEnum):
    """What a job does with values of the same protection, or what is missing to change the values."""

    NONE = "none"
    ROTATE = "rotate"
    INDEX = "index"
    SEAL = "seal"
    NEEDS_PLAINTEXT = "needs allow_plaintext"
    NEEDS_LEGACY = "needs allow_legacy"
    NEEDS_KEY = "needs key"
    NEEDS_REBIND = "needs rebind"
    NOT_ASKED = "not asked"
    PICKLE = "pickle"
    OTHER_TYPE = "other type"
    UNRECOGNISED = "unrecognised"


class Step(NamedTuple):
    """A step of a plan: values of one table with the same protection, and the action for them."""

    share: Share
    action: Action


def action_of(share: Share, ring: KeyRing, options: Options, *, is_done: bool) -> Action:
    """Return the action for a share of values; ``is_done`` if its sealed values need no change."""
    if share.is_skipped:
        return Action.PICKLE if share.types[0] == PICKLE else Action.OTHER_TYPE
    if share.kind is Kind.PLAINTEXT:
        return Action.SEAL if options.allow_plaintext else Action.NEEDS_PLAINTEXT
    if share.kind is Kind.UNKNOWN:
        return Action.UNRECOGNISED
    if is_done:
        return Action.NONE
    if share.kind is Kind.LEGACY and not options.allow_legacy:
        return Action.NEEDS_LEGACY
    usable = {LEGACY if key.suite else key.id for key in ring.keys if key.state.opens}
    needed = LEGACY if share.kind is Kind.LEGACY else share.key_id
    return Action.ROTATE if needed in usable else Action.NEEDS_KEY


class Phase(StrEnum):
    """A phase of a job, reported when it begins."""

    CHECK = "check"
    ROTATE = "rotate"
    VERIFY = "verify"
    SCRUB = "scrub"


# Called with each phase, with progress, and once for each value that does not open.
Report = Callable[[Phase | Event], None]


class End(StrEnum):
    """How far a job came before it ended."""

    COMPLETE = "complete"
    STOPPED = "stopped"  # stopped before all values were rotated
    LOCKED = "locked"  # other connections kept rows locked; all other values were rotated
    UNVERIFIED = "unverified"  # all values were rotated; the verification was not completed
    UNSCRUBBED = "unscrubbed"  # only the scrub was not completed


@dataclass(slots=True)
class Outcome:
    """The outcome of a job so far."""

    end: End = End.COMPLETE
    problem: SealpointError | None = None
    changed: int = 0
    # Values not replaced, because a writer changed them after they were read.
    raced: int = 0
    # Values that were not authenticated before they were sealed.
    plaintext: int = 0
    # Values from LANGGRAPH_AES_KEY, which does not authenticate types.
    legacy: int = 0
    left: int = 0
    # Plan of a further job with the same options, if values are left.
    remaining: list[Step] = field(default_factory=list)
    # ``None`` if verification did not begin.
    verified: int | None = None
    scrubbed: Scrubbed | None = None
    seconds: float = 0.0
    longest_lock_seconds: float = 0.0

    def count(self, *actions: Action) -> int:
        """Return the number of values for which the remaining plan has one of these actions."""
        return sum(share.rows for share, action in self.remaining if action in actions)

    @property
    def pending(self) -> int:
        """The number of remaining values that a further job with the same options would change."""
        return self.count(Action.ROTATE, Action.SEAL)

    def note_lock(self, seconds: float) -> None:
        """Record for how many seconds writers waited for a lock; the greatest number is kept."""
        self.longest_lock_seconds = max(self.longest_lock_seconds, seconds)


def _file_of(store: RowStore) -> SqliteRows | None:
    """Return the store if it is a SQLite file, whose statements this process can interrupt; else ``None``."""
    return cast("SqliteRows", store) if store.kind == "sqlite" else None


class Job:
    """One run over one database, or the plan of the run."""

    _work: Work = staticmethod(rotating)
    _seals_rows = False  # whether unsealed rows are sealed even without an option

    def __init__(
        self, store: RowStore, cipher: RingCipher, options: Options, url: str = "", *, writable: bool = True
    ) -> None:
        """Prepare a job. A scrub closes ``store``; worker processes connect to ``url``.

        If ``writable`` is false, the job can only be planned.
        """
        del writable  # used by jobs that open another store
        self._store = self._changed = store
        self._to_verify = Selection(plaintext=False)
        self._cipher, self._options, self._url = cipher, options, url
        self._samples: list[Sample] = []
        self._outcome = Outcome()
        self._failures = Failures(may_repeat=True)

    def close(self) -> None:
        """Close the stores that the job has opened."""

    def require_fitting(self) -> None:
        """Raise if the ring has the keys of another environment, unless this check is disabled."""
        options = self._options
        if options.check_keys:
            seals_unsealed = options.allow_plaintext or options.allow_legacy or self._seals_rows
            is_ours = require_own_ring(self._store, self._cipher.ring, seals_unsealed=seals_unsealed)
            if options.shard is not None and seals_unsealed and not is_ours:
                # A range may have no sealed value: look for one in the whole database, without counting.
                with closing(kind_of(self._url).open(self._url)) as whole:
                    if try_rows(whole, self._cipher, self._cipher.ring.require_active().id) is not None:
                        require_own_ring(whole, self._cipher.ring, seals_unsealed=True)

    def plan(self, damage: list[SealpointError] | None = None) -> list[Step]:
        """Return the plan of the job: an action for each group of values of the database.

        ``damage`` is a list that receives the errors of values that cannot be counted, see `RowStore.count`.
        """
        return [Step(share, self._action(share)) for share in status(self._changed, damage=damage)]

    def _action(self, share: Share) -> Action:
        if share.is_plain_item:
            return Action.NEEDS_REBIND
        ring = self._cipher.ring
        return action_of(share, ring, self._options, is_done=share.key_id == ring.require_active().id)

    def run(self, stop: Stop, report: Report) -> Outcome:
        """Rotate, verify and scrub, while the database is locked against other runs."""
        options, outcome = self._options, self._outcome
        self._stop, self._report = stop, report
        if options.max_lag_bytes is not None and _file_of(self._changed):
            raise MaintenanceError("a SQLite file has no replicas", hint="leave out --max-replica-lag")
        self._pace = Pace(stop, options, self._url)
        with self._store.hold():
            self._report(Phase.CHECK)
            self.require_fitting()
            self._rotate()
            # Count in the database, because agents may have written under an old key since the last pass.
            self._count_left()
            # If the time limit is reached just after the last value was rotated, the run is complete.
            if outcome.end is End.COMPLETE and self._pace.is_over and outcome.pending:
                outcome.end = End.STOPPED
            if outcome.end is End.COMPLETE and options.check is not Check.NONE:
                self._verify()
            if outcome.end is End.COMPLETE and options.scrub and (file := _file_of(self._store)):
                # `hold` locks a separate file, so the lock survives closing this connection.
                file.close()
                self._scrub(file.path)
        return outcome

    def _rotate(self) -> None:
        start, file = monotonic(), _file_of(self._changed)
        self._report(Phase.ROTATE)
        try:
            if file:  # a stop also interrupts a running statement
                file.is_over = lambda: self._pace.is_over
            with closing(self._events()) as events:
                for event in events:
                    self._take(event)
        except LockedError as error:  # all other rows are done and reported
            self._outcome.end, self._outcome.problem = End.LOCKED, error
        finally:
            if file:
                file.is_over = None
        self._outcome.seconds = monotonic() - start

    def _events(self) -> Events:
        options, cipher = self._options, self._cipher
        if options.workers > 1:  # each worker has its own pace
            rate = options.rows_per_second
            each = replace(options, rows_per_second=None if rate is None else rate / options.workers)
            key_id = cipher.ring.require_active().id
            return run_in_processes(
                Assignment(self._url, cipher.ring.path, key_id, cipher.suite, each, self._work),
                options.workers,
                self._stop,
            )
        if not options.scrub:
            return self._pace.limit(self._run(None))
        from sealpoint.admin.maintenance.scrub import Traces

        traces = Traces()
        self._samples = traces.samples
        return self._pace.limit(self._run(traces.add))

    def _run(self, before_change: BeforeChange | None) -> Events:
        return rotate_as(self._options, self._store, self._cipher, before_change)

    def _take(self, event: Event) -> None:
        if isinstance(event, Progress):
            self._outcome.changed, self._outcome.raced = event.changed, event.raced
            self._outcome.plaintext, self._outcome.legacy = event.plaintext, event.legacy
            self._outcome.note_lock(event.lock_seconds)
            self._report(event)
        elif self._failures.add(event):
            self._report(event)

    def _count_left(self) -> None:
        left = outstanding(self._changed, self._cipher.ring.require_active().id)
        self._outcome.left = sum(count.rows for count in left)
        self._outcome.remaining = self.plan() if self._outcome.left else []

    def _verify(self) -> None:
        """Open sealed values again. Failures that the rotation has reported are not reported again."""
        every = SAMPLE_EVERY if self._options.check is Check.SAMPLE else 1
        rows = failed = 0
        self._report(Phase.VERIFY)
        for event in verify(self._store, self._cipher, selection=self._to_verify, every=every):
            if isinstance(event, Progress):
                rows = event.rows
                self._report(event)
                if self._pace.is_over and rows < event.total:
                    self._outcome.end = End.UNVERIFIED
                    break
            else:
                failed += 1
                self._take(event)
        # Values 0, `every`, 2 * `every` and so on were opened, so the quotient is rounded up.
        self._outcome.verified = -(-rows // every) - failed

    def _scrub(self, path: Path) -> None:
        from sealpoint.admin.maintenance.scrub import scrub

        outcome = self._outcome
        self._report(Phase.SCRUB)
        try:
            outcome.scrubbed = scrub(path, self._cipher.ring, self._samples)
            outcome.note_lock(outcome.scrubbed.lock_seconds)
            if outcome.scrubbed.found:  # perhaps in rows written after the count
                with closing(kind_of(str(path)).open(str(path))) as self._changed:
                    self._count_left()
        except (ScrubError, StoppedError) as error:
            outcome.note_lock(getattr(error, "lock_seconds", 0.0))
            outcome.end, outcome.problem = End.UNSCRUBBED, error
