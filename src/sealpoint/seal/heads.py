"""Heads: what a thread store remembers of a checkpoint, compared with the row that is in the database.

A head is the last event of a checkpoint. Its MAC identifies the content of the row:

    HMAC-SHA256(index key "heads", LP(thread) | LP(namespace) | LP(checkpoint) | digest of the row)[:16]

LP is a length as u32be and the bytes; the digest is that of `sealpoint.seal.rows.digest_of`. A special write
has events of its own: the last one of a task and an index says which call must be there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

from sealpoint.errors import (
    DecodeError,
    EarlierWriteError,
    ParentLostError,
    RowError,
    ThreadStoreBehindError,
    ThreadStoreError,
    WritesLostError,
    WrongThreadStoreError,
    excerpt,
)
from sealpoint.seal.calls import StoredWrite
from sealpoint.seal.keys import KeyedHash
from sealpoint.seal.places import Spot

# Size of the keyed hash of a checkpoint's content: HMAC-SHA-256, its first 128 bits (RFC 4868)
MAC_BYTES: Final = 16


class Kind(IntEnum):
    """What happened to a checkpoint; see the module. The numbers are stored."""

    PUT = 0
    LEAVING = 1
    DELETED = 2


class Head(NamedTuple):
    """The last event of a checkpoint.

    Attributes:
        spot: Its row.
        kind: What happened.
        mac: `MAC_BYTES` that identify the content; empty if it was deleted.
    """

    spot: Spot
    kind: Kind
    mac: bytes


_CLAIM: Final = re.compile(r"([0-9a-f]{32}):([0-9]{1,20}):[0-9a-f]{24}")


def parse_claim(claim: object) -> tuple[str, int]:
    """Return the store and the clock that a sealed checkpoint claims."""
    found = _CLAIM.fullmatch(claim) if isinstance(claim, str) else None
    if found is None:
        raise DecodeError("a sealed checkpoint names its thread store in another form")
    return found[1], int(found[2])


# Digest of a checkpoint that is not bound to its row; a store has it if the checkpoint was adopted
UNBOUND_DIGEST: Final = bytes(32)


def pack_spot(spot: Spot) -> bytes:
    """Return the names of a row as bytes, each after its length: no two rows are packed alike."""
    packed = b""
    for part in spot:
        name = part.encode("utf-8", "surrogatepass")
        packed += len(name).to_bytes(4, "big") + name
    return packed


def mac_of(keyed: KeyedHash, spot: Spot, digest: bytes) -> bytes:
    """Return the MAC of a checkpoint at its row, of `digest_of` what is sealed there."""
    return keyed(pack_spot(spot) + digest)[:MAC_BYTES]


class Standing(Enum):
    """How a row compares with its head."""

    PRESENT = auto()
    ABSENT = auto()  # it was deleted, and put back: it counts as absent
    # It has an earlier content, unless it was stored again since the database was read
    EARLIER = auto()
    UNKNOWN = auto()  # another content: earlier if the store says that it was replaced, else newer


def standing_of(
    head: Head, mac: bytes, *, is_bound: bool, replaced: Collection[bytes] | None = None
) -> Standing:
    """Compare a row that is in the database with its head: the one rule for savers and for commands.

    Args:
        head: What the store remembers of the row.
        mac: The MAC of the row; of `UNBOUND_DIGEST` if it is not bound.
        is_bound: Whether it is bound; one that is not may have been adopted, and is never newer.
        replaced: What `ThreadStore.replaced` returns; without it the result may be `Standing.UNKNOWN`.
    """
    if head.kind is Kind.DELETED:
        return Standing.ABSENT
    if mac == head.mac:
        return Standing.PRESENT
    if is_bound and replaced is None:
        return Standing.UNKNOWN
    return Standing.EARLIER if not is_bound or mac in (replaced or ()) else Standing.PRESENT


def claim_error(
    claim: tuple[str, int], identity: str, identities: Collection[str], clock: int
) -> ThreadStoreError | None:
    """Return the error for a claim that names another store, or a state that the store has not reached.

    Args:
        claim: What `parse_claim` returns.
        identity: That of the store.
        identities: All that the store has had: databases of other stores may have been adopted.
        clock: How far the log of the store is.
    """
    if claim[0] not in identities:
        return WrongThreadStoreError("the checkpoint was stored with another thread store")
    if claim[0] == identity and claim[1] > clock:
        return ThreadStoreBehindError(f"the thread store is at {clock}; it was at {claim[1]}")
    return None


def parent_lost(parent: Spot) -> ParentLostError:
    """Return the error for a row without the parent that was sealed, and was not deleted."""
    return ParentLostError(f"the row has lost its parent, checkpoint {excerpt(parent.checkpoint_id)}")


# --- special writes, compared with what a thread store remembers of them --------------------------

NOTHING_REPLACED: Final = -1  # `Special.since` of a write that may have replaced nothing

# Ids of the calls of writes, by task and index; empty for those without one. A write of the user that is not
# bound to its row has no index: it may be in any place.
Calls = dict[tuple[str, int | None], bytes]


class Special(NamedTuple):
    """One event: a call of ``put_writes`` has stored a special write of a task, or a write of the user.

    Attributes:
        seq: Its number among these events: greater than that of every one before it. 0 if it has none yet.
        task_id: The task.
        idx: The fixed index of the write; of the user's its position.
        call: Identifies the call: 8 bytes. Empty if `adopt` found no write there.
        since: Number of the last event before the call began: those up to it are replaced.
    """

    seq: int
    task_id: str
    idx: int
    call: bytes
    since: int


def contradiction(events: Sequence[Special], rows: Calls) -> tuple[str, bool] | None:
    """Compare the special writes of a checkpoint with the events that were read before them.

    A write of a call that has no event is newer: its process ended before it was recorded. The result is the
    task of a write that is not the last one, and whether it is missing.
    """
    standing = standing_calls(events)
    known = {(event.task_id, event.idx, event.call) for event in events}
    for place, calls in standing.items():
        call = rows.get(place, rows.get((place[0], None)) if place[1] >= 0 else None)
        if call is None and any(calls):
            return place[0], True
        if call and call not in calls and (*place, call) in known:
            return place[0], False
    return None


def standing_calls(events: Sequence[Special]) -> dict[tuple[str, int], set[bytes]]:
    """Return the calls that no later one has replaced, by task and index."""
    last = dict[tuple[str, int], int]()
    for _, task_id, idx, _, since in events:
        last[task_id, idx] = max(last.get((task_id, idx), NOTHING_REPLACED), since)
    standing = dict[tuple[str, int], set[bytes]]()
    for seq, task_id, idx, call, _ in events:
        calls = standing.setdefault((task_id, idx), set())
        if seq > last[task_id, idx]:
            calls.add(call)
    return standing


_EARLIER_HINT = (
    "restore the row from backup; after a backup that was restored on purpose,"
    " `sealpoint heads adopt DB --reason TEXT` takes what is there"
)


def not_last(events: Sequence[Special], writes: Iterable[StoredWrite]) -> RowError | None:
    """Return the error for writes to a checkpoint that are not the last ones which a store remembers."""
    calls: Calls = {
        (write.task_id, write.claims.idx if write.claims else write.fixed): (
            write.claims.call_id if write.claims else b""
        )
        for write in writes
        if write.is_kept
    }
    if (found := contradiction(events, calls)) is None:
        return None
    task, is_missing = excerpt(found[0]), found[1]
    if is_missing:
        what = f"an interrupt, an answer, an error or an update of the user of task {task} is missing"
        return WritesLostError(what, hint=_EARLIER_HINT)
    what = (
        f"an interrupt, an answer or an error of task {task} is an earlier one than the last that was stored"
    )
    return EarlierWriteError(what, hint=_EARLIER_HINT)


# Pickles and messages name them by their former module.
Head.__module__ = Kind.__module__ = Special.__module__ = "sealpoint.threads.store"
