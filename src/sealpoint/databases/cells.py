"""Cell: one value of a database with its tag and its place; selecting and opening cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TypedDict

from sealpoint.base.coordinates import Coordinates
from sealpoint.crypto import RingCipher, Row
from sealpoint.crypto.kinds import JSON, MSGPACK, PICKLE
from sealpoint.crypto.prepared import Opened, parse_tag
from sealpoint.crypto.tag import is_legacy, is_marked_bound, is_sealed, is_under
from sealpoint.errors import (
    BlobError,
    PlaintextError,
    RowError,
    SealpointError,
    UnknownTypeError,
    excerpt,
)
from sealpoint.serde.kinds import read_plain
from sealpoint.serde.legacy_json import parse_json
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan import require_few_costly, scan

SecretOf = Callable[[Row], bytes]
"""Returns the secret that is mixed into the key of a value, from the coordinates of the value."""

_SEAL: Final = (
    "if it is yours, accept it with --allow-plaintext, or seal it: for agents with SealedSaver"
    " sealpoint rebind DB --allow-plaintext --apply, for others sealpoint rotate with the same options"
)
_READ_FIRST: Final = "it runs when it is read: if it is yours, read it with LangGraph and put it again sealed"


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
        beside: Other columns that are read with each value.
    """

    table: str
    name: str
    key: tuple[str, ...]
    coordinates: Coordinates
    in_json: bool = False
    beside: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name in reports: the table, or ``checkpoints.metadata``."""
        return f"{self.table}.{self.name}" if self.in_json else self.table


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Placeholder for a value that was not read.

    Attributes:
        error: Why.
    """

    error: SealpointError


def bytes_lost() -> BlobError:
    """Return the error for a value whose bytes the database cannot read."""
    hint = "restore the row from backup; the log of the server says where it is damaged"
    return BlobError("the database cannot read the value: its bytes are lost", hint=hint)


class Where(NamedTuple):
    """The place of a cell.

    Attributes:
        column: The column.
        key: The columns of the row's key, in the order of ``column.key``.
        locator: Lets the store find and replace the cell without a search.
        others: The columns ``column.beside``, in their order.
    """

    column: Column
    key: tuple[Any, ...]
    locator: Any = None
    others: tuple[Any, ...] = ()

    @property
    def names(self) -> dict[str, Any]:
        """The columns of the row's key by name, for reports."""
        return dict(zip(self.column.key, self.key, strict=True))

    @property
    def beside(self) -> dict[str, Any]:
        """The columns beside the value by name."""
        return dict(zip(self.column.beside, self.others, strict=True))

    def require_key(self) -> None:
        """Check that the columns of the key hold what a saver writes there: ``idx`` an integer, others text.

        A forged SQLite file may hold any type in any column. An UPDATE of the row would convert it, and so
        change the key.

        Raises:
            RowError: If a column holds another type, or text that is not UTF-8.
        """
        types, wanted = tuple(map(type, self.key)), _types_of(self.column.key)
        if types == wanted:
            return
        name, met, right = next(
            found for found in zip(self.column.key, types, wanted, strict=True) if found[1] is not found[2]
        )
        raise RowError(
            f"key column {name!r} of table {self.column.table!r} holds {met.__name__}, not {right.__name__}"
        )

    @property
    def row(self) -> Row:
        """The coordinates that a row-bound value here has.

        Raises:
            RowError: If a column of the key does not contain text.
        """
        return self.column.coordinates.row(self.names)


@cache
def _types_of(key: tuple[str, ...]) -> tuple[type, ...]:
    return tuple(int if name == "idx" else str for name in key)


class Cell(NamedTuple):
    """One value, as stored in its row.

    Attributes:
        value: Bytes, unless another type is stored; `Unreadable` if they were not read.
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
            RowError: If a column of the key does not hold text.
        """
        return self.where.row if "row" in parse_tag(self.tag).flags else None


class _Binding(TypedDict, total=False):
    """What `RingCipher.open` and `seal` take beside tag and bytes."""

    row: Row | None
    secret: bytes


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


EVERYTHING: Final = Selection()


def open_cell(
    cipher: RingCipher, cell: Cell, *, allow_plaintext: bool = False, secret_of: SecretOf | None = None
) -> Opened:
    """Open one value. A value that is not sealed is returned as it stands, if that is allowed.

    Raises:
        RowError: If the key of its row is not of the types that a saver writes.
        PlaintextError: If it is not sealed, and that is not allowed.
        BlobError: If its bytes are lost, or something else than bytes stands there.
        SecretMissingError: If it has a secret in its key, and there is no ``secret_of``.
        SealpointError: What `RingCipher.open` and ``secret_of`` raise.
    """
    return _open(cipher, cell, allow_plaintext, secret_of)[0]


def reseal_cell(
    cipher: RingCipher, cell: Cell, *, allow_plaintext: bool = False, secret_of: SecretOf | None = None
) -> tuple[str, bytes]:
    """Open one value and seal it anew under the active key: same type, bytes, row and secret.

    Sealed values are decoded later without the check that all others must pass. Plaintext and LangGraph's
    own rows must pass it here, because nothing has authenticated their type.

    Raises:
        NoActiveKeyError: If the ring has no active key.
        SealpointError: What `open_cell` raises, and `require_decodable` for bytes that no key authenticates.
    """
    opened, binding = _open(cipher, cell, allow_plaintext, secret_of)
    changed = cipher.seal(opened.inner, opened.data, **binding)
    if not opened.authenticated:
        require_decodable(opened.inner, opened.data)
    return changed


def _open(
    cipher: RingCipher, cell: Cell, allow_plaintext: bool, secret_of: SecretOf | None
) -> tuple[Opened, _Binding]:
    cell.where.require_key()
    require_readable(cell)
    if type(cell.value) is not bytes:
        raise BlobError(f"value is {type(cell.value).__name__}, not bytes")
    if is_sealed(cell.tag) or not isinstance(cell.tag, str):
        binding: _Binding = {"row": cell.row}
        if secret_of is not None and "dek" in parse_tag(cell.tag).flags:
            binding["secret"] = secret_of(cell.where.row)
        return cipher.open(cell.tag, cell.value, **binding), binding
    if not allow_plaintext:
        hint = _READ_FIRST if cell.tag == PICKLE else _SEAL
        raise PlaintextError(f"value of type {excerpt(cell.tag)} is not sealed", hint=hint)
    return Opened(cell.tag, cell.value, authenticated=False, key_id=None), {}


def require_readable(cell: Cell) -> None:
    """Check that a value was read.

    Raises:
        SealpointError: Why it was not.
    """
    if isinstance(cell.value, Unreadable):
        raise cell.value.error


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
