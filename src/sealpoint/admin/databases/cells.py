"""Cell: one value of a database with its type tag and its row; selects and opens cells."""

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
    "if the value is yours, accept it with --allow-plaintext, or seal it: for agents with SealedSaver"
    " `sealpoint rebind DB --allow-plaintext --apply`,"
    " for other agents `sealpoint rotate DB --allow-plaintext --apply`"
)
_SEAL_ITEM: Final = (
    "if the item is yours, accept it with --allow-plaintext, or seal it for agents with SealedStore:"
    " `sealpoint rebind DB --allow-plaintext --apply`"
)
_READ_FIRST: Final = "reading a pickle runs code: if it is yours, read it with LangGraph, and store it sealed"


_COMPARED: Final = {
    CHECKPOINT: ("parent_checkpoint_id", "metadata"),
    METADATA: ("parent_checkpoint_id", "metadata", "channel_versions"),
    ITEM: ("fields",),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds values.

    Attributes:
        table: Name of the table in the database.
        name: Name of the column.
        key: Columns that identify a row of the table, primary key first.
        coordinates: Kind of place to which values in this column are bound, such as that of a write.
        in_json: Whether value and type tag are in a frame inside of JSON (see `sealpoint.base.place`);
            otherwise this column contains the value, and the column ``type`` contains the type tag.
        beside: Names of other columns to read with each value.
        part: Name of one partition of the table; empty for the whole table.
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
        """Name of the column in reports: the table's name, or ``checkpoints.metadata``."""
        return f"{self.table}.{self.name}" if self.in_json else self.table

    @property
    def has_headers(self) -> bool:
        """Whether bound values in this column are checkpoints, or sealed parts of checkpoints."""
        return self.coordinates in (CHECKPOINT, METADATA)

    @property
    def widened(self) -> Column:
        """A copy whose ``beside`` names all columns that `Cell.require_same` compares with a checkpoint."""
        return replace(self, beside=_COMPARED.get(self.coordinates, ()))


# Items of LangGraph's Store. An unsealed item has the tag ``json``, and its JSON as the value; JSON that is
# neither a frame nor an object has the tag `None`. The column ``fields`` is the JSON without the frame.
ITEMS: Final = Column("store", "value", ("prefix", "key"), ITEM, in_json=True)


def unframe(stored: Any) -> tuple[str | None, Any, dict[str, Any]]:
    """Return the type tag, the value and the readable fields of an item, from the item's JSON.

    For invalid JSON, the tag is ``None``, and an exception is returned in place of the value.
    """
    try:
        found = parse_item(stored)
        if KEY not in found:
            return JSON, stored.encode() if isinstance(stored, str) else stored, found
        tag, value = require_form(found)
        if len(tag) > MAX_CHARS:  # a count keeps every different tag in memory
            raise RowError(f"the type of a sealed item has over {MAX_CHARS} characters")
    except SealpointError as error:
        return None, error.with_traceback(None), {}
    return tag, value, {name: field for name, field in found.items() if name != KEY}


class Where(NamedTuple):
    """The position of a cell in the database.

    Attributes:
        column: The column.
        key: Values of the key columns, in the order of ``column.key``.
        locator: Row id or stored text, by which the row store replaces the cell without a search.
        beside: Other columns that were read with the value, by name: those of ``column.beside``, or the
            columns that a store of whole rows reads.
    """

    column: Column
    key: tuple[Any, ...]
    locator: Any = None
    beside: Mapping[str, Any] = MappingProxyType({})

    @property
    def names(self) -> dict[str, Any]:
        """The key columns of the row by name, for reports."""
        return dict(zip(self.column.key, self.key, strict=True))

    def require_key(self) -> None:
        """Check that the key columns have the types that savers write: an integer in ``idx``, else text.

        A SQLite file may contain any type in any column. An UPDATE would convert the values of key
        columns to other types, and so give the row another primary key.
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
        """The place (thread, namespace and so on) to which a bound value in this row is bound."""
        return self.column.coordinates.row(self.names)


class Cell(NamedTuple):
    """One value, as stored in its row.

    Attributes:
        value: The stored value, usually bytes; an exception if the value could not be read.
        tag: The stored type tag, usually text.
        where: Position of the cell.
    """

    value: Any
    tag: Any
    where: Where

    @property
    def row(self) -> Row | None:
        """The place to which a bound value is bound; ``None`` for an unbound value."""
        return self.where.row if "row" in parse_tag(self.tag).flags else None

    @property
    def is_sentinel(self) -> bool:
        """Whether the value is a sentinel, which makes unwrapped savers fail on bound checkpoints."""
        return self.where.column.coordinates == VALUE and self.where.names["channel"] == SENTINEL

    @property
    def is_item(self) -> bool:
        """Whether the value is an item of LangGraph's Store."""
        return self.where.column.coordinates == ITEM

    @property
    def is_plain_item(self) -> bool:
        """Whether the value is an unsealed item: a JSON object."""
        return self.is_item and self.tag == JSON

    def parts(self, opened: Opened) -> Parts:
        """Split an opened value into its parts, see `take_apart`."""
        return take_apart(self.where.column.coordinates, self.tag, opened, self.where.names)

    def require_same(self, header: Header, tokens: Tokens) -> None:
        """Compare a bound checkpoint with the other columns of its row, which were read with its value."""
        beside = self.where.beside
        parent = beside["parent" if "parent" in beside else "parent_checkpoint_id"]
        require_same_row(header, decode_metadata(beside["metadata"]), parent, tokens)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects values of a column.

    Attributes:
        without_key: Omit values under this key.
        plaintext: Include values that are not sealed.
        legacy: Include values under LANGGRAPH_AES_KEY.
        thread_id: Only values of this thread.
        with_key: Omit sealed values under any other key than this.
        bound: If true, only bound values; if false, only unbound values; if ``None``, both.
    """

    without_key: str | None = None
    plaintext: bool = True
    legacy: bool = True
    thread_id: str | None = None
    with_key: str | None = None
    bound: bool | None = None

    def takes(self, tag: Any) -> bool:
        """Whether values with ``tag`` are selected, ignoring the thread. A missing tag counts as unsealed."""
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
        """Yield the selection as conditions in SQL, to be joined by AND.

        Args:
            sealed: SQL expression that is true if the tag has the mark of sealed values.
            bound: SQL expression that is true if the tag has the marks of sealed and of bound values.
            ends_with: Function from a text to a SQL expression that is true if the tag ends with the text.
            place: Placeholder of the only parameter (see `parameters`), which is in the last condition.
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
        """The SQL parameters for the conditions that `conditions` yields."""
        return () if self.thread_id is None else (self.thread_id,)


EVERYTHING: Final = Selection()


class Opener(NamedTuple):
    """Opens the values of cells, and checks that each bound value belongs to its row.

    Attributes:
        cipher: Opens values, and seals values under the active key of its ring.
        allow_plaintext: Whether unsealed values are accepted.
        compress: Whether to compress resealed values; ``None`` to compress only values that were compressed.
        limits: Limits for decoding unauthenticated values.
    """

    cipher: RingCipher
    allow_plaintext: bool = False
    compress: bool | None = None
    limits: Limits = DEFAULT_LIMITS

    def open(self, cell: Cell) -> Opened:
        """Open the value of a cell."""
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
        """Open the value of a cell and split it into parts; raises the errors of `open` and `take_apart`."""
        return cell.parts(self.open(cell))

    def reseal(self, cell: Cell) -> tuple[str, bytes]:
        """Open the value of a cell and seal it under the active key, with the same type, bytes and row.

        Sealed values are later decoded without the check that unsealed values must pass. So plaintext and
        values of LangGraph's own encryption must pass the check here: their type is not authenticated.
        """
        opened = self.open(cell)
        row = cell.row if is_sealed(cell.tag) else None
        changed = self.seal(cell, *opened.typed, row)
        self.require_decodable(cell, opened)
        return changed

    def require_decodable(self, cell: Cell, opened: Opened) -> None:
        """Check unauthenticated bytes as a serializer does before decoding."""
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
        """Seal ``data`` of the type ``inner`` under the active key, to replace the value of a cell."""
        compress = self.compress
        if compress is None:
            compress = is_sealed(cell.tag) and COMPRESSED in parse_tag(cell.tag).flags
        return self.cipher.seal(inner, data, row=row, compress=compress)


def require_readable(cell: Cell) -> None:
    """Raise if the value could not be read, or if an item is neither a JSON object nor bound to its row."""
    if isinstance(cell.value, SealpointError):
        raise cell.value
    if cell.is_item and cell.tag != JSON and not is_bound(cell.tag):
        raise RowError("the item is neither a JSON object nor sealed for its row")


def require_decodable(kind: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check unauthenticated bytes as a strict serializer does before decoding. No object is built."""
    if kind == MSGPACK:
        require_few_costly(data, scan(data, limits), limits)
    elif kind == JSON:
        parse_json(data, envelope_target, limits)
    elif kind == PICKLE:
        raise UnknownTypeError("refusing to unpickle an unsealed value")
    else:
        read_plain(kind, data)


class InlineValue(NamedTuple):
    """Number of readable values of one channel and one JSON type in the rows of checkpoints."""

    channel: str
    kind: str
    rows: int


class Record(NamedTuple):
    """A row of ``checkpoints``, without the checkpoint itself.

    Attributes:
        table: Name of the table.
        place: Key columns of the row by name; the checkpoint id is the last.
        parent: Id of the parent checkpoint as stored, of any type.
        metadata: Metadata of the checkpoint as stored.
        flaw: Text of the error in the JSON column of a Postgres checkpoint; ``None`` without an error.
        is_readable: Whether the checkpoint is readable JSON; false if its metadata has a sealed part.
    """

    table: str
    place: dict[str, Any]
    parent: Any
    metadata: Any
    flaw: str | None = None
    is_readable: bool = False
