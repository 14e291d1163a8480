"""Erasing: deletes all rows of threads, and of namespaces of LangGraph's Store.

An agent that is still running may write rows after a search. So the search is repeated until it finds no
rows. The thread store first records the threads as deleted, as `SealedSaver` does.

A restored backup may contain rows of an erased thread, and the id may also have been used again. Checkpoint
ids made by LangGraph sort by time, and show which of these rows are old.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.rows import VECTORS, OwnedRow, RowStore
from sealpoint.admin.maintenance.names import stored_ids, stored_prefixes, time_of
from sealpoint.admin.results import tags
from sealpoint.admin.results.jobs import BATCH, FIRST_ROWS, MAX_LOCK_SECONDS, Stop
from sealpoint.errors import RowError
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.heads import Head, Kind
from sealpoint.seal.places import Spot
from sealpoint.threads.store import ThreadStore
from sealpoint.utc import now

# Number of searches for rows, and the waits between them: about a minute in all.
MAX_LOOKS: Final = 70
MAX_PAUSE_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.02
_NAMES: Final = 400  # names in one SQL statement
_MAX_CHARS: Final = 2_000  # longest name that Postgres returns whole
_THREADS: Final = 50  # number of threads whose rows a search keeps in memory at a time

_BLOBS: Final = "checkpoint_blobs"
_CHECKPOINTS: Final = "checkpoints"
_OF_STORE: Final = (VECTORS, ITEMS.table)

T = TypeVar("T")


@dataclass
class Owner:
    """A thread, or a namespace of LangGraph's Store, to be erased.

    Attributes:
        name: Id of the thread, or labels of the namespace, joined by dots.
        stored: Texts that the database may have for the owner: the name itself, and its pseudonym.
        is_there: Whether the owner has a row in the database, or a checkpoint in the thread store.
        last: Greatest checkpoint id of the thread, or time of the last change of an item.
    """

    name: str
    stored: Sequence[str]
    is_there: bool = False
    last: str | None = None


class Deletion:
    """Deletes and counts rows, in batches so small that writers do not wait long."""

    def __init__(self, store: RowStore, heads: ThreadStore | None) -> None:
        self.deleted = 0
        self.store, self.heads = store, heads
        self._rows = FIRST_ROWS

    def delete(self, table: str, rows: Iterable[OwnedRow], stop: Stop) -> int:
        """Delete rows until ``stop`` is set; return the number of rows taken from ``rows``."""
        found, batch = 0, list[OwnedRow]()
        for row in rows:
            found += 1
            batch.append(row)
            if len(batch) >= self._rows:
                self._delete(table, batch, stop)
                batch = []
            if stop.is_set():
                break
        self._delete(table, batch, stop)
        return found

    def _delete(self, table: str, rows: Sequence[OwnedRow], stop: Stop) -> None:
        if not rows or stop.is_set():
            return
        start = monotonic()
        self.deleted += self.store.delete(table, rows)
        is_long = monotonic() - start > MAX_LOCK_SECONDS
        self._rows = max(1, len(rows) // 2) if is_long else min(BATCH.rows, 2 * self._rows)


class Erasing(Deletion):
    """Erases threads and namespaces.

    Attributes:
        planned: Number of rows to delete, by table and key id.
        looks: Number of searches for rows so far.
    """

    def __init__(
        self,
        store: RowStore,
        ring: KeyRing,
        threads: Sequence[str],
        namespaces: Sequence[str],
        heads: ThreadStore | None,
    ) -> None:
        super().__init__(store, heads)
        self.threads = [Owner(name, stored_ids(ring, name)) for name in threads]
        self.namespaces = [Owner(name, stored_prefixes(ring, name)) for name in namespaces]
        self.planned, self.looks = dict[str, dict[str, int]](), 0
        self._ids = {key.id for key in ring.keys}
        self._owners = {stored: owner for owner in self.threads for stored in owner.stored}
        self._prefixes = [stored for owner in self.namespaces for stored in owner.stored]

    def plan(self) -> list[str]:
        """Count the rows to delete; return the names of threads and namespaces that have none."""
        for table, rows in self._tables():
            for row in rows:
                counts, key = self.planned.setdefault(table, {}), self._key_of(row)
                counts[key] = counts.get(key, 0) + 1
                last = row.beside if table in _OF_STORE else _checkpoint_id(table, row)
                for owner in self._owners_of(table, row.key[0]):
                    owner.is_there = True
                    if isinstance(last, str):
                        owner.last = max(owner.last or "", last)
        for owner in self.threads:
            # Ids without a time, or with a time in the future, cannot be trusted: forgery, or a wrong clock.
            if not "" < (time_of(owner.last) or "") <= now():
                owner.last = None
            owner.is_there |= self.heads is not None and any(map(self.heads.has_live, owner.stored))
        return [owner.name for owner in (*self.threads, *self.namespaces) if not owner.is_there]

    def _owners_of(self, table: str, name: str) -> list[Owner]:
        if table not in _OF_STORE:
            return [self._owners[name]]
        below = f"{name}."
        return [one for one in self.namespaces if below.startswith(tuple(f"{each}." for each in one.stored))]

    def _key_of(self, row: OwnedRow) -> str:
        """Return the key id in a row's tag if the ring has this key; else a word: a tag may be forged."""
        kind, tag = tags.classify(row.tag)
        if kind is not tags.Kind.SEALED or tag is None:
            return "not sealed" if row.tag is None else kind.value
        return tag.key_id if tag.key_id in self._ids else tags.Kind.UNKNOWN.value

    def _tables(self) -> Iterator[tuple[str, Iterator[OwnedRow]]]:
        for table in self.store.owned_tables:
            for some in _parts(self._prefixes if table in _OF_STORE else [*self._owners], _NAMES):
                yield table, self.store.owned(table, some)

    def run(self, stop: Stop) -> bool:
        """Delete all rows; return whether no rows are left. Call this within `RowStore.hold`."""
        pause = _FIRST_PAUSE_SECONDS
        while self.looks < MAX_LOOKS and not stop.is_set():
            self.looks += 1
            found = self._record() + sum(self.delete(table, rows, stop) for table, rows in self._tables())
            if not found + self._record() and not stop.is_set():
                return True
            stop.wait(pause)
            pause = min(MAX_PAUSE_SECONDS, 2 * pause)
        return False

    def _record(self) -> int:
        """Record the threads as deleted in the thread store; return the number of newly recorded threads."""
        if self.heads is None:
            return 0
        live = [*filter(self.heads.has_live, self._owners)]
        for column in live:
            self.heads.delete_thread(column)
        return len(live)


