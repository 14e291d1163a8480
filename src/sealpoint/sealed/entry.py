"""Entry: a checkpoint of the database with its writes, authenticated.

What a checkpoint of a delta graph says of the writes to its parent, of which its channels are made.

    base64 of records, sorted: SHA-256(task id)[:8] | id of the call, 8 bytes | u32be number of writes

Counted are the ordinary writes that stood when the checkpoint was stored: they are never replaced. More may
be there: those of another run, or of another child, which are no part of this one. A write of an earlier
release has a call of zeros.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from sealpoint.base.checkpoint import Checkpoint, CheckpointMetadata, CheckpointTuple, require_document
from sealpoint.base.metadata import decode_metadata
from sealpoint.base.place import KEY
from sealpoint.crypto.tag import BOUND_MARK
from sealpoint.errors import (
    DecodeError,
    EarlierWriteError,
    RowError,
    SealpointError,
    WritesLostError,
    excerpt,
    located,
)
from sealpoint.sealed.carrier import Sealed
from sealpoint.sealed.rows import (
    ID_BYTES,
    Claims,
    Header,
    StoredWrite,
    Write,
    digest_of,
    split_header,
)
from sealpoint.threads.store import Calls, Special, Spot, contradiction

if TYPE_CHECKING:
    from sealpoint.sealed.layout import Rows

_TEXT: Final = {str}


def require_names(found: CheckpointTuple, spot: Spot, parent: object = None) -> None:
    """Check what stands next to the values: a database may hold anything in any column."""
    names = chain(spot, *[write[:2] for write in found.pending_writes or ()])
    if {*map(type, names)} != _TEXT or not (parent is None or type(parent) is str):
        raise RowError("the row of a checkpoint or of a write is not named by text")
    if not isinstance(found.metadata, dict):
        raise RowError(f"metadata is {type(found.metadata).__name__}, not an object")


def stored_bytes(found: CheckpointTuple) -> int:
    """Return how many bytes of values were read for a checkpoint."""
    checkpoint: Any = found.checkpoint
    values: list[Any] = [value for _, _, value in found.pending_writes or ()]
    if isinstance(checkpoint, dict):
        values += checkpoint.get("channel_values", {}).values()
    blobs = [value.blob for value in (checkpoint, *values) if type(value) is Sealed]
    frame: Any = found.metadata.get(KEY) if isinstance(found.metadata, dict) else None
    if isinstance(frame, dict):
        blobs.append(frame.get("value"))
    return sum(len(blob) for blob in blobs if isinstance(blob, bytes | str))  # else it is refused later


class Entry:
    """A checkpoint with its metadata and writes: authenticated, and decoded only as far as it is asked for.

    What it says of its thread store (``claim``) and of the writes to its parent (``made``) may be nothing.
    """

    __slots__ = (
        "_content",
        "_decoded",
        "_header",
        "_inner",
        "_metadata",
        "_rows",
        "_writes",
        "claim",
        "digest",
        "found",
        "made",
        "parent",
        "removed_parent",
        "spot",
        "thread_id",
    )

    def __init__(self, rows: Rows, found: CheckpointTuple, spot: Spot) -> None:
        """Authenticate what a saver read from a row, read the header, and compare it with the row."""
        self._rows, self.spot, self.thread_id = rows, spot, spot.thread_id
        parent = None
        with self:
            if found.parent_config is not None:
                parent = found.parent_config["configurable"].get("checkpoint_id", "")
            sealed: Any = found.checkpoint
            if type(sealed) is Sealed and sealed.beside is not None:
                parent, stored = sealed.beside
                strict = type(sealed.tag) is str and BOUND_MARK in sealed.tag
                metadata = decode_metadata(stored, strict=strict)
                found = CheckpointTuple(found.config, found.checkpoint, metadata, *found[3:])
            self.found = found
            require_names(found, spot, parent)
            opened = rows.open_header(found, spot)
            self._decoded: tuple[Any, CheckpointMetadata] | None = None
            self._writes: Sequence[StoredWrite] | None = None
            split: tuple[Header | None, bytes] = (None, b"") if opened is None else split_header(opened.data)
            self._header, self._content = split
            self._inner = "" if opened is None else opened.inner
            header: Any = self._header or {}
            self.thread_id = header.get("thread", spot.thread_id)
            self.claim: object = header.get("store")
            self.made: Any = header.get("made")
            # The one that was sealed, unless the saver has removed it from the row.
            self.parent: str | None = header.get("parent", parent) if parent else None
            self.removed_parent: str | None = None if parent else header.get("parent")
            # Of what was sealed, if there is a thread store.
            self.digest = (
                digest_of(self.claim, opened.inner, opened.data)
                if opened is not None and rows.is_remembered
                else None
            )
            self._metadata = (
                None if self._header is None else rows.metadata_of(self._header, found.metadata, parent)
            )

    def __enter__(self) -> None:
        """Have errors name the row."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is not None and isinstance(error, SealpointError):
            located(error, "checkpoints", self.spot, {"thread_id": self.thread_id})

    @property
    def is_bound(self) -> bool:
        """Whether it is sealed to its row."""
        return self._header is not None

    def size(self) -> int:
        """Return how many bytes are to be decoded; of what is not opened yet, those that are stored."""
        opened = (self._content, *(write.data for write in self._writes or ()))
        return stored_bytes(self.found) + sum(map(len, opened))

    @property
    def metadata(self) -> CheckpointMetadata:
        """All metadata."""
        return self._decode()[1] if self._metadata is None else self._metadata

    def document(self, sends: Sequence[Write] = ()) -> Checkpoint:
        """Return the checkpoint; ``sends`` are the writes to its parent, if the layout needs them."""
        with self:
            document = self._rows.complete(self._decode()[0], self.values, sends)
            require_document(document, self.spot.checkpoint_id)
        return document  # type: ignore[no-any-return]

    def values(self, channels: Collection[str] | None = None) -> dict[str, Any]:
        """Return values by channel: of some channels, or of all."""
        with self:
            return self._rows.values(self._decode()[0], self._header, self.found, self.spot, channels)

    @property
    def needs_sends(self) -> bool:
        """Whether `document` needs the writes to the parent."""
        return bool(self.parent) and self._rows.needs_sends(self._decode)

    def writes(self, channels: Collection[str] | None = None) -> list[Write]:
        """Return `stored_writes` to some channels or to all, decoded."""
        serde, found = self._rows.serde, list[Write]()
        for claims, task_id, channel, inner, data in self.stored_writes():
            if channels is not None and channel not in channels:
                continue
            try:
                value = serde.loads_typed((inner, data)) if claims is None else serde.decode(inner, data)
            except SealpointError as error:
                own = {"thread_id": self.thread_id}
                located(error, "writes", self.spot, own, task_id=task_id, channel=channel)
                raise
            found.append(Write(claims, task_id, channel, value))
        return found

    def stored_writes(self) -> Sequence[StoredWrite]:
        """Return writes on top of the checkpoint, in their order: authenticated once, and not decoded."""
        if self._writes is None:
            with self:
                self._writes = self._rows.open_writes(self.spot, self.found.pending_writes or ())
        return self._writes

    def _decode(self) -> tuple[Any, CheckpointMetadata]:
        """Return what was sealed as the document, and the metadata: decoded once."""
        if self._decoded is not None:
            return self._decoded
        document: Any = self.found.checkpoint
        metadata, rows = self.found.metadata, self._rows
        with self:
            if self._header is not None:
                decoded = rows.serde.decode(self._inner, self._content)
                document, metadata = rows.split_document(decoded, self._header, metadata)
            elif type(document) is Sealed:
                document = rows.serde.loads_typed((document.tag, document.blob))
        self._decoded = document, metadata
        return self._decoded


