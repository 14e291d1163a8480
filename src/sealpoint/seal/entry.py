"""Entry: a checkpoint that was read from the database, with its pending writes, authenticated.

The core returns opened values in an `Entry`, or as an item of LangGraph's Store; only the serializer also
gets `sealpoint.seal.cipher.Opened`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Final

from sealpoint.errors import RowError, SealpointError, excerpt, located
from sealpoint.seal.calls import StoredWrite, Write, is_named, require_made
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.layouts import Rows
from sealpoint.seal.places import Spot
from sealpoint.seal.rows import Found, Header, digest_of, is_bound, require_document, split_header

_TEXT: Final = {str}


def require_names(found: Found, spot: Spot, parent: object = None) -> None:
    """Check the types of names and metadata in a row: a column may hold a value of any type."""
    names = chain(spot, *[write[:2] for write in found.pending_writes or ()])
    if {*map(type, names)} != _TEXT or not (parent is None or type(parent) is str):
        raise RowError("a column that names the row of a checkpoint or a write does not hold text")
    if not isinstance(found.metadata, dict):
        raise RowError(f"metadata is {type(found.metadata).__name__}, not an object")


class Entry:
    """A checkpoint with its metadata and pending writes, authenticated; each part is decoded at first use.

    ``claim`` is the member ``store`` of the header, and ``made`` the member ``made``; or each is ``None``.
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

    _decoded: tuple[Any, Any] | None
    _writes: Sequence[StoredWrite] | None

    def __init__(self, rows: Rows, found: Found, spot: Spot) -> None:
        """Authenticate the row that a saver read, parse its sealed header, and compare the two."""
        self._rows, self.spot, self.thread_id = rows, spot, spot.thread_id
        self._decoded = self._writes = None
        parent = None
        try:
            if found.parent_config is not None:
                parent = found.parent_config["configurable"].get("checkpoint_id", "")
            sealed: Any = found.checkpoint
            if type(sealed) is Sealed and sealed.beside is not None:
                parent, stored = sealed.beside
                metadata = rows.decode_metadata(stored, strict=is_bound(sealed.tag))
                found = tuple.__new__(type(found), (*found[:2], metadata, *found[3:]))
            self.found = found
            require_names(found, spot, parent)
            opened = rows.open_header(found, spot)
            split: tuple[Header | None, bytes] = (None, b"") if opened is None else split_header(opened.data)
            self._header, self._content = split
            self._inner = "" if opened is None else opened.inner
            header: Any = self._header or {}
            self.thread_id = header.get("thread", spot.thread_id)
            self.claim: object = header.get("store")
            self.made: Any = header.get("made")
            # The sealed id of the parent, unless the saver has removed the id from the row.
            self.parent: str | None = header.get("parent", parent) if parent else None
            self.removed_parent: str | None = None if parent else header.get("parent")
            # Digest of the sealed content, if there is a thread store.
            self.digest = (
                digest_of(self.claim, opened.inner, opened.data)
                if opened is not None and rows.is_remembered
                else None
            )
            self._metadata = (
                None if self._header is None else rows.metadata_of(self._header, found.metadata, parent)
            )
        except SealpointError as error:
            self._name(error)
            raise

    def _name(self, error: SealpointError) -> None:
        """Add the table and the names of this row to an error."""
        located(error, "checkpoints", self.spot, {"thread_id": self.thread_id})

    @property
    def is_bound(self) -> bool:
        """Whether the checkpoint is bound to its row."""
        return self._header is not None

    @property
    def opened_bytes(self) -> int:
        """Number of bytes opened so far, which decoding would read."""
        return len(self._content) + sum(len(write.data) for write in self._writes or ())

    @property
    def metadata(self) -> Any:
        """The metadata of the checkpoint, decoded."""
        return self._decode()[1] if self._metadata is None else self._metadata

    def document(self, sends: Sequence[Write] = ()) -> Any:
        """Return the checkpoint, decoded; ``sends`` are the writes to its parent, if `needs_sends`."""
        try:
            document = self._rows.complete(self._decode()[0], self.values, sends)
            require_document(document, self.spot.checkpoint_id)
        except SealpointError as error:
            self._name(error)
            raise
        return document

    def values(self, channels: Collection[str] | None = None) -> dict[str, Any]:
        """Return the decoded values of ``channels``, or of all channels, by name of the channel."""
        try:
            return self._rows.values(self._decode()[0], self._header, self.found, self.spot, channels)
        except SealpointError as error:
            self._name(error)
            raise

    @property
    def needs_sends(self) -> bool:
        """Whether `document` must be called with the writes to the parent, if there is a parent."""
        return self._rows.needs_sends(self._decode)

    def require_asked(self, thread_id: str, column: str, ns: str | None, checkpoint_id: str | None) -> None:
        """Check that this is the requested checkpoint: a wrong index of the database may lead to another row.

        Args:
            thread_id: The requested thread id.
            column: The content of the column ``thread_id``: the thread id, or its pseudonym.
            ns: The requested namespace; ``None`` for any.
            checkpoint_id: The requested id; ``None`` for any.
        """
        if (
            (self.thread_id, self.spot.thread_id) != (thread_id, column)
            or ns not in (None, self.spot.checkpoint_ns)
            or (checkpoint_id and checkpoint_id != self.spot.checkpoint_id)
        ):
            found = excerpt(self.spot.checkpoint_id)
            raise RowError(f"the database returned the row of another checkpoint, {found}")

    def writes(self, channels: Collection[str] | None = None, made: object = None) -> list[Write]:
        """Return the pending writes to the checkpoint, decoded.

        Args:
            channels: Channels whose writes are returned; ``None`` for all.
            made: The member ``made`` of a child's header: only the writes listed there are returned,
                and a missing write raises `WritesLostError`. ``None`` for all writes.
        """
        serde, found = self._rows.serde, list[Write]()
        named = None if made is None else require_made(made, self.stored_writes())
        for claims, task_id, channel, inner, data in self.stored_writes():
            if channels is not None and channel not in channels:
                continue
            if named is not None and not is_named(named, task_id, claims):
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
        """Return the pending writes to the checkpoint in order, not decoded; authenticate them only once."""
        if self._writes is None:
            pending = self.found.pending_writes
            try:
                self._writes = self._rows.open_writes(self.spot, pending) if pending else ()
            except SealpointError as error:
                self._name(error)
                raise
        return self._writes

    def _decode(self) -> tuple[Any, Any]:
        """Return the sealed checkpoint, perhaps without values, and the metadata; decode both only once."""
        if self._decoded is not None:
            return self._decoded
        document: Any = self.found.checkpoint
        metadata, rows = self.found.metadata, self._rows
        try:
            if self._header is not None:
                decoded = rows.serde.decode(self._inner, self._content)
                document, metadata = rows.split_document(decoded, self._header, metadata)
            elif type(document) is Sealed:
                document = rows.serde.loads_typed((document.tag, document.blob))
        except SealpointError as error:
            self._name(error)
            raise
        self._decoded = document, metadata
        return self._decoded
