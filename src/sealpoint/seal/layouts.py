"""Layouts: which parts of a checkpoint a saver stores as one value; each such value is sealed as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final

from sealpoint.errors import (
    PlaintextError,
    RowError,
    SealingError,
    SealpointError,
    UnboundValueError,
    excerpt,
    located,
)
from sealpoint.seal.calls import TASKS, Claims, StoredWrite, Write, pack_claims, require_whole, split_write
from sealpoint.seal.carrier import GUARD, OPEN, Carrier, Document, Sealable, Sealed, dump_mapping
from sealpoint.seal.cipher import Opened
from sealpoint.seal.context import PackedRow, RowTemplate
from sealpoint.seal.jsontext import has_strict_form
from sealpoint.seal.places import CHECKPOINT, KEY, METADATA, VALUE, WRITE, Spot, make_frame, read_frame
from sealpoint.seal.rows import (
    INLINE,
    SENTINEL,
    SENTINEL_VERSION,
    Found,
    Header,
    Serializer,
    is_bound,
    not_sealed_part,
    pack_header,
    require_document,
    require_never_sealed,
    require_parts,
    require_same_metadata,
    require_same_row,
    require_sealed,
    value_missing,
)
from sealpoint.seal.tag import is_sealed
from sealpoint.seal.tokens import Tokens

_REBIND: Final = (
    "bind it to its row with `sealpoint rebind DB --apply`, or pass unbound='allow' while you migrate"
)
_SEAL: Final = (
    f"{_REBIND}; a value that is not sealed at all needs --allow-plaintext there,"
    " and here plaintext='allow' in the serializer"
)
# What a wrapped saver's ``put`` is given after the config: checkpoint, metadata and new versions
Put = tuple[Document, dict[str, Any], dict[str, Any]]

value_row: Final = RowTemplate(dict(VALUE.kind), VALUE.columns).row
_write_row: Final = RowTemplate(dict(WRITE.kind), WRITE.columns).row
_document_row: Final = RowTemplate(dict(CHECKPOINT.kind), CHECKPOINT.columns).row
_header_row: Final = RowTemplate(dict(METADATA.kind), METADATA.columns).row
_SENTINEL: Final = {"channel": SENTINEL, "version": SENTINEL_VERSION}
_sentinel_row: Final = RowTemplate(dict(VALUE.kind) | _SENTINEL, ("thread_id", "checkpoint_ns")).row


# Version of checkpoints from which on the messages of a step are among its own values
SENDS_MOVED: Final = 4


def seal_sentinel(serde: Serializer, thread_id: str, checkpoint_ns: str) -> tuple[str, bytes]:
    """Seal a value that makes any saver without SealedSaver fail to read on Postgres: return tag and bytes.

    Every ``put`` stores such a value; the database keeps the first value for each thread and namespace.
    """
    return serde.seal(None, row=_sentinel_row(thread_id, checkpoint_ns))


@dataclass(frozen=True, slots=True)
class Rows:
    """Seals and opens checkpoints and writes, each bound to its row. Each subclass is for one layout."""

    layout: ClassVar[str]  # name of the layout
    # Whether the saver passes metadata to its serializer, which keeps types that JSON does not have, and so
    # compares values in Python
    keeps_types: ClassVar[bool] = False
    # Whether the database itself refuses readable metadata that JSON lacks
    refuses_nan: ClassVar[bool] = False

    serde: Serializer
    # JSON of metadata, within bounds: functions of `sealpoint.base.metadata`
    encode_metadata: Callable[..., bytes]
    decode_metadata: Callable[..., Any]
    decode_mapping: Callable[[bytes], Any]
    plain: frozenset[str]  # keys of metadata that stay readable
    indexed: frozenset[str]  # keys of metadata that are searched by token
    tokens: Tokens
    allow_unbound: bool
    is_remembered: bool = False  # whether there is a thread store
    allow_partial: bool = False  # whether a part of the writes of one call is read
    before: Any = None  # the serializer of ``allow_write_with``; ``None`` if rows are bound

    def head_of(self, header: Header) -> bytes:
        """Return the header as the bytes that are sealed before a checkpoint."""
        # A command binds metadata that was stored before: nothing is removed from it.
        metadata = self.encode_metadata(header["metadata"], sealed=True, keep_surrogates="rebound" in header)
        return pack_header(header, metadata)

    # --- what a layout says -------------------------------------------------------------------

    def seal_checkpoint(
        self, spot: Spot, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        """Return what to store for a checkpoint with this header."""
        raise NotImplementedError

    def open_header(self, found: Found, spot: Spot) -> Opened | None:
        """Open the sealed value that begins with a checkpoint header; ``None`` for an unbound value."""
        raise NotImplementedError

    def metadata_of(self, header: Header, readable: Mapping[str, Any], parent: object) -> Any | None:
        """Compare the row with the header, and return the header's metadata, or ``None`` if it has none."""
        require_same_row(header, readable, parent, self.tokens)
        return header["metadata"]

    def split_document(self, decoded: Any, header: Header, readable: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the checkpoint and the metadata, from the decoded value that was sealed after a header."""
        return decoded, header["metadata"]

    def complete(self, document: Any, values: Callable[[], dict[str, Any]], sends: Sequence[Write]) -> Any:
        """Return a checkpoint with its values; ``sends`` are the writes to its parent, if `needs_sends`."""
        return document

    def values(
        self,
        document: Any,
        header: Header | None,
        found: Found,
        spot: Spot,
        channels: Collection[str] | None,
    ) -> dict[str, Any]:
        """Return values by channel: at least those of ``channels``, or of all channels if it is ``None``."""
        require_document(document, spot.checkpoint_id)
        return document["channel_values"]  # type: ignore[no-any-return]

    def needs_sends(self, decode: Callable[[], tuple[Any, Any]]) -> bool:
        """Whether the messages of the step must be read from the writes to the parent, as for old formats."""
        return False

    def carrier(self) -> Carrier:
        """Return the serializer that the copy of the wrapped saver gets."""
        before = None if self.before is None else self.before.dumps_typed
        return Carrier(before, self.decode_mapping if self.keeps_types else None)

    # --- sealing ------------------------------------------------------------------------------

    def readable(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metadata that is stored readable: plain keys with values, and tokens of indexed keys."""
        plain = self.plain
        refused = self.refuses_nan
        frame = {
            key: value
            for key, value in metadata.items()
            if key in plain and has_strict_form(value, otherwise=refused)  # other values are only sealed
        }
        for key in self.indexed.intersection(metadata):
            value = metadata[key]
            if self.keeps_types and isinstance(value, str):
                value = value.encode("utf-8", "replace").decode()  # as the serializer writes text
            if token := self.tokens.token(key, value):
                frame[token] = 1
        return frame

    def seal_writes(
        self, spot: Spot, writes: Iterable[tuple[Claims | None, str, str, Any]]
    ) -> list[tuple[str, Sealable]]:
        """Return channels and values to store for ``writes``: claims, task id, channel and value of each."""
        of, found = partial(Sealable.of, now=self.keeps_types), []
        for claims, task_id, channel, value in writes:
            row = _write_row(*spot, task_id, channel)
            head = pack_claims(claims or Claims("", 0))
            found.append((channel, of(partial(self.serde.seal, value, row=row, head=head))))
        return found

    # --- opening ------------------------------------------------------------------------------

    def open_bound(self, sealed: Sealed, row: PackedRow) -> Opened | None:
        """Open a value in its row; return ``None`` if the value is not bound, and ``allow_unbound`` is on."""
        if is_bound(sealed.tag):
            return self.serde.open(sealed.tag, sealed.blob, row=row)
        self.require_unbound(sealed.tag)
        return None

    def require_unbound(self, tag: object) -> None:
        """Raise for a value that is not bound, unless ``allow_unbound`` is on."""
        if not self.allow_unbound:
            if is_sealed(tag):
                raise UnboundValueError(f"{excerpt(tag)} is not bound to a row", hint=_REBIND)
            if tag is None:
                raise PlaintextError("the row is not sealed as a whole", hint=_SEAL)
            raise PlaintextError(f"value of type {excerpt(tag)} is not sealed to its row", hint=_SEAL)

    def open_writes(self, spot: Spot, writes: Iterable[tuple[str, str, Any]]) -> Sequence[StoredWrite]:
        """Open the pending writes to a checkpoint, and check that no write of a call is missing.

        Returns:
            The writes, sorted by task path, task and index; in the saver's order if any write is not bound.
        """
        found = list[StoredWrite]()
        for task_id, channel, sealed in writes:
            try:
                opened = self.open_bound(require_sealed(sealed), _write_row(*spot, task_id, channel))
                if opened is None:
                    found.append(StoredWrite(None, task_id, channel, sealed.tag, sealed.blob))
                else:
                    claims, data = split_write(channel, opened.data)
                    found.append(StoredWrite(claims, task_id, channel, opened.inner, data))
            except SealpointError as error:
                located(error, "writes", spot, task_id=task_id, channel=channel)
                raise
        places = [
            (each.claims.task_path, each.task_id, each.claims.idx, each) for each in found if each.claims
        ]
        if len({*map(itemgetter(1, 2), places)}) != len(places):
            raise RowError("a write of a task is stored twice")
        if not self.allow_partial:
            require_whole(found)
        return [*map(itemgetter(3), sorted(places))] if len(places) == len(found) else found


class Whole(Rows):
    """Layout of savers that serialize a whole checkpoint: it is sealed as one value, with its metadata."""

    __slots__ = ()
    layout: ClassVar[str] = "whole"

    def seal_checkpoint(
        self, spot: Spot, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        """Seal the whole checkpoint."""
        row = _document_row(*spot)
        document = Document(checkpoint)
        document.dump = partial(self.serde.seal, dict(checkpoint), row=row, head=self.head_of(header))
        document["channel_values"] = dict.fromkeys((*checkpoint["channel_values"], KEY), GUARD)
        document.pop("pending_sends", None)  # of old checkpoints: values, which no saver needs
        return document, self.readable(header["metadata"]), dict(new_versions)

    def open_header(self, found: Found, spot: Spot) -> Opened | None:
        """Open the whole checkpoint."""
        sealed: Any = found.checkpoint
        if type(sealed) is not Sealed:
            raise SealingError("the saver returned a checkpoint that did not come from its serializer")
        return self.open_bound(sealed, _document_row(*spot))


class _Apart(Rows):
    """Layout with each channel value in its own row; the rest of the checkpoint is sealed in the metadata."""

    __slots__ = ()
    # Types of the values that the saver does not pass to its serializer
    inline_types: ClassVar[tuple[type, ...]] = ()

    def seal_checkpoint(
        self, spot: Spot, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        changed, versions = dict(new_versions), dict(checkpoint["channel_versions"])
        metadata, stored, inline = header["metadata"], dict[str, Any](), dict[str, Any]()
        for name, value in checkpoint["channel_values"].items():
            if isinstance(value, self.inline_types):
                inline[name], stored[name] = value, ""
            elif name in versions:  # without a version the saver would not find the value again
                row = value_row(*spot[:2], name, str(changed.get(name, versions[name])))
                dump = partial(self.serde.seal, value, row=row)
                sealable = Sealable.of(dump, now=self.keeps_types and name in changed)
                stored[name] = type(value)(sealable) if type(value).__name__ == "_DeltaSnapshot" else sealable
        header["channels"] = list(stored)
        rest = {name: part for name, part in checkpoint.items() if name != "channel_values"}
        document = self._complete(header, rest, inline)
        if sentinel := self._sentinel(spot):
            stored[SENTINEL] = sentinel
            versions[SENTINEL] = changed[SENTINEL] = SENTINEL_VERSION
        frame = self.seal_frame(spot, header, document, metadata)
        seen = Document((name, checkpoint[name]) for name in ("v", "id") if name in checkpoint)
        seen |= {"channel_values": stored, "channel_versions": versions}
        seen.dump = lambda: (OPEN, dump_mapping({"channel_versions": versions}))
        return seen, frame, changed

    def seal_frame(
        self, spot: Spot, header: Header, document: Any, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the metadata to store in a row: the readable keys, and the frame with the sealed rest."""
        tag, blob = self.serde.seal(document, row=_header_row(*spot), head=self.head_of(header))
        frame = self.readable(metadata)
        frame[KEY] = make_frame(tag, blob)
        return frame

    def _sentinel(self, spot: Spot) -> Sealable | None:
        return None

    def _complete(self, header: Header, rest: dict[str, Any], inline: dict[str, Any]) -> Any:
        header["inline"] = inline
        return rest

    def open_header(self, found: Found, spot: Spot) -> Opened | None:
        values, versions = require_parts(found.checkpoint, spot.checkpoint_id)
        frame: Any = found.metadata.get(KEY)
        if frame is None:
            require_never_sealed(spot.checkpoint_id, values, versions)
            self.require_unbound(None)
            return None
        tag, blob = read_frame(frame)
        if tag is None or blob is None or not is_bound(tag):
            raise not_sealed_part(spot.checkpoint_id)
        return self.open_bound(Sealed(tag, blob), _header_row(*spot))

    def split_document(self, decoded: Any, header: Header, readable: Mapping[str, Any]) -> tuple[Any, Any]:
        if not isinstance(decoded, dict) or not isinstance(decoded.get("channel_versions"), dict):
            raise RowError("what was sealed is not a checkpoint without its values: another layout")
        return decoded, header["metadata"]

    def complete(self, document: Any, values: Callable[[], dict[str, Any]], sends: Sequence[Write]) -> Any:
        return {**document, "channel_values": values()}

    def values(
        self,
        document: Any,
        header: Header | None,
        found: Found,
        spot: Spot,
        channels: Collection[str] | None,
    ) -> dict[str, Any]:
        """Open the channel values that the header names; all stored values if the checkpoint is not bound."""
        stored, versions = found.checkpoint["channel_values"], document["channel_versions"]
        # A list is what PostgresSaver made of the messages that `needs_sends` means: still sealed.
        names: Collection[str] = [name for name, value in stored.items() if type(value) is not list]
        inline: Mapping[str, Any] = {name: stored[name] for name in names if type(stored[name]) is not Sealed}
        if header is not None:
            names, inline = header.get("channels", ()), header.get("inline", {})
        values = dict[str, Any]()
        for name in names if channels is None else set(names).intersection(channels):
            if name in inline:
                values[name] = inline[name]
                continue
            version = str(versions[name])
            try:
                if name not in stored:
                    raise value_missing(name)
                sealed = require_sealed(stored[name])
                opened = self.open_bound(sealed, value_row(*spot[:2], name, version))
                if opened is None:
                    values[name] = self.serde.loads_typed((sealed.tag, sealed.blob))
                else:
                    values[name] = self.serde.decode(opened.inner, opened.data)
            except SealpointError as error:
                located(error, "values", spot, channel=name, version=version)
                raise
        return values


class Inline(_Apart):
    """Layout of Postgres: text, numbers, booleans and None are in a JSON column, other values in own rows."""

    __slots__ = ()
    layout: ClassVar[str] = "inline"
    inline_types: ClassVar[tuple[type, ...]] = INLINE
    refuses_nan: ClassVar[bool] = True

    def _sentinel(self, spot: Spot) -> Sealable:
        return Sealable(partial(seal_sentinel, self.serde, *spot[:2]))

    def complete(self, document: Any, values: Callable[[], dict[str, Any]], sends: Sequence[Write]) -> Any:
        """Return the checkpoint with its values and the messages of its step."""
        document = _Apart.complete(self, document, values, sends)
        if messages := [write.value for write in sends if write.channel == TASKS]:
            document["channel_values"][TASKS] = messages
            last = max(document["channel_versions"].values(), default=None)
            document["channel_versions"] = {**document["channel_versions"], TASKS: last}
        return document

    def needs_sends(self, decode: Callable[[], tuple[Any, Any]]) -> bool:
        """Whether the format's version is old, by its sealed copy; PostgresSaver uses the readable copy."""
        return bool(decode()[0].get("v", SENDS_MOVED) < SENDS_MOVED)


class Values(_Apart):
    """Layout of savers in memory: each channel value is in its own entry, and metadata is serialized too."""

    __slots__ = ()
    layout: ClassVar[str] = "values"
    keeps_types: ClassVar[bool] = True

    def _complete(self, header: Header, rest: dict[str, Any], inline: dict[str, Any]) -> Any:
        metadata, header["metadata"] = header["metadata"], {}
        dump_mapping({**self.readable(metadata), "": rest["channel_versions"]})  # raises before any is stored
        return [rest, metadata]

    def metadata_of(self, header: Header, readable: Mapping[str, Any], parent: object) -> None:
        """Compare the row with the header; return ``None``: the metadata is not in the header here."""
        require_same_row(header, {}, parent, self.tokens)

    def split_document(self, decoded: Any, header: Header, readable: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the sealed checkpoint and metadata, and compare the metadata with its readable keys."""
        if type(decoded) is not list or [*map(type, decoded)] != [dict, dict]:
            raise RowError("what was sealed is not a checkpoint with its metadata: another layout")
        document, metadata = decoded
        kept = {key: value for key, value in metadata.items() if key in readable}
        in_json = metadata | json.loads(dump_mapping(kept))
        require_same_metadata(readable, in_json, self.tokens)
        return document, metadata
