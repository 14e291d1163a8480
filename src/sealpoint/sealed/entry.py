"""Entry: a checkpoint of the database, authenticated."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sealpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite
from sealpoint.base.checkpoint import require_document
from sealpoint.base.frame import KEY, decode_value
from sealpoint.base.place import Place
from sealpoint.crypto import Opened
from sealpoint.errors import RowError, SealingError, excerpt
from sealpoint.sealed.body import (
    SENTINEL,
    Header,
    digest_of,
    require_same_metadata,
    split_header,
)
from sealpoint.sealed.calls import Claims, StoredWrite, require_whole
from sealpoint.sealed.carrier import Sealed, dump_mapping
from sealpoint.sealed.layout import Layout
from sealpoint.sealed.rows import Rows, Write, document_row, header_row, is_bound, value_row
from sealpoint.serde.types import TASKS

_TEXT: Final = {str}
SENDS_MOVED: Final = 4
"""Version of checkpoints from which on the messages of a step are among its own values."""


def open_entry(rows: Rows, found: CheckpointTuple, place: Place) -> Entry:
    """Authenticate what a saver read from a row; see `Entry`.

    Args:
        rows: Opens values.
        found: What the wrapped saver returned.
        place: Its row.

    Raises:
        RowError, IntegrityError, UnboundValueError, PlaintextError: If the row is not as it was stored.
        SealpointError: What the serializer raises.
    """
    require_names(found, place)
    if rows.layout is Layout.WHOLE:
        sealed: Any = found.checkpoint
        if type(sealed) is not Sealed:
            raise SealingError("the saver returned a checkpoint that its serializer did not give it")
        return Entry(rows, found, place, rows.open_bound(sealed, document_row(*rows.key(place))))
    for part in ("channel_values", "channel_versions"):
        if not isinstance(found.checkpoint.get(part), dict):
            raise RowError(f"checkpoint {excerpt(str(place.checkpoint_id))} has no {part}")
    frame: Any = found.metadata.get(KEY)
    if frame is None:
        if SENTINEL in found.checkpoint["channel_versions"]:
            raise RowError(f"checkpoint {excerpt(str(place.checkpoint_id))} lacks its sealed part")
        rows.require_unbound(None)
        return Entry(rows, found, place, None)
    tag, value = (frame.get("type"), frame.get("value")) if isinstance(frame, dict) else (None, None)
    blob = decode_value(value)
    if not isinstance(tag, str) or blob is None or not is_bound(tag):
        raise RowError(f"the sealed part of {excerpt(str(place.checkpoint_id))} is not one")
    return Entry(rows, found, place, rows.open_bound(Sealed(tag, blob), header_row(*rows.key(place))))


def open_writes(rows: Rows, found: CheckpointTuple, place: Place) -> Sequence[StoredWrite]:
    """Authenticate the writes to a checkpoint alone: `Entry.stored_writes`, which says what is raised."""
    writes = rows.open_writes(place, found.pending_writes or ())
    places = [(write.task_id, write.claims.idx) for write in writes if write.claims]
    if len({*places}) != len(places):
        raise RowError("a write of a task is stored twice")
    if not rows.allow_partial:
        require_whole(writes)
    if len(places) == len(writes):  # else the saver's order is the only one
        writes.sort(key=_order)
    return writes


def require_names(found: CheckpointTuple, place: Place) -> None:
    """Check what stands beside the values: a database may hold anything in any column."""
    kinds = {*map(type, place)}
    for task_id, channel, _ in found.pending_writes or ():
        kinds.add(type(task_id))
        kinds.add(type(channel))
    if kinds != _TEXT:
        raise RowError("the row of a checkpoint or of a write is not named by text")
    if not isinstance(found.metadata, dict):
        raise RowError(f"metadata is {type(found.metadata).__name__}, not an object")


class Entry:
    """A checkpoint with its metadata and writes: authenticated, and decoded only as far as it is asked for.

    Attributes:
        found: What the wrapped saver returned.
        place: Its row.
        thread_id: The thread.
        parent: Id of its parent; ``None`` if it has none, or the saver has removed it.
        removed_parent: Id of the parent that it was stored with, if the row has none now.
        digest: `digest_of` what was sealed, if there is a thread store and it is bound to its row.
        claim: What it says of the thread store; ``None`` if nothing.
        made: What it says of the writes to its parent; ``None`` if nothing.
    """

    __slots__ = (
        "_content",
        "_decoded",
        "_header",
        "_inner",
        "_rows",
        "_writes",
        "claim",
        "digest",
        "found",
        "made",
        "parent",
        "place",
        "removed_parent",
        "thread_id",
    )

    def __init__(self, rows: Rows, found: CheckpointTuple, place: Place, opened: Opened | None) -> None:
        """Read the header, and compare it with the row."""
        self._rows, self.found, self.place = rows, found, place
        self._header: Header | None = None
        self._inner, self._content = "", b""
        self._decoded: tuple[Any, CheckpointMetadata] | None = None
        self._writes: Sequence[StoredWrite] | None = None
        self.thread_id: str = place.thread_id
        self.digest: bytes | None = None
        self.claim: object = None
        self.made: Any = None
        self.removed_parent: str | None = None
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        if opened is not None:
            self._inner = opened.inner
            self._header, self._content = split_header(opened.data)
            self.thread_id = self._header.get("thread", place.thread_id)
            self.claim = self._header.get("store")
            self.made = self._header.get("made")
            if rows.is_remembered:
                self.digest = digest_of(self.claim, opened.inner, opened.data)
            if not parent:
                self.removed_parent = self._header["parent"]
            parent = self._header["parent"] if parent else None
            if rows.layout is not Layout.VALUES:
                require_same_metadata(found.metadata, self._header["metadata"], rows.tokens)
        self.parent: str | None = parent

    @property
    def is_bound(self) -> bool:
        """Whether it is sealed to its row."""
        return self._header is not None

    @property
    def metadata(self) -> CheckpointMetadata:
        """All metadata."""
        if self._header is None or self._rows.layout is Layout.VALUES:
            return self._decode()[1]
        return self._header["metadata"]

    def document(self, sends: Sequence[Write] = ()) -> Checkpoint:
        """Return the checkpoint.

        Args:
            sends: Writes to the parent, for `needs_sends`.

        Raises:
            RowError: If a value is missing, or the row holds another checkpoint.
        """
        document = self._decode()[0]
        if self._rows.layout is not Layout.WHOLE:
            document = {**document, "channel_values": self.values()}
            if messages := [write.value for write in sends if write.channel == TASKS]:
                document["channel_values"][TASKS] = messages
                last = max(document["channel_versions"].values(), default=None)
                document["channel_versions"] = {**document["channel_versions"], TASKS: last}
        require_document(document, str(self.place.checkpoint_id))
        return document  # type: ignore[no-any-return]

    def values(self, channels: Collection[str] | None = None) -> dict[str, Any]:
        """Return values by channel.

        Args:
            channels: Which; ``None`` for all.
        """
        if self._rows.layout is Layout.WHOLE:
            return self.document()["channel_values"]
        found, versions = self.found.checkpoint["channel_values"], self._decode()[0]["channel_versions"]
        # A list is what PostgresSaver made of the messages that `needs_sends` means: still sealed.
        names: Collection[str] = [name for name, value in found.items() if type(value) is not list]
        inline: Mapping[str, Any] = {name: found[name] for name in names if type(found[name]) is not Sealed}
        if self._header is not None:
            names, inline = self._header.get("channels", ()), self._header.get("inline", {})
        values = dict[str, Any]()
        for name in names if channels is None else set(names).intersection(channels):
            if name in inline:
                values[name] = inline[name]
            elif name in found:
                row = value_row(*self.place[:2], name, str(versions[name]))
                values[name] = self._rows.open_value(found[name], row)
            else:
                raise RowError(f"the value of channel {excerpt(name)} is missing")
        return values

    @property
    def needs_sends(self) -> bool:
        """Whether messages of the step are among the writes to the parent, as in checkpoints of old releases.

        Whether PostgresSaver added them proves nothing: it asks the readable version and the parent's column.
        """
        if self._rows.layout is not Layout.INLINE or not self.parent:
            return False
        return bool(self._decode()[0].get("v", SENDS_MOVED) < SENDS_MOVED)

    def writes(self, channels: Collection[str] | None = None) -> list[Write]:
        """Return writes on top of the checkpoint, in their order.

        Args:
            channels: To which channels; ``None`` for all.

        Raises:
            RowError: If two stand at one place.
        """
        wanted = [write for write in self.stored_writes() if channels is None or write.channel in channels]
        return [*map(self._rows.decode_write, wanted)]

    def stored_writes(self) -> Sequence[StoredWrite]:
        """Return writes on top of the checkpoint, in their order: authenticated once, and not decoded.

        Raises:
            RowError: If two stand at one place.
            WritesLostError: If a part of a call is missing.
        """
        if self._writes is None:
            self._writes = open_writes(self._rows, self.found, self.place)
        return self._writes

    def pending(self, channels: Collection[str] | None = None) -> list[PendingWrite]:
        """Return `writes` as a saver returns them."""
        return [write[1:] for write in self.writes(channels)]

    def _decode(self) -> tuple[Any, CheckpointMetadata]:
        """Return the document and the metadata, decoded once."""
        if self._decoded is None:
            self._decoded = self._decode_once()
        return self._decoded

    def _decode_once(self) -> tuple[Any, CheckpointMetadata]:
        found, serde = self.found, self._rows.serde
        if self._header is None:
            document: Any = found.checkpoint
            if type(document) is Sealed:
                document = serde.loads_typed((document.tag, document.blob))
            return document, found.metadata
        document = serde.decode(self._inner, self._content)
        if self._rows.layout is Layout.VALUES:
            metadata, readable = document[1], found.metadata
            kept = {key: value for key, value in metadata.items() if key in readable}
            in_json = metadata | json.loads(dump_mapping(kept))
            require_same_metadata(readable, in_json, self._rows.tokens)
            return document[0], metadata
        return document, self._header["metadata"]


def _order(write: StoredWrite) -> tuple[str, str, int]:
    """Return what `writes_sort_key` returns for a bound write."""
    claims = write.claims or Claims("", 0)
    return claims.task_path, write.task_id, claims.idx
