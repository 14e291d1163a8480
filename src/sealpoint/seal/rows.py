"""Rows: how the parts of a checkpoint are joined to seal them, split again, and compared with its row.

No I/O: sync and async savers use this module, and the commands that read or change whole databases. They
refuse the same rows, and differ in how they handle a refused row. These bytes are sealed:

    checkpoint   u32be length | header, JSON | the document, by the serializer
    write        see `sealpoint.seal.calls`
    item         see `sealpoint.seal.items`

The header:

    metadata   the whole metadata
    parent     id of the parent, or null
    thread     only if the column holds a pseudonym: the thread id
    channels   only if values are stored apart: the names of all channels with a value
    made       only in delta graphs: the writes to the parent it was made of, see `sealpoint.seal.calls`
    inline     only if values are stored apart: values that a Postgres saver does not pass to its serializer
    store      only with a thread store: the store's identity, the number of an event, and random bytes
    rebound    only if `rebind` has bound the checkpoint: random bytes, which make its digest a new one

It is strict JSON; its metadata and inline values are written by `sealpoint.seal.jsontext.pack_json`.

If values are stored apart, the document lacks ``channel_values``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from json.encoder import encode_basestring_ascii as encode_text
from typing import Any, Final, NotRequired, Protocol, TypeAlias, TypedDict

from sealpoint.errors import DecodeError, RowError, UnsupportedTypeError, excerpt
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.cipher import Opened, parse_tag
from sealpoint.seal.jsontext import has_strict_form, pack_json, parse_short, prepared_encoder, unpack_json
from sealpoint.seal.places import KEY
from sealpoint.seal.tag import SEALED_MARK
from sealpoint.seal.tokens import TOKEN, Tokens

# Channel of the sealed value that makes each unwrapped reader of a Postgres checkpoint fail
SENTINEL: Final = "__sealpoint__"

# Less than every version of a saver, for savers that look for the greatest
SENTINEL_VERSION: Final = "0"

# Key of metadata without which LangGraph stores all delta channels of a checkpoint in full
MARK: Final = "counters_since_delta_snapshot"

# Keys of metadata that stay readable, because statements of the savers use them
PLAIN: Final = ("source", "step", "parents", "run_id", MARK, "delta_writes_versioned")

# Types of the values that a Postgres saver stores as JSON, with their subclasses
INLINE: Final = (str, int, float, bool, type(None))

_LENGTH: Final = 4


# A checkpoint as a saver read it, not authenticated: LangGraph's ``CheckpointTuple``, or ours.
Found: TypeAlias = Any


class Serializer(Protocol):
    """The methods of a sealing serializer that the core calls: of `sealpoint.serde.EncryptedSerializer`."""

    def seal(self, obj: Any, *, row: Any = None, head: bytes = b"") -> tuple[str, bytes]:
        """Serialize a value, and seal ``head`` with the bytes of the value, bound to a row."""

    def open(self, tag: str, blob: bytes, *, row: Any = None) -> Opened:
        """Open a value that is bound to ``row``, without deserializing it."""

    def decode(self, inner: str, data: bytes) -> Any:
        """Deserialize authenticated bytes."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Open and deserialize a value that is unbound or unsealed; raise if such values are refused."""


class Header(TypedDict):
    """The header that is sealed before a checkpoint; see the module. Members with ``None`` are omitted."""

    metadata: Any
    parent: str | None
    thread: NotRequired[Any]
    channels: NotRequired[Sequence[str]]
    inline: NotRequired[Mapping[str, Any]]
    store: NotRequired[str | None]
    made: NotRequired[str | None]
    rebound: NotRequired[str]


_SHORT: Final = frozenset(("metadata", "parent", "store", "made"))

encode: Final = prepared_encoder(
    json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
)


def pack_header(header: Header, metadata: bytes) -> bytes:
    """Return the bytes of a header; ``metadata`` is the header's metadata as strict JSON."""
    parent = header["parent"]
    text = f',"parent":{"null" if parent is None else encode_text(parent)}'
    for name, value in (("store", header.get("store")), ("made", header.get("made"))):
        if value is not None:
            text += f',"{name}":{encode_text(value)}'
    end = "}"
    if rest := {name: each for name, each in header.items() if name not in _SHORT and each is not None}:
        if "inline" in rest:
            rest["inline"] = pack_json(rest["inline"])
        try:
            end = f",{''.join(encode(rest, False))[1:]}"
        except (TypeError, ValueError, RecursionError) as error:
            raise UnsupportedTypeError(f"JSON cannot represent a value: {type(error).__name__}") from None
    return with_length(b'{"metadata":' + metadata + (text + end).encode())


def with_length(header: bytes) -> bytes:
    """Return the JSON of a header with its length before it, as it is sealed."""
    return len(header).to_bytes(_LENGTH, "big") + header


def split_header(data: bytes) -> tuple[Header, bytes]:
    """Split authenticated bytes into header and checkpoint; any key holder may have sealed them."""
    header, document = split_json(data)
    if data.find(b"[", _LENGTH, len(data) - len(document)) >= 0:  # else nothing was escaped
        header |= {name: unpack_json(header[name]) for name in ("metadata", "inline") if name in header}
    if type(header.get("metadata")) is not dict or "parent" not in header:
        raise DecodeError("a sealed checkpoint does not begin with a valid header")
    return header, document  # type: ignore[return-value]


