"""What `rotate` is asked to do, its plan, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any, Final

from sealpoint.cli import findings
from sealpoint.cli.exits import Exit
from sealpoint.cli.screen import complain, progress_bar
from sealpoint.cli.signals import stopping
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.crypto.suites import LEGACY
from sealpoint.crypto.tag import Kind
from sealpoint.databases.cells import Selection
from sealpoint.databases.rows import Batch, Event, Events, Progress, RowStore
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import LockedError, ScrubError, StoppedError
from sealpoint.maintenance.pace import Pace, Stop
from sealpoint.maintenance.ringcheck import require_own_ring
from sealpoint.maintenance.rotate import outstanding, rotate
from sealpoint.maintenance.scrub import Scrubbed, Traces, scrub
from sealpoint.maintenance.status import Share, status
from sealpoint.maintenance.verify import verify
from sealpoint.maintenance.workers import Order, rotate_in_processes

SAMPLE_EVERY: Final = 100
_UNSCRUBBED: Final = (
    "the values are moved; what they were before may still be in the file. Run the same command again when"
    " nothing reads it: it can then search for old tags, and not for the old values"
)


class Check(StrEnum):
    """How much is opened once more at the end."""

    ALL = "all"
    SAMPLE = "sample"
    NONE = "none"


class Action(StrEnum):
    """What becomes of values that are protected alike."""

    DONE = "is done"
    MOVE = "will move"
    SEAL = "will be sealed"
    NEEDS_PLAINTEXT = "stays: not sealed, add --plaintext"
    NEEDS_LEGACY = "stays: under LANGGRAPH_AES_KEY, add --legacy"
    NEEDS_KEY = "stays: the ring has no usable key for it"
    PICKLE = "stays: a pickle is never sealed unopened"
    OTHER_TYPE = "stays: its type is none that is sealed unopened"
    UNREADABLE = "stays: the tag is none"


_WAY_OUT: Final = "put {it} again sealed, or delete {threads}"
_ADVICE: Final = {  # on what is left after a run
    Action.NEEDS_PLAINTEXT: "{values} {are} not sealed: --plaintext seals {it}",
    Action.NEEDS_LEGACY: "{values} {are} under LANGGRAPH_AES_KEY: --legacy moves {it}",
    Action.PICKLE: f"{{pickles}} {{stay}}: read {{it}} with LangGraph and {_WAY_OUT}",
    Action.OTHER_TYPE: f"{{values}} of other types {{stay}}: read {{it}} as the writer did and {_WAY_OUT}",
    Action.UNREADABLE: "{values} {have} a tag that is none: `sealpoint status DB` shows {it}",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """The options of one run."""

    database: str
    ring: Path | None
    allow_plaintext: bool
    allow_legacy: bool
    batch: Batch
    max_lock_seconds: float
    rows_per_second: float | None
    max_seconds: float | None
    workers: int
    check: Check
    scrub: bool
    key_check: bool


def make_plan(store: RowStore, ring: KeyRing, wishes: Wishes) -> list[tuple[Share, Action]]:
    """Return what a run would do with what the database holds."""
    return [(share, _action(share, ring, wishes)) for share in status(store)]


def _action(share: Share, ring: KeyRing, wishes: Wishes) -> Action:
    if share.is_skipped:
        return Action.PICKLE if share.is_pickle else Action.OTHER_TYPE
    if share.kind is Kind.PLAINTEXT:
        return Action.SEAL if wishes.allow_plaintext else Action.NEEDS_PLAINTEXT
    if share.kind is Kind.UNKNOWN:
        return Action.UNREADABLE
    if share.key_id == ring.require_active().id:
        return Action.DONE
    if share.kind is Kind.LEGACY and not wishes.allow_legacy:
        return Action.NEEDS_LEGACY
    usable = {LEGACY if key.suite else key.id for key in ring.keys if key.state.opens}
    needed = LEGACY if share.kind is Kind.LEGACY else share.key_id
    return Action.MOVE if needed in usable else Action.NEEDS_KEY


class Outcome:
    """What a run has done so far.

    Attributes:
        remaining: The plan for another run like it, if there is something that is not under the active key.
        stopped: What to say of a run that did not come to its end; empty for one that did.
    """

    def __init__(self, *, aloud: bool) -> None:
        self.failures = findings.ShownFailures(shown=aloud, may_repeat=True)
        self.moved = self.raced = self.left = 0
        self.seconds = self.longest_lock_seconds = 0.0
        self.stopped: str = ""
        self.remaining: list[tuple[Share, Action]] = []
        self.verified: int | None = None
        self.scrubbed: Scrubbed | None = None

    def add(self, event: Event) -> None:
        """Take in what a run tells."""
        if isinstance(event, Progress):
            self.moved, self.raced = event.changed, event.raced
            self.locked(event.lock_seconds)
        else:
            self.failures.add(event)

    def locked(self, seconds: float) -> None:
        """Take in how long writers were kept waiting."""
        self.longest_lock_seconds = max(self.longest_lock_seconds, seconds)

    def take_stock(self, store: RowStore, ring: KeyRing, wishes: Wishes) -> None:
        """Count what is not under the active key now."""
        self.left = sum(count.rows for count in outstanding(store, ring.require_active().id))
        self.remaining = make_plan(store, ring, wishes) if self.left else []

    @property
    def pending(self) -> int:
        """How many of those that are left another run like this would take."""
        return self._count(Action.MOVE, Action.SEAL)

    def _count(self, *actions: Action) -> int:
        return sum(share.rows for share, action in self.remaining if action in actions)

    def advice(self, key_id: str) -> Iterator[str]:
        """Yield why values are left that did not fail, and what takes them to the key, or away."""
        late = self.left - sum(self._count(action) for action in _ADVICE)
        for action, line in _ADVICE.items():
            if number := self._count(action):
                yield _sentence(line, number)
        if late > 0 and not self.failures.count:
            yield _sentence(f"{{values}} written meanwhile {{are}} not under {key_id!r}: run again", late)

    @property
    def code(self) -> Exit:
        """How the program ends."""
        if self.failures.count:
            return findings.exit_code(self.failures)
        if self.stopped:
            return Exit.STOPPED
        return Exit.FOUND if self.left or (self.scrubbed and self.scrubbed.found) else Exit.DONE

    def document(self) -> dict[str, Any]:
        """The run as JSON."""
        scrubbed = self.scrubbed
        return {
            "moved": self.moved,
            "raced": self.raced,
            "left": self.left,
            "failed": self.failures.count,
            "failures": self.failures.objects(),
            "stopped": bool(self.stopped),
            "verified": self.verified,
            "scrubbed": scrubbed
            and {**scrubbed._asdict(), "found": [list(place) for place in scrubbed.found]},
            "seconds": round(self.seconds, 3),
            "longest_lock_ms": round(self.longest_lock_seconds * 1000, 1),
            "ok": self.code is Exit.DONE,
        }


def _sentence(line: str, number: int) -> str:
    """Fill in how many there are, and the words that hang on it."""
    ones = {"are": "is", "have": "has", "stay": "stays", "it": "it", "threads": "that thread"}
    many = {"are": "are", "have": "have", "stay": "stay", "it": "them", "threads": "those threads"}
    pickles = f"{number:,} pickle" + ("" if number == 1 else "s")
    words = ones if number == 1 else many
    return line.format(values=findings.values_line(number), pickles=pickles, **words)


def require_keys(store: RowStore, ring: KeyRing, wishes: Wishes) -> None:
    """Refuse the ring of another environment before anything is changed, unless the check is left out."""
    if wishes.key_check:
        require_own_ring(store, ring, seals_unsealed=wishes.allow_plaintext or wishes.allow_legacy)


def carry_out(store: RowStore, cipher: RingCipher, wishes: Wishes, outcome: Outcome) -> None:
    """Rotate, open what is there once more, and scrub: what was asked for, as far as it comes."""
    start, traces = monotonic(), Traces()
    with store.hold(), stopping() as stop:
        require_keys(store, cipher.ring, wishes)
        paced = Pace(stop, rows_per_second=wishes.rows_per_second, max_seconds=wishes.max_seconds)
        try:
            with (
                progress_bar("rotate") as move,
                _halting(store, paced),
                closing(_events(store, cipher, wishes, traces, paced, stop)) as events,
            ):
                for event in events:
                    outcome.add(event)
                    if isinstance(event, Progress):
                        move(event.rows, event.total)
        except LockedError as error:  # all other rows are done, and told
            outcome.stopped = f"stopped early: {error}; {error.hint}"
        outcome.seconds = monotonic() - start
        outcome.take_stock(store, cipher.ring, wishes)
        if not outcome.stopped and paced.is_over and outcome.pending:
            outcome.stopped = "stopped early: run the same command again, it goes on where it stopped"
        if not outcome.stopped and wishes.check is not Check.NONE:
            _verify(store, cipher, wishes, outcome, paced)
        if wishes.scrub and not outcome.stopped and isinstance(store, SqliteRows):
            store.close()
            _scrub(store.path, cipher, wishes, traces, outcome)


@contextmanager
def _halting(store: RowStore, pace: Pace) -> Iterator[None]:
    """Let the end of a run also end a statement of SQLite that is at work, however long that takes."""
    if not isinstance(store, SqliteRows):
        yield
        return
    store.is_over = lambda: pace.is_over
    try:
        yield
    finally:
        store.is_over = None


def _events(
    store: RowStore, cipher: RingCipher, wishes: Wishes, traces: Traces, pace: Pace, stop: Stop
) -> Events:
    if wishes.workers > 1:  # each of them has a pace of its own
        return rotate_in_processes(_order(wishes, cipher), wishes.workers, stop)
    run = rotate(
        store,
        cipher,
        allow_plaintext=wishes.allow_plaintext,
        allow_legacy=wishes.allow_legacy,
        batch=wishes.batch,
        max_lock_seconds=wishes.max_lock_seconds,
        before_change=traces.add if wishes.scrub else None,
        check_keys=False,
    )
    return pace.limit(run)


def _order(wishes: Wishes, cipher: RingCipher) -> Order:
    rate = wishes.rows_per_second
    return Order(
        url=wishes.database,
        ring=wishes.ring,
        key_id=cipher.ring.require_active().id,
        suite=cipher.suite,
        allow_plaintext=wishes.allow_plaintext,
        allow_legacy=wishes.allow_legacy,
        batch=wishes.batch,
        max_lock_seconds=wishes.max_lock_seconds,
        rows_per_second=None if rate is None else rate / wishes.workers,
        max_seconds=wishes.max_seconds,
    )


def _verify(store: RowStore, cipher: RingCipher, wishes: Wishes, outcome: Outcome, pace: Pace) -> None:
    """Open what is sealed once more. What the run left as it found it has been told already."""
    every = SAMPLE_EVERY if wishes.check is Check.SAMPLE else 1
    rows = failed = 0
    with progress_bar("verify") as move:
        for event in verify(store, cipher, selection=Selection(plaintext=False), every=every):
            if isinstance(event, Progress):
                rows = event.rows
                move(rows, event.total)
                if pace.is_over and rows < event.total:
                    outcome.stopped = (
                        "stopped early: the values are moved, and `sealpoint verify DB` opens all of them"
                    )
                    break
                continue
            failed += 1
            outcome.add(event)
    outcome.verified = -(-rows // every) - failed


def _scrub(path: Path, cipher: RingCipher, wishes: Wishes, traces: Traces, outcome: Outcome) -> None:
    """Scrub, or say what is in the way: the rest of the run is done, and told, all the same."""
    try:
        outcome.scrubbed = scrub(path, cipher.ring, traces.fragments)
        outcome.locked(outcome.scrubbed.lock_seconds)
        if outcome.scrubbed.found:  # perhaps in rows that came after they were counted
            with closing(SqliteRows(path)) as store:
                outcome.take_stock(store, cipher.ring, wishes)
    except (ScrubError, StoppedError) as error:
        complain(str(error), error.hint)
        outcome.locked(getattr(error, "lock_seconds", 0.0))
        outcome.stopped = _UNSCRUBBED


def plan_rows(plan: Iterable[tuple[Share, Action]]) -> list[dict[str, Any]]:
    """The plan as JSON, or as rows of a table."""
    return [
        {
            "table": share.table,
            "kind": share.kind,
            "key": share.key_id,
            "rows": share.rows,
            "bytes": share.size_bytes,
            "action": action,
        }
        for share, action in plan
    ]
