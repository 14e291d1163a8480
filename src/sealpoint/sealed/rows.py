"""The rule of a row: what is sealed at its place, opened, taken apart and compared.

No I/O: sync and async savers share it, and the commands that read or change whole databases. They differ in
what they do with a refusal, never in what they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Self

from sealpoint.base import (
    WRITES_IDX_MAP,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    RunnableConfig,
    get_checkpoint_metadata,
)
from sealpoint.base.place import CHECKPOINT, METADATA, WRITE, Coordinates, Place
from sealpoint.crypto import Opened, PackedRow, RingCipher
from sealpoint.crypto.cipher import parse_tag
from sealpoint.crypto.context import RowTemplate
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import (
    ConfigError,
    PlaintextError,
    RowError,
    SealingError,
    UnboundValueError,
    excerpt,
)
from sealpoint.sealed.body import (
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    pack_claims,
    require_same_kind,
    require_same_metadata,
    split_claims,
    split_header,
)
from sealpoint.sealed.calls import Claims, StoredWrite
from sealpoint.sealed.carrier import Document, Sealable, Sealed
from sealpoint.sealed.tokens import EXACT, Tokens, in_json
from sealpoint.serde import EncryptedSerializer

_REBIND: Final = (
    "seal it to its row with `sealpoint rebind DB --apply`, or pass unbound='allow' while you migrate"
)
_SEAL: Final = (
    f"{_REBIND}; a value that is not sealed at all needs --allow-plaintext there,"
    " and here plaintext='allow' in the serializer"
)
_write_row: Final = RowTemplate(dict(WRITE.kind), WRITE.columns).row

Put = tuple[Document, dict[str, Any], dict[str, Any]]
"""What a wrapped saver's ``put`` is given after the config: checkpoint, metadata and new versions."""


class Write(NamedTuple):
    """One pending write, opened."""

    claims: Claims | None  # authenticated; none if it is not bound to its row
    task_id: str
    channel: str
    value: Any


class Parts(NamedTuple):
    """A value that was opened, taken apart: ``opened`` has the bytes of the serializer alone."""

    opened: Opened
    header: Header | None = None  # of a bound checkpoint
    claims: Claims | None = None  # of a bound write
    is_bound: bool = True

    @property
    def sealed_with(self) -> dict[str, Any] | None:
        """What is sealed in front of the bytes of the serializer, as JSON."""
        if self.claims is not None:
            return self.claims.columns | ({"call": self.claims.call_id.hex()} if self.claims.call else {})
        return dict(self.header) if self.header else None


# --- the rule -------------------------------------------------------------------------------------


def is_bound(tag: object) -> bool:
    """Whether a value is bound to its row."""
    return is_sealed(tag) and "row" in parse_tag(tag).flags


def take_apart(kind: Coordinates, tag: object, opened: Opened, names: Mapping[str, Any]) -> Parts:
    """Take apart what was opened at a row: its tag, and the columns of its key by name."""
    if not is_bound(tag):
        if kind == METADATA:
            raise not_sealed_part(names.get("checkpoint_id"))
        return Parts(opened, is_bound=False)
    if kind == WRITE:
        claims, data = _split_write(names["channel"], opened.data)
        return Parts(opened._replace(data=data), claims=claims)
    if kind in (CHECKPOINT, METADATA):
        header, data = split_header(opened.data)
        return Parts(opened._replace(data=data), header)
    return Parts(opened)


def _split_write(channel: str, data: bytes) -> tuple[Claims, bytes]:
    claims, value = split_claims(data)
    require_same_kind(channel, claims)
    return claims, value


def not_sealed_part(checkpoint_id: object) -> RowError:
    """Return the error for a value in metadata that no saver has sealed to its row."""
    return RowError(f"the sealed part of {excerpt(checkpoint_id)} is not one")


def require_same_row(header: Header, metadata: Mapping[str, Any], parent: object, tokens: Tokens) -> None:
    """Compare what is readable of a bound checkpoint with what was sealed; ``parent`` is its column.

    Savers set the column of the parent to NULL when they prune.
    """
    require_same_metadata(metadata, header["metadata"], tokens)
    if parent not in (None, header["parent"]):
        raise RowError("the id of the parent is not what was sealed")


