"""What is sealed of a checkpoint and of a write, in front of the bytes of the serializer.

    checkpoint   u32be length | header, JSON | the document, by the serializer
    write        i32be idx | u32be length, and 2^31 if a call follows | task_path, UTF-8 | call
                 | the value, by the serializer

The call is described in `sealpoint.sealed.calls`. Earlier releases have written none.

The header:

    metadata   all of it
    parent     id of the parent, or null
    thread     only if the column holds a pseudonym: the thread id
    channels   only if values are stored apart: the names of all channels with a value
    made       only in delta graphs: which writes to its parent it was made of, see `sealpoint.sealed.entry`
    inline     only if values are stored apart: those that a Postgres saver does not pass to its serializer
    store      only with a thread store: its identity, a clock that it had reached, and random bytes
    rebound    only if `rebind` has bound it: random bytes, so that it is no earlier state of a thread store

If values are stored apart, the document lacks ``channel_values``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring_ascii as encode_text
from math import isfinite
from typing import Any, Final, NotRequired, TypedDict

from sealpoint.base import WRITES_IDX_MAP, CheckpointMetadata
from sealpoint.base.metadata import encode_metadata, prepared_encoder
from sealpoint.base.place import KEY
from sealpoint.errors import DecodeError, RowError, UnsupportedTypeError, excerpt
from sealpoint.sealed.calls import Claims, end_of
from sealpoint.sealed.tokens import TOKEN, Tokens

# Channel of the sealed value that makes each unwrapped reader of a Postgres checkpoint fail
SENTINEL: Final = "__sealpoint__"

# Less than every version of a saver, for savers that look for the greatest
SENTINEL_VERSION: Final = "0"

# Keys of metadata that stay readable, because statements of the savers use them
PLAIN: Final = (
    "source",
    "step",
    "parents",
    "run_id",
    "counters_since_delta_snapshot",
    "delta_writes_versioned",
)

# Types of the values that a Postgres saver stores as JSON, with their subclasses
INLINE: Final = (str, int, float, bool, type(None))

_LENGTH: Final = 4
_CLAIMS: Final = struct.Struct(">iI")
_HAS_CALL: Final = 2**31


class Header(TypedDict):
    """What is sealed of a checkpoint in front of its document; see the module. None is left out."""

    metadata: CheckpointMetadata
    parent: str | None
    thread: NotRequired[Any]
    channels: NotRequired[Sequence[str]]
    inline: NotRequired[Mapping[str, Any]]
    store: NotRequired[str | None]
    made: NotRequired[str | None]
    rebound: NotRequired[str]


_SHORT: Final = frozenset(("metadata", "parent", "store", "made"))

# ASCII, so that lone surrogates are kept; NaN and infinity as Python writes them.
_encode: Final = prepared_encoder(json.JSONEncoder(separators=(",", ":"), check_circular=False))
_DECODER: Final = json.JSONDecoder()


def pack_header(header: Header) -> bytes:
    """Return the bytes in front of a document."""
    parent = header["parent"]
    text = f',"parent":{"null" if parent is None else encode_text(parent)}'
    for name, value in (("store", header.get("store")), ("made", header.get("made"))):
        if value is not None:
            text += f',"{name}":{encode_text(value)}'
    end = "}"
    if rest := {name: each for name, each in header.items() if name not in _SHORT and each is not None}:
        try:
            end = f",{''.join(_encode(rest, False))[1:]}"
        except (TypeError, ValueError, RecursionError) as error:
            raise UnsupportedTypeError(f"a value has no form in JSON: {type(error).__name__}") from None
    data = b'{"metadata":' + encode_metadata(header["metadata"]) + (text + end).encode()
    return len(data).to_bytes(_LENGTH, "big") + data


def split_header(data: bytes) -> tuple[Header, bytes]:
    """Return the header and the document of authenticated bytes, which another program may have sealed."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = _DECODER.decode(data[_LENGTH:end].decode())
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("metadata"), dict) or "parent" not in header:
        raise DecodeError("a sealed checkpoint has no header")
    return header, data[end:]  # type: ignore[return-value]


def digest_of(claim: object, inner: str, data: bytes) -> bytes:
    """Return 32 bytes for what is sealed of a checkpoint: ``data`` with the header. Rotation keeps them.

    A claim is random for each put, and sealed with everything else. So it stands for all of it.
    """
    return sha256(claim.encode() if isinstance(claim, str) else b"%b\0%b" % (inner.encode(), data)).digest()


def pack_claims(claims: Claims) -> bytes:
    """Return the bytes in front of a write's value."""
    path = claims.task_path.encode("utf-8", "surrogatepass")
    mark = _HAS_CALL if claims.call else 0
    return _CLAIMS.pack(claims.idx, len(path) | mark) + path + claims.call


def split_claims(data: bytes) -> tuple[Claims, bytes]:
    """Return the claims and the value of authenticated bytes."""
    try:
        idx, length = _CLAIMS.unpack_from(data)
        path_end = _CLAIMS.size + (length & ~_HAS_CALL)
        path = data[_CLAIMS.size : path_end].decode("utf-8", "surrogatepass")
        end = end_of(data, path_end) if length & _HAS_CALL else path_end
    except (struct.error, UnicodeDecodeError):
        path = None
    if path is None or len(data) < end:
        raise DecodeError("a sealed write does not say its place")
    return Claims(path, idx, data[path_end:end]), data[end:]


def require_same_metadata(readable: Mapping[str, Any], metadata: Mapping[str, Any], tokens: Tokens) -> None:
    """Compare the metadata that is readable in a row with what was sealed.

    A key that was sealed may be absent: which ones are readable may have been another choice. Without the
    index key, all keys in the form of tokens are accepted.
    """
    found = None
    for key, value in readable.items():
        if key == KEY:
            continue
        if key in metadata:
            if _is_same(value, metadata[key]):
                continue
        elif type(key) is str and TOKEN.match(key) and type(value) is int and value == 1:
            if not tokens.are_available:
                continue
            if found is None:
                found = tokens.of({name: metadata[name] for name in metadata if name not in PLAIN})
            if key in found:
                continue
        raise RowError(f"metadata {excerpt(key)} is not what was sealed")


def _is_same(readable: Any, sealed: Any) -> bool:
    """Whether two JSON values are the same, except that Postgres returns large floats as integers."""
    if readable == sealed:
        return True
    if isinstance(sealed, float) and isinstance(readable, float):
        return sealed != sealed and readable != readable  # noqa: PLR0124 -- both are NaN
    if isinstance(sealed, float) and isinstance(readable, int) and isfinite(sealed):
        return readable == int(Decimal(repr(sealed)))
    if isinstance(sealed, dict) and isinstance(readable, dict):
        return readable.keys() == sealed.keys() and all(
            _is_same(readable[key], sealed[key]) for key in sealed
        )
    if isinstance(sealed, list) and isinstance(readable, list):
        return len(readable) == len(sealed) and all(map(_is_same, readable, sealed))
    return False


def require_same_kind(channel: str, claims: Claims) -> None:
    """Check that a write has the index of its channel: special writes have fixed ones."""
    if WRITES_IDX_MAP.get(channel, max(claims.idx, 0)) != claims.idx:
        raise RowError(f"a write to {excerpt(channel)} was another kind of write when it was sealed")
