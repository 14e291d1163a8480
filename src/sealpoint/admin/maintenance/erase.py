"""Erasing: all rows of threads, and of namespaces of LangGraph's Store, are deleted and counted.

A run of an agent that was under way may write a row after rows were looked for. So it is looked again, until
nothing is found. The thread store records the threads as deleted first, as `SealedSaver` does it.

After a backup was restored, rows of an erased thread may be there again, and the id may also have been used
again. Ids of checkpoints that LangGraph made sort by their times, and tell which of these rows are old.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.rows import BATCH, VECTORS, OwnedRow, RowStore
from sealpoint.admin.maintenance.inspect import stored_ids, stored_prefixes
from sealpoint.admin.maintenance.rotate import FIRST_ROWS, MAX_LOCK_SECONDS
from sealpoint.admin.maintenance.verify import time_of
from sealpoint.admin.maintenance.workers import Stop
from sealpoint.crypto import tag as tags
from sealpoint.errors import RowError
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.state import LEGACY
from sealpoint.threads.store import Head, Kind, Spot, ThreadStore

# How often it is looked for rows, and how long it waits between two looks: about a minute in all.
MAX_LOOKS: Final = 70
MAX_PAUSE_SECONDS: Final = 1.0
_FIRST_PAUSE_SECONDS: Final = 0.02
_NAMES: Final = 400  # in one statement
_MAX_CHARS: Final = 2_000  # of names that Postgres returns whole
_THREADS: Final = 50  # of which all rows are held at a time, by a search

# In place of the id of a key.
NOT_SEALED: Final = "not sealed"
OTHER: Final = "other"

_BLOBS: Final = "checkpoint_blobs"
_CHECKPOINTS: Final = "checkpoints"
_OF_STORE: Final = (VECTORS, ITEMS.table)

T = TypeVar("T")


class Owner(NamedTuple):
    """A thread, or a namespace of LangGraph's Store.

    Attributes:
        is_thread: Whether it is a thread.
        name: Its id, or its labels, joined by dots.
        stored: What may stand for it in the database.
    """

    is_thread: bool
    name: str
    stored: tuple[str, ...]


class Deletion:
    """Deletes rows in batches for which no writer waits long, and counts them by table and key."""

    def __init__(self, store: RowStore, ring: KeyRing, heads: ThreadStore | None) -> None:
        self.counts = Counter[tuple[str, str]]()
        self.store, self.heads = store, heads
        self._ids = {key.id for key in ring.keys}
        self._rows = FIRST_ROWS

    def delete(self, table: str, rows: Iterable[OwnedRow], stop: Stop) -> int:
        """Delete rows, but none after a stop; return how many were to be deleted."""
        found, batches = 0, defaultdict[str, list[OwnedRow]](list)
        for row in rows:
            if stop.is_set():
                break
            found += 1
            batch = batches[key := self.key_of(row)]
            batch.append(row)
            if len(batch) >= self._rows:
                self._delete(table, key, batches.pop(key))
        for key, batch in batches.items():
            if not stop.is_set():
                self._delete(table, key, batch)
        return found

    def _delete(self, table: str, key: str, rows: Sequence[OwnedRow]) -> None:
        start = monotonic()
        self.counts[table, key] += self.store.delete(table, rows)
        seconds = monotonic() - start
        if seconds > MAX_LOCK_SECONDS:
            self._rows = max(1, len(rows) // 2)
        elif seconds < MAX_LOCK_SECONDS / 2:
            self._rows = min(BATCH.rows, 2 * self._rows)

    def key_of(self, row: OwnedRow) -> str:
        """Return the id of the key that a row names, or what stands for it: tags are not trusted."""
        kind, tag = tags.classify(row.tag)
        if kind is tags.Kind.SEALED and tag is not None and tag.key_id in self._ids:
            return tag.key_id or OTHER
        is_plain = kind is tags.Kind.PLAINTEXT or row.tag is None
        return LEGACY if kind is tags.Kind.LEGACY else NOT_SEALED if is_plain else OTHER


class Erasing(Deletion):
    """Erases threads and namespaces.

    Attributes:
        planned: How many rows are to be deleted, by table and key.
        last: The greatest id of a checkpoint, by thread.
        until: When an item was last changed, by namespace.
        there: The names of those that have a row, or a checkpoint that the thread store remembers.
        looks: How often it was looked for rows.
    """

    def __init__(
        self,
        store: RowStore,
        ring: KeyRing,
        threads: Sequence[str],
        namespaces: Sequence[str],
        heads: ThreadStore | None,
    ) -> None:
        super().__init__(store, ring, heads)
        self.threads = [Owner(True, name, (*stored_ids(ring, name),)) for name in threads]
        self.namespaces = [Owner(False, name, (*stored_prefixes(ring, name),)) for name in namespaces]
        self.planned = Counter[tuple[str, str]]()
        self.last, self.until, self.there = dict[str, str](), dict[str, str](), set[Owner]()
        self.looks = 0
        self._columns = [stored for owner in self.threads for stored in owner.stored]
        self._prefixes = [stored for owner in self.namespaces for stored in owner.stored]

    def plan(self) -> None:
        """Count the rows, and find what is known of each thread and namespace. Nothing is changed."""
        owners = {stored: owner for owner in self.threads for stored in owner.stored}
        for table, rows in self._tables():
            for row in rows:
                self.planned[table, self.key_of(row)] += 1
                if table in _OF_STORE:
                    self._plan_item(row)
                    continue
                self.there.add(owner := owners[row.key[0]])
                if table != _BLOBS and len(row.key) > 2 and isinstance(row.key[2], str):
                    self.last[owner.name] = max(self.last.get(owner.name, ""), row.key[2])
        if self.heads is not None:
            self.there |= {each for each in self.threads if any(map(self.heads.has_live, each.stored))}

    def _plan_item(self, row: OwnedRow) -> None:
        for owner in self.namespaces:
            if any(f"{row.key[0]}.".startswith(f"{stored}.") for stored in owner.stored):
                self.there.add(owner)
                if isinstance(row.beside, str):
                    self.until[owner.name] = max(self.until.get(owner.name, ""), row.beside)

    def _tables(self) -> Iterator[tuple[str, Iterator[OwnedRow]]]:
        for table in self.store.owned_tables:
            names = self._prefixes if table in _OF_STORE else self._columns
            for some in _parts(names, _NAMES):
                yield table, self.store.owned(table, some)

    def run(self, stop: Stop) -> bool:
        """Delete all rows; return whether none is left. The caller holds the store (`RowStore.hold`)."""
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
        """Record in the thread store that the threads are deleted; return how many were not."""
        if self.heads is None:
            return 0
        live = [*filter(self.heads.has_live, self._columns)]
        for column in live:
            self.heads.delete_thread(column)
        return len(live)


class Erased(NamedTuple):
    """What is known of a thread or a namespace that was erased.

    Attributes:
        at: When the erasure began, UTC.
        last: The greatest id of a checkpoint that it had; of a namespace, when an item was last changed.
        documents: Digests of the documents of its erasures.
    """

    at: str
    last: str | None
    documents: tuple[str, ...] = ()

    @classmethod
    def thread(cls, at: str, last: str | None, document: str) -> Erased:
        """Make one of a thread.

        A greatest id that names a time after the erasure was forged, or made by a wrong clock.
        """
        time = time_of(last)
        return cls(at, last if time is not None and time <= at else None, (document,))

    def joined(self, other: Erased | None) -> Erased:
        """Return what is known of one that was erased twice."""
        if other is None:
            return self
        last = max(filter(None, (self.last, other.last)), default=None)
        return Erased(max(self.at, other.at), last, (*other.documents, *self.documents))

    def is_back(self, checkpoint_id: object, parent: object = None) -> bool | None:
        """Whether a row of this checkpoint was there when it was erased; ``None`` if its id cannot tell.

        Nor can that of a newer one whose parent may have been there: it can have the state of that, if a
        run was under way.
        """
        time = time_of(checkpoint_id)
        if time is None:
            return None
        if self.last is not None and str(checkpoint_id) <= self.last:
            return True
        if parent is not None and self.is_back(parent) is not False:
            return None
        return False if self.last is not None or time > self.at else None

    def is_back_by_time(self, when: object) -> bool | None:
        """Whether an item was there when it was erased: no, or perhaps: nothing authenticates its time."""
        last = self.last or self.at.replace("T", " ").removesuffix("Z")
        return False if isinstance(when, str) and when > last else None


class Search(Deletion):
    """Looks for rows of what was erased, and erases those whose ids tell that they are old.

    Attributes:
        found: How many rows are back, or may be, by what was erased.
        again: How many rows are newer.
    """

    def __init__(
        self,
        store: RowStore,
        ring: KeyRing,
        heads: ThreadStore | None,
        erased: Mapping[str, Erased],
        hmac: Callable[[str], str | None],
    ) -> None:
        """Prepare a search; ``erased`` is by the HMAC of each name, as it stands in the database."""
        super().__init__(store, ring, heads)
        self.found, self.again = Counter[Erased](), 0
        self._erased, self._hmac = erased, hmac

    def run(self, stop: Stop, *, apply: bool) -> None:
        """Search, and erase. The caller holds the store."""
        names = self._names("thread_id")
        for some in _parts([*names.items()], _THREADS):
            back = self._rows_of(dict(some))
            if not apply:
                continue
            self._record_rows(back.get(_CHECKPOINTS, ()))
            # What a checkpoint names goes first: while it is there, a run that was ended can be repeated.
            for table in self.store.owned_tables:
                self.delete(table, back.get(table, ()), stop)
        for prefix, erased in self._names("prefix").items():
            for table in set(self.store.owned_tables).intersection(_OF_STORE):
                for row in self.store.owned(table, [prefix]):
                    self._add(erased, erased.is_back_by_time(row.beside))

    def _record_rows(self, checkpoints: Sequence[OwnedRow]) -> None:
        """Record in the thread store that checkpoints are deleted, if it remembers them."""
        if self.heads is not None:
            for part in _parts([Spot(*row.key) for row in checkpoints], _NAMES):
                live = [head.spot for head in self.heads.find(part).heads if head.kind is not Kind.DELETED]
                self.heads.append([Head(spot, Kind.DELETED, b"") for spot in live])

    def _names(self, column: str) -> dict[str, Erased]:
        """Return what was erased of what the database has in a column of names."""
        found = dict[str, Erased]()
        for _, text in self.store.key_texts(column):
            if column == "thread_id" and self.store.kind == "postgres" and len(text) > _MAX_CHARS:
                raise RowError(f"an id of a thread has over {_MAX_CHARS} characters, and cannot be compared")
            labels = text.split(".") if column == "prefix" else [text]
            for end in range(1, len(labels) + 1):  # a namespace was erased with all below it
                name = ".".join(labels[:end])
                if (erased := self._erased.get(self._hmac(name) or "")) is not None:
                    found[name] = erased
                    break
        return found

    def _rows_of(self, threads: Mapping[str, Erased]) -> dict[str, list[OwnedRow]]:
        """Return the rows that are to be erased, by table, and count the others."""
        back = defaultdict[str, list[OwnedRow]](list)
        # Values with rows of their own, which checkpoints name; `None` stands for all of a thread.
        named, kept = set[Any](), set[Any]()
        tables = [table for table in self.store.owned_tables if table not in _OF_STORE]
        for table in reversed(tables):  # checkpoints before what they name
            for row in self.store.owned(table, [*threads]):
                erased = threads[row.key[0]]
                if table == _BLOBS:
                    is_kept = row.key in kept or (row.key[0], None) in kept
                    is_back = False if is_kept else True if row.key in named else None
                else:
                    is_back = erased.is_back(row.key[2] if len(row.key) > 2 else None, row.parent)
                if table == _CHECKPOINTS and row.beside is not None:
                    (named if is_back else kept).update(_named_by(row))
                if self._add(erased, is_back):
                    back[table].append(row)
        return back

    def _add(self, erased: Erased, is_back: bool | None) -> bool:
        """Count a row, and return whether it is to be erased."""
        if is_back is False:
            self.again += 1
        else:
            self.found[erased] += 1
        return is_back is True


def _named_by(row: OwnedRow) -> set[tuple[Any, ...]]:
    """Return the keys of the values that a checkpoint names; else the thread and `None`."""
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


def by_table(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Return counts by table and key as JSON has them."""
    found = dict[str, dict[str, int]]()
    for (table, key), rows in sorted(counts.items()):
        if rows:
            found.setdefault(table, {})[key] = rows
    return found