def require_parts(checkpoint: Any, checkpoint_id: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the readable values and versions of a checkpoint whose values are stored apart."""
    for part in ("channel_values", "channel_versions"):
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(part), dict):
            raise RowError(f"checkpoint {excerpt(checkpoint_id)} has no {part}")
    return checkpoint["channel_values"], checkpoint["channel_versions"]


def require_never_sealed(checkpoint_id: object, *parts: Any) -> None:
    """Check that a checkpoint without a sealed part never had one: values and versions name no sentinel."""
    if any(isinstance(part, dict) and SENTINEL in part for part in parts):
        raise RowError(f"checkpoint {excerpt(checkpoint_id)} lacks its sealed part")


def channels_apart(header: Header) -> Iterator[str]:
    """Yield the channels of a bound checkpoint whose values are in rows of their own."""
    inline = header.get("inline", {})
    return (channel for channel in header.get("channels", ()) if channel not in inline)


def versions_apart(
    header: Header, document: Mapping[str, Any], readable: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the channel and version of each value in a row of its own that a bound checkpoint needs."""
    versions = {**document["channel_versions"], SENTINEL: SENTINEL_VERSION}
    for channel in (SENTINEL, *channels_apart(header)):
        version = str(versions.get(channel))
        if str(readable.get(channel)) != version:
            raise RowError(f"the row has another version for channel {excerpt(channel)} than was sealed")
        yield channel, version


def value_missing(channel: object) -> RowError:
    """Return the error for a checkpoint without one of its values."""
    return RowError(f"the value of channel {excerpt(channel)} is missing")


def restore_values(header: Header, readable: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a Postgres saver has in ``channel_values`` of a row: inline values, and marks of snapshots.

    Snapshots of delta channels are in rows of their own; that they are is readable.
    """
    marks = {channel: True for channel in channels_apart(header) if readable.get(channel) is True}
    return {**header.get("inline", {}), **marks}


# --- a saver --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Seals and opens checkpoints and writes, each bound to its row. A subclass is a layout.

    How a saver stores a checkpoint, and so what of it can be sealed as one value, is what layouts differ in.
    """

    layout: ClassVar[str]
    """Its name."""
    values_apart: ClassVar[bool] = False
    """Whether values have rows of their own."""
    keeps_types: ClassVar[bool] = False
    """Whether the saver passes metadata to its serializer, which keeps types that JSON does not have."""
    adds_sends: ClassVar[bool] = False
    """Whether the saver adds messages to checkpoints of old releases, see `Entry.needs_sends`."""

    serde: EncryptedSerializer
    plain: frozenset[str]  # keys of metadata that stay readable
    indexed: frozenset[str]  # keys of metadata that are searched by token
    tokens: Tokens
    allow_unbound: bool
    is_remembered: bool = False  # whether there is a thread store
    allow_partial: bool = False  # whether a part of the writes of one call is read

    def with_serde(self, serde: object) -> Self:
        """Return the same with another serializer."""
        if not isinstance(serde, EncryptedSerializer):
            raise ConfigError(
                f"serde is {type(serde).__name__}, not an EncryptedSerializer",
                hint="create one: EncryptedSerializer.from_key_file(PATH)",
            )
        if not isinstance(serde.cipher, RingCipher):
            raise SealingError(f"{type(serde.cipher).__name__} cannot bind a row", hint="use RingCipher")
        return replace(self, serde=serde)

    # --- what a layout says -------------------------------------------------------------------

    def seal_document(
        self, place: Place, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        """Return what to store for a checkpoint with this header."""
        raise NotImplementedError

    def open_header(self, found: CheckpointTuple, place: Place) -> Opened | None:
        """Open the value with the header of a checkpoint; ``None`` if it is not bound."""
        raise NotImplementedError

    def merge(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Return the metadata that the saver would store of a call of ``put``."""
        return get_checkpoint_metadata(config, metadata)

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
        if not isinstance(place.checkpoint_id, str) or not place.checkpoint_id:
            raise ConfigError("the id of the checkpoint is empty")
        header: Header = {"metadata": metadata, "parent": parent}
        if thread_id != place.thread_id:
            header["thread"] = thread_id
        if claim is not None:
            header["store"] = claim
        if made is not None:
            header["made"] = made
        return self.seal_document(place, header, checkpoint, new_versions)

    def readable(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata that is stored readable: plain keys, and tokens."""
        plain = self.plain
        frame = {key: value for key, value in metadata.items() if key in plain}
        for key in self.indexed.intersection(metadata):
            value = metadata[key]
            if self.keeps_types and isinstance(value, str):
                value = value.encode("utf-8", "replace").decode()  # as the serializer writes text
            if token := self.tokens.token(key, value):
                frame[token] = 1
        return frame

    def seal_writes(
        self, place: Place, task_id: str, task_path: str, writes: Sequence[tuple[str, Any]], call: bytes
    ) -> list[tuple[str, Sealable]]:
        """Return what to store for the writes of a task, in their order; ``call`` is `new_call` of them."""
        return self.seal_claimed(
            place,
            [
                Write(Claims(task_path, WRITES_IDX_MAP.get(channel, idx), call), task_id, channel, value)
                for idx, (channel, value) in enumerate(writes)
            ],
        )

    def seal_claimed(self, place: Place, writes: Sequence[Write]) -> list[tuple[str, Sealable]]:
        """Return what to store for writes whose places are known."""
        key, seal, found = key_of(place), self.serde.seal, []
        for claims, task_id, channel, value in writes:
            row = _write_row(*key, task_id, channel)
            head = pack_claims(claims or Claims("", 0))
            found.append((channel, Sealable(partial(seal, value, row=row, head=head))))
        return found

    # --- opening ------------------------------------------------------------------------------

    def open_bound(self, sealed: Sealed, row: PackedRow) -> Opened | None:
        """Open a value at its row; ``None`` if it is not bound to one, and that is allowed."""
        if is_bound(sealed.tag):
            return self.serde.open(sealed.tag, sealed.blob, row=row)
        self.require_unbound(sealed.tag)
        return None

    def require_unbound(self, tag: object) -> None:
        """Check that unbound values are allowed."""
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
        """Open writes to a checkpoint."""
        key, found = key_of(place), list[StoredWrite]()
        for task_id, channel, sealed in writes:
            opened = self.open_bound(require_sealed(sealed), _write_row(*key, task_id, channel))
            if opened is None:
                found.append(StoredWrite(None, task_id, channel, sealed.tag, sealed.blob))
            else:
                claims, data = _split_write(channel, opened.data)
                found.append(StoredWrite(claims, task_id, channel, opened.inner, data))
        return found

    def decode_write(self, write: StoredWrite) -> Write:
        """Return a write that was opened, decoded."""
        claims, task_id, channel, inner, data = write
        if claims is None:
            return Write(None, task_id, channel, self.serde.loads_typed((inner, data)))
        return Write(claims, task_id, channel, self.serde.decode(inner, data))

    # --- searching, as the wrapped saver does -------------------------------------------------

    is_searched_by_json: ClassVar[bool] = True
    """Whether the saver compares values as JSON."""
    lists_by_id: ClassVar[bool] = True
    """Whether the saver lists by id, over all threads and namespaces."""

    def applies(self, key: str) -> bool:
        """Whether the saver can search for a key of metadata itself."""
        return key in self.plain

    def has_equals(self, value: Any) -> bool:
        """Whether the database takes values for equal that have other tokens.

        SQLite and Python do so with 1, 1.0 and true, and with integers that are not exact as floats.
        """
        return isinstance(value, int | float) and (value in (0, 1) or abs(value) >= EXACT)

    def wanted(self, value: Any) -> Any:
        """Return a value that is searched for, as it reads in JSON, into which savers turn it."""
        if isinstance(value, tuple):
            return value
        if value is None or isinstance(value, str | int | float):
            return in_json(value)
        if not isinstance(value, dict | list):
            return value
        try:
            return json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError):
            return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether a key of metadata matches, as it would in the database."""
        raise NotImplementedError


def key_of(place: Place) -> tuple[str, str, str]:
    """Return the key of the row at ``place``."""
    return place.thread_id, place.checkpoint_ns, str(place.checkpoint_id)


def require_sealed(value: Any) -> Sealed:
    """Return what a saver's serializer gave it."""
    if type(value) is not Sealed:
        raise RowError("a value stands where a sealed one was stored")
    return value
