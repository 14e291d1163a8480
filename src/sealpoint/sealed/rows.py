"""The rule of a row: what is sealed of a checkpoint and of a write, taken apart and compared.

No I/O: sync and async savers share it, and the commands that read or change whole databases. They differ in
what they do with a refusal, never in what they refuse. In front of the bytes of the serializer is sealed:

    checkpoint   u32be length | header, JSON | the document, by the serializer
    write        i32be idx | u32be length, and 2^31 if a call follows | task_path, UTF-8 | call
                 | the value, by the serializer
    item         see `sealpoint.sealed.items`

A call of ``put_writes`` is described in each of its writes, so that none can be taken out. Earlier releases
have written none.

    call   8 random bytes | u32be number of writes | u16be k | k times (u32be position, i8 fixed index)

The index of a write is its position in its call. Special writes have fixed indexes instead, and the positions
that they had in the call are no indexes. A later call of a task does not replace ordinary writes, so a place
of a call may be taken by a write of another one.

The header:

    metadata   all of it
    parent     id of the parent, or null
    thread     only if the column holds a pseudonym: the thread id
    channels   only if values are stored apart: the names of all channels with a value
    made       only in delta graphs: which writes to its parent it was made of, see `sealpoint.sealed.entry`
    inline     only if values are stored apart: those that a Postgres saver does not pass to its serializer
    store      only with a thread store: its identity, a clock that it had reached, and random bytes
    rebound    only if `rebind` has bound it: random bytes, so that it is no earlier state of a thread store

It is strict JSON; its metadata and inline values are written by `sealpoint.serde.jsontext.pack_json`.

If values are stored apart, the document lacks ``channel_values``.
"""

from __future__ import annotations

import json
import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from itertools import combinations
from json.encoder import encode_basestring_ascii as encode_text
from typing import Any, Final, NamedTuple, NotRequired, TypedDict

from sealpoint.base.checkpoint import NULL_TASK_ID, WRITES_IDX_MAP, CheckpointMetadata
from sealpoint.base.metadata import encode_metadata, has_strict_form, prepared_encoder
from sealpoint.base.place import CHECKPOINT, ITEM, KEY, METADATA, WRITE, Coordinates
from sealpoint.crypto import Opened
from sealpoint.crypto.cipher import parse_tag
from sealpoint.crypto.tag import SEALED_MARK
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    RowError,
    UnsupportedTypeError,
    WritesLostError,
    excerpt,
)
from sealpoint.sealed.carrier import Sealed
from sealpoint.serde.jsontext import pack_json, parse_short, unpack_json
from sealpoint.threads.store import Spot
from sealpoint.tokens import TOKEN, Tokens

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

ID_BYTES: Final = 8
MAX_SPECIAL: Final = 0xFFFF  # how many special writes a call may have; LangGraph stores a few

_HEAD: Final = struct.Struct(f">{ID_BYTES}sIH")
_SPECIAL: Final = struct.Struct(">Ib")
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

_encode: Final = prepared_encoder(
    json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
)


def pack_header(header: Header) -> bytes:
    """Return the bytes in front of a document."""
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
            end = f",{''.join(_encode(rest, False))[1:]}"
        except (TypeError, ValueError, RecursionError) as error:
            raise UnsupportedTypeError(f"a value has no form in JSON: {type(error).__name__}") from None
    # What a command binds was stored before: nothing is removed from it.
    metadata = encode_metadata(header["metadata"], sealed=True, keep_surrogates="rebound" in header)
    return with_length(b'{"metadata":' + metadata + (text + end).encode())


def with_length(header: bytes) -> bytes:
    """Return the JSON of a header, as it stands in front of what is sealed with it."""
    return len(header).to_bytes(_LENGTH, "big") + header


def split_header(data: bytes) -> tuple[Header, bytes]:
    """Return the header and the document of authenticated bytes, which another program may have sealed."""
    header, document = split_json(data)
    if data.find(b"[", _LENGTH, len(data) - len(document)) >= 0:  # else nothing was escaped
        header |= {name: unpack_json(header[name]) for name in ("metadata", "inline") if name in header}
    if type(header.get("metadata")) is not dict or "parent" not in header:
        raise DecodeError("a sealed checkpoint has no header")
    return header, document  # type: ignore[return-value]