def split_json(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Split bytes into the JSON object that `with_length` wrote, with any keys, and the bytes after it."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = parse_short(data[_LENGTH:end].decode())
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or end > len(data):
        raise DecodeError("a sealed value does not begin with a valid header")
    return header, data[end:]


def digest_of(claim: object, inner: str, data: bytes) -> bytes:
    """Return 32 bytes that identify the sealed content of a checkpoint. Rotation does not change these bytes.

    With a thread store the bytes are the hash of ``claim``, which is random for each put, and is sealed too.
    """
    named = claim.encode("utf-8", "surrogatepass") if isinstance(claim, str) else None
    return sha256(b"%b\0%b" % (inner.encode(), data) if named is None else named).digest()


_EXACT: Final = frozenset((str, int, bool))  # equal values of one of these types are the same


def require_same_metadata(
    readable: Mapping[str, Any],
    metadata: Mapping[str, Any],
    tokens: Tokens,
    what: str = "metadata",
    never_indexed: Collection[str] = PLAIN,
    *,
    has_frame: bool = True,
) -> None:
    """Compare the readable metadata of a row, or the readable fields of an item, with what was sealed.

    A sealed name may be missing in the row: the writer chooses which names are readable. If the ring has no
    index key, every readable name in the form of a token is accepted.
    """
    found = None
    for key, value in readable.items():
        if key == KEY and has_frame:
            continue
        if key in metadata:
            sealed, kind = metadata[key], type(value)
            if kind is type(sealed) and (kind in _EXACT or not value) and value == sealed:
                continue
            if _is_same(value, sealed) and has_strict_form(value):
                continue
        elif type(key) is str and TOKEN.match(key) and type(value) is int and value == 1:
            if not tokens.are_available:
                continue
            if found is None:
                found = tokens.of({name: metadata[name] for name in metadata if name not in never_indexed})
            if key in found:
                continue
        raise RowError(f"{what} {excerpt(key)} is not what was sealed")


def _is_same(readable: Any, sealed: Any) -> bool:
    """Whether two JSON values are the same; a large float equals the integer that Postgres returns."""
    if isinstance(sealed, dict) and isinstance(readable, dict):
        return readable.keys() == sealed.keys() and all(
            _is_same(readable[key], sealed[key]) for key in sealed
        )
    if isinstance(sealed, list) and isinstance(readable, list):
        return len(readable) == len(sealed) and all(map(_is_same, readable, sealed))
    if isinstance(sealed, bool) or isinstance(readable, bool):
        return sealed is readable  # True is not 1
    if isinstance(sealed, float) and isinstance(readable, int) and sealed.is_integer():
        return readable in (sealed, int(Decimal(repr(sealed))))
    return bool(readable == sealed)


def is_bound(tag: object) -> bool:
    """Whether a value is bound to its row."""
    return isinstance(tag, str) and SEALED_MARK in tag and "row" in parse_tag(tag).flags


def not_sealed_part(checkpoint_id: object) -> RowError:
    """Return the error for a frame in metadata that has no valid tag or bytes, or no ``.row``."""
    return RowError(f"the sealed part of {excerpt(checkpoint_id)} has no valid form")


def require_same_row(header: Header, metadata: Mapping[str, Any], parent: object, tokens: Tokens) -> None:
    """Compare the readable parts of a bound checkpoint with its header; ``parent`` is the column's content.

    Savers set the parent column to NULL when they prune. Only layouts that store values apart have a frame.
    """
    require_same_metadata(metadata, header["metadata"], tokens, has_frame="channels" in header)
    if parent not in (None, header["parent"]):
        raise RowError("the id of the parent is not what was sealed")


def require_parts(checkpoint: Any, checkpoint_id: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the mappings of values and versions of a checkpoint whose values have rows of their own."""
    for part in ("channel_values", "channel_versions"):
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get(part), dict):
            raise RowError(f"checkpoint {excerpt(checkpoint_id)} has no {part}")
    return checkpoint["channel_values"], checkpoint["channel_versions"]


def require_never_sealed(checkpoint_id: object, *parts: Any) -> None:
    """Check that a checkpoint without a frame never had a frame: else it would name the sentinel."""
    if any(isinstance(part, dict) and SENTINEL in part for part in parts):
        raise RowError(f"checkpoint {excerpt(checkpoint_id)} lacks its sealed part")


def value_missing(channel: object) -> RowError:
    """Return the error for a checkpoint whose value of a channel is not in the database."""
    return RowError(f"the value of channel {excerpt(channel)} is missing")


def require_sealed(value: Any) -> Sealed:
    """Return a stored value as the wrapped saver returned it; raise unless a `Carrier` created the object."""
    if type(value) is not Sealed:
        raise RowError("a value stands where a sealed one was stored")
    return value


DOCUMENT_MAPPINGS: Final = ("channel_values", "channel_versions", "versions_seen")


def require_document(
    document: Any, checkpoint_id: str, is_object: Callable[[Any], bool] = lambda _: False
) -> None:
    """Check that an opened value is a checkpoint with the id of its row, and has its three mappings.

    ``is_object`` says whether a value is the placeholder of an object, which is accepted as a mapping.
    """
    if type(document) is dict:  # nearly always, and without a loop
        get = document.get
        values, versions, seen = get("channel_values"), get("channel_versions"), get("versions_seen")
        if get("id") == checkpoint_id and type(values) is type(versions) is type(seen) is dict:
            return
    if not isinstance(document, dict) or document.get("id") != checkpoint_id:
        raise RowError(f"row {excerpt(checkpoint_id)} does not hold the checkpoint of that id")
    for name in DOCUMENT_MAPPINGS:
        part = document.get(name)
        if not (isinstance(part, dict) or is_object(part)):
            wanted = ", ".join(DOCUMENT_MAPPINGS)
            raise RowError(f"checkpoint {excerpt(checkpoint_id)} lacks one of the mappings {wanted}")
