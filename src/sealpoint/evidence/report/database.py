"""One database of a report: everything is read from one state of it, and only shapes and counts are kept.

The thread store is another database and goes on with the agents. A state that is kept would lack what agents
store meanwhile, so the comparison reads the checkpoints once more, as they are then.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealpoint.crypto import RingCipher
from sealpoint.databases.failures import Failure, Failures
from sealpoint.databases.rows import Progress
from sealpoint.errors import DatabaseCorruptError, KeyRingError, RowError, SealpointError
from sealpoint.evidence.report.coverage import coverage
from sealpoint.evidence.report.why import AnyReason
from sealpoint.maintenance.audit import Audit, audit, audit_object
from sealpoint.maintenance.headrows import CheckpointRows
from sealpoint.maintenance.heads import HeadCheck, is_finding
from sealpoint.maintenance.result import Reason, Result
from sealpoint.maintenance.status import Share, status, with_states
from sealpoint.maintenance.verification import Verification
from sealpoint.utc import now

if TYPE_CHECKING:
    from sealpoint.databases.rows import RowStore
    from sealpoint.keys.entry import RingEntry
    from sealpoint.threads.store import ThreadStore

MAX_THREADS: Final = 20
"""How many threads with a failure are named, by their HMAC."""

MAX_NAME_CHARS: Final = 200
"""Maximum length of a name from a database."""

_PURPOSE: Final = "report"
_DAMAGE: Final = (DatabaseCorruptError, RowError)
_Read = TypeVar("_Read")

Move = Callable[[int, int], None]
"""Shows progress: how many values are done, and of how many."""


@dataclass(slots=True)
class Opening:
    """What opening all values has shown.

    Attributes:
        run: The counts.
        rows: How many values were read.
        failures: Values and rows that were refused.
        causes: How many of them, by column and class of the error.
        threads: HMACs of threads with such a value, at most `MAX_THREADS`.
        complete: Whether all values were read.
    """

    run: Verification
    rows: int = 0
    failures: Failures = field(default_factory=Failures)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    threads: dict[str, None] = field(default_factory=dict)
    complete: bool = False

    @property
    def opened(self) -> int:
        """How many sealed values opened."""
        return sum(self.run.covered.values())

    def object(self) -> dict[str, Any]:
        """Return it as JSON, without ids."""
        return {
            "rows": self.rows,
            "opened": [{"key": key, "values": number} for key, number in sorted(self.run.opened.items())],
            "accepted": self.run.accepted,
            "bound": self.run.bound,
            "unbound": self.run.unbound.rows,
            "orphans": self.run.orphans.rows,
            "failed": self.failures.count,
            "causes": [
                {"table": table, "error": error, "values": number}
                for (table, error), number in sorted(self.causes.items())
            ],
            "threads": list(self.threads),
            "complete": self.complete,
        }


@dataclass(frozen=True, slots=True)
class Heads:
    """What the comparison with a thread store has shown.

    Attributes:
        check: The counts.
        failures: Checkpoints that do not open.
        at: When the comparison began.
    """

    check: HeadCheck
    failures: Failures
    at: str

    def object(self) -> dict[str, Any]:
        """Return it as JSON, without ids."""
        return {"at": self.at, "failed": self.failures.count, **self.check.counts()}


@dataclass(slots=True)
class Part:
    """What was found in one database.

    Attributes:
        place: What `Result.looks_at` returns.
        missing: Whether a table is missing that every saver makes.
        began: When the state was taken that everything but `heads` is read from.
        ended: When it was released.
        shares: How the values are protected, by their tags.
        damage: Classes of the errors for which a part could not be read.
        audit: What is readable without a key; ``None`` if it could not be read.
        opening: What opening all values has shown; ``None`` without keys.
        heads: What the comparison with a thread store has shown; ``None`` without one.
    """

    place: dict[str, Any]
    missing: bool
    began: str = ""
    ended: str = ""
    shares: list[Share] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    audit: Audit | None = None
    opening: Opening | None = None
    heads: Heads | None = None

    @property
    def name(self) -> str:
        """The name of the database."""
        return str(self.place["database"]["name"])

    @property
    def rows(self) -> int:
        """How many values there are, by their tags."""
        return sum(share.rows for share in self.shares)

    def object(self) -> dict[str, Any]:
        """Return it as JSON."""
        covered = None if self.opening is None else self.opening.run.covered
        found = None if self.audit is None else audit_object(self.audit)
        return {
            **self.place,
            "state": {"began": self.began, "ended": self.ended},
            "damage": self.damage,
            "rows": self.rows,
            "coverage": coverage(self.shares, covered),
            "readable": found and {name: found[name] for name in _READABLE},
            "opening": self.opening and self.opening.object(),
            "heads": self.heads and self.heads.object(),
        }


_READABLE: Final = (
    "open_rows",
    "is_silent",
    "metadata",
    "addresses",
    "inline",
    "other_inline",
    "readable_tables",
    "residue",
)


def read_part(
    store: RowStore,
    result: Result,
    cipher: RingCipher | None,
    entries: Iterable[RingEntry] | None,
    *,
    allow_plaintext: bool,
    move: Move,
) -> Part:
    """Read a database, all of it from one state.

    Args:
        store: The database.
        result: Records it.
        cipher: Opens the values; without it none is opened.
        entries: The entries of the ring.
        allow_plaintext: Accept values that are not sealed.
        move: Shows progress.

    Raises:
        StoppedError: If the database did not keep the state until the end, or cannot be read now.
        SchemaError: If the tables have changed.
    """
    known = None if entries is None else [*entries]
    with store.one_state():
        began = now()
        part = Part(_bounded(result.looks_at(store)), bool(store.missing_tables), began)
        damage = list[SealpointError]()
        shares = _unless_damaged(lambda: status(store, known, damage), damage)
        part.shares = shares or []
        part.audit = _unless_damaged(lambda: audit(store), damage)
        if part.audit is not None:
            part.audit = replace(part.audit, shares=tuple(with_states(part.audit.shares, known)))
        if cipher is not None:
            part.opening = Opening(Verification(store, cipher, allow_plaintext=allow_plaintext))
            _unless_damaged(lambda: _open(part.opening, cipher, move), damage)
        part.damage = sorted({type(error).__name__ for error in damage})
        part.ended = now()
    return part


def read_heads(store: RowStore, cipher: RingCipher, known: ThreadStore, move: Move) -> Heads:
    """Compare the checkpoints of a database, as they are now, with a thread store.

    Raises:
        KeyRingError: If the ring has no index key.
        ThreadStoreError: If the thread store cannot be read.
        DatabaseCorruptError: If the database is damaged.
    """
    rows = CheckpointRows(store, cipher)
    heads = Heads(HeadCheck(rows, known), Failures(), now())
    run = Verification(store, cipher, observer=heads.check, columns=rows.with_writes)
    for event in run.events():
        if isinstance(event, Progress):
            move(event.rows, event.total)
        elif not is_finding(event):
            heads.failures.add(event)
    return heads


def failure_reasons(failures: Failures) -> Iterator[AnyReason]:
    """Yield why values that were refused leave or make an answer no."""
    if failures.count:
        yield Reason.KEYS_MISSING if failures.lacks_keys_only else Reason.VALUES_FAILED


def _open(opening: Opening | None, cipher: RingCipher, move: Move) -> None:
    if opening is None:
        return
    key = _thread_key(cipher)
    for event in opening.run.events():
        if isinstance(event, Progress):
            opening.rows = event.rows
            move(event.rows, event.total)
            continue
        opening.failures.add(event)
        opening.causes[event.table, type(event.error).__name__] += 1
        if key is not None and len(opening.threads) < MAX_THREADS:
            opening.threads[_mark(key, event)] = None
    opening.complete = True


def _thread_key(cipher: RingCipher) -> bytes | None:
    """Return the key that threads are named with; ``None`` if the ring has no index key."""
    try:
        return cipher.ring.index_key(_PURPOSE)
    except KeyRingError:
        return None


def _mark(key: bytes, failed: Failure) -> str:
    """Return the HMAC of a thread: an id may be the name of a person."""
    thread_id: Any = failed.place.get("thread_id")
    data = thread_id if isinstance(thread_id, bytes) else str(thread_id).encode("utf-8", "surrogatepass")
    return hmac.new(key, data, hashlib.sha256).hexdigest()[:32]


def _unless_damaged(read: Callable[[], _Read], damage: list[SealpointError]) -> _Read | None:
    """Read a part; if that is damaged, add why to ``damage``, and return ``None``."""
    try:
        return read()
    except _DAMAGE as error:
        damage.append(error)
        return None


def _bounded(place: dict[str, Any]) -> dict[str, Any]:
    """Return the database and its tables, with names that are not too long."""
    scope = place["scope"]
    names = {
        name: [table[:MAX_NAME_CHARS] for table in scope[name]] for name in ("read", "not_read", "missing")
    }
    return {**place, "scope": {**scope, **names}}
