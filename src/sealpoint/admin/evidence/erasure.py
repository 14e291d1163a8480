"""Erasures: what a ledger says was erased, and whether every key of that time is destroyed since.

`erase.begin` has a document, which `Erasure` describes; `erase.end` of the same run says that it is done. The
entry ``erase.again`` of a search has in its subject the digest of that document as ``erasure``, or a list of
digests, and in its counts how many rows were ``found`` and ``erased``.

An erasure is *complete* only if nothing is open. What could be open: keys of that time that the ring still
has, or that were destroyed with a waived check; keys that no list names, because the ring was edited; copies
in which the rows were never under a key of the ring; rows that came back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from sealpoint.admin.evidence.folder import Folder
from sealpoint.admin.evidence.recorder import CHANGES
from sealpoint.admin.evidence.verify import BEGUN
from sealpoint.admin.keys.change import ring_digest
from sealpoint.errors import LedgerTamperedError
from sealpoint.keys.entry import DATABASE_CHECK, MATERIAL_LEFT, MATERIAL_REMOVED, RELATION_CHECK, RingEntry
from sealpoint.keys.state import LEGACY, KeyState
from sealpoint.utc import now

VERSION: Final = 1
ERASE_BEGIN: Final = "erase.begin"
ERASE_END: Final = "erase.end"
ERASE_AGAIN: Final = "erase.again"

_UNSEALED: Final = frozenset({"plaintext", "legacy"})
_CHECKS: Final = frozenset({DATABASE_CHECK, RELATION_CHECK})
_GONE: Final = KeyState.DESTROYED
_DAY: Final = len("2026-01-31")
_HMAC: Final = re.compile(r"hmac-sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ErasedThread:
    """A thread: its greatest checkpoint id, and the last event of the thread store.

    ``id`` is the HMAC of its id, and ``pseudonym`` that of the pseudonym which may stand for it.
    """

    id: str | None
    last: str | None = None
    event: int | None = None
    pseudonym: str | None = None


@dataclass(frozen=True, slots=True)
class ErasedNamespace:
    """A namespace of LangGraph's Store, by the HMAC of its prefix; ``until`` is its last update, UTC."""

    prefix: str | None
    until: str | None = None
    pseudonym: str | None = None


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key of the ring that was not destroyed."""

    id: str
    check: str | None
    state: str

    @classmethod
    def of(cls, entries: Iterable[RingEntry]) -> tuple[HeldKey, ...]:
        """Return the keys of a ring that are not destroyed."""
        return tuple(cls(one.id, one.check, one.state.value) for one in entries if one.state is not _GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The document of an erasure.

    Attributes:
        database: What tells the database from others, also of the same name: its path, or URL and schema.
        index: The HMAC of an empty text, which tells the index key; ``None`` without one.
        keys: Every key of the ring that was not destroyed.
        counts: How many rows went, by table and key id.
        due: The date by which it is to be complete.
        only_under: The only keys of older copies, as the operator declared; empty if not declared.
        sealed_since: Since when the database is sealed, as the operator declared.
    """

    erasure: int = VERSION
    database: str
    index: str | None = None
    threads: tuple[ErasedThread, ...]
    namespaces: tuple[ErasedNamespace, ...] = ()
    keys: tuple[HeldKey, ...]
    counts: dict[str, dict[str, int]]
    reason: str | None = None
    due: str | None = None
    only_under: tuple[str, ...] = ()
    sealed_since: str | None = None

    def __post_init__(self) -> None:
        """Raise a ValueError for what types do not tell."""
        if self.erasure != VERSION:
            raise ValueError("it is of another version")
        for day in (self.due, self.sealed_since):
            if day is not None and date.fromisoformat(day).isoformat() != day:
                raise ValueError("a date has another form")
        if any(name is not None and not _HMAC.fullmatch(name) for name in self.names):
            raise ValueError("a name is not an HMAC")
        if not {*self.only_under} <= {key.id for key in self.keys}:
            raise ValueError("keys are named that the ring did not have")

    @property
    def names(self) -> list[str | None]:
        """The HMACs of what was erased."""
        return [each.id for each in self.threads] + [each.prefix for each in self.namespaces]

    def __bytes__(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> Erasure:
        """Parse a document, strictly: an attacker may edit it, and only its digest is signed."""
        try:
            parsed: Erasure = _read(cls, json.loads(data))
        except (ValueError, RecursionError):
            raise LedgerTamperedError("it is not the document of an erasure") from None
        return parsed


def _read(kind: Any, found: Any) -> Any:
    """Return a part of a document as the type that it must have."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type) and type(found) is dict:
        kinds = get_type_hints(kind)
        if found.keys() == kinds.keys():
            return kind(**{name: _read(kinds[name], part) for name, part in found.items()})
    elif origin is tuple and type(found) is list:
        return tuple(_read(parts[0], each) for each in found)
    elif origin is dict and type(found) is dict:
        return {name: _read(parts[1], each) for name, each in found.items()}
    elif type(found) in (kind, *parts) and origin in (None, UnionType):
        return found
    raise ValueError("a part of the document has another form")


Members = Mapping[str, Any]


class State(StrEnum):
    """What is shown of an erasure."""

    NOT_ENDED = "not ended"
    CAME_BACK = "came back"
    NOT_BY_KEYS = "cannot be completed by keys"
    NOT_SHOWN = "not shown"
    DELETED = "deleted"
    COMPLETE = "complete"


NOT_COVERED: Final = (
    "Traces, logs, caches and stores that are not sealed, and what a provider of a model keeps.",
    "Ids of threads, which are readable in every copy unless pseudonyms are used, and which the holder of"
    " the index key can then still test.",
    "Memory and swap of processes.",
    "Copies of keys that are not where the ring names them, and of ring files with wrapped keys: as long as"
    " the wrapping key is there, a copy of the ring file has the key.",
    "What was written again under an erased name, by a run that was under way, or by a restore: `erasures"
    " --again` looks for it in a database.",
    "That no copy is older than the operator declared: sealed_since and only_under are declarations.",
)
_SHOWN: Final = ("document", "due", "is_overdue", "keys", "state", "why")


@dataclass(slots=True)
class Recorded:
    """An erasure of a ledger.

    Attributes:
        begun: The members of the entry with which it began.
        document: The digest of its document.
        end: The members of the entry with which it ended as done.
        due: The date by which it is to be complete, or of an erasure that it repeats, if that is earlier.
        keys: Ids of the keys that are still to be destroyed.
        why: Why it is not complete, as sentences.
        entries: Numbers of the entries that show it.
    """

    begun: Members
    document: str
    end: Members | None
    erasure: Erasure = Erasure(database="", threads=(), keys=(), counts={})
    due: str | None = None
    state: State = State.NOT_ENDED
    keys: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    is_overdue: bool = False
    entries: list[int] = field(default_factory=list)

    def is_repeated_by(self, later: Recorded) -> bool:
        """Whether a later erasure has ended that erased the same from the same database."""
        same = self.erasure.database == later.erasure.database
        names = {*self.erasure.names}
        return same and later.end is not None and None not in names and names <= {*later.erasure.names}

    def object(self) -> dict[str, Any]:
        """Return it as JSON."""
        erasure = self.erasure
        return {
            "seq": self.begun["seq"],
            "at": self.begun["at"],
            "databases": self.begun["subject"].get("database"),
            "threads": len(erasure.threads),
            "namespaces": len(erasure.namespaces),
            "reason": erasure.reason,
            "only_under": [*erasure.only_under],
            "sealed_since": erasure.sealed_since,
            **{name: getattr(self, name) for name in _SHOWN},
        }


class History:
    """What the entries of a ledger say about erasures, and about what can keep them from being complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)
        self._first, self._ring = "", None
        self._may_change = False
        self._edits = list[int]()
        # By the run: an entry of a run that accepted values which are not sealed, or wrote them.
        self._unsealed = dict[str, int]()
        self._begun, self._ended = dict[str, Members](), dict[str, Members]()
        self._later = list[Members]()

    def take(self, entry: Members) -> None:
        """Take the next entry."""
        event, outcome, run = entry["event"], entry["outcome"], entry["run"]
        self._first = self._first or entry["at"]
        # Not by `ring.drift`: an edit while a command runs is first seen in the entry of its end.
        ring, changes = (entry["ring"] or {}).get("digest", self._ring), event.startswith(CHANGES)
        if self._ring not in (None, ring) and not self._may_change and (outcome == BEGUN or not changes):
            self._edits.append(entry["seq"])
        self._ring, self._may_change = ring, changes and outcome == BEGUN
        if event == "decrypt" or not _UNSEALED.isdisjoint(map(str, entry["waived"])):
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
        """Return the erasures, by what ledger and ring say now; ``ok`` is whether the ledger verifies."""
        found = [self._recorded(begun) for begun in self._begun.values()]
        for number, one in enumerate(found):
            if one.end is not None and not one.is_overdue:
                self._set_state(one, one.end, ok, {each.id: each for each in entries})
            later = next(filter(one.is_repeated_by, found[number + 1 :]), None)
            if later is not None:
                later.due = min(filter(None, (one.due, later.due)), default=None)
                one.why.append(f"it was repeated: entry {later.begun['seq']}")
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
        except LedgerTamperedError as error:  # its date is not known, and may have passed
            made.state, made.why, made.is_overdue = State.NOT_SHOWN, [str(error)], True
        return made

    def _set_state(self, one: Recorded, end: Members, ok: bool | None, ring: Mapping[str, RingEntry]) -> None:
        later = [entry for entry in self._later if entry["seq"] > end["seq"]]
        searches = [each for each in later if one.document in str(each["subject"].get("erasure"))]
        one.entries += [each["seq"] for each in searches]
        found = [_count(each, "found") for each in searches]
        left = {  # by the names of databases: the last search, if rows were left
            str(each["subject"].get("database")): each["seq"] if number > _count(each, "erased") else None
            for each, number in zip(searches, found, strict=True)
        }
        groups = {
            State.CAME_BACK: [f"rows came back: entry {seq}" for seq in left.values() if seq is not None],
            State.NOT_BY_KEYS: [*self._not_by_keys(one, ring.values())],
            State.NOT_SHOWN: [
                *(["the ledger is not whole, or not of this ring"] if ok is False else []),
                *(
                    ["rows came back, and were erased: erase the ids again, also what is new"]
                    if any(found)
                    else []
                ),
                *self._changed(one, end, ring.values()),
                *_not_destroyed(one, ring, [each for each in later if each["event"] == "key.destroy"]),
            ],
        }
        one.why = [sentence for group in groups.values() for sentence in group]
        best = State.DELETED if one.keys else State.COMPLETE
        one.state = next((state for state, group in groups.items() if group), best)

    def _not_by_keys(self, one: Recorded, ring: Iterable[RingEntry]) -> Iterator[str]:
        """Yield why older copies may have rows that no key of the ring sealed."""
        since, first = one.erasure.sealed_since, self._first[:_DAY]
        if since is None:
            yield "nobody declared since when the database is sealed"
        elif not first <= since <= one.begun["at"][:_DAY]:
            yield f"the database is declared to be sealed since {since}, and the ledger begins on {first}"
        if self._unsealed:
            seq = min(self._unsealed.values())
            yield f"a run accepted or wrote values that are not under a key of the ring: entry {seq}"
        if any(entry.suite == LEGACY for entry in ring):
            yield "the ring has LANGGRAPH_AES_KEY: older copies may have rows under it"

    def _changed(self, one: Recorded, end: Members, ring: Collection[RingEntry]) -> Iterator[str]:
        """Yield why the keys of the document may not be all that the rows were ever under."""
        if self._ring != ring_digest(ring):
            yield "the ring is not that of the last entry of the ledger"
        if self._edits:
            yield f"keys of the ring were changed by hand: entry {self._edits[0]}"
        if one.begun["ring"] is None or one.begun["ring"] != end["ring"]:
            yield "the ring was changed before it ended"
        for entry in ring:
            if entry.material == MATERIAL_LEFT:
                yield f"key {entry.id} is marked as destroyed, and its material is left"


