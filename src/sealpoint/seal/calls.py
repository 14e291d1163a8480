"""Pending writes and their calls: the bytes sealed before a value, and checks for missing writes.

    write   i32be idx | u32be length, and 2^31 if a call follows | task_path, UTF-8 | call
            | the value, by the serializer
    call    8 random bytes | u32be number of writes | u16be k | k times (u32be position, i8 fixed index)

Each write contains the description of its call of ``put_writes``, so that a removed write is noticed. Earlier
releases wrote no description. The index of a write is its position in its call. Special writes have fixed
indexes instead, and their positions in the call are not used as indexes. A later call of a task does not
replace ordinary writes, so the write at an index of a call may be of an earlier call.

In a delta graph, the header of a checkpoint lists the writes to its parent that made its channels:

    made    base64 of records, sorted: SHA-256(task id)[:8] | id of the call, 8 bytes | u32be number of writes

The number counts the ordinary writes of a call in the database when the checkpoint was stored; these writes
are never replaced. Writes of other runs, or of other children, are not listed. For a write of an earlier
release the id of the call is zeros.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import combinations
from os import urandom
from typing import Any, Final, NamedTuple

from sealpoint.errors import ConfigError, DecodeError, RowError, WritesLostError, excerpt

# Channels of special writes, by LangGraph's names, and the channel of the messages of a step.
ERROR: Final = "__error__"
SCHEDULED: Final = "__scheduled__"
INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
TASKS: Final = "__pregel_tasks"

WRITES_IDX_MAP: Final = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4}
"""Index of the special writes of a task: they sort before its other writes and may be replaced."""

# Task id of writes that a user stores by ``Command``: no node can run again to repeat them
NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"

ID_BYTES: Final = 8
MAX_SPECIAL: Final = 0xFFFF  # how many special writes a call may have; LangGraph stores a few

_HEAD: Final = struct.Struct(f">{ID_BYTES}sIH")
_SPECIAL: Final = struct.Struct(">Ib")
_CLAIMS: Final = struct.Struct(">iI")
_HAS_CALL: Final = 2**31


class Claims(NamedTuple):
    """Task path, index and call of a write, parsed from the bytes that are sealed before its value."""

    task_path: str
    idx: int  # position of the write in its call, or the fixed index of a special write
    call: bytes = b""  # description of the write's call; empty for writes of earlier releases

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that the row of the write must have, by name."""
        return {"task_path": self.task_path, "idx": self.idx}

    @property
    def call_id(self) -> bytes:
        """The random bytes of the call of ``put_writes``; empty if the write describes no call."""
        return self.call[:ID_BYTES]


class Write(NamedTuple):
    """One pending write, opened and decoded."""

    claims: Claims | None  # authenticated; None if the write is not bound to its row
    task_id: str
    channel: str
    value: Any


class StoredWrite(NamedTuple):
    """One pending write, authenticated and not decoded."""

    claims: Claims | None  # None if the write is not bound to its row, and so not authenticated
    task_id: str
    channel: str
    inner: str  # type of the bytes; for a write that is not bound, its tag
    data: Any

    @property
    def fixed(self) -> int | None:
        """The fixed index of the write's channel; ``None`` for an ordinary write."""
        return WRITES_IDX_MAP.get(self.channel)

    @property
    def is_kept(self) -> bool:
        """Whether a thread store remembers the write: it does for special writes, and writes of the user."""
        return self.fixed is not None or self.task_id == NULL_TASK_ID


def new_call(writes: Sequence[tuple[str, Any]]) -> bytes:
    """Return the bytes that describe a call of ``put_writes``: a random id, and the indexes of its writes."""
    special = [
        (position, WRITES_IDX_MAP[channel])
        for position, (channel, _) in enumerate(writes)
        if channel in WRITES_IDX_MAP
    ]
    if len(special) > MAX_SPECIAL:
        raise ConfigError(f"a call stores {len(special)} special writes; at most {MAX_SPECIAL} are supported")
    head = _HEAD.pack(urandom(ID_BYTES), len(writes), len(special))
    return head + b"".join([_SPECIAL.pack(*each) for each in special])


def places_of(call: bytes) -> tuple[Iterable[int], frozenset[int]]:
    """Return the indexes of a call's ordinary writes, and the indexes of its special writes."""
    _, size, special = _HEAD.unpack_from(call)
    if not special:
        return range(size), frozenset()
    pairs = [*_SPECIAL.iter_unpack(call[_HEAD.size :])]
    positions = {position for position, _ in pairs}
    return [idx for idx in range(size) if idx not in positions], frozenset(fixed for _, fixed in pairs)


