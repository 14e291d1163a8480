"""Pending writes of a whole database: finds missing writes, and writes that a later write had replaced.

Some writes of one put_writes() call may be missing, or writes from which a delta channel was computed. Rows
are read in any order, and agents may run meanwhile. So a checkpoint that looks incomplete at the end is read
again, with all its writes, and checked by the rules of `SealedSaver`.

Special writes (interrupts, answers, errors) are compared with a thread store. The database is read first,
then the thread store. Writes that differ are read again; if they still differ, they are reported.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from sealpoint.admin.databases.cells import EVERYTHING, Cell, Column, Opener, Selection
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.databases.rows import RowStore, failure, pages
from sealpoint.admin.results.events import Failure
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import RowError, SealpointError, WritesLostError
from sealpoint.seal.calls import (
    NULL_TASK_ID,
    WRITES_IDX_MAP,
    Claims,
    StoredWrite,
    parse_made,
    places_of,
    require_made,
    require_whole,
    task_hash,
)
from sealpoint.seal.cipher import Opened
from sealpoint.seal.heads import (
    UNBOUND_DIGEST,
    Calls,
    Kind,
    Special,
    contradiction,
    mac_of,
    not_last,
    standing_calls,
)
from sealpoint.seal.keys import KeyedHash
from sealpoint.seal.places import WRITE, Spot
from sealpoint.seal.rows import Header, digest_of
from sealpoint.sealed.heads import PURPOSE
from sealpoint.threads.store import ThreadStore

# Replaces the MAC of a checkpoint that is not bound to its row, or does not open.
UNBOUND: Final = b""
UNOPENED: Final = b"?"
_SHIFT: Final = 8  # added to indexes, because special writes have negative indexes


def cells_of(
    store: RowStore, columns: Iterable[Column], selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> Iterator[Cell]:
    """Yield the selected values of the columns as cells: each value with its type tag and its row."""
    for column in columns:
        for page in pages(store, column, selection, batch):
            yield from page.cells


def parts_of(opener: Opener, cell: Cell) -> Parts | None:
    """Open a value again; return ``None`` if the value does not open, which is already reported."""
    try:
        return opener.parts(cell)
    except SealpointError:
        return None


class CheckpointRows:
    """Reads the checkpoints of a database."""

    def __init__(
        self,
        database: RowStore,
        cipher: RingCipher,
        *,
        allow_plaintext: bool = False,
    ) -> None:
        self.database = database
        self.columns: tuple[Column, ...] = tuple(column for column in database.columns if column.has_headers)
        self.with_writes = (*self.columns, *_columns_of_writes(database))
        self._keyed = KeyedHash(cipher.ring.index_key(PURPOSE))
        self.cipher, self._opener = cipher, Opener(cipher, allow_plaintext)

    def mac(self, spot: Spot, opened: Opened, parts: Parts) -> bytes:
        """Return the MAC of an opened checkpoint; `UNBOUND` if the checkpoint is not bound to its row."""
        if parts.header is None:
            return UNBOUND
        return mac_of(self._keyed, spot, digest_of(parts.header.get("store"), *opened.typed))

    def adopted_mac(self, spot: Spot, mac: bytes) -> bytes:
        """Return the MAC to record in a thread store: ``mac``; for `UNBOUND`, a MAC over the place."""
        return mac_of(self._keyed, spot, UNBOUND_DIGEST) if mac == UNBOUND else mac

    def find(self, wanted: Container[Spot]) -> dict[Spot, bytes]:
        """Return the MACs of the wanted checkpoints that exist. Reads the whole database."""
        found = dict[Spot, bytes]()
        for cell in cells_of(self.database, self.columns):
            spot = spot_of(cell.where.names)
            if spot is not None and spot in wanted:
                found[spot] = UNOPENED
                with suppress(SealpointError):  # reported at the first reading
                    opened = self._opener.open(cell)
                    found[spot] = self.mac(spot, opened, cell.parts(opened))
        for spot in self.readable():
            if spot in wanted:
                found.setdefault(spot, UNBOUND)
        return found

    def readable(self) -> Iterator[Spot]:
        """Yield the place of each checkpoint that is readable without a key and has no sealed column."""
        for record in self.database.records():
            spot = spot_of(record.place)
            if record.is_readable and spot is not None:
                yield spot


def _columns_of_writes(store: RowStore) -> list[Column]:
    return [column for column in store.columns if column.coordinates == WRITE]


def spot_of(names: Mapping[str, Any]) -> Spot | None:
    """Return the place of a checkpoint from its key columns; ``None`` if no saver could find the row."""
    parts = [names.get(field) for field in Spot._fields]
    if len(names) != len(parts) or any(type(part) is not str for part in parts):
        return None
    return Spot(*map(str, parts))


def checkpoint_of(names: Mapping[str, Any]) -> Spot | None:
    """Return the place of the checkpoint that a write belongs to; ``None`` if no saver could find the row."""
    return spot_of({field: names.get(field) for field in Spot._fields})


def writes_of(store: RowStore, cipher: RingCipher, wanted: Container[Spot]) -> dict[Spot, list[StoredWrite]]:
    """Return the writes of each wanted checkpoint; writes that do not open are returned as unbound writes."""
    opener, found = Opener(cipher, allow_plaintext=True), dict[Spot, dict[tuple[Any, ...], StoredWrite]]()
    for cell in cells_of(store, _columns_of_writes(store)):
        names = cell.where.names
        spot = checkpoint_of(names)
        if spot is not None and spot in wanted:
            parts = parts_of(opener, cell)
            found.setdefault(spot, {})[cell.where.key] = StoredWrite(
                parts and parts.claims, str(names["task_id"]), str(names["channel"]), "", b""
            )
    return {spot: [*writes.values()] for spot, writes in found.items()}


class WriteCheck:
    """Finds missing writes, and pairs of writes that were sealed for the same row.

    Keeps in memory two numbers and the sealed record of a call for each task that is incomplete so far, or
    has two results; for delta channels, about 200 bytes for each task whose writes have not been read yet.

    Two writes sealed for the same row cannot both be in that row. So only writes that are in another row are
    kept in memory: few, because a saver changes the index of a write only when it copies a thread.
    """

    def __init__(self, store: RowStore, cipher: RingCipher) -> None:
        self._store, self._cipher = store, cipher
        self._tasks = dict[tuple[Spot, str], tuple[int, int, bytes | None]]()
        self._made = dict[Spot, dict[tuple[bytes, bytes], int]]()
        self._claimed = dict[tuple[Any, ...], Cell]()
        self._copies = list[Cell]()

    def add_checkpoint(self, cell: Cell, header: Header) -> None:
        """Note a bound checkpoint (``cell`` from a `Column.widened`). Note them all before any write."""
        spot, made = spot_of(cell.where.names), header.get("made")
        if spot is None or made is None or cell.where.beside["parent_checkpoint_id"] is None:
            return
        wanted = self._made.setdefault(spot._replace(checkpoint_id=str(header["parent"])), {})
        for task, calls in parse_made(made).items():
            for call, count in calls.items():
                wanted[task, call] = max(count, wanted.get((task, call), 0))

    def add(self, cell: Cell, claims: Claims) -> None:
        """Note a bound write; ``claims`` is what SealedSaver sealed with the write."""
        if (place := _claimed_place(cell, claims)) != cell.where.key[:-1]:
            if place in self._claimed:
                self._copies.append(cell)
            self._claimed[place] = cell._replace(value=None)
        spot = checkpoint_of(cell.where.names)
        if spot is None:
            return
        task_id = str(cell.where.names["task_id"])
        need, have, call = self._tasks.pop((spot, task_id), (0, 0, b""))
        have |= 1 << (claims.idx + _SHIFT) if claims.idx >= -_SHIFT else 0
        if claims.call:
            need |= _needed(claims.call)
        if claims.idx >= 0:  # from one call or from two, which `require_whole` compares
            call = claims.call if call in (b"", claims.call) else None
        if need & ~have or call is None:
            self._tasks[spot, task_id] = need, have, call
        if claims.idx >= 0 and (wanted := self._made.get(spot)):
            record = task_hash(task_id), claims.call_id or bytes(8)
            if (left := wanted.pop(record, 1) - 1) > 0:
                wanted[record] = left

    def find_copies(self) -> Iterator[Failure]:
        """After all writes were read, yield a failure for each write sealed for the row of another write."""
        error, opener = "a write of a task is stored twice", Opener(self._cipher)
        for cell in self._copies:
            yield failure(cell, RowError(error))
        for cell in cells_of(self._store, _columns_of_writes(self._store) if self._claimed else ()):
            found = self._claimed.get(cell.where.key[:-1])
            parts = found and parts_of(opener, cell)
            if found and parts and parts.claims and _claimed_place(cell, parts.claims) == cell.where.key[:-1]:
                yield failure(found, RowError(error))

    def find_lost(self) -> Iterator[Failure]:
        """Yield a failure for each checkpoint with missing writes, after all writes were read."""
        incomplete = {spot for spot, _ in self._tasks}
        lacking = {spot for spot, wanted in self._made.items() if wanted}
        self._tasks.clear()
        self._made.clear()
        if not incomplete | lacking:
            return
        there, made = set[Spot](), dict[Spot, list[object]]()
        opener = Opener(self._cipher, allow_plaintext=True)
        columns = [column.widened for column in self._store.columns if column.has_headers and lacking]
        for cell in cells_of(self._store, columns):
            spot, parts = spot_of(cell.where.names), parts_of(opener, cell)
            if spot is None or parts is None or parts.header is None:
                continue
            if spot in lacking:
                there.add(spot)
            parent = spot._replace(checkpoint_id=str(parts.header["parent"]))
            has_parent = cell.where.beside["parent_checkpoint_id"] is not None
            if has_parent and parent in lacking and "made" in parts.header:
                made.setdefault(parent, []).append(parts.header["made"])
        writes = writes_of(self._store, self._cipher, incomplete | lacking)
        for spot in sorted(incomplete | (lacking & there)):
            # If the checkpoint itself is missing, its children are counted as checkpoints without a parent.
            yield from _lost(spot, writes.get(spot, ()), made.get(spot, ()) if spot in there else ())


@lru_cache(16)
def _needed(call: bytes) -> int:
    ordinary, special = places_of(call)
    return sum(1 << (idx + _SHIFT) for idx in (*ordinary, *special))


def _claimed_place(cell: Cell, claims: Claims) -> tuple[Any, ...]:
    """Return the primary key for which a write was sealed: the key of its row, but with the sealed index."""
    *task, _, _ = cell.where.key
    return (*task, claims.idx)


def _lost(spot: Spot, writes: Sequence[StoredWrite], made: Sequence[object]) -> Iterator[Failure]:
    try:
        require_whole(writes)
        for each in made:
            require_made(each, writes)
    except WritesLostError as error:
        yield Failure("writes", spot._asdict(), None, error)


class LastWrites:
    """Collects the special writes of a database (see the module); about 300 bytes of memory for each."""

    def __init__(self) -> None:
        self.calls: dict[Spot, Calls] = {}

    def add(self, cell: Cell, parts: Parts) -> None:
        """Note an opened special write; skip other values."""
        task_id = cell.where.names.get("task_id")
        if parts.claims is not None and (parts.claims.idx < 0 or task_id == NULL_TASK_ID):
            self._add(cell.where.names, parts.claims.idx, parts.claims.call_id)

    def add_failure(self, failed: Failure) -> None:
        """Note a special write that did not open: the write exists, and its failure has been reported."""
        idx = WRITES_IDX_MAP.get(failed.place.get("channel", ""))
        if idx is not None or failed.place.get("task_id") == NULL_TASK_ID:
            self._add(failed.place, idx, b"")

    def _add(self, names: Mapping[str, Any], idx: int | None, call: bytes) -> None:
        if (spot := checkpoint_of(names)) is not None:
            self.calls.setdefault(spot, {})[str(names["task_id"]), idx] = call

    def findings(self, rows: CheckpointRows, store: ThreadStore) -> Iterator[tuple[Spot, RowError]]:
        """After reading all, yield place and error of each checkpoint that lacks its last special writes."""
        suspects = {
            spot: events
            for spot, events in store.specials()
            if contradiction(events, self.calls.get(spot, {})) is not None
        }
        self.calls.clear()
        if not suspects:
            return
        there = rows.find(suspects)  # a missing checkpoint is a separate finding
        writes = writes_of(rows.database, rows.cipher, suspects)
        for spot, events in suspects.items():
            error = not_last(events, writes.get(spot, ()))
            if error is None or spot not in there:
                continue
            # The checkpoint may have been deleted meanwhile, or its deletion may have begun.
            if all(head.kind is Kind.PUT for head in store.find([spot]).heads):
                yield spot, error

    def to_adopt(
        self, events: Mapping[Spot, Sequence[Special]], since: int
    ) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield, by checkpoint, the events to record so that a thread store accepts the special writes."""
        for spot in sorted(self.calls.keys() | events):
            rows, standing = self.calls.get(spot, {}), standing_calls(events.get(spot, ()))
            there = {
                (task_id, idx): call
                for (task_id, idx), call in rows.items()
                if idx is not None and call not in standing.get((task_id, idx), (b"",))
            }
            gone = [place for place, calls in standing.items() if any(calls) and place not in rows]
            if new := there | dict.fromkeys(gone, b""):
                yield spot, [Special(0, *place, call, since) for place, call in new.items()]
