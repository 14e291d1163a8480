"""What `rebind` puts in the place of one row: bound to its place, as SealedSaver writes it, or unbound again.

A value's bytes are passed on as they are. Only JSON is decoded, and of an unbound Postgres checkpoint the
document that SealedSaver had sealed instead of the JSON in its column.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sealpoint.base.checkpoint import require_document
from sealpoint.base.coordinates import CHECKPOINT, METADATA, WRITE
from sealpoint.base.frame import KEY, make_frame
from sealpoint.base.metadata import MAX_DEPTH, decode_metadata, encode_metadata
from sealpoint.crypto import RingCipher
from sealpoint.databases.cells import Cell, SecretOf, open_cell, require_decodable, require_readable
from sealpoint.databases.whole import Beside, Replacement
from sealpoint.errors import BlobError, ConfigError, MetadataError, RowError, excerpt
from sealpoint.sealed.body import (
    PLAIN,
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    pack_claims,
    pack_header,
    require_same_kind,
    require_same_metadata,
    split_claims,
    split_header,
)
from sealpoint.sealed.calls import Claims
from sealpoint.sealed.tokens import PSEUDONYM, Tokens
from sealpoint.serde import EncryptedSerializer
from sealpoint.serde.jsontext import parse
from sealpoint.serde.limits import DEFAULT_LIMITS

_RANDOM_BYTES: Final = 12
_INDEXES: Final = range(-(2**31), 2**31)
_NUL: Final = rb"\u0000"


class Visible(NamedTuple):
    """Which metadata stays readable in a bound row.

    Attributes:
        plain: Keys that stay readable, beside those that savers need.
        indexed: Keys that are searched by token.
    """

    plain: frozenset[str] = frozenset()
    indexed: frozenset[str] = frozenset()

    def require_valid(self) -> None:
        """Check the keys.

        Raises:
            ConfigError: If one is reserved, or plain and indexed.
        """
        both = (self.plain | frozenset(PLAIN)) & self.indexed
        if both or KEY in self.plain | self.indexed:
            raise ConfigError("a key of metadata is plain and indexed, or reserved")


NOTHING_MORE: Final = Visible()


class Binder:
    """Makes bound rows of others, and others of bound ones."""

    def __init__(
        self,
        cipher: RingCipher,
        visible: Visible = NOTHING_MORE,
        *,
        allow_plaintext: bool = False,
        secret_of: SecretOf | None = None,
    ) -> None:
        """Prepare.

        Args:
            cipher: Opens what is there, and seals under its active key.
            visible: Which metadata stays readable.
            allow_plaintext: Whether values that are not sealed are sealed.
            secret_of: Gives the secrets of values that have one in their key.

        Raises:
            ConfigError: If a key of ``visible`` is not valid.
            KeyRingError: If keys are indexed, and the ring has no index key.
        """
        visible.require_valid()
        if visible.indexed:
            cipher.ring.index_key("metadata")  # raises now, not at the first row
        self._cipher = cipher
        self._serde = EncryptedSerializer(cipher)
        self._plain = visible.plain | frozenset(PLAIN)
        self._indexed = visible.indexed
        self._tokens = Tokens(lambda: cipher.ring)
        self._allow_plaintext = allow_plaintext
        self._secret_of = secret_of

    def bind(self, cell: Cell) -> Replacement:
        """Return what takes the place of a row that is not bound.

        Raises:
            RowError: If the row is not one that a saver writes.
            MetadataError: If its metadata cannot be read.
            SealpointError: What `open_cell` and `require_decodable` raise.
        """
        coordinates, beside = cell.where.column.coordinates, cell.where.locator
        if coordinates is METADATA:
            return self._bind_row(cell, beside)
        opened = open_cell(
            self._cipher, cell, allow_plaintext=self._allow_plaintext, secret_of=self._secret_of
        )
        head, metadata = b"", None
        if coordinates is WRITE:
            head = pack_claims(_require_claims(cell.where.names, beside))
        elif coordinates is CHECKPOINT:
            header = _make_header(cell, beside)
            head, metadata = pack_header(header), self._readable(header["metadata"])
        tag, blob = self._cipher.seal(opened.inner, head + opened.data, row=cell.where.row)
        if not opened.authenticated:
            require_decodable(opened.inner, opened.data)
        stored = None if metadata is None else _as_stored(metadata, beside)
        return Replacement(tag, blob, beside.parent or None, stored)

    def _bind_row(self, cell: Cell, beside: Beside) -> Replacement:
        """Bind a Postgres checkpoint: everything in its row, and which of its values are elsewhere."""
        cell.where.require_key()
        require_readable(cell)
        header = _make_header(cell, beside)
        document = _parse(beside.document)
        if not isinstance(document, dict):
            raise RowError("the column of a checkpoint holds no object")
        found = document.pop("channel_values", None) or {}
        require_document({**document, "channel_values": found}, cell.where.names["checkpoint_id"])
        versions = document["channel_versions"]
        if SENTINEL in versions or SENTINEL in found:
            raise RowError(f"checkpoint {excerpt(document['id'])} lacks its sealed part")
        inline = {name: value for name, value in found.items() if name not in beside.channels}
        header["channels"] = [*inline, *sorted(beside.channels)]
        header["inline"] = inline
        inner, data = self._serde.encode(document)
        tag, blob = self._cipher.seal(inner, pack_header(header) + data, row=cell.where.row)
        # A saver compares versions with each other, and they are all text or all numbers.
        are_text = all(isinstance(version, str) for version in versions.values())
        seen = {**versions, SENTINEL: SENTINEL_VERSION if are_text else int(SENTINEL_VERSION)}
        kept = {name: document[name] for name in ("v", "id") if name in document}
        stored = dict.fromkeys(inline, "") | _marks(found, beside.channels)
        row = {**kept, "channel_values": stored, "channel_versions": seen}
        frame = {**self._readable(header["metadata"]), KEY: make_frame(tag, blob)}
        return Replacement(tag, blob, header["parent"], _to_json(frame), _to_json(row))

    def revise(self, cell: Cell) -> Replacement | None:
        """Return a bound checkpoint with more readable metadata; ``None`` if it has all that is wanted.

        The sealed bytes stay the same.
        """
        beside: Beside = cell.where.locator
        header, _ = split_header(open_cell(self._cipher, cell, secret_of=self._secret_of).data)
        before = decode_metadata(beside.metadata)
        require_same_metadata(before, header["metadata"], self._tokens)
        after = {**self._readable(header["metadata"]), **before}
        if after == before:
            return None
        metadata = _as_stored(after, beside)
        return Replacement(cell.tag, cell.value, beside.parent, metadata, beside.document)

    def unbind(self, cell: Cell) -> Replacement | None:
        """Return what a saver with the serializer alone reads in place of a row; ``None`` for a sentinel.

        Raises:
            RowError: If the row was changed since it was sealed, or its thread has a pseudonym.
            SealpointError: What `open_cell` raises.
        """
        coordinates, beside = cell.where.column.coordinates, cell.where.locator
        names = cell.where.names
        if names.get("channel") == SENTINEL:
            return None
        opened = open_cell(self._cipher, cell, secret_of=self._secret_of)
        if PSEUDONYM.match(names["thread_id"]):
            raise RowError(
                "the thread has a pseudonym, by which only SealedSaver finds it",
                hint="sealpoint decrypt makes a copy with the thread ids in place of the pseudonyms",
            )
        if coordinates is METADATA:
            return self._unbind_row(cell, opened.inner, opened.data)
        data, parent, metadata = opened.data, None, None
        if coordinates is WRITE:
            claims, data = split_claims(data)
            if claims.columns != _require_claims(names, beside).columns:
                raise RowError("a write is not at the place at which it was sealed")
        elif coordinates is CHECKPOINT:
            header, data = split_header(data)
            require_same_metadata(decode_metadata(beside.metadata), header["metadata"], self._tokens)
            parent = header["parent"] if beside.parent else None
            metadata = _as_stored(header["metadata"], beside)
        tag, blob = self._cipher.seal(opened.inner, data)
        return Replacement(tag, blob, parent, metadata)

    def _unbind_row(self, cell: Cell, inner: str, data: bytes) -> Replacement:
        """Restore the JSON of a Postgres checkpoint."""
        beside: Beside = cell.where.locator
        header, content = split_header(data)
        require_same_metadata(decode_metadata(beside.metadata), header["metadata"], self._tokens)
        inline = header.get("inline", {})
        if missing := [
            name for name in header.get("channels", ()) if name not in {*inline, *beside.channels}
        ]:
            raise RowError(f"the value of channel {excerpt(missing[0])} is missing")
        document = self._serde.decode(inner, content)
        row = _parse(beside.document)
        marks = (
            _marks(row["channel_values"], beside.channels - inline.keys()) if isinstance(row, dict) else {}
        )
        restored = {**document, "channel_values": {**inline, **marks}}
        require_document(restored, cell.where.names["checkpoint_id"])
        parent = header["parent"] if beside.parent else None
        metadata = encode_metadata(header["metadata"]).decode()
        return Replacement(None, None, parent, _require_storable(metadata), _to_json(restored))

    def _readable(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what stays readable of metadata: plain keys, and tokens."""
        readable = {key: value for key, value in metadata.items() if key in self._plain}
        tokens = (self._tokens.token(key, metadata[key]) for key in self._indexed if key in metadata)
        return readable | dict.fromkeys(filter(None, tokens), 1)


