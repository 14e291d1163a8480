"""Cell: one value of a database with its tag and its place; selecting and opening cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.parts import Parts, take_apart
from sealpoint.admin.results.tags import is_marked_bound, is_under, key_end
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import (
    LimitError,
    PlaintextError,
    RowError,
    SealedValueError,
    SealpointError,
    UnknownTypeError,
    excerpt,
)
from sealpoint.seal.cipher import Opened, parse_tag
from sealpoint.seal.context import Row
from sealpoint.seal.items import require_form
from sealpoint.seal.places import CHECKPOINT, ITEM, KEY, METADATA, VALUE, Coordinates
from sealpoint.seal.rows import SENTINEL, Header, is_bound, require_same_row
from sealpoint.seal.tag import (
    COMPRESSED,
    JSON,
    LEGACY_END,
    MAX_CHARS,
    MSGPACK,
    PICKLE,
    is_legacy,
    is_sealed,
)
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.base import read_plain
from sealpoint.serde.classes import logger
from sealpoint.serde.jsontext import parse_item
from sealpoint.serde.legacy_json import envelope_target, parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import require_few_costly, scan

_SEAL: Final = (
    "if it is yours, accept it with --allow-plaintext, or seal it: for agents with SealedSaver"
    " `sealpoint rebind DB --allow-plaintext --apply`,"
    " for others `sealpoint rotate DB --allow-plaintext --apply`"
)
_SEAL_ITEM: Final = (
    "if it is yours, accept it with --allow-plaintext, or seal it for agents with SealedStore:"
    " `sealpoint rebind DB --allow-plaintext --apply`"
)
_READ_FIRST: Final = "it runs when it is read: if it is yours, read it with LangGraph and put it again sealed"


_COMPARED: Final = {
    CHECKPOINT: ("parent_checkpoint_id", "metadata"),
    METADATA: ("parent_checkpoint_id", "metadata", "channel_versions"),
    ITEM: ("fields",),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds values.

    Attributes:
        table: The table's name in the database.
        name: The column.
        key: Columns that identify a row of the table, primary key first.
        coordinates: The coordinates of values in this column.
        in_json: Whether a value and its tag are in a frame inside JSON (`sealpoint.base.place`); otherwise
            the column contains the value, and ``type`` its tag.
        beside: Other columns that are read with each value.
        part: The partition of the table that is meant; empty for all of it.
    """

    table: str
    name: str
    key: tuple[str, ...]
    coordinates: Coordinates
    in_json: bool = False
    beside: tuple[str, ...] = ()
    part: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The name in reports: the table, or ``checkpoints.metadata``."""
        return f"{self.table}.{self.name}" if self.in_json else self.table

    @property
    def has_headers(self) -> bool:
        """Whether its bound values are checkpoints, or the sealed parts of them."""
        return self.coordinates in (CHECKPOINT, METADATA)

    @property
    def widened(self) -> Column:
        """The same column, with all that `Cell.require_same` compares beside its values."""
        return replace(self, beside=_COMPARED.get(self.coordinates, ()))


# Items of LangGraph's Store. One that is not sealed has the tag ``json``, and its JSON as the value; what is
# neither a frame nor an object has the tag `None`. ``fields`` beside it: the JSON without the frame.
ITEMS: Final = Column("store", "value", ("prefix", "key"), ITEM, in_json=True)


def unframe(stored: Any) -> tuple[str | None, Any, dict[str, Any]]:
    """Return the tag and the value of an item, and the fields beside its frame.

    Of what is no item: no tag, and the error in place of the value.
    """
    try:
        found = parse_item(stored)
        if KEY not in found:
            return JSON, stored.encode() if isinstance(stored, str) else stored, found
        tag, value = require_form(found)
        if len(tag) > MAX_CHARS:  # a count keeps all that differ
            raise RowError(f"the type of a sealed item has over {MAX_CHARS} characters")
    except SealpointError as error:
        return None, error.with_traceback(None), {}
    return tag, value, {name: field for name, field in found.items() if name != KEY}


class Where(NamedTuple):
    """The place of a cell.

    Attributes:
        column: The column.
        key: The columns of the row's key, in the order of ``column.key``.
        locator: Lets the store find and replace the cell without a search.
        beside: Other columns that were read with the value, by name: those of ``column.beside``, or what a
            store of whole rows reads.
    """

    column: Column
    key: tuple[Any, ...]
    locator: Any = None
    beside: Mapping[str, Any] = MappingProxyType({})

    @property
    def names(self) -> dict[str, Any]:
        """The columns of the row's key by name, for reports."""
        return dict(zip(self.column.key, self.key, strict=True))

    def require_key(self) -> None:
        """Check that the columns of the key hold what a saver writes there: ``idx`` an integer, others text.

        A forged SQLite file may hold any type in any column. An UPDATE of the row would convert it, and so
        change the key.
        """
        for name, value in zip(self.column.key, self.key, strict=True):
            found, wanted = type(value), int if name == "idx" else str
            if found is not wanted:
                raise RowError(
                    f"key column {name!r} of table {self.column.table!r} holds {found.__name__},"
                    f" not {wanted.__name__}"
                )
        if type(task_path := self.beside.get("task_path", "")) is not str:
            raise RowError(f"column 'task_path' holds {type(task_path).__name__}, not text")

    @property
    def row(self) -> Row:
        """The coordinates that a row-bound value here has."""
        return self.column.coordinates.row(self.names)