def split_json(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of `with_length`, of any keys, and what follows it."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = parse_short(data[_LENGTH:end].decode())
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise DecodeError("a sealed value has no header")
    return header, data[end:]


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
        end = path_end
        if length & _HAS_CALL:
            _, _, special = _HEAD.unpack_from(data, path_end)
            end += _HEAD.size + int(special) * _SPECIAL.size
        if len(data) >= end:
            return Claims(path, idx, data[path_end:end]), data[end:]
    except (struct.error, UnicodeDecodeError):
        pass
    raise DecodeError("a sealed write does not say its place")


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
    """Compare the metadata that is readable in a row, or the fields of an item, with what was sealed.

    A key that was sealed may be absent: which ones are readable may have been another choice. Without the
    index key, all keys in the form of tokens are accepted.
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
    """Whether two JSON values are the same, except that Postgres returns large floats as integers."""
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


def require_same_kind(channel: str, claims: Claims) -> None:
    """Check that a write has the index of its channel: special writes have fixed ones."""
    if WRITES_IDX_MAP.get(channel, max(claims.idx, 0)) != claims.idx:
        raise RowError(f"a write to {excerpt(channel)} was another kind of write when it was sealed")


# --- writes and their calls -----------------------------------------------------------------------


class Claims(NamedTuple):
    """The place of a write among those of its task."""

    task_path: str
    idx: int  # its position in its call, or the fixed index of a special write
    call: bytes = b""  # what describes its call; empty for writes of earlier releases

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the row that it stands for."""
        return {"task_path": self.task_path, "idx": self.idx}

    @property
    def call_id(self) -> bytes:
        """The random bytes of its call; empty if it has none."""
        return self.call[:ID_BYTES]


class Write(NamedTuple):
    """One pending write, opened."""

    claims: Claims | None  # authenticated; none if it is not bound to its row
    task_id: str
    channel: str
    value: Any


class StoredWrite(NamedTuple):
    """One pending write, authenticated and not decoded."""

    claims: Claims | None  # None if it is not bound to its row, and so not authenticated
    task_id: str
    channel: str
    inner: str  # type of the bytes; of a write that is not bound, the tag
    data: Any

    @property
    def fixed(self) -> int | None:
        """Its index if it is a special write."""
        return WRITES_IDX_MAP.get(self.channel)

    @property
    def is_kept(self) -> bool:
        """Whether a thread store remembers it: a special write, or one of the user."""
        return self.fixed is not None or self.task_id == NULL_TASK_ID


def new_call(writes: Sequence[tuple[str, Any]]) -> bytes:
    """Return what describes a call of ``put_writes``."""
    special = [
        (position, WRITES_IDX_MAP[channel])
        for position, (channel, _) in enumerate(writes)
        if channel in WRITES_IDX_MAP
    ]
    if len(special) > MAX_SPECIAL:
        raise ConfigError(f"a call stores {len(special)} special writes, and may store {MAX_SPECIAL}")
    head = _HEAD.pack(os.urandom(ID_BYTES), len(writes), len(special))
    return head + b"".join([_SPECIAL.pack(*each) for each in special])


def places_of(call: bytes) -> tuple[Iterable[int], frozenset[int]]:
    """Return the indexes of a call's ordinary writes, and those of its special ones."""
    _, size, special = _HEAD.unpack_from(call)
    if not special:
        return range(size), frozenset()
    pairs = [*_SPECIAL.iter_unpack(call[_HEAD.size :])]
    positions = {position for position, _ in pairs}
    return [idx for idx in range(size) if idx not in positions], frozenset(fixed for _, fixed in pairs)


def require_whole(writes: Sequence[StoredWrite]) -> None:
    """Check the writes of one checkpoint: of each call of which one is there, all places are taken.

    The call of a task that was stored first has all places that it shares with another. A write of an earlier
    release, or one that is not bound, may be in any place that is not special.
    """
    calls = Counter(
        [(write.task_id, write.claims.call) for write in writes if write.claims and write.claims.call]
    )
    for (task_id, call), count in calls.items():
        _, size, special = _HEAD.unpack_from(call)
        # Usually all are there, at places of their own.
        if (special or count != size) and not is_whole(writes, task_id, call):
            raise WritesLostError(
                f"a write of task {excerpt(task_id)} is missing, others of its call are not"
            )
    if len(calls) > len({task_id for task_id, _ in calls}):
        _require_unmixed(writes)


def _require_unmixed(writes: Sequence[StoredWrite]) -> None:
    taken = dict[str, dict[bytes, set[int]]]()
    for write in writes:
        if write.claims and write.claims.call and write.fixed is None:
            taken.setdefault(write.task_id, {}).setdefault(write.claims.call, set()).add(write.claims.idx)
    for task_id, calls in taken.items():
        for one, other in combinations(calls, 2):
            if calls[one] & {*places_of(other)[0]} and calls[other] & {*places_of(one)[0]}:
                raise WritesLostError(f"writes of task {excerpt(task_id)} are of two results")


def is_whole(writes: Sequence[StoredWrite], task_id: str, call: bytes) -> bool:
    """Whether all places of a call are taken among the writes of its checkpoint."""
    found = [write for write in writes if write.task_id == task_id]
    taken = {write.claims.idx if write.claims else write.fixed for write in found}
    unbound = sum(not write.claims and write.fixed is None for write in found)
    ordinary, special = places_of(call)
    return special <= taken and sum(idx not in taken for idx in ordinary) <= unbound


def require_calls(calls: Iterable[tuple[str, bytes]], writes: Sequence[StoredWrite]) -> None:
    """Check that the places of calls, each with its task, are still taken."""
    for task_id, call in calls:
        if not is_whole(writes, task_id, call):
            raise WritesLostError(f"a write of task {excerpt(task_id)} has gone since it was stored")


_REMEMBERED: Final = 1_000  # of so many checkpoints


class Acknowledged(OrderedDict[tuple[Any, ...], list[tuple[str, bytes]]]):
    """The calls of each checkpoint. In a delta graph the process goes on with their values in its memory.

    A checkpoint is removed when a child of it is stored, which names the writes.
    """

    def add(self, spot: Spot, task_id: str, call: bytes) -> None:
        """Remember a call that was stored."""
        self.setdefault(spot, []).append((task_id, call))
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread: it is deleted."""
        for spot in [spot for spot in [*self] if spot[0] == thread_id]:
            self.pop(spot, None)


# --- items ----------------------------------------------------------------------------------------


class ItemName(NamedTuple):
    """The name of an item of LangGraph's Store."""

    namespace: tuple[str, ...]
    key: str


_UNNAMED: Final = with_length(b"{}")


def pack_item(name: ItemName | None) -> bytes:
    """Return the bytes in front of an item's value; ``name`` only if pseudonyms stand for it."""
    if name is None:
        return _UNNAMED
    return with_length("".join(_encode({"name": [[*name.namespace], name.key]}, False)).encode())


def split_item(data: bytes) -> tuple[ItemName | None, bytes]:
    """Return the name, if pseudonyms stand for it, and the value of an authenticated item."""
    if data.startswith(_UNNAMED):
        return None, data[len(_UNNAMED) :]
    header, value = split_json(data)
    match header.get("name"):
        case None:
            return None, value
        case [[*labels], str(key)] if all(isinstance(label, str) for label in labels):
            return ItemName(tuple(labels), key), value
    raise DecodeError("the header of a sealed item names it in another form")


# --- a row ----------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """A value that was opened, taken apart: ``opened`` has the bytes of the serializer alone."""

    opened: Opened
    header: Header | None = None  # of a bound checkpoint
    claims: Claims | None = None  # of a bound write
    is_bound: bool = True
    name: ItemName | None = None  # of a bound item, if pseudonyms stand for it

    @property
    def sealed_with(self) -> dict[str, Any] | None:
        """What is sealed in front of the bytes of the serializer, as JSON."""
        if self.claims is not None:
            return self.claims.columns | ({"call": self.claims.call_id.hex()} if self.claims.call else {})
        return self.name._asdict() if self.name else dict(self.header) if self.header else None


def is_bound(tag: object) -> bool:
    """Whether a value is bound to its row."""
    return isinstance(tag, str) and SEALED_MARK in tag and "row" in parse_tag(tag).flags


def take_apart(kind: Coordinates, tag: object, opened: Opened, names: Mapping[str, Any]) -> Parts:
    """Take apart what was opened at a row: its tag, and the columns of its key by name."""
    if not is_bound(tag):
        if kind == METADATA:
            raise not_sealed_part(names.get("checkpoint_id"))
        return Parts(opened, is_bound=False)
    if kind == WRITE:
        claims, data = split_write(names["channel"], opened.data)
        return Parts(opened._replace(data=data), claims=claims)
    if kind in (CHECKPOINT, METADATA):
        header, data = split_header(opened.data)
        return Parts(opened._replace(data=data), header)
    if kind == ITEM:
        name, data = split_item(opened.data)
        return Parts(opened._replace(data=data), name=name)
    return Parts(opened)


def split_write(channel: str, data: bytes) -> tuple[Claims, bytes]:
    """Return the claims and the value of an authenticated write to a channel."""
    claims, value = split_claims(data)
    require_same_kind(channel, claims)
    return claims, value


def not_sealed_part(checkpoint_id: object) -> RowError:
    """Return the error for a value in metadata that no saver has sealed to its row."""
    return RowError(f"the sealed part of {excerpt(checkpoint_id)} is not one")


def require_same_row(header: Header, metadata: Mapping[str, Any], parent: object, tokens: Tokens) -> None:
    """Compare what is readable of a bound checkpoint with what was sealed; ``parent`` is its column.

    Savers set the column of the parent to NULL when they prune. A frame stands only where values are apart.
    """
    require_same_metadata(metadata, header["metadata"], tokens, has_frame="channels" in header)
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


def require_sealed(value: Any) -> Sealed:
    """Return what a saver's serializer gave it."""
    if type(value) is not Sealed:
        raise RowError("a value stands where a sealed one was stored")
    return value
