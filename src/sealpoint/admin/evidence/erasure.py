"""Erasures in a ledger, and whether all keys that existed at the time of an erasure are destroyed.

A ledger entry ``erase.begin`` names a JSON file, see `Erasure`; ``erase.end`` of the same run says that all
rows were erased. An entry ``erase.again`` records a search for erased rows: its subject has the digests of
such JSON files as ``erasure``, and its counts have the numbers of rows ``found`` and ``erased``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.evidence.folder import CHANGES, Folder
from sealpoint.admin.keys.change import ring_digest
from sealpoint.admin.results.result import BEGUN
from sealpoint.errors import KeyRingError, LedgerTamperedError
from sealpoint.keys.entry import DATABASE_CHECK, MATERIAL_LEFT, MATERIAL_REMOVED, RELATION_CHECK, RingEntry
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile
from sealpoint.seal.keys import LEGACY, KeyedHash, KeyState
from sealpoint.utc import now

VERSION: Final = 1
ERASE_BEGIN: Final = "erase.begin"
ERASE_END: Final = "erase.end"
ERASE_AGAIN: Final = "erase.again"

_CHECKS: Final = frozenset({DATABASE_CHECK, RELATION_CHECK})
_GONE: Final = KeyState.DESTROYED
_DAY: Final = len("2026-01-31")


def hmac_of(ring: RingFile) -> Callable[[str], str | None]:
    """Return a function that computes the HMAC of an id under the index key, or ``None`` without the key."""
    try:
        keyed = KeyedHash(KeyRing.of_file(ring).index_key("ledger"))
    except KeyRingError:
        return lambda _: None
    return lambda text: "hmac-sha256:" + keyed(text.encode("utf-8", "surrogatepass")).hex()


@dataclass(frozen=True, slots=True)
class Erased:
    """An erased thread, or an erased namespace of LangGraph's Store.

    Attributes:
        names: HMACs of the thread id or namespace, and of its pseudonym; empty without an index key.
        last: Greatest checkpoint id of the thread; or time, in UTC, of the last change in the namespace.
    """

    names: Sequence[str]
    last: str | None = None


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key of the ring that was not destroyed at the time of an erasure."""

    id: str
    check: str | None
    state: str

    @classmethod
    def of(cls, entries: Iterable[RingEntry]) -> tuple[HeldKey, ...]:
        """Return the keys of a ring that are not destroyed."""
        return tuple(cls(one.id, one.check, one.state.value) for one in entries if one.state is not _GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The JSON file that a command writes to the ledger's folder ``documents`` before it erases rows.

    Attributes:
        database: Identity of the database: path of a file, or URL and schema.
        index: HMAC of an empty text, which identifies the index key; ``None`` without an index key.
        keys: Every key of the ring that was not destroyed at the time of the erasure.
        counts: Number of rows to erase, by table and key id.
        due: Date by which all keys in ``keys`` must be destroyed.
        sealed_since: Date since which the database is sealed, as the operator declared.
    """

    erasure: int = VERSION
    database: str
    index: str | None = None
    threads: tuple[Erased, ...]
    namespaces: tuple[Erased, ...] = ()
    keys: tuple[HeldKey, ...]
    counts: Mapping[str, Mapping[str, int]]
    reason: str | None = None
    due: str | None = None
    sealed_since: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError if the fields do not have the form that this release reads."""
        days = [day for day in (self.due, self.sealed_since) if day is not None]
        texts = [self.reason, *(key.id for key in self.keys)]
        texts += [text for one in self.owners for text in (one.last, *one.names)]
        if (
            self.erasure != VERSION
            or any(date.fromisoformat(day).isoformat() != day for day in days)
            or not all(isinstance(text, str | None) for text in texts)
        ):
            raise ValueError("unknown form of an erasure's document")

    @property
    def owners(self) -> tuple[Erased, ...]:
        """The erased threads, then the erased namespaces."""
        return (*self.threads, *self.namespaces)

    def __bytes__(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Erasure:
        """Parse the JSON file of an erasure, whose digest the caller has compared with the ledger entry."""
        kinds = {"threads": Erased, "namespaces": Erased, "keys": HeldKey}
        try:
            found = json.loads(data)
            lists = {name: tuple(kind(**each) for each in found[name]) for name, kind in kinds.items()}
            return cls(**found | lists)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise LedgerTamperedError("the document cannot be parsed as an erasure") from None


Members = Mapping[str, Any]


class State(StrEnum):
    """State of an erasure."""

    NOT_ENDED = "not ended"
    CAME_BACK = "came back"
    NOT_BY_KEYS = "cannot be completed by keys"
    NOT_SHOWN = "not shown"
    DELETED = "deleted"
    COMPLETE = "complete"


NOT_COVERED: Final = (
    "Traces, logs, unsealed caches and stores, and data at the provider of a model.",
    "Thread ids. They are readable in every copy, unless pseudonyms are used; even then, the holder of"
    " the index key can test whether an id occurs.",
    "Memory and swap of processes.",
    "Copies of keys in other places than the ring names, and copies of ring files with wrapped keys: while"
    " the wrapping key exists, a copy of the ring file contains the key.",
    "Rows written again under an erased id, by an agent that was still running, or by a restore: `erasures"
    " --again` searches a database for them.",
    "Whether older copies exist than the operator declared: sealed_since is only a declaration.",
)


@dataclass(slots=True)
class Recorded:
    """An erasure in a ledger.

    Attributes:
        begun: JSON members of the begin entry.
        document: Digest of the erasure's JSON file, see `Erasure`.
        end: JSON members of the end entry; ``None`` unless its outcome is ``done``.
        due: Date by which keys must be destroyed; if another erasure is repeated, the earlier of both dates.
        keys: Ids of the keys that must still be destroyed.
        why: Sentences with the reasons why the erasure is not complete.
        entries: Numbers of the ledger entries about the erasure.
    """

    begun: Members
    document: str
    end: Members | None
    erasure: Erasure = field(default_factory=lambda: Erasure(database="", threads=(), keys=(), counts={}))
    due: str | None = None
    state: State = State.NOT_ENDED
    keys: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    is_overdue: bool = False
    entries: list[int] = field(default_factory=list)

    def is_repeated_by(self, later: Recorded) -> bool:
        """Whether a later, completed run erased the same ids from the same database."""
        own, other = self.erasure, later.erasure
        threads, namespaces = (
            {tuple(one.names) for one in mine} <= {tuple(one.names) for one in others}
            for mine, others in ((own.threads, other.threads), (own.namespaces, other.namespaces))
        )
        is_known = bool(own.owners) and all(one.names for one in own.owners)
        return (
            later.end is not None and own.database == other.database and is_known and threads and namespaces
        )

    def object(self) -> dict[str, Any]:
        """Return the JSON members that describe the erasure in results."""
        shown = ("document", "due", "is_overdue", "keys", "state", "why")
        return {
            "seq": self.begun["seq"],
            "at": self.begun["at"],
            "databases": self.begun["subject"].get("database"),
            "threads": len(self.erasure.threads),
            "namespaces": len(self.erasure.namespaces),
            "reason": self.erasure.reason,
            "sealed_since": self.erasure.sealed_since,
            **{name: getattr(self, name) for name in shown},
        }


class History:
    """Collects erasures from ledger entries, and the events because of which erasures are incomplete."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)
        self._first, self._ring, self._may_change = "", None, False
        self._edits = list[int]()
        # For each run that accepted or wrote unsealed values: number of one of its ledger entries.
        self._unsealed = dict[str, int]()
        self._begun, self._ended = dict[str, Members](), dict[str, Members]()
        self._later = list[Members]()

    def take(self, entry: Members) -> None:
        """Process the next ledger entry; entries must be given in the order of the ledger."""
        event, outcome, run = entry["event"], entry["outcome"], entry["run"]
        self._first = self._first or entry["at"]
        # Not from `ring.drift`: an edit during a command first appears in the command's end entry.
        ring, changes = (entry["ring"] or {}).get("digest", self._ring), event.startswith(CHANGES)
        if self._ring not in (None, ring) and not self._may_change and (outcome == BEGUN or not changes):
            self._edits.append(entry["seq"])
        self._ring, self._may_change = ring, changes and outcome == BEGUN
        if event == "decrypt" or not {"plaintext", "legacy"}.isdisjoint(map(str, entry["waived"])):
            self._unsealed.setdefault(run, entry["seq"])
        if outcome == "refused":
            self._unsealed.pop(run, None)
        elif event == ERASE_BEGIN and outcome == BEGUN:
            self._begun[run] = entry
        elif event == ERASE_END and outcome == "done":
            self._ended[run] = entry
        elif event in (ERASE_AGAIN, "key.destroy") and outcome != BEGUN:
            self._later.append(entry)

    def erasures(self, ok: bool | None, entries: Sequence[RingEntry]) -> list[Recorded]:
        """Return the erasures with their present states; ``ok`` is whether the ledger was verified."""
        found = [self._recorded(begun) for begun in self._begun.values()]
        for number, one in enumerate(found):
            if one.end is not None and one.state is State.NOT_ENDED:
                why = [*self._why(one, one.end, ok, {each.id: each for each in entries})]
                one.why = [sentence for _, sentence in why]
                states = [state for state in State if state in dict(why)]
                one.state = next(iter(states), State.DELETED if one.keys else State.COMPLETE)
            later = next(filter(one.is_repeated_by, found[number + 1 :]), None)
            if later is not None:
                later.due = min(filter(None, (one.due, later.due)), default=None)
                one.why.append(f"the erasure was repeated: entry {later.begun['seq']}")
            elif one.due is not None and one.due < now()[:_DAY] and one.state is not State.COMPLETE:
                one.is_overdue = True
        return found

    def _recorded(self, begun: Members) -> Recorded:
        document, *_ = [*map(str, begun["documents"]), ""]
        made = Recorded(begun, document, self._ended.get(begun["run"]))
        made.entries = [each["seq"] for each in (begun, made.end) if each is not None]
        try:
            made.erasure = Erasure.parse(self._folder.read_document(document))
            made.due = made.erasure.due
        except LedgerTamperedError as error:  # the due date is unknown, and may have passed
            made.state, made.why, made.is_overdue = State.NOT_SHOWN, [str(error)], True
        return made

    def _why(
        self, one: Recorded, end: Members, ok: bool | None, ring: Mapping[str, RingEntry]
    ) -> Iterator[tuple[State, str]]:
        """Yield reasons why an erasure is incomplete, apart from keys: pairs of a state and a sentence."""
        later = [entry for entry in self._later if entry["seq"] > end["seq"]]
        for state, why in {
            State.CAME_BACK: _left(one, later),
            State.NOT_BY_KEYS: self._not_by_keys(one, ring.values()),
            State.NOT_SHOWN: _not_destroyed(one, ring, later),
        }.items():
            yield from ((state, sentence) for sentence in why)
        if ok is False:
            yield State.NOT_SHOWN, "the ledger is invalid, or belongs to another ring"
        if any(each["seq"] in one.entries and _count(each, "found") for each in later):
            yield State.NOT_SHOWN, "rows came back: erase the ids again, which also deletes newer rows"
        if self._ring != ring_digest(ring.values()):
            yield State.NOT_SHOWN, "the ring differs from the ring in the last entry of the ledger"
        if self._edits:
            yield State.NOT_SHOWN, f"keys of the ring were changed by hand: entry {self._edits[0]}"
        if one.begun["ring"] is None or one.begun["ring"] != end["ring"]:
            yield State.NOT_SHOWN, "the ring was changed during the erasure"

    def _not_by_keys(self, one: Recorded, ring: Iterable[RingEntry]) -> Iterator[str]:
        """Yield reasons why older copies of the database may contain rows that no key of the ring sealed."""
        since, first = one.erasure.sealed_since, self._first[:_DAY]
        if since is None:
            yield "it was not declared since when the database is sealed"
        elif not first <= since <= one.begun["at"][:_DAY]:
            yield f"the database is declared to be sealed since {since}, but the ledger begins on {first}"
        if self._unsealed:
            seq = min(self._unsealed.values())
            yield f"a run accepted or wrote values not sealed under a key of the ring: entry {seq}"
        if any(entry.suite == LEGACY for entry in ring):
            yield "the ring has LANGGRAPH_AES_KEY: older copies may have rows under it"


def _left(one: Recorded, later: Sequence[Members]) -> Iterator[str]:
    """Yield a sentence per database in which the last search left rows; extend the list ``one.entries``."""
    found = [each for each in later if one.document in str(each["subject"].get("erasure"))]
    one.entries += [each["seq"] for each in found]
    for each in {str(each["subject"].get("database")): each for each in found}.values():
        if _count(each, "found") > _count(each, "erased"):
            yield f"rows came back: entry {each['seq']}"


def _not_destroyed(one: Recorded, ring: Mapping[str, RingEntry], later: Sequence[Members]) -> Iterator[str]:
    """Yield reasons why a key is not proven to be destroyed; add keys that still exist to ``one.keys``."""
    alive = {each.check for each in ring.values() if each.state is not _GONE}
    for entry in ring.values():
        if entry.material == MATERIAL_LEFT:
            yield f"key {entry.id} is marked as destroyed, but its material was left"
    if not one.erasure.keys:
        yield "the ring had no key"
    for key in one.erasure.keys:
        found = ring.get(key.id)
        own = [each for each in later if each["subject"].get("key") == key.id]
        done = [each["seq"] for each in own if each["outcome"] == "done"]
        one.entries += done
        if found is None or found.check is None or found.check != key.check:
            yield f"the ring has no key {key.id} with the check value of that time"
        elif found.state is not _GONE or found.check in alive:
            one.keys.append(key.id)
        elif found.material not in (MATERIAL_REMOVED, MATERIAL_LEFT):  # MATERIAL_LEFT is reported above
            yield f"no run removed the material of key {key.id}"
        elif found.waived or any(not _CHECKS.isdisjoint(map(str, each["waived"])) for each in own):
            yield f"a check was waived when key {key.id} was destroyed"
        elif not done:
            yield f"the ledger has no later destruction of key {key.id}"


def _count(entry: Members, name: str) -> int:
    number = entry["counts"].get(name)
    return number if type(number) is int else 0
