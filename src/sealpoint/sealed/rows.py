"""Sealing what goes into rows, and opening what comes out of them. No I/O: sync and async savers share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from sealpoint.base import WRITES_IDX_MAP, CheckpointMetadata, PendingWrite
from sealpoint.base.coordinates import CHECKPOINT, METADATA, VALUE, WRITE
from sealpoint.base.frame import KEY, make_frame
from sealpoint.base.place import Place
from sealpoint.crypto import Opened, PackedRow, RingCipher
from sealpoint.crypto.context import RowTemplate
from sealpoint.crypto.prepared import parse_tag
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import (
    CipherSurfaceError,
    ConfigError,
    PlaintextError,
    RowError,
    UnboundValueError,
    excerpt,
)
from sealpoint.sealed.body import (
    INLINE,
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    pack_claims,
    pack_header,
    require_same_kind,
    split_claims,
)
from sealpoint.sealed.calls import Claims, StoredWrite
from sealpoint.sealed.carrier import GUARD, OPEN, Document, Sealable, Sealed, dump_mapping
from sealpoint.sealed.layout import Layout
from sealpoint.sealed.sentinels import Sentinels
from sealpoint.sealed.tokens import Tokens
from sealpoint.serde import EncryptedSerializer

_REBIND: Final = (
    "seal it to its row with `sealpoint rebind DB --apply`, or pass unbound='allow' while you migrate"
)
_SEAL: Final = (
    f"{_REBIND}; a value that is not sealed at all needs --allow-plaintext there,"
    " and here plaintext='allow' in the serializer"
)
value_row: Final = RowTemplate(dict(VALUE.kind), VALUE.columns).row
document_row: Final = RowTemplate(dict(CHECKPOINT.kind), CHECKPOINT.columns).row
header_row: Final = RowTemplate(dict(METADATA.kind), METADATA.columns).row
write_row: Final = RowTemplate(dict(WRITE.kind), WRITE.columns).row


Put = tuple[Document, dict[str, Any], dict[str, Any]]
"""What a wrapped saver's ``put`` is given after the config: checkpoint, metadata and new versions."""


class Write(NamedTuple):
    """One pending write, opened.

    Attributes:
        claims: Its place, authenticated; ``None`` if it is not bound to its row.
        task_id: The task.
        channel: The channel.
        value: The value.
    """

    claims: Claims | None
    task_id: str
    channel: str
    value: Any


