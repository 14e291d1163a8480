"""Writes that are missing in a whole database: a part of a call, or what a child of a delta graph is made of.

Rows come in any order, and agents may run meanwhile. So what looks incomplete at the end is looked at again,
with all writes of the checkpoint, by the rules of `SealedSaver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from sealpoint.base.coordinates import WRITE
from sealpoint.crypto import RingCipher
from sealpoint.databases.cells import Cell, SecretOf, open_cell
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import RowStore
from sealpoint.errors import SealpointError, WritesLostError
from sealpoint.maintenance.bound import BESIDE, Parts, take_apart, widened
from sealpoint.maintenance.headrows import spot_of
from sealpoint.maintenance.verify import pages
from sealpoint.sealed.body import Header
from sealpoint.sealed.calls import Claims, StoredWrite, places_of, require_whole
from sealpoint.sealed.made import parse_made, require_made, task_hash
from sealpoint.threads.store import Spot

_SHIFT: Final = 8
"""Added to indexes, which are negative for special writes."""


class WriteRows:
    """Reads the writes and the headers of some checkpoints again."""

    def __init__(self, store: RowStore, cipher: RingCipher, secret_of: SecretOf | None = None) -> None:
        """Prepare; the arguments are those of `verify`."""
        self._store, self._cipher, self._secret_of = store, cipher, secret_of

    def writes(self, wanted: Callable[[Spot], bool]) -> dict[Spot, list[StoredWrite]]:
        """Return the writes to some checkpoints; one that does not open counts as one that is not bound."""
        found = dict[Spot, dict[tuple[Any, ...], StoredWrite]]()
        for column in self._store.columns:
            for page in pages(self._store, column) if column.coordinates == WRITE else ():
                for cell in page.cells:
                    spot = checkpoint_of(cell)
                    if spot is not None and wanted(spot):
                        found.setdefault(spot, {})[cell.where.key] = self._stored(cell)
        return {spot: [*writes.values()] for spot, writes in found.items()}

    def headers(self) -> Iterator[tuple[Spot, Header, bool]]:
        """Yield the header of each bound checkpoint, and whether its row names a parent."""
        for column in self._store.columns:
            if column.coordinates not in BESIDE:
                continue
            for page in pages(self._store, widened(column)):
                for cell in page.cells:
                    spot, parts = spot_of(cell.where.names), self._parts(cell)
                    if spot is not None and parts is not None and parts.header is not None:
                        yield spot, parts.header, cell.where.beside["parent_checkpoint_id"] is not None

    def _stored(self, cell: Cell) -> StoredWrite:
        parts, names = self._parts(cell), cell.where.names
        return StoredWrite(parts and parts.claims, str(names["task_id"]), str(names["channel"]), "", b"")

    def _parts(self, cell: Cell) -> Parts | None:
        try:
            opened = open_cell(self._cipher, cell, allow_plaintext=True, secret_of=self._secret_of)
            return take_apart(cell, opened)
        except SealpointError:  # it was named when all values were read
            return None


class CallCheck:
    """Finds writes that are missing.

    Holds what is incomplete so far, or of two results: for each such task two numbers and a call, and of
    delta graphs about 200 bytes for each task whose writes have not been read.
    """

    def __init__(self, rows: WriteRows) -> None:
        """Begin; ``rows`` reads again."""
        self._rows = rows
        self._tasks = dict[tuple[Spot, str], tuple[int, int, bytes | None]]()
        self._made = dict[Spot, dict[tuple[bytes, bytes], int]]()

    def add_checkpoint(self, cell: Cell, header: Header) -> None:
        """Add a bound checkpoint, of a `widened` column. Checkpoints come before writes.

        Raises:
            DecodeError: If it names the writes to its parent in another form.
        """
        spot, made = spot_of(cell.where.names), header.get("made")
        if spot is None or made is None or cell.where.beside["parent_checkpoint_id"] is None:
            return
        wanted = self._made.setdefault(spot._replace(checkpoint_id=str(header["parent"])), {})
        for task, calls in parse_made(made).items():
            for call, count in calls.items():
                wanted[task, call] = max(count, wanted.get((task, call), 0))

    def add(self, cell: Cell, claims: Claims) -> None:
        """Add a bound write."""
        spot = checkpoint_of(cell)
        if spot is None:
            return
        task_id = str(cell.where.names["task_id"])
        need, have, call = self._tasks.pop((spot, task_id), (0, 0, b""))
        have |= 1 << (claims.idx + _SHIFT) if claims.idx >= -_SHIFT else 0
        if claims.call:
            need |= _needed(claims.call)
        if claims.idx >= 0:  # of two calls, which `require_whole` compares, or of one
            call = claims.call if call in (b"", claims.call) else None
        if need & ~have or call is None:
            self._tasks[spot, task_id] = need, have, call
        if claims.idx >= 0 and spot in self._made:
            self._count(self._made[spot], (task_hash(task_id), claims.call_id or bytes(8)))

    def _count(self, wanted: dict[tuple[bytes, bytes], int], record: tuple[bytes, bytes]) -> None:
        left = wanted.pop(record, 1) - 1
        if left > 0:
            wanted[record] = left

    def findings(self) -> Iterator[Failure]:
        """Yield a finding for each checkpoint that lacks writes, after all were read."""
        incomplete = {spot for spot, _ in self._tasks}
        lacking = {spot for spot, wanted in self._made.items() if wanted}
        self._tasks.clear()
        self._made.clear()
        if not incomplete | lacking:
            return
        there, made = set[Spot](), dict[Spot, list[object]]()
        for spot, header, has_parent in self._rows.headers() if lacking else ():
            if spot in lacking:
                there.add(spot)
            parent = spot._replace(checkpoint_id=str(header["parent"]))
            if has_parent and parent in lacking and "made" in header:
                made.setdefault(parent, []).append(header["made"])
        writes = self._rows.writes((incomplete | lacking).__contains__)
        for spot in sorted(incomplete | (lacking & there)):
            # If the checkpoint itself is missing, its children have no parent, which is counted.
            yield from _lost(spot, writes.get(spot, ()), made.get(spot, ()) if spot in there else ())


@lru_cache(16)
def _needed(call: bytes) -> int:
    """Return the places of a call, as bits."""
    ordinary, special = places_of(call)
    return sum(1 << (idx + _SHIFT) for idx in (*ordinary, *special))


def _lost(spot: Spot, writes: Sequence[StoredWrite], made: Sequence[object]) -> Iterator[Failure]:
    try:
        require_whole(writes)
        for each in made:
            require_made(each, writes)
    except WritesLostError as error:
        yield Failure("writes", spot._asdict(), None, error)


def checkpoint_of(cell: Cell) -> Spot | None:
    """Return the checkpoint of a write; ``None`` if savers do not find it."""
    return spot_of({field: cell.where.names.get(field) for field in Spot._fields})
