"""What a checkpoint of a delta graph says of the writes to its parent, of which its channels are made.

    base64 of records, sorted: SHA-256(task id)[:8] | id of the call, 8 bytes | u32be number of writes

Counted are the ordinary writes that stood when the checkpoint was stored: they are never replaced. More may
be there: those of another run, or of another child, which are no part of this one. A write of an earlier
release has a call of zeros.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final

from sealpoint.errors import DecodeError, WritesLostError
from sealpoint.sealed.calls import ID_BYTES, Claims, StoredWrite

MARK: Final = "counters_since_delta_snapshot"
"""Key of metadata without which LangGraph stores all delta channels of a checkpoint in full."""

Made = Mapping[bytes, Mapping[bytes, int]]
"""How many writes each call of each task has stored, by hashes of tasks and ids of calls."""

_RECORD: Final = struct.Struct(f">8s{ID_BYTES}sI")
_NO_CALL: Final = bytes(ID_BYTES)


def task_hash(task_id: str) -> bytes:
    """Return what stands for a task: 8 bytes."""
    return sha256(task_id.encode("utf-8", "surrogatepass")).digest()[:8]


def pack_made(writes: Sequence[StoredWrite]) -> str:
    """Return what a child says of writes to its parent; nothing if there are none."""
    standing = Counter(
        (write.task_id, write.claims.call_id if write.claims else b"")
        for write in writes
        if write.fixed is None
    )
    records = [
        _RECORD.pack(task_hash(task_id), call or _NO_CALL, count)
        for (task_id, call), count in standing.items()
    ]
    return b64encode(b"".join(sorted(records))).decode()


def parse_made(made: object) -> Made:
    """Return what a child says.

    Raises:
        DecodeError: If it has another form: another program has sealed it.
    """
    try:
        data = b64decode(made, validate=True) if isinstance(made, str) else b"?"
        found = dict[bytes, dict[bytes, int]]()
        for task, call, count in _RECORD.iter_unpack(data):
            found.setdefault(task, {})[call] = count
    except (ValueError, struct.error):
        raise DecodeError("a sealed checkpoint names the writes to its parent in another form") from None
    return found


def lacks(made: Made, calls: Collection[tuple[bytes, bytes]]) -> bool:
    """Whether writes are missing of which a child says that it was made.

    A write without a call may stand for one that had a call: `rebind` has bound it anew.

    Args:
        made: What the child says.
        calls: For each ordinary write to its parent the hash of its task, and the id of its call or nothing.
    """
    standing = Counter(calls)
    for task, wanted in made.items():
        spare = standing[task, b""] - wanted.get(_NO_CALL, 0)
        missing = sum(
            max(0, count - standing[task, call]) for call, count in wanted.items() if call != _NO_CALL
        )
        if missing > spare or spare < 0:
            return True
    return False


def is_named(made: Made, task_id: str, claims: Claims | None) -> bool:
    """Whether a child was made of a write; one without a call may stand for any of its task, see `lacks`."""
    calls = made.get(task_hash(task_id), {})
    return bool(calls) and (not claims or not claims.call or claims.call_id in calls)


def require_made(made: object, writes: Sequence[StoredWrite]) -> Made:
    """Check that all writes are there of which a child was made, and return which they are.

    Raises:
        WritesLostError: If one is missing.
        DecodeError: What `parse_made` raises.
    """
    calls = [
        (task_hash(write.task_id), write.claims.call_id if write.claims else b"")
        for write in writes
        if write.fixed is None
    ]
    found = parse_made(made)
    if lacks(found, calls):
        raise WritesLostError("a write is missing of which a later checkpoint was made")
    return found
