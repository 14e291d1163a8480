"""Calls of ``put_writes``: each write says which others were stored with it, so that none can be taken out.

    call   8 random bytes | u32be number of writes | u16be k | k times (u32be position, i8 fixed index)

The index of a write is its position in its call. Special writes have fixed indexes instead, and the positions
that they had in the call are no indexes. A later call of a task does not replace ordinary writes, so a place
of a call may be taken by a write of another one.
"""

from __future__ import annotations

import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

from sealpoint.base import WRITES_IDX_MAP
from sealpoint.base.checkpoint import NULL_TASK_ID
from sealpoint.errors import ConfigError, WritesLostError, excerpt
from sealpoint.threads.store import Spot

ID_BYTES: Final = 8
MAX_SPECIAL: Final = 0xFFFF  # how many special writes a call may have; LangGraph stores a few

_HEAD: Final = struct.Struct(f">{ID_BYTES}sIH")
_SPECIAL: Final = struct.Struct(">Ib")


class Claims(NamedTuple):
    """The place of a write among those of its task."""

    task_path: str
    idx: int  # its position in its call, or the fixed index of a special write
    call: bytes = b""  # what describes its call; empty for writes of earlier releases

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the row that it stands for."""
        return {"task_path": self.task_path, "idx": self.idx}

    @property
    def call_id(self) -> bytes:
        """The random bytes of its call; empty if it has none."""
        return self.call[:ID_BYTES]


class Write(NamedTuple):
    """One pending write, opened."""

    claims: Claims | None  # authenticated; none if it is not bound to its row
    task_id: str
    channel: str
    value: Any


class StoredWrite(NamedTuple):
    """One pending write, authenticated and not decoded."""

    claims: Claims | None  # None if it is not bound to its row, and so not authenticated
    task_id: str
    channel: str
    inner: str  # type of the bytes; of a write that is not bound, the tag
    data: Any

    @property
    def fixed(self) -> int | None:
        """Its index if it is a special write."""
        return WRITES_IDX_MAP.get(self.channel)

    @property
    def is_kept(self) -> bool:
        """Whether a thread store remembers it: a special write, or one of the user."""
        return self.fixed is not None or self.task_id == NULL_TASK_ID


def new_call(writes: Sequence[tuple[str, Any]]) -> bytes:
    """Return what describes a call of ``put_writes``."""
    special = [
        (position, WRITES_IDX_MAP[channel])
        for position, (channel, _) in enumerate(writes)
        if channel in WRITES_IDX_MAP
    ]
    if len(special) > MAX_SPECIAL:
        raise ConfigError(f"a call stores {len(special)} special writes, and may store {MAX_SPECIAL}")
    head = _HEAD.pack(os.urandom(ID_BYTES), len(writes), len(special))
    return head + b"".join([_SPECIAL.pack(*each) for each in special])


def end_of(data: bytes, start: int) -> int:
    """Return where the call ends that begins at ``start``; `struct.error` if there is none."""
    _, _, special = _HEAD.unpack_from(data, start)
    return start + _HEAD.size + int(special) * _SPECIAL.size


def places_of(call: bytes) -> tuple[Iterable[int], frozenset[int]]:
    """Return the indexes of a call's ordinary writes, and those of its special ones."""
    _, size, special = _HEAD.unpack_from(call)
    if not special:
        return range(size), frozenset()
    pairs = [*_SPECIAL.iter_unpack(call[_HEAD.size :])]
    positions = {position for position, _ in pairs}
    return [idx for idx in range(size) if idx not in positions], frozenset(fixed for _, fixed in pairs)


def require_whole(writes: Sequence[StoredWrite]) -> None:
    """Check the writes of one checkpoint: of each call of which one is there, all places are taken.

    The call of a task that was stored first has all places that it shares with another. A write of an earlier
    release, or one that is not bound, may be in any place that is not special.
    """
    calls = Counter(
        (write.task_id, write.claims.call) for write in writes if write.claims and write.claims.call
    )
    for (task_id, call), count in calls.items():
        _, size, special = _HEAD.unpack_from(call)
        # Usually all are there, at places of their own.
        if (special or count != size) and not is_whole(writes, task_id, call):
            raise WritesLostError(
                f"a write of task {excerpt(task_id)} is missing, others of its call are not"
            )
    if len(calls) > len({task_id for task_id, _ in calls}):
        _require_unmixed(writes)


def _require_unmixed(writes: Sequence[StoredWrite]) -> None:
    taken = dict[str, dict[bytes, set[int]]]()
    for write in writes:
        if write.claims and write.claims.call and write.fixed is None:
            taken.setdefault(write.task_id, {}).setdefault(write.claims.call, set()).add(write.claims.idx)
    for task_id, calls in taken.items():
        for one, other in combinations(calls, 2):
            if calls[one] & {*places_of(other)[0]} and calls[other] & {*places_of(one)[0]}:
                raise WritesLostError(f"writes of task {excerpt(task_id)} are of two results")


def is_whole(writes: Sequence[StoredWrite], task_id: str, call: bytes) -> bool:
    """Whether all places of a call are taken among the writes of its checkpoint."""
    found = [write for write in writes if write.task_id == task_id]
    taken = {write.claims.idx if write.claims else write.fixed for write in found}
    unbound = sum(not write.claims and write.fixed is None for write in found)
    ordinary, special = places_of(call)
    return special <= taken and sum(idx not in taken for idx in ordinary) <= unbound


_REMEMBERED: Final = 1_000  # of so many checkpoints


class Acknowledged(OrderedDict[tuple[Any, ...], list[tuple[str, bytes]]]):
    """The calls of each checkpoint. In a delta graph the process goes on with their values in its memory.

    A checkpoint is removed when a child of it is stored, which names the writes.
    """

    def add(self, spot: Spot, task_id: str, call: bytes) -> None:
        """Remember a call that was stored."""
        self.setdefault(spot, []).append((task_id, call))
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def require(self, spot: Spot, writes: Sequence[StoredWrite]) -> None:
        """Check that the places of all calls are still taken."""
        for task_id, call in self.get(spot, ()):
            if not is_whole(writes, task_id, call):
                raise WritesLostError(f"a write of task {excerpt(task_id)} has gone since it was stored")

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread: it is deleted."""
        for spot in [spot for spot in [*self] if spot[0] == thread_id]:
            self.pop(spot, None)