class Cell(NamedTuple):
    """One value, as stored in its row.

    Attributes:
        value: Bytes, unless another type is stored; the error if they were not read.
        tag: Text, unless another type is stored.
        where: Its place.
    """

    value: Any
    tag: Any
    where: Where

    @property
    def row(self) -> Row | None:
        """The coordinates of a value that is bound to its row; ``None`` for any other."""
        return self.where.row if "row" in parse_tag(self.tag).flags else None

    @property
    def is_sentinel(self) -> bool:
        """Whether the value is not the user's: it makes other savers fail on a checkpoint that is bound."""
        return self.where.column.coordinates == VALUE and self.where.names["channel"] == SENTINEL

    @property
    def is_item(self) -> bool:
        """Whether it is an item of LangGraph's Store."""
        return self.where.column.coordinates == ITEM

    @property
    def is_plain_item(self) -> bool:
        """Whether it is an item that is not sealed: an object in JSON."""
        return self.is_item and self.tag == JSON

    def parts(self, opened: Opened) -> Parts:
        """Return the value, opened, taken apart: see `take_apart`."""
        return take_apart(self.where.column.coordinates, self.tag, opened, self.where.names)

    def require_same(self, header: Header, tokens: Tokens) -> None:
        """Compare a bound checkpoint with what is readable next to it: see `Column.widened`.

        A store of whole rows reads that, too, and names the column of the parent otherwise.
        """
        beside = self.where.beside
        parent = beside["parent" if "parent" in beside else "parent_checkpoint_id"]
        require_same_row(header, decode_metadata(beside["metadata"]), parent, tokens)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the values of a batch.

    Attributes:
        without_key: Omit values under this key.
        plaintext: Include values that are not sealed.
        legacy: Include values under LANGGRAPH_AES_KEY.
        thread_id: Only values of this thread.
        with_key: Of the sealed values, only those under this key.
        bound: Only values that are bound to their rows, or only those that are not.
    """

    without_key: str | None = None
    plaintext: bool = True
    legacy: bool = True
    thread_id: str | None = None
    with_key: str | None = None
    bound: bool | None = None

    def takes(self, tag: Any) -> bool:
        """Whether values with ``tag`` are selected, in any thread. A missing tag counts as not sealed."""
        text = tag.decode("latin-1") if isinstance(tag, bytes) else str(tag or "")
        if self.bound is not None and self.bound is not is_marked_bound(text):
            return False
        if not is_sealed(text):
            return self.plaintext
        if is_legacy(text):
            return self.legacy
        if self.with_key is not None and not is_under(text, self.with_key):
            return False
        return self.without_key is None or not is_under(text, self.without_key)

    def conditions(
        self, sealed: str, bound: str, ends_with: Callable[[str], str], place: str
    ) -> Iterator[str]:
        """Yield what is selected as conditions in SQL; all of them must hold.

        Args:
            sealed: Whether a tag has the mark of sealed values, in SQL.
            bound: Whether it also has the mark of bound values, behind the first one.
            ends_with: Returns, in SQL, whether it ends with a text.
            place: The placeholder of the one parameter, see `parameters`, which is in the last condition.
        """
        if self.bound is not None:
            yield bound if self.bound else f"NOT {bound}"
        if not self.plaintext:
            yield sealed
        if not self.legacy:
            yield f"NOT ({sealed} AND {ends_with(LEGACY_END)})"
        if self.without_key is not None:
            yield f"NOT ({sealed} AND {ends_with(key_end(self.without_key))})"
        if self.with_key is not None:
            under = ends_with(LEGACY_END), ends_with(key_end(self.with_key))
            yield f"({' OR '.join(under)} OR NOT {sealed})"
        if self.thread_id is not None:
            yield f"thread_id = {place}"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the conditions."""
        return () if self.thread_id is None else (self.thread_id,)