def _not_destroyed(one: Recorded, ring: Mapping[str, RingEntry], runs: Sequence[Members]) -> Iterator[str]:
    """Yield why it is not shown that a key is destroyed; one that is not is added to ``one.keys``."""
    erasure, alive = one.erasure, {each.check for each in ring.values() if each.state is not _GONE}
    needed = [key for key in erasure.keys if key.id in (erasure.only_under or (key.id,))]
    if not needed:
        yield "the ring had no key"
    for key in needed:
        entry = ring.get(key.id)
        own = [each for each in runs if each["subject"].get("key") == key.id]
        done = [each["seq"] for each in own if each["outcome"] == "done"]
        one.entries += done
        if entry is None or entry.check is None or entry.check != key.check:
            yield f"key {key.id} is not in the ring with the check value that it had"
        elif entry.state is not _GONE or entry.check in alive:
            one.keys.append(key.id)
        elif entry.material not in (MATERIAL_REMOVED, MATERIAL_LEFT):  # that is said of all keys
            yield f"no run removed the material of key {key.id}"
        elif entry.waived or any(not _CHECKS.isdisjoint(map(str, each["waived"])) for each in own):
            yield f"a check was waived when key {key.id} was destroyed"
        elif not done:
            yield f"the ledger has no destruction of key {key.id} since"


def _count(entry: Members, name: str) -> int:
    number = entry["counts"].get(name)
    return number if type(number) is int else 0
