"""Cell: one value of a database with its tag and its place; selecting and opening cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sealpoint.base.coordinates import Coordinates
from sealpoint.crypto import RingCipher, Row
from sealpoint.crypto.prepared import parse_tag
from sealpoint.crypto.tag import is_legacy, is_sealed, is_under
from sealpoint.errors import BlobError, PlaintextError, RowError, UnknownTypeError, excerpt
from sealpoint.serde.kinds import JSON, MSGPACK, PICKLE, read_plain
from sealpoint.serde.legacy_json import parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import require_few_costly, scan

_SEAL: Final = "if it is yours, seal it: sealpoint rotate DB --allow-plaintext --apply"
_READ_FIRST: Final = (
    "it runs code when it is read: if it is yours, read it with LangGraph and store it again, sealed"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds values.

    Attributes:
        table: The table's name in the database.
        name: The column.
        key: Columns that identify a row of the table, primary key first.
        coordinates: The coordinates of values in this column.
        in_json: Whether a value and its tag are in a frame inside JSON (`sealpoint.base.frame`); otherwise
            the column contains the value, and ``type`` its tag.
    """

    table: str
    name: str
    key: tuple[str, ...]
    coordinates: Coordinates
    in_json: bool = False

    @property
    def label(self) -> str:
        """The name in reports: the table, or ``checkpoints.metadata``."""
        return f"{self.table}.{self.name}" if self.in_json else self.table


class Unreadable:
    """Placeholder for the bytes of a value that the database itself cannot read."""


class Where(NamedTuple):
    """The place of a cell.

    Attributes:
        column: The column.
        key: The columns of the row's key, in the order of ``column.key``.
        locator: Lets the store find and replace the cell without a search.
    """

    column: Column
    key: tuple[Any, ...]
    locator: Any = None

    @property
    def names(self) -> dict[str, Any]:
        """The columns of the row's key by name, for reports."""
        return dict(zip(self.column.key, self.key, strict=True))

    @property
    def row(self) -> Row:
        """The coordinates that a row-bound value here has.

        Raises:
            RowError: If a column of the key does not contain text.
        """
        return self.column.coordinates.row(self.names)


class Cell(NamedTuple):
    """One value, as stored in its row.

    Attributes:
        value: Bytes, unless another type is stored; `Unreadable` if they are lost.
        tag: Text, unless another type is stored.
        where: Its place.
    """

    value: Any
    tag: Any
    where: Where

    @property
    def row(self) -> Row | None:
        """The coordinates of a value that is bound to its row; ``None`` for any other.

        Raises:
            TagError: If its tag is invalid.
            RowError: If a column of the key contains bytes: its text is not UTF-8.
        """
        if any(isinstance(part, bytes) for part in self.where.key):
            raise RowError(f"a key column of table {self.where.column.table!r} does not hold text")
        return self.where.row if "row" in parse_tag(self.tag).flags else None


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the values of a batch.

    Attributes:
        without_key: Omit values under this key.
        plaintext: Include values that are not sealed.
        legacy: Include values under LANGGRAPH_AES_KEY.
        thread_id: Only values of this thread.
        with_key: Of the sealed values, only those under this key.
    """

    without_key: str | None = None
    plaintext: bool = True
    legacy: bool = True
    thread_id: str | None = None
    with_key: str | None = None

    def takes(self, tag: Any) -> bool:
        """Whether values with ``tag`` are selected, in any thread. A missing tag counts as not sealed."""
        text = tag.decode("latin-1") if isinstance(tag, bytes) else str(tag or "")
        if not is_sealed(text):
            return self.plaintext
        if is_legacy(text):
            return self.legacy
        if self.with_key is not None and not is_under(text, self.with_key):
            return False
        return self.without_key is None or not is_under(text, self.without_key)


EVERYTHING: Final = Selection()


def open_cell(cipher: RingCipher, cell: Cell, *, allow_plaintext: bool = False) -> tuple[str, bytes]:
    """Open one value: return its inner type and the serializer's bytes.

    Raises:
        PlaintextError: If it is not sealed, and plaintext is not allowed.
        BlobError: If the database cannot read it, or it is not bytes.
        SealpointError: What `RingCipher.open` raises.
    """
    if isinstance(cell.value, Unreadable):
        hint = "restore the row from backup; the log of the server says where it is damaged"
        raise BlobError("the database cannot read the value: its bytes are lost", hint=hint)
    if type(cell.value) is not bytes:
        raise BlobError(f"value is {type(cell.value).__name__}, not bytes")
    if is_sealed(cell.tag) or not isinstance(cell.tag, str):
        return cipher.open(cell.tag, cell.value, row=cell.row).typed
    if not allow_plaintext:
        hint = _READ_FIRST if cell.tag == PICKLE else _SEAL
        raise PlaintextError(f"value of type {excerpt(cell.tag)} is not sealed", hint=hint)
    return cell.tag, cell.value


def require_decodable(kind: str, data: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check unauthenticated bytes as a strict serializer does before decoding. Nothing is built.

    Raises:
        LimitError: If they are larger, deeper or have more elements than ``limits`` say.
        DecodeError: If they do not match ``kind``.
        UnknownTypeError: If values of this type are never read unauthenticated, such as ``pickle``.
    """
    if kind == MSGPACK:
        require_few_costly(data, scan(data, limits), limits)
    elif kind == JSON:
        parse_json(data, lambda envelope: envelope, limits)
    elif kind == PICKLE:
        raise UnknownTypeError("a pickle that is not sealed is not read")
    else:
        read_plain(kind, data)