# Key of metadata without which LangGraph stores all delta channels of a checkpoint in full
MARK: Final = "counters_since_delta_snapshot"

# How many writes each call of each task has stored, by hashes of tasks and ids of calls
Made = Mapping[bytes, Mapping[bytes, int]]

_RECORD: Final = struct.Struct(f">8s{ID_BYTES}sI")
_NO_CALL: Final = bytes(ID_BYTES)


def task_hash(task_id: str) -> bytes:
    """Return what stands for a task: 8 bytes."""
    return sha256(task_id.encode("utf-8", "surrogatepass")).digest()[:8]


def pack_made(writes: Sequence[StoredWrite]) -> str:
    """Return what a child says of writes to its parent; nothing if there are none."""
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
    """Return what a child says."""
    try:
        data = b64decode(made, validate=True) if isinstance(made, str) else b"?"
        found = dict[bytes, dict[bytes, int]]()
        for task, call, count in _RECORD.iter_unpack(data):
            found.setdefault(task, {})[call] = count
    except (ValueError, struct.error):
        raise DecodeError("a sealed checkpoint names the writes to its parent in another form") from None
    return found


def is_named(made: Made, task_id: str, claims: Claims | None) -> bool:
    """Whether a child was made of a write; one without a call may stand for any of its task."""
    calls = made.get(task_hash(task_id), {})
    return bool(calls) and (not claims or not claims.call or claims.call_id in calls)


def require_made(made: object, writes: Sequence[StoredWrite]) -> Made:
    """Check that all writes are there of which a child was made, and return which they are.

    A write without a call may stand for one that had a call: `rebind` has bound it.
    """
    standing, found = _standing(writes), parse_made(made)
    for task, wanted in found.items():
        spare = standing[task, b""] - wanted.get(_NO_CALL, 0)
        missing = sum(
            max(0, count - standing[task, call]) for call, count in wanted.items() if call != _NO_CALL
        )
        if missing > spare or spare < 0:
            raise WritesLostError("a write is missing of which a later checkpoint was made")
    return found


# --- special writes, compared with what a thread store remembers of them --------------------------

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
