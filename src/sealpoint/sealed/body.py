"""What is sealed of a checkpoint and of a write, in front of the bytes of the serializer.

    checkpoint   u32be length | header, JSON | the document, by the serializer
    write        i32be idx | u32be length | task_path, UTF-8 | the value, by the serializer

The header:

    metadata   all of it
    parent     id of the parent, or null
    thread     only if the column holds a pseudonym: the thread id
    channels   only if values are stored apart: the names of all channels with a value
    inline     only if values are stored apart: those that a Postgres saver does not pass to its serializer
    store      only beside a thread store: its identity, a clock that it had reached, and random bytes

If values are stored apart, the document lacks ``channel_values``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring_ascii as encode_text
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from sealpoint.base import WRITES_IDX_MAP, CheckpointMetadata
from sealpoint.base.frame import KEY
from sealpoint.base.metadata import encode_metadata, prepared_encoder
from sealpoint.errors import DecodeError, RowError, UnsupportedTypeError, excerpt

SENTINEL: Final = "__sealpoint__"
"""Channel of the sealed value that makes each unwrapped reader of a Postgres checkpoint fail."""

SENTINEL_VERSION: Final = "0"
"""Less than every version of a saver, for savers that look for the greatest."""

PLAIN: Final = (
    "source",
    "step",
    "parents",
    "run_id",
    "counters_since_delta_snapshot",
    "delta_writes_versioned",
)
"""Keys of metadata that stay readable, because statements of the savers use them."""

INLINE: Final = (str, int, float, bool, type(None))
"""Types of the values that a Postgres saver stores as JSON, with their subclasses."""

_LENGTH: Final = 4
_CLAIMS: Final = struct.Struct(">iI")


class Header(TypedDict):
    """What is sealed of a checkpoint beside its document; see the module."""

    metadata: CheckpointMetadata
    parent: str | None
    thread: NotRequired[Any]
    channels: NotRequired[Sequence[str]]
    inline: NotRequired[Mapping[str, Any]]
    store: NotRequired[str]


class Claims(NamedTuple):
    """The place of a write among those of its task.

    Attributes:
        task_path: Path of the task.
        idx: Its position, or the fixed index of a special write.
    """

    task_path: str
    idx: int


_SHORT: Final = frozenset(("metadata", "parent", "store"))

# ASCII, so that lone surrogates are kept; NaN and infinity as Python writes them.
_encode: Final = prepared_encoder(json.JSONEncoder(separators=(",", ":"), check_circular=False))
_DECODER: Final = json.JSONDecoder()


def pack_header(header: Header) -> bytes:
    """Return the bytes in front of a document.

    Raises:
        MetadataError: If the metadata has no form in strict JSON.
        UnsupportedTypeError: If another part has no form in JSON.
    """
    parent = header["parent"]
    text = f',"parent":{"null" if parent is None else encode_text(parent)}'
    if "store" in header:
        text += f',"store":{encode_text(header["store"])}'
    end = "}"
    if not header.keys() <= _SHORT:  # most headers have nothing else
        rest = {name: value for name, value in header.items() if name not in _SHORT}
        try:
            end = f",{''.join(_encode(rest, False))[1:]}"
        except (TypeError, ValueError, RecursionError) as error:
            raise UnsupportedTypeError(f"a value has no form in JSON: {type(error).__name__}") from None
    data = b'{"metadata":' + encode_metadata(header["metadata"]) + (text + end).encode()
    return len(data).to_bytes(_LENGTH, "big") + data


def split_header(data: bytes) -> tuple[Header, bytes]:
    """Return the header and the document of authenticated bytes.

    Raises:
        DecodeError: If they have another form: another program has sealed them.
    """
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = _DECODER.decode(data[_LENGTH:end].decode())
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("metadata"), dict) or "parent" not in header:
        raise DecodeError("a sealed checkpoint has no header")
    return header, data[end:]  # type: ignore[return-value]


def digest_of(claim: object, inner: str, data: bytes) -> bytes:
    """Return 32 bytes for what is sealed of a checkpoint. Rotation does not change them.

    A claim is random for each put, and sealed with everything else. So it stands for all of it.

    Args:
        claim: What the checkpoint says of its thread store; ``None`` if nothing.
        inner: Type of the bytes.
        data: The bytes, with the header.
    """
    return sha256(claim.encode() if isinstance(claim, str) else b"%b\0%b" % (inner.encode(), data)).digest()


def pack_claims(claims: Claims) -> bytes:
    """Return the bytes in front of a write's value."""
    path = claims.task_path.encode("utf-8", "surrogatepass")
    return _CLAIMS.pack(claims.idx, len(path)) + path


def split_claims(data: bytes) -> tuple[Claims, bytes]:
    """Return the claims and the value of authenticated bytes.

    Raises:
        DecodeError: If they have another form.
    """
    try:
        idx, length = _CLAIMS.unpack_from(data)
        end = _CLAIMS.size + length
        path = data[_CLAIMS.size : end].decode("utf-8", "surrogatepass")
    except (struct.error, UnicodeDecodeError):
        path = None
    if path is None or len(data) < end:
        raise DecodeError("a sealed write does not say its place")
    return Claims(path, idx), data[end:]


def require_same_metadata(
    readable: Mapping[str, Any], metadata: Mapping[str, Any], plain: Collection[str] = PLAIN
) -> None:
    """Compare the metadata that is readable in a row with what was sealed.

    Args:
        readable: What stands in the row.
        metadata: What was sealed.
        plain: Keys that savers search for: one that was not sealed would be found.

    Raises:
        RowError: If a key has another value, or a plain key was not sealed. Other keys have no effect.
    """
    for key, value in readable.items():
        if key == KEY:
            continue
        if not _is_same(value, metadata[key]) if key in metadata else key in plain:
            raise RowError(f"metadata {excerpt(key)} is not what was sealed")


def _is_same(readable: Any, sealed: Any) -> bool:
    """Whether two JSON values are the same, except that Postgres returns large floats as integers."""
    if readable == sealed:
        return True
    if isinstance(sealed, float) and isinstance(readable, int):
        return readable == int(Decimal(repr(sealed)))
    if isinstance(sealed, dict) and isinstance(readable, dict):
        return readable.keys() == sealed.keys() and all(
            _is_same(readable[key], sealed[key]) for key in sealed
        )
    if isinstance(sealed, list) and isinstance(readable, list):
        return len(readable) == len(sealed) and all(map(_is_same, readable, sealed))
    return False


def require_same_kind(channel: str, claims: Claims) -> None:
    """Check that a write has the index of its channel: special writes have fixed ones.

    Raises:
        RowError: If it has another.
    """
    if WRITES_IDX_MAP.get(channel, max(claims.idx, 0)) != claims.idx:
        raise RowError(f"a write to {excerpt(channel)} was another kind of write when it was sealed")