def _make_header(cell: Cell, beside: Beside) -> Header:
    """Return the header of a checkpoint that is not bound.

    Raises:
        RowError: If it has no id, or columns of a wrong type.
        MetadataError: If its metadata is not strict JSON, or has a sealed part.
    """
    if not cell.where.names["checkpoint_id"]:
        raise RowError("the id of a checkpoint is empty")
    if not isinstance(beside.parent, str | None):
        raise RowError(f"column 'parent_checkpoint_id' holds {type(beside.parent).__name__}, not text")
    metadata = decode_metadata(beside.metadata)
    if KEY in metadata:
        raise MetadataError(f"metadata has the key {KEY!r}, and the row is not bound to its place")
    return {
        "metadata": metadata,
        "parent": beside.parent or None,
        "rebound": os.urandom(_RANDOM_BYTES).hex(),
    }


def _require_claims(names: Mapping[str, Any], beside: Beside) -> Claims:
    """Return the place of a write according to its columns.

    Raises:
        RowError: If a saver stores no such write there.
    """
    channel, idx, task_path = names["channel"], names["idx"], beside.task_path
    if not isinstance(task_path, str):
        raise RowError(f"column 'task_path' holds {type(task_path).__name__}, not text")
    if idx not in _INDEXES:
        raise RowError(f"a write to {excerpt(channel)} has the index {idx}, which no saver gives it")
    claims = Claims(task_path, idx)
    require_same_kind(channel, claims)
    return claims


def _marks(values: Any, channels: frozenset[str]) -> dict[str, bool]:
    """Return the marks of snapshots of delta channels, which stand beside their values."""
    found = values if isinstance(values, dict) else {}
    return {name: True for name in sorted(channels) if found.get(name) is True}


def _as_stored(metadata: Mapping[str, Any], beside: Beside) -> bytes | str:
    """Return metadata as JSON, of the type that was read."""
    data = encode_metadata(metadata)  # type: ignore[arg-type]
    return data.decode() if isinstance(beside.metadata, str) else data


def _parse(text: str) -> Any:
    return parse(text.encode(), MAX_DEPTH, DEFAULT_LIMITS.elements)


def _to_json(value: Mapping[str, Any]) -> str:
    """Return JSON for a column of Postgres.

    Raises:
        BlobError: If it has no form there, as for NaN, NUL characters and lone surrogates.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BlobError(f"a value has no form in JSON: {type(error).__name__}") from None
    _parse(text)
    return _require_storable(text)


def _require_storable(text: str) -> str:
    if _NUL in text.encode().replace(rb"\\", b"__"):
        raise BlobError("Postgres stores no NUL character in JSON")
    return text
