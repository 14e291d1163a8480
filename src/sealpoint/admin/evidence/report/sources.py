"""The sources of a report: databases and the ledger. Only counts, sizes and types of values are kept.

A database is read in one snapshot. Agents continue to write to the thread store, a separate database, and the
snapshot lacks their new checkpoints. So the comparison with the thread store reads the present checkpoints of
the database once more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance.audit import Audit, audit, audit_object
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import Finding, HeadCheck
from sealpoint.admin.maintenance.names import owner_of
from sealpoint.admin.maintenance.status import Share, status
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Failure, Failures, Progress
from sealpoint.admin.results.reasons import AnyReason, Reason, answer
from sealpoint.admin.results.result import Result
from sealpoint.admin.results.tags import Kind
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import DatabaseCorruptError, KeyRingError, RowError, SealpointError
from sealpoint.keys.entry import RingEntry
from sealpoint.seal.keys import LEGACY, KeyedHash
from sealpoint.threads.store import ThreadStore
from sealpoint.utc import as_utc, format_utc, now

if TYPE_CHECKING:
    from sealpoint.admin.evidence.erasure import History
    from sealpoint.admin.evidence.note import VerifierKey


class Why(AnyReason):
    """Reasons for a verdict that occur only in a report."""

    KEY_EXPIRED = "key-expired", "the active key has expired", True
    COMPROMISED_IN_USE = "compromised-in-use", "values are under a compromised key", True
    DESTROYED_IN_USE = "destroyed-in-use", "values are under a destroyed key", True
    RING_DIFFERS = (
        "ring-differs",
        "the ring differs from the ring in the last entry of the ledger: it was changed by hand",
        True,
    )
    NO_RING = "no-ring", "no ring file was found"
    NO_DUE_DATE = "no-due-date", "the active key has no expiry date in the ring"
    NO_THREAD_STORE = "no-thread-store", "no thread store was named"
    SEVERAL_DATABASES = "several-databases", "only a report of one database is compared with a thread store"
    NO_PIN = "no-pin", "no pin of the thread store was given"
    NO_LEDGER = "no-ledger", "no ledger is configured"
    PERIOD_BEFORE_LEDGER = "period-before-ledger", "the period begins before the ledger does"
    NOT_EXAMINED = "not-examined", "this part of the database could not be read"


_ALL: Final[tuple[AnyReason, ...]] = (*Why, *Reason)
# All reasons; refuting reasons come first.
ORDER: Final = (*(each for each in _ALL if each.refutes), *(each for each in _ALL if not each.refutes))

# Sentences of reasons that mean something else in a report than in the result of another command.
_SENTENCES: Final[dict[AnyReason, str]] = {
    Reason.DATABASE_CHECK_WAIVED: "no database was examined before a key was destroyed",
    Reason.MATERIAL_NOT_REMOVED: "the material of a destroyed key was not removed by a run of sealpoint",
}


def sentence_of(reason: AnyReason) -> str:
    """Return the sentence that states a reason in a report."""
    return _SENTENCES.get(reason, reason.sentence)


def key_of(share: Share) -> str | None:
    """Return the key id of a group of values: ``aes`` for LANGGRAPH_AES_KEY, ``None`` if unsealed."""
    return LEGACY if share.kind is Kind.LEGACY else share.key_id


# Number of threads with a failure that are listed, by HMAC.
MAX_THREADS: Final = 20

# Longest name from a database.
MAX_NAME_CHARS: Final = 200

# Shows progress: values done, and values in total.
Move = Callable[[int, int], None]


@dataclass(slots=True)
class Opening:
    """The result of opening every value of a database."""

    run: Verification
    failures: Failures
    rows: int = 0
    # Number of failures, by column and class of the error.
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # HMACs of threads with a failure, at most `MAX_THREADS`.
    threads: dict[str, None] = field(default_factory=dict)
    complete: bool = False

    @property
    def opened(self) -> int:
        """Number of sealed values that opened."""
        return sum(self.run.covered.values())

    def object(self) -> dict[str, Any]:
        """Return the result as JSON members, which contain no thread ids."""
        counts = self.run.counts()
        return {
            "rows": self.rows,
            **{name: counts[name] for name in ("opened", "accepted", "bound", "unbound", "orphans")},
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
    """The result of comparing a database with a thread store."""

    check: HeadCheck
    failures: Failures
    at: str

    def object(self) -> dict[str, Any]:
        """Return the result as JSON members, which contain no thread ids."""
        return {"at": self.at, "failed": self.failures.count, **self.check.counts()}


@dataclass(slots=True)
class Part:
    """The findings about one database."""

    place: dict[str, Any]
    # Whether a table that every saver creates is missing.
    missing: bool
    # Time of the snapshot from which everything except `heads` is read.
    began: str = ""
    ended: str = ""
    shares: list[Share] = field(default_factory=list)
    # Errors of parts of the database that could not be read.
    damage: list[str] = field(default_factory=list)
    audit: Audit | None = None
    opening: Opening | None = None
    heads: Heads | None = None

    @property
    def name(self) -> str:
        """Name of the database, for the report."""
        return str(self.place["database"]["name"])

    @property
    def rows(self) -> int:
        """Number of values in the database, counted by their type tags."""
        return sum(share.rows for share in self.shares)

    def object(self) -> dict[str, Any]:
        """Return the findings as JSON members."""
        covered = None if self.opening is None else self.opening.run.covered
        found = None if self.audit is None else audit_object(self.audit)
        readable = found and {name: found[name] for name in found if name not in ("rows", "shares")}
        return {
            **self.place,
            "state": {"began": self.began, "ended": self.ended},
            "damage": self.damage,
            "rows": self.rows,
            "coverage": coverage(self.shares, covered),
            "readable": readable,
            "opening": self.opening and self.opening.object(),
            "heads": self.heads and self.heads.object(),
        }


def coverage(shares: Iterable[Share], opened: Mapping[tuple[str, str], int] | None) -> list[dict[str, Any]]:
    """Return a JSON object with counts for each column, kind and key; largest groups of a column first."""
    groups = dict[tuple[str, str, str | None], list[Share]]()
    for share in shares:
        groups.setdefault((share.table, share.kind.value, key_of(share)), []).append(share)
    rows = [
        {
            "table": table,
            "kind": kind,
            "key": key_id,
            # `status` sums up keys beyond its limit.
            "other_keys": kind == Kind.SEALED.value and key_id is None,
            "state": members[0].state,
            "suites": sorted(
                {".".join((each.suite, *each.flags)) for each in members if each.suite is not None}
            ),
            "rows": sum(share.rows for share in members),
            "size_bytes": sum(share.size_bytes for share in members),
            # Values under LANGGRAPH_AES_KEY have unauthenticated types, and are not counted as opened.
            "opened": None if opened is None or key_id == LEGACY else opened.get((table, key_id or ""), 0),
        }
        for (table, kind, key_id), members in groups.items()
    ]
    return sorted(rows, key=lambda row: (row["table"], -row["rows"], row["key"] or ""))


def read_part(
    store: RowStore,
    result: Result,
    cipher: RingCipher | None,
    entries: Iterable[RingEntry] | None,
    *,
    allow_plaintext: bool,
    move: Move,
) -> Part:
    """Read a whole database in one snapshot; return the findings about it."""
    known = None if entries is None else [*entries]
    with store.one_state():
        began = now()
        part = Part(_bounded(result.looks_at(store)), bool(store.missing_tables), began)
        damage = list[SealpointError]()
        with _noted(damage):
            part.shares = status(store, known, damage)
        with _noted(damage):
            part.audit = audit(store, (), known)
        if cipher is not None:
            own = RingCipher(cipher.ring, follow=False)  # counts values that open in this database
            opening = Verification(store, own, allow_plaintext=allow_plaintext)
            part.opening = Opening(opening, Failures(cipher=own))
            with _noted(damage):
                _open(part.opening, cipher, move)
        part.damage = sorted({type(error).__name__ for error in damage})
        part.ended = now()
    return part


def read_heads(store: RowStore, cipher: RingCipher, known: ThreadStore, move: Move) -> Heads:
    """Compare the present checkpoints of a database with the heads of a thread store."""
    rows, cipher = CheckpointRows(store, cipher), RingCipher(cipher.ring, follow=False)
    heads = Heads(HeadCheck(rows, known), Failures(cipher=cipher), now())
    run = Verification(store, cipher, observer=heads.check, columns=rows.with_writes)
    for event in run.events():
        if isinstance(event, Progress):
            move(event.rows, event.total)
        elif not isinstance(event, Finding):
            heads.failures.add(event)
    return heads


def _open(opening: Opening, cipher: RingCipher, move: Move) -> None:
    key = None  # without an index key, no thread is listed
    with suppress(KeyRingError):
        key = cipher.ring.index_key("report")
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


def _mark(key: bytes, failed: Failure) -> str:
    """Return the HMAC of the thread id of a failure: the id itself may be the name of a person."""
    thread_id: Any = owner_of(failed.place)
    data = thread_id if isinstance(thread_id, bytes) else str(thread_id).encode("utf-8", "surrogatepass")
    return KeyedHash(key)(data).hex()[:32]


@contextmanager
def _noted(damage: list[SealpointError]) -> Iterator[None]:
    """Suppress the error of a block that reads damaged data, and add the error to ``damage``."""
    try:
        yield
    except (DatabaseCorruptError, RowError) as error:
        damage.append(error)


def _bounded(place: dict[str, Any]) -> dict[str, Any]:
    scope = place["scope"]
    names = {
        name: [table[:MAX_NAME_CHARS] for table in scope[name]] for name in ("read", "not_read", "missing")
    }
    return {**place, "scope": {**scope, **names}}


# --- the ledger ------------------------------------------------------------------------------------


class Period(NamedTuple):
    """A period of time: ``start`` is part of the period, ``end`` is not. Both times are in UTC."""

    start: datetime
    end: datetime

    def object(self) -> dict[str, str]:
        """Return the period as JSON members."""
        return {"from": format_utc(self.start), "until": format_utc(self.end)}

    def has(self, moment: datetime) -> bool:
        """Whether a time is within the period. A time without a zone is in UTC."""
        return self.start <= as_utc(moment) < self.end


def parse_period(text: str) -> Period:
    """Parse a period: two dates or ISO 8601 times, separated by ``..``.

    The period includes the second date. A time without a zone is in UTC.
    """
    first, separator, last = text.partition("..")
    if not separator:
        raise ValueError(f"{text!r} has no '..'")
    start, end = _parse_moment(first, timedelta()), _parse_moment(last, timedelta(days=1))
    if end <= start:
        raise ValueError(f"{text!r} ends before it begins")
    return Period(start, end)


def _parse_moment(text: str, more: timedelta) -> datetime:
    """Parse an ISO 8601 time; for a date, return its midnight UTC plus ``more``."""
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), UTC) + more
        return as_utc(datetime.fromisoformat(text))
    except OverflowError:
        raise ValueError(f"{text!r} is out of range") from None


# Number of the last entries of a period that are listed.
MAX_ENTRIES: Final = 1_000

_SHOWN: Final = ("seq", "at", "run", "event", "outcome", "exit", "actor", "waived", "documents")
_ACTOR: Final = ("account", "uid", "host")
_SUBJECT: Final = ("database", "key", "out")


@dataclass(frozen=True, slots=True)
class Changes:
    """The entries of a ledger in a period."""

    entries: Sequence[dict[str, Any]]
    # Number of further entries in the period, which are not listed.
    others: int
    head: str | None
    reasons: frozenset[AnyReason]
    history: History

    @property
    def verified(self) -> bool | None:
        """Whether the ledger is valid, complete and describes the present ring; ``None`` if not proven."""
        return answer(self.reasons - {Why.PERIOD_BEFORE_LEDGER})

    def erasures(self, entries: Sequence[RingEntry]) -> list[dict[str, Any]]:
        """Return all erasures in the ledger, inside and outside of the period, as JSON objects."""
        return [each.object() for each in self.history.erasures(self.verified, entries)]

    def object(self) -> dict[str, Any]:
        """Return the changes as JSON members."""
        return {
            "entries": [*self.entries],
            "others": self.others,
            "head": self.head,
            "verified": self.verified,
        }


def find_changes(
    folder: Path,
    period: Period | None,
    ring_digest: str,
    key: VerifierKey | None = None,
    pins: Sequence[bytes] = (),
) -> Changes:
    """Return the ledger entries of a period, or all; compare ``ring_digest`` with that of the last entry."""
    from sealpoint.admin.evidence.erasure import History
    from sealpoint.admin.evidence.verify import read_verified, verify_ledger

    verdict, reasons = verify_ledger(folder, key, pins), set[AnyReason]()
    found, total, last = deque[dict[str, Any]](maxlen=MAX_ENTRIES), 0, ring_digest
    head, listed, history = verdict.checkpoint, None if period is None else _Listed(period), History(folder)
    for entry in read_verified(folder, verdict):
        if not entry["seq"] and period is not None:
            began = _moment(entry["at"])
            if began is None or began > period.start:
                reasons.add(Why.PERIOD_BEFORE_LEDGER)
        history.take(entry)
        last = (entry["ring"] or {}).get("digest", last)
        if listed is None or listed.has(entry["at"]):
            total += 1
            found.append(_shown(entry))
    if last != ring_digest:
        reasons.add(Why.RING_DIFFERS)
    reasons |= verdict.reasons
    return Changes([*found], total - len(found), head.line if head else None, frozenset(reasons), history)


class _Listed:
    """Selects the ledger entries of a period. Their order is signed, but the clock of a host may be wrong.

    An entry whose time is earlier than the time of an entry before it is listed for every period that
    overlaps the time between both. An entry with a time in the future, or with an invalid time, is always
    listed. Therefore no entry of the period is omitted because of a wrong clock.
    """

    def __init__(self, period: Period) -> None:
        self._period, self._now = period, datetime.now(UTC)
        self._latest = datetime.min.replace(tzinfo=UTC)

    def has(self, at: str) -> bool:
        moment = _moment(at)
        if moment is None or moment > self._now:
            return True
        self._latest = max(self._latest, moment)
        return moment < self._period.end and self._latest >= self._period.start


def _moment(at: str) -> datetime | None:
    try:
        return as_utc(datetime.fromisoformat(at))
    except (ValueError, OverflowError):
        return None


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    actor = {name: entry["actor"].get(name) for name in _ACTOR}
    subject = {name: entry["subject"][name] for name in _SUBJECT if entry["subject"].get(name) is not None}
    return {**{name: entry[name] for name in _SHOWN}, "actor": actor, "subject": subject}
