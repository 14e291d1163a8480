"""Heads: what a thread store remembers of a checkpoint, compared with its row in the database.

A head is the last event of a checkpoint. Its MAC identifies the content of the row:

    HMAC-SHA256(index key "heads", LP(thread) | LP(namespace) | LP(checkpoint) | digest of the row)[:16]

LP is a length as u32be and the bytes; the digest is that of `sealpoint.seal.rows.digest_of`. A special write
has its own events: the last event of a task and an index names the call whose write must be there.
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
    """What happened to a checkpoint, as an event of a thread store, which stores these numbers."""

    PUT = 0
    LEAVING = 1
    DELETED = 2


class Head(NamedTuple):
    """The last event of a checkpoint.

    Attributes:
        spot: The row of the checkpoint.
        kind: What happened.
        mac: `MAC_BYTES` bytes that identify the content; empty if the checkpoint was deleted.
    """

    spot: Spot
    kind: Kind
    mac: bytes


_CLAIM: Final = re.compile(r"([0-9a-f]{32}):([0-9]{1,20}):[0-9a-f]{24}")


def parse_claim(claim: object) -> tuple[str, int]:
    """Return the identity of the thread store, and the number of its last event, from a sealed header."""
    found = _CLAIM.fullmatch(claim) if isinstance(claim, str) else None
    if found is None:
        raise DecodeError("a sealed checkpoint names its thread store in an unknown form")
    return found[1], int(found[2])


# Digest of a checkpoint that is not bound to its row; a store has it if the checkpoint was adopted
UNBOUND_DIGEST: Final = bytes(32)


def pack_spot(spot: Spot) -> bytes:
    """Return thread, namespace and id as bytes, each after its length: equal bytes mean the same row."""
    packed = b""
    for part in spot:
        name = part.encode("utf-8", "surrogatepass")
        packed += len(name).to_bytes(4, "big") + name
    return packed


def mac_of(keyed: KeyedHash, spot: Spot, digest: bytes) -> bytes:
    """Return the MAC of a checkpoint in its row; ``digest`` is what `digest_of` returns for its content."""
    return keyed(pack_spot(spot) + digest)[:MAC_BYTES]


class Standing(Enum):
    """Result of comparing a row with the head of its checkpoint."""

    PRESENT = auto()
    ABSENT = auto()  # the checkpoint was deleted, and its row put back: it counts as absent
    # The row has an earlier content, unless it was stored again since the database was read
    EARLIER = auto()
    UNKNOWN = auto()  # another content: earlier if the store says that it was replaced, else newer


def standing_of(
    head: Head, mac: bytes, *, is_bound: bool, replaced: Collection[bytes] | None = None
) -> Standing:
    """Compare a row in the database with the head of its checkpoint, for savers and for commands.

    Args:
        head: What the thread store remembers of the row.
        mac: The MAC of the row's digest, or of `UNBOUND_DIGEST` if the row is not bound.
        is_bound: Whether the row is bound; an unbound row with another MAC than the head is never newer.
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
    """Return the error for a header that names another thread store, or an event that this store lacks.

    Args:
        claim: What `parse_claim` returns.
        identity: The identity of the thread store.
        identities: Also the identities of other stores whose databases were adopted by this store.
        clock: Number of the last event in the log of the thread store.
    """
    if claim[0] not in identities:
        return WrongThreadStoreError("the checkpoint was stored with another thread store")
    if claim[0] == identity and claim[1] > clock:
        return ThreadStoreBehindError(f"the thread store is at event {clock}; it was at event {claim[1]}")
    return None


def parent_lost(parent: Spot) -> ParentLostError:
    """Return the error for a row whose parent column is empty, though its sealed parent was not deleted."""
    return ParentLostError(f"the row has lost its parent, checkpoint {excerpt(parent.checkpoint_id)}")


# --- special writes, compared with what a thread store remembers of them --------------------------

NOTHING_REPLACED: Final = -1  # `Special.since` of a write that may have replaced nothing

# Ids of the calls of writes, by task and index; empty for writes without a call. A write of the user that is
# not bound to its row has no index: it may be in any place.
Calls = dict[tuple[str, int | None], bytes]


class Special(NamedTuple):
    """Event of a thread store: ``put_writes`` stored a special write of a task, or a write of the user.

    Attributes:
        seq: Number of the event, greater than those of all earlier ones; 0 if it is not numbered yet.
        task_id: Id of the task.
        idx: The fixed index of a special write; the position of a write of the user in its call.
        call: Id of the call, 8 bytes; empty if `heads adopt` found no write in the database.
        since: Number of the last event before the call began: the call replaced the writes up to there.
    """

    seq: int
    task_id: str
    idx: int
    call: bytes
    since: int


def contradiction(events: Sequence[Special], rows: Calls) -> tuple[str, bool] | None:
    """Compare the special writes of a checkpoint with their events, which were read before the writes.

    A write whose call has no event is newer than all events: its process ended before it recorded the call.
    Return the task of a write that is missing or outdated, and whether the write is missing; else ``None``.
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
    """Return the ids of calls of ``put_writes`` that no later call has replaced, by task and index."""
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
    " `sealpoint heads adopt DB --reason TEXT` accepts the rows that are there"
)


def not_last(events: Sequence[Special], writes: Iterable[StoredWrite]) -> RowError | None:
    """Return the error for special writes that differ from the last ones that a thread store remembers."""
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
    what = f"an interrupt, an answer or an error of task {task} is older than the last one that was stored"
    return EarlierWriteError(what, hint=_EARLIER_HINT)


# Pickles and messages name the classes by their former module.
Head.__module__ = Kind.__module__ = Special.__module__ = "sealpoint.threads.store"
