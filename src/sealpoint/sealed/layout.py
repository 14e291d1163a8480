"""Layouts: how a saver stores a checkpoint, and so what of it can be sealed as one value; one class each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

from sealpoint.base import (
    CheckpointMetadata,
    CheckpointTuple,
    RunnableConfig,
    get_serializable_checkpoint_metadata,
)
from sealpoint.base.place import CHECKPOINT, KEY, METADATA, VALUE, Place, decode_value, make_frame
from sealpoint.crypto import Opened, RingCipher
from sealpoint.crypto.context import RowTemplate
from sealpoint.errors import ConfigError, SealingError
from sealpoint.sealed.body import INLINE, SENTINEL, SENTINEL_VERSION, Header, pack_header
from sealpoint.sealed.carrier import GUARD, OPEN, Document, Sealable, Sealed, dump_mapping
from sealpoint.sealed.rows import (
    Put,
    Rows,
    is_bound,
    key_of,
    not_sealed_part,
    require_never_sealed,
    require_parts,
)
from sealpoint.serde import EncryptedSerializer
from sealpoint.sqlite.schema import are_same

value_row: Final = RowTemplate(dict(VALUE.kind), VALUE.columns).row
_document_row: Final = RowTemplate(dict(CHECKPOINT.kind), CHECKPOINT.columns).row
_header_row: Final = RowTemplate(dict(METADATA.kind), METADATA.columns).row
_SENTINEL: Final = {"channel": SENTINEL, "version": SENTINEL_VERSION}
_sentinel_row: Final = RowTemplate(dict(VALUE.kind) | _SENTINEL, ("thread_id", "checkpoint_ns")).row

MAX_SENTINELS: Final = 1024


class Sentinels:
    """Seals the values that make each unwrapped reader of a Postgres checkpoint fail, and keeps them.

    Every put names the sentinel of its thread and namespace, and the database keeps the first. So the same
    bytes are given to it again, as long as the ring is the same: later puts would have another key.
    """

    def __init__(self, serde: EncryptedSerializer) -> None:
        """Make an object that keeps none."""
        self._serde = serde
        self._kept: tuple[object, dict[tuple[str, str], tuple[str, bytes]]] = (None, {})

    def sealed(self, thread_id: str, checkpoint_ns: str) -> tuple[str, bytes]:
        """Return the tag and the bytes of the sentinel of a thread in the database and a namespace."""
        cipher = self._serde.cipher
        ring, kept = self._kept
        current = cipher.ring if isinstance(cipher, RingCipher) else None
        if current is not ring or len(kept) >= MAX_SENTINELS:
            kept = {}
            self._kept = current, kept  # replaced as a whole, which needs no lock
        found = kept.get((thread_id, checkpoint_ns))
        if found is None:
            row = _sentinel_row(thread_id, checkpoint_ns)
            found = kept[thread_id, checkpoint_ns] = self._serde.seal(None, row=row)
        return found


class Whole(Rows):
    """The serializer of the saver gets the whole checkpoint: it is sealed as one value, with its metadata."""

    __slots__ = ()
    layout: ClassVar[str] = "whole"

    def seal_document(
        self, place: Place, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        """Seal the whole checkpoint."""
        row = _document_row(*key_of(place))
        dump = partial(self.serde.seal, dict(checkpoint), row=row, head=pack_header(header))
        document = Document(checkpoint, dump)
        document["channel_values"] = dict.fromkeys((*checkpoint["channel_values"], KEY), GUARD)
        return document, self.readable(header["metadata"]), dict(new_versions)

    def open_header(self, found: CheckpointTuple, place: Place) -> Opened | None:
        """Open the whole checkpoint."""
        sealed: Any = found.checkpoint
        if type(sealed) is not Sealed:
            raise SealingError("the saver returned a checkpoint that its serializer did not give it")
        return self.open_bound(sealed, _document_row(*key_of(place)))

    def applies(self, key: str) -> bool:
        """Of a plain key, a saver for SQLite may also ask for a part: ``parents.name``."""
        return key in self.plain or key.split(".", maxsplit=1)[0] in self.plain

    def wanted(self, value: Any) -> Any:
        """Return text for what has no form in JSON, as LangGraph's SqliteSaver does."""
        is_known = value is None or isinstance(value, str | int | float | dict | list | tuple)
        return Rows.wanted(self, value) if is_known else str(value)

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether SQLite finds the value at a path of keys."""
        return _equals(_member(metadata, key), wanted)


class _Apart(Rows):
    """Values are in rows of their own; the rest is sealed in the metadata."""

    __slots__ = ()
    values_apart: ClassVar[bool] = True

    def seal_document(
        self, place: Place, header: Header, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Put:
        """Seal the header and the rest into the metadata, and each value when the saver asks for it."""
        changed, versions = dict(new_versions), dict(checkpoint["channel_versions"])
        metadata, stored, inline = header["metadata"], dict[str, Any](), dict[str, Any]()
        for name, value in checkpoint["channel_values"].items():
            if self._is_inline(value):
                inline[name], stored[name] = value, ""
            elif name in versions:  # else the saver would not find it again
                version = str(changed.get(name, versions[name]))
                sealable = Sealable(partial(self._seal_value, place, name, version, value))
                stored[name] = type(value)(sealable) if type(value).__name__ == "_DeltaSnapshot" else sealable
        header["channels"] = list(stored)
        rest = {name: part for name, part in checkpoint.items() if name != "channel_values"}
        document = self._complete(header, rest, inline)
        if sentinel := self._sentinel(place):
            stored[SENTINEL] = sentinel
            versions[SENTINEL] = changed[SENTINEL] = SENTINEL_VERSION
        frame = self.seal_frame(place, header, document, metadata)
        parts = {name: checkpoint[name] for name in ("v", "id") if name in checkpoint}
        parts |= {"channel_values": stored, "channel_versions": versions}
        seen = {"channel_versions": versions}
        return Document(parts, lambda: (OPEN, dump_mapping(seen))), frame, changed

    def seal_frame(
        self, place: Place, header: Header, document: Any, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the metadata of a row: what stays readable, and the sealed part."""
        tag, blob = self.serde.seal(document, row=_header_row(*key_of(place)), head=pack_header(header))
        frame = self.readable(metadata)
        frame[KEY] = make_frame(tag, blob)
        return frame

    def _seal_value(self, place: Place, channel: str, version: str, value: Any) -> tuple[str, bytes]:
        row = value_row(place.thread_id, place.checkpoint_ns, channel, version)
        return self.serde.seal(value, row=row)

    def _is_inline(self, value: Any) -> bool:
        del value
        return False

    def _sentinel(self, place: Place) -> Sealable | None:
        del place
        return None

    def _complete(self, header: Header, rest: dict[str, Any], inline: dict[str, Any]) -> Any:
        raise NotImplementedError

    def open_header(self, found: CheckpointTuple, place: Place) -> Opened | None:
        """Open the sealed part of the metadata."""
        values, versions = require_parts(found.checkpoint, str(place.checkpoint_id))
        frame: Any = found.metadata.get(KEY)
        if frame is None:
            require_never_sealed(str(place.checkpoint_id), values, versions)
            self.require_unbound(None)
            return None
        tag, value = (frame.get("type"), frame.get("value")) if isinstance(frame, dict) else (None, None)
        blob = decode_value(value)
        if not isinstance(tag, str) or blob is None or not is_bound(tag):
            raise not_sealed_part(str(place.checkpoint_id))
        return self.open_bound(Sealed(tag, blob), _header_row(*key_of(place)))