EVERYTHING: Final = Selection()


class Opener(NamedTuple):
    """Opens cells, each at its place.

    Attributes:
        cipher: Opens with the keys of its ring, and seals under its active key.
        allow_plaintext: Whether a value that is not sealed is returned as it stands.
        compress: Whether values are compressed before they are sealed again; ``None`` for those that were.
        limits: What a value may be that no key has authenticated.
    """

    cipher: RingCipher
    allow_plaintext: bool = False
    compress: bool | None = None
    limits: Limits = DEFAULT_LIMITS

    def open(self, cell: Cell) -> Opened:
        """Open one value."""
        cell.where.require_key()
        require_readable(cell)
        if type(cell.value) is not bytes:
            raise SealedValueError(f"value is {type(cell.value).__name__}, not bytes")
        if is_sealed(cell.tag) or not isinstance(cell.tag, str):
            return self.cipher.open(cell.tag, cell.value, row=cell.row)
        if not self.allow_plaintext:
            if cell.is_item:
                raise PlaintextError("the item is not sealed", hint=_SEAL_ITEM)
            hint = _READ_FIRST if cell.tag == PICKLE else _SEAL
            raise PlaintextError(f"value of type {excerpt(cell.tag)} is not sealed", hint=hint)
        return Opened(cell.tag, cell.value, authenticated=False, key_id=None)

    def parts(self, cell: Cell) -> Parts:
        """Open one value and take it apart; raises what `open` and `take_apart` do."""
        return cell.parts(self.open(cell))

    def reseal(self, cell: Cell) -> tuple[str, bytes]:
        """Open one value and seal it under the active key: same type, bytes and row.

        Sealed values are decoded later without the check that all others must pass. Plaintext and LangGraph's
        own rows must pass it here, because nothing has authenticated their type.
        """
        opened = self.open(cell)
        row = cell.row if is_sealed(cell.tag) else None
        changed = self.seal(cell, *opened.typed, row)
        self.require_decodable(cell, opened)
        return changed

    def require_decodable(self, cell: Cell, opened: Opened) -> None:
        """Check bytes that no key has authenticated as a serializer does that decodes them."""
        if opened.authenticated:
            return
        require_decodable(*opened.typed, self.limits)
        if self.limits.depth > DEFAULT_LIMITS.depth:
            try:
                require_decodable(*opened.typed, replace(self.limits, depth=DEFAULT_LIMITS.depth))
            except LimitError as error:
                text = "%s at %s: threads with a small stack cannot read it, see docs/untrusted.md#limits"
                logger.warning(text, error, excerpt(str(cell.where.names)))

    def seal(self, cell: Cell, inner: str, data: bytes, row: Row | None) -> tuple[str, bytes]:
        """Seal what takes the place of a value, under the active key."""
        compress = self.compress
        if compress is None:
            compress = is_sealed(cell.tag) and COMPRESSED in parse_tag(cell.tag).flags
        return self.cipher.seal(inner, data, row=row, compress=compress)


def require_readable(cell: Cell) -> None:
    """Check that a value was read, and that an item is an object in JSON, or sealed to its row."""
    if isinstance(cell.value, SealpointError):
        raise cell.value
    if cell.is_item and cell.tag != JSON and not is_bound(cell.tag):
        raise RowError("the item is neither an object in JSON nor sealed to its row")


def require_decodable(kind: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check unauthenticated bytes as a strict serializer does before decoding. Nothing is built."""
    if kind == MSGPACK:
        require_few_costly(data, scan(data, limits), limits)
    elif kind == JSON:
        parse_json(data, envelope_target, limits)
    elif kind == PICKLE:
        raise UnknownTypeError("refusing to unpickle an unsealed value")
    else:
        read_plain(kind, data)


class InlineValue(NamedTuple):
    """Readable values that a database stores besides the sealed ones: channel, kind and count."""

    channel: str
    kind: str
    rows: int


class Record(NamedTuple):
    """What stands next to the value of a checkpoint.

    Attributes:
        table: The table.
        place: The columns of the row's key by name; the id of the checkpoint is the last.
        parent: The id of the parent, or what stands in its column.
        metadata: As it stands in the column.
        flaw: What is wrong with a checkpoint that is readable in the row itself, as on Postgres.
        is_readable: Whether the checkpoint is readable in the row itself, and not sealed in its metadata.
    """

    table: str
    place: dict[str, Any]
    parent: Any
    metadata: Any
    flaw: str | None = None
    is_readable: bool = False