class Known(NamedTuple):
    """The record of an erased thread or namespace.

    Attributes:
        document: Digest of the JSON document, recorded in the ledger, that says what was erased.
        at: When the erasure began, UTC.
        last: Greatest checkpoint id of the thread, or time of the last change of an item in the namespace.
    """

    document: str
    at: str
    last: str | None

    def is_back(self, table: str, row: OwnedRow) -> bool | None:
        """Whether a row existed before the erasure; ``None`` if unknown."""
        if table in _OF_STORE:  # the time of an item is not authenticated
            last = self.last or self.at.replace("T", " ").removesuffix("Z")
            return False if str(row.beside or "") > last else None
        is_back = self._is_back(_checkpoint_id(table, row))
        # A newer checkpoint may still have the erased state, if an agent was running during the erasure.
        return None if is_back is False and row.parent and self._is_back(row.parent) is not False else is_back

    def _is_back(self, checkpoint_id: object) -> bool | None:
        time = time_of(checkpoint_id)
        if time is None:
            return None
        if self.last is not None:
            return str(checkpoint_id) <= self.last
        return False if time > self.at else None


class Search(Deletion):
    """Searches for rows of erased threads and namespaces, and deletes rows whose ids show that they are old.

    Attributes:
        found: Number of rows that are older than the erasure, or may be.
        newer: Number of rows newer than the erasure.
        documents: Digests, as in `Known`, of the erasures for which ``found`` counts rows.
    """

    def __init__(
        self,
        store: RowStore,
        heads: ThreadStore | None,
        erased: Mapping[tuple[str, str], Sequence[Known]],
        hmac: Callable[[str], str | None],
    ) -> None:
        """Prepare a search; ``erased`` has the erasures by key column and HMAC of the erased name."""
        super().__init__(store, heads)
        self.found, self.newer, self.documents = 0, 0, set[str]()
        self._erased, self._hmac = erased, hmac

    def run(self, stop: Stop, *, apply: bool) -> None:
        """Search for rows; with ``apply``, also delete the old rows. Call this within `RowStore.hold`."""
        tables = self.store.owned_tables
        for some in _parts([*self._names("thread_id").items()], _THREADS):
            back = self._rows_of(dict(some))
            if not apply:
                continue
            self._record(back[_CHECKPOINTS])
            # Delete a checkpoint's values first: while it exists, an interrupted run can be repeated.
            for table in tables:
                self.delete(table, back[table], stop)
        for prefix, known in self._names("prefix").items():
            for table in set(tables).intersection(_OF_STORE):
                for row in self.store.owned(table, [prefix]):
                    self._is_back(known, table, row)

    def _record(self, checkpoints: Sequence[OwnedRow]) -> None:
        """Of the checkpoints, record as deleted those that the thread store contains."""
        if self.heads is not None:
            for part in _parts([Spot(*row.key) for row in checkpoints], _NAMES):
                live = [head.spot for head in self.heads.find(part).heads if head.kind is not Kind.DELETED]
                self.heads.append([Head(spot, Kind.DELETED, b"") for spot in live])

    def _names(self, column: str) -> dict[str, Sequence[Known]]:
        """Return the erased names that a key column still contains, each with its erasures."""
        found = dict[str, Sequence[Known]]()
        for _, text in self.store.key_texts(column):
            if column == "thread_id" and self.store.kind == "postgres" and len(text) > _MAX_CHARS:
                raise RowError(f"a thread id has over {_MAX_CHARS} characters, too long to be compared")
            labels = text.split(".") if column == "prefix" else [text]
            for end in range(1, len(labels) + 1):  # a namespace was erased with all namespaces below it
                name = ".".join(labels[:end])
                if known := self._erased.get((column, self._hmac(name) or "")):
                    found[name] = known
                    break
        return found

    def _rows_of(self, threads: Mapping[str, Sequence[Known]]) -> dict[str, list[OwnedRow]]:
        """Return the rows of these threads to delete, by table, and count all rows of the threads."""
        back = defaultdict[str, list[OwnedRow]](list)
        # Keys of values in rows of their own, named by checkpoints; `None` means all values of a thread.
        named, kept = set[Any](), set[Any]()
        tables = [table for table in self.store.owned_tables if table not in _OF_STORE]
        for table in reversed(tables):  # checkpoints before their values
            for row in self.store.owned(table, [*threads]):
                is_back = None
                if table == _BLOBS:
                    is_kept = row.key in kept or (row.key[0], None) in kept
                    is_back = False if is_kept else True if row.key in named else None
                is_old = self._is_back(threads[row.key[0]], table, row, is_back)
                (named if is_old else kept).update(_named_by(table, row))
                if is_old:
                    back[table].append(row)
        return back

    def _is_back(
        self, known: Sequence[Known], table: str, row: OwnedRow, is_back: bool | None = None
    ) -> bool:
        """Count a row, and return whether to delete it."""
        told = [(one.document, one.is_back(table, row) if is_back is None else is_back) for one in known]
        documents = {document for document, each in told if each is not False}
        self.documents |= documents
        self.found += bool(documents)
        self.newer += not documents
        return any(each for _, each in told)


def _checkpoint_id(table: str, row: OwnedRow) -> Any:
    return row.key[2] if table != _BLOBS and len(row.key) > 2 else None


def _named_by(table: str, row: OwnedRow) -> set[tuple[Any, ...]]:
    """Return the primary keys of a checkpoint's values; (thread id, `None`) if they are unknown."""
    if table != _CHECKPOINTS or row.beside is None:
        return set()
    thread_id, checkpoint_ns, *_ = row.key
    try:
        versions = json.loads(row.beside)
        if all(type(version) in (str, int) for version in versions.values()):
            return {(thread_id, checkpoint_ns, name, str(version)) for name, version in versions.items()}
    except (ValueError, RecursionError, AttributeError):
        pass
    return {(thread_id, None)}


def _parts(names: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (names[start : start + size] for start in range(0, len(names), size))