def require_whole(writes: Sequence[StoredWrite]) -> None:
    """Check the writes to one checkpoint: if one write of a call is there, all others of that call must be.

    If two calls of a task share indexes, the writes at these indexes are those of the call that was stored
    first. An unbound write counts at any index of an ordinary write, because its index is not known.
    """
    calls = dict[tuple[str, bytes], int]()
    for write in writes:
        if write.claims and write.claims.call:
            place = write.task_id, write.claims.call
            calls[place] = calls.get(place, 0) + 1
    for (task_id, call), count in calls.items():
        _, size, special = _HEAD.unpack_from(call)
        # Usually all writes are there, and no other call of the task has their indexes.
        if (special or count != size) and not is_whole(writes, task_id, call):
            raise WritesLostError(
                f"a write of task {excerpt(task_id)} is missing; other writes of its call are there"
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
                raise WritesLostError(f"the writes of task {excerpt(task_id)} mix two results")


def is_whole(writes: Sequence[StoredWrite], task_id: str, call: bytes) -> bool:
    """Whether the writes of a checkpoint have all indexes of a call of a task."""
    found = [write for write in writes if write.task_id == task_id]
    taken = {write.claims.idx if write.claims else write.fixed for write in found}
    unbound = sum(not write.claims and write.fixed is None for write in found)
    ordinary, special = places_of(call)
    return special <= taken and sum(idx not in taken for idx in ordinary) <= unbound


def require_calls(calls: Iterable[tuple[str, bytes]], writes: Sequence[StoredWrite]) -> None:
    """Check that no write of ``calls``, pairs of a task id and a description, is missing among ``writes``."""
    for task_id, call in calls:
        if not is_whole(writes, task_id, call):
            raise WritesLostError(f"a write of task {excerpt(task_id)} is missing, and was stored before")


def pack_claims(claims: Claims) -> bytes:
    """Return the bytes that are sealed before the value of a write."""
    path = claims.task_path.encode("utf-8", "surrogatepass")
    mark = _HAS_CALL if claims.call else 0
    return _CLAIMS.pack(claims.idx, len(path) | mark) + path + claims.call


def split_claims(data: bytes) -> tuple[Claims, bytes]:
    """Split the authenticated bytes of a write: return its claims, and the bytes of its value."""
    try:
        idx, length = _CLAIMS.unpack_from(data)
        path_end = _CLAIMS.size + (length & ~_HAS_CALL)
        path = data[_CLAIMS.size : path_end].decode("utf-8", "surrogatepass")
        end = path_end
        if length & _HAS_CALL:
            _, _, special = _HEAD.unpack_from(data, path_end)
            end += _HEAD.size + int(special) * _SPECIAL.size
        if len(data) >= end:
            return Claims(path, idx, data[path_end:end]), data[end:]
    except (struct.error, UnicodeDecodeError):
        pass
    raise DecodeError("a sealed write lacks its task path and index")


def split_write(channel: str, data: bytes) -> tuple[Claims, bytes]:
    """Split the authenticated bytes of a write as `split_claims` does, and check its index."""
    claims, value = split_claims(data)
    require_same_kind(channel, claims)
    return claims, value


def require_same_kind(channel: str, claims: Claims) -> None:
    """Check the index of a write: a special channel has a fixed index, any other an index of 0 or more."""
    if WRITES_IDX_MAP.get(channel, max(claims.idx, 0)) != claims.idx:
        raise RowError(f"a write to {excerpt(channel)} was sealed as a write to another kind of channel")


# --- the writes of which a checkpoint of a delta graph was made -----------------------------------

# How many writes each call of each task has stored, by hashes of tasks and ids of calls
Made = Mapping[bytes, Mapping[bytes, int]]

_RECORD: Final = struct.Struct(f">8s{ID_BYTES}sI")
_NO_CALL: Final = bytes(ID_BYTES)


def task_hash(task_id: str) -> bytes:
    """Return the first 8 bytes of the SHA-256 of a task id."""
    return sha256(task_id.encode("utf-8", "surrogatepass")).digest()[:8]


def pack_made(writes: Sequence[StoredWrite]) -> str:
    """Return the text for a child's header that lists the writes to its parent; empty if there are none."""
    records = [
        _RECORD.pack(task, call or _NO_CALL, count) for (task, call), count in _standing(writes).items()
    ]
    return b64encode(b"".join(sorted(records))).decode()


def _standing(writes: Sequence[StoredWrite]) -> Counter[tuple[bytes, bytes]]:
    return Counter(
        (task_hash(write.task_id), write.claims.call_id if write.claims else b"")
        for write in writes
        if write.fixed is None
    )


def parse_made(made: object) -> Made:
    """Return the numbers of writes that `pack_made` listed, by task and call."""
    try:
        data = b64decode(made, validate=True) if isinstance(made, str) else b"?"
        found = dict[bytes, dict[bytes, int]]()
        for task, call, count in _RECORD.iter_unpack(data):
            found.setdefault(task, {})[call] = count
    except (ValueError, struct.error):
        raise DecodeError("a sealed checkpoint lists the writes to its parent in an unknown form") from None
    return found


def is_named(made: Made, task_id: str, claims: Claims | None) -> bool:
    """Whether ``made`` lists a write; if its call is unknown, whether any write of its task is listed."""
    calls = made.get(task_hash(task_id), {})
    return bool(calls) and (not claims or not claims.call or claims.call_id in calls)


def require_made(made: object, writes: Sequence[StoredWrite]) -> Made:
    """Check that ``writes`` has all writes to a parent that its child's header lists; return them parsed.

    A write without a call counts as any missing one of its task: `rebind` binds writes without their call.
    """
    standing, found = _standing(writes), parse_made(made)
    for task, wanted in found.items():
        spare = standing[task, b""] - wanted.get(_NO_CALL, 0)
        missing = sum(
            max(0, count - standing[task, call]) for call, count in wanted.items() if call != _NO_CALL
        )
        if missing > spare or spare < 0:
            raise WritesLostError("a write is missing that a later checkpoint was made from")
    return found