@dataclass(frozen=True, slots=True)
class Inline(_Apart):
    """Text, numbers, booleans and None stand in a JSON column, all other values in rows of their own."""

    layout: ClassVar[str] = "inline"
    adds_sends: ClassVar[bool] = True
    _sentinels: Sentinels = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sentinels", Sentinels(self.serde))

    def merge(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """Return metadata as JSON has it."""
        return get_serializable_checkpoint_metadata(config, metadata)

    def _is_inline(self, value: Any) -> bool:
        return isinstance(value, INLINE)

    def _sentinel(self, place: Place) -> Sealable:
        return Sealable(partial(self._sentinels.sealed, place.thread_id, place.checkpoint_ns))

    def _complete(self, header: Header, rest: dict[str, Any], inline: dict[str, Any]) -> Any:
        header["inline"] = inline
        return rest

    def has_equals(self, value: Any) -> bool:
        """Postgres compares decimal digits."""
        del value
        return False

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether Postgres finds the value in that of the key."""
        return key in metadata and _contains(metadata[key], wanted)


class Values(_Apart):
    """Each value is in an entry of its own, and the serializer gets metadata too."""

    __slots__ = ()
    layout: ClassVar[str] = "values"
    keeps_types: ClassVar[bool] = True
    is_searched_by_json: ClassVar[bool] = False
    lists_by_id: ClassVar[bool] = False

    def _complete(self, header: Header, rest: dict[str, Any], inline: dict[str, Any]) -> Any:
        del inline
        metadata, header["metadata"] = header["metadata"], {}
        return [rest, metadata]

    def wanted(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether Python finds them equal."""
        return bool(metadata.get(key) == wanted)


_FLOATS: Final = 2**63
"""From here on, SQLite reads integers of JSON as floats."""


def _member(metadata: Mapping[str, Any], path: str) -> Any:
    """Return what a path of keys leads to, as ``json_extract`` does; ``None`` if it leads nowhere."""
    found: Any = metadata
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _equals(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal in SQLite, where booleans are the numbers 0 and 1."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict | list) or isinstance(found, dict | list):
        return are_same(found, wanted)
    if isinstance(found, int) and abs(found) >= _FLOATS:  # SQLite reads it as a float
        return bool(float(Decimal(found)) == wanted)
    return bool(found == wanted)


def _contains(found: Any, wanted: Any) -> bool:
    """Whether a JSON value contains another as Postgres' ``@>`` says, which compares decimal digits."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and _contains(found[key], part) for key, part in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_contains(one, part) for one in found) for part in wanted)
    if isinstance(wanted, float) or isinstance(found, float):
        return _is_number(found) and _is_number(wanted) and _digits(found) == _digits(wanted)
    return are_same(found, wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _digits(number: float) -> Decimal:
    return Decimal(repr(number) if isinstance(number, float) else number)


_NAMES: Final[dict[str, type[Rows]]] = {each.layout: each for each in (Whole, Inline, Values)}
_CLASSES: Final[dict[str, type[Rows]]] = {
    "langgraph.checkpoint.sqlite.SqliteSaver": Whole,
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": Whole,
    "sealpoint.sqlite.saver.SqliteSaver": Whole,
    "sealpoint.sqlite.SqliteSaver": Whole,
    "langgraph.checkpoint.postgres.base.BasePostgresSaver": Inline,
    "langgraph.checkpoint.memory.InMemorySaver": Values,
}
_SHALLOW: Final = frozenset(
    {
        "langgraph.checkpoint.postgres.shallow.ShallowPostgresSaver",
        "langgraph.checkpoint.postgres.shallow.AsyncShallowPostgresSaver",
    }
)


def layout_of(saver: Any, layout: str) -> type[Rows]:
    """Return the layout of a saver.

    Args:
        saver: The saver.
        layout: ``auto``, or the layout by name for a saver of another class.

    Raises:
        ConfigError: If the saver cannot be sealed, or its layout is not known.
    """
    _require_saver(saver)
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(saver).__mro__]
    if not _SHALLOW.isdisjoint(names) or any("Shallow" in name for name in names):
        raise ConfigError(
            f"{type(saver).__name__} stores no checkpoint ids, so its rows cannot be bound",
            hint="use PostgresSaver or AsyncPostgresSaver",
        )
    if layout != "auto":
        if layout not in _NAMES:
            raise ConfigError(f"layout is {layout!r}, not one of {', '.join(['auto', *_NAMES])}")
        return _NAMES[layout]
    for name in names:
        if name in _CLASSES:
            return _CLASSES[name]
    if hasattr(saver, "UPSERT_CHECKPOINT_BLOBS_SQL"):  # kin of PostgresSaver, such as those for MySQL
        return Inline
    raise ConfigError(
        f"the layout of {type(saver).__name__} is not known",
        hint=(
            "pass layout='whole' if its serializer gets the whole checkpoint, 'inline' if it stores text and"
            " numbers outside of it, 'values' if its serializer gets each value and the metadata"
        ),
    )


def _require_saver(saver: Any) -> None:
    """Refuse what a first program often has in place of a saver, each with the line to write."""
    if isinstance(saver, type):
        problem = f"{saver.__name__} is a class, not a saver"
    elif hasattr(saver, "get_tuple") or hasattr(saver, "aget_tuple"):
        return
    elif type(saver).__module__ == "contextlib":
        entered = "with" if isinstance(saver, AbstractContextManager) else "async with"
        raise ConfigError(
            "the saver is a context manager, as `from_conn_string` returns it, and has not been entered",
            hint=f"enter it first: {entered} ... as saver: SealedSaver(saver, ...)",
        )
    else:
        problem = f"{type(saver).__name__} is not a saver"
    raise ConfigError(problem, hint="wrap a saver: SealedSaver(SqliteSaver(connection), ...)")