@dataclass(frozen=True, slots=True)
class Rows:
    """Seals and opens checkpoints and writes, each bound to its row.

    Attributes:
        serde: Serializes and seals.
        layout: How the wrapped saver stores a checkpoint.
        plain: Keys of metadata that stay readable.
        indexed: Keys of metadata that are searched by token.
        tokens: Computes tokens.
        allow_unbound: Whether values that are not bound to a row are read.
        is_remembered: Whether there is a thread store.
        allow_partial: Whether a part of the writes of one call is read.
    """

    serde: EncryptedSerializer
    layout: Layout
    plain: frozenset[str]
    indexed: frozenset[str]
    tokens: Tokens
    allow_unbound: bool
    is_remembered: bool = False
    allow_partial: bool = False
    _sentinels: Sentinels = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sentinels", Sentinels(self.serde))

    def with_serde(self, serde: object) -> Rows:
        """Return the same with another serializer.

        Raises:
            ConfigError: If it is not an `EncryptedSerializer` with a `RingCipher`.
        """
        if not isinstance(serde, EncryptedSerializer):
            raise ConfigError(
                f"serde is {type(serde).__name__}, not an EncryptedSerializer",
                hint="create one: EncryptedSerializer.from_key_file(PATH)",
            )
        if not isinstance(serde.cipher, RingCipher):
            raise CipherSurfaceError(f"{type(serde.cipher).__name__} cannot bind a row")
        return replace(self, serde=serde)

    # --- sealing ------------------------------------------------------------------------------

    def seal_checkpoint(
        self,
        place: Place,
        thread_id: str,
        parent: str | None,
        checkpoint: Mapping[str, Any],
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, Any],
        claim: str | None = None,
        made: str | None = None,
    ) -> Put:
        """Return what to store for a checkpoint.

        Args:
            place: Its row.
            thread_id: The thread; differs from that of the row if that is a pseudonym.
            parent: Id of the parent.
            checkpoint: The checkpoint.
            metadata: All of it.
            new_versions: Versions of the channels that changed.
            claim: What it says of its thread store, if there is one.
            made: What it says of the writes to its parent, in a delta graph.

        Raises:
            ConfigError: If the checkpoint has no id.
            SealpointError: What the serializer raises, if it seals at once.
        """
        checkpoint_id = place.checkpoint_id
        if not isinstance(checkpoint_id, str) or not checkpoint_id:
            raise ConfigError("the id of the checkpoint is empty")
        header: Header = {"metadata": metadata, "parent": parent}
        if thread_id != place.thread_id:
            header["thread"] = thread_id
        if claim is not None:
            header["store"] = claim
        if made is not None:
            header["made"] = made
        if self.layout is Layout.WHOLE:
            row = document_row(place.thread_id, place.checkpoint_ns, checkpoint_id)
            dump = partial(self.serde.seal, dict(checkpoint), row=row, head=pack_header(header))
            document = Document(checkpoint, dump)
            document["channel_values"] = dict.fromkeys((*checkpoint["channel_values"], KEY), GUARD)
            return document, self._readable(metadata), dict(new_versions)
        return self._seal_apart(place, header, checkpoint, new_versions)

    def _seal_apart(
        self,
        place: Place,
        header: Header,
        checkpoint: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> Put:
        """Seal a checkpoint whose values are stored apart: the header and the rest go into the metadata."""
        thread_id, checkpoint_ns, checkpoint_id = place
        changed, versions = dict(new_versions), dict(checkpoint["channel_versions"])
        stored, inline = self._values_apart(place, checkpoint["channel_values"], versions, changed)
        document: Any = dict(checkpoint)
        del document["channel_values"]
        header["channels"] = list(stored)
        metadata = header["metadata"]
        if self.layout is Layout.INLINE:
            header["inline"] = inline
            stored[SENTINEL] = Sealable(partial(self._sentinels.sealed, thread_id, checkpoint_ns))
            versions[SENTINEL] = changed[SENTINEL] = SENTINEL_VERSION
        else:  # the saver passes metadata to its serializer: types that JSON does not have are kept
            header["metadata"] = {}
            document = [document, metadata]
        row = header_row(thread_id, checkpoint_ns, str(checkpoint_id))
        tag, blob = self.serde.seal(document, row=row, head=pack_header(header))
        frame = self._readable(metadata)
        frame[KEY] = make_frame(tag, blob)
        parts = {name: checkpoint[name] for name in ("v", "id") if name in checkpoint}
        parts |= {"channel_values": stored, "channel_versions": versions}
        seen = {"channel_versions": versions}
        return Document(parts, lambda: (OPEN, dump_mapping(seen))), frame, changed

    def _values_apart(
        self, place: Place, values: Mapping[str, Any], versions: Mapping[str, Any], changed: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the saver is given for each value, and the values that are sealed with the header."""
        is_inline = self.layout is Layout.INLINE
        stored: dict[str, Any] = {}
        inline: dict[str, Any] = {}
        for name, value in values.items():
            if is_inline and isinstance(value, INLINE):
                inline[name], stored[name] = value, ""
            elif name in versions:  # else the saver would not find it again
                version = str(changed.get(name, versions[name]))
                sealable = Sealable(partial(self._seal_value, place, name, version, value))
                stored[name] = type(value)(sealable) if type(value).__name__ == "_DeltaSnapshot" else sealable
        return stored, inline

    def _seal_value(self, place: Place, channel: str, version: str, value: Any) -> tuple[str, bytes]:
        row = value_row(place.thread_id, place.checkpoint_ns, channel, version)
        return self.serde.seal(value, row=row)

    def _readable(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata that is stored readable: plain keys, and tokens."""
        plain = self.plain
        frame = {key: value for key, value in metadata.items() if key in plain}
        for key in self.indexed.intersection(metadata):
            value = metadata[key]
            if self.layout is Layout.VALUES and isinstance(value, str):
                value = value.encode("utf-8", "replace").decode()  # as the serializer writes text
            if token := self.tokens.token(key, value):
                frame[token] = 1
        return frame

    def seal_writes(
        self, place: Place, task_id: str, task_path: str, writes: Sequence[tuple[str, Any]], call: bytes
    ) -> list[tuple[str, Sealable]]:
        """Return what to store for the writes of a task, in their order; ``call`` is `new_call` of them."""
        key, seal = self.key(place), self.serde.seal
        found = []
        for idx, (channel, value) in enumerate(writes):
            row = write_row(*key, task_id, channel)
            head = pack_claims(Claims(task_path, WRITES_IDX_MAP.get(channel, idx), call))
            found.append((channel, Sealable(partial(seal, value, row=row, head=head))))
        return found

    def seal_claimed(self, place: Place, writes: Sequence[Write]) -> list[tuple[str, Sealable]]:
        """Return what to store for writes whose places are known."""
        found = []
        for claims, task_id, channel, value in writes:
            row = write_row(*self.key(place), task_id, channel)
            head = pack_claims(claims or Claims("", 0))
            found.append((channel, Sealable(partial(self.serde.seal, value, row=row, head=head))))
        return found

    # --- opening ------------------------------------------------------------------------------

    def key(self, place: Place) -> tuple[str, str, str]:
        """Return the key of the row at ``place``."""
        return place.thread_id, place.checkpoint_ns, str(place.checkpoint_id)

    def open_bound(self, sealed: Sealed, row: PackedRow) -> Opened | None:
        """Open a value at its row; ``None`` if it is not bound to one, and that is allowed."""
        if is_bound(sealed.tag):
            return self.serde.open(sealed.tag, sealed.blob, row=row)
        self.require_unbound(sealed.tag)
        return None

    def require_unbound(self, tag: object) -> None:
        """Check that unbound values are allowed.

        Raises:
            PlaintextError, UnboundValueError: If they are not.
        """
        if not self.allow_unbound:
            if is_sealed(tag):
                raise UnboundValueError(f"{excerpt(tag)} is not bound to a row", hint=_REBIND)
            if tag is None:
                raise PlaintextError("the row is not sealed as a whole", hint=_SEAL)
            raise PlaintextError(f"value of type {excerpt(tag)} is not sealed to its row", hint=_SEAL)

    def open_value(self, sealed: Any, row: PackedRow) -> Any:
        """Open and decode one value that is stored apart."""
        opened = self.open_bound(require_sealed(sealed), row)
        if opened is None:
            return self.serde.loads_typed((sealed.tag, sealed.blob))
        return self.serde.decode(opened.inner, opened.data)

    def open_writes(self, place: Place, writes: Iterable[PendingWrite]) -> list[StoredWrite]:
        """Open writes to a checkpoint.

        Raises:
            RowError: If the index of one is not that of its channel.
        """
        key, found = self.key(place), list[StoredWrite]()
        for task_id, channel, sealed in writes:
            opened = self.open_bound(require_sealed(sealed), write_row(*key, task_id, channel))
            if opened is None:
                found.append(StoredWrite(None, task_id, channel, sealed.tag, sealed.blob))
                continue
            claims, data = split_claims(opened.data)
            require_same_kind(channel, claims)
            found.append(StoredWrite(claims, task_id, channel, opened.inner, data))
        return found

    def decode_write(self, write: StoredWrite) -> Write:
        """Return a write that was opened, decoded."""
        claims, task_id, channel, inner, data = write
        if claims is None:
            return Write(None, task_id, channel, self.serde.loads_typed((inner, data)))
        return Write(claims, task_id, channel, self.serde.decode(inner, data))


def is_bound(tag: object) -> bool:
    """Whether a value is bound to its row.

    Raises:
        TagError: If the tag of a sealed value is invalid.
    """
    return is_sealed(tag) and "row" in parse_tag(tag).flags


def require_sealed(value: Any) -> Sealed:
    """Return what a saver's serializer gave it.

    Raises:
        RowError: If it is anything else.
    """
    if type(value) is not Sealed:
        raise RowError("a value stands where a sealed one was stored")
    return value
