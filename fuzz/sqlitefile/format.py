"""The SQLite file format: pages, b-tree cells, records and varints.

Source: https://www.sqlite.org/fileformat2.html. Numbers are big-endian. Page 1 begins with the
header of the file, so that its b-tree header stands at byte 100; on all other pages at byte 0.

    b-tree header   kind u8, first freeblock u16, cells u16, content start u16, fragments u8,
                    on interior pages: right child u32
    cell pointers   u16 each
    table leaf      payload size, row id, payload, first overflow page u32
    table interior  left child u32, row id
    index leaf      payload size, payload, first overflow page u32
    index interior  left child u32, then as an index leaf
    overflow page   next page u32, payload
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\0"
INDEX_INTERIOR: Final = 2
TABLE_INTERIOR: Final = 5
INDEX_LEAF: Final = 10
TABLE_LEAF: Final = 13
INTERIOR: Final = frozenset({INDEX_INTERIOR, TABLE_INTERIOR})
SCHEMA_ROOT: Final = 1

Value = None | int | float | str | bytes
"""A value of a record. Text that is not UTF-8 is a str with surrogate escapes."""

FIELDS: Final = {
    "write version": (18, 1),
    "read version": (19, 1),
    "reserved bytes": (20, 1),
    "change counter": (24, 4),
    "page count": (28, 4),
    "first free page": (32, 4),
    "free pages": (36, 4),
    "schema cookie": (40, 4),
    "schema format": (44, 4),
    "largest root": (52, 4),
    "text encoding": (56, 4),
    "incremental vacuum": (64, 4),
    "version valid for": (92, 4),
}
"""Fields of the header: offset and width in bytes."""


class FormatError(ValueError):
    """The bytes are not what the file format says."""


# --- varints and records ----------------------------------------------------------------------


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a varint as an unsigned number of 64 bits, and where it ends."""
    number = 0
    for width in range(9):
        if at + width >= len(data):
            raise FormatError("a varint goes past the end")
        byte = data[at + width]
        if width == 8:
            return number << 8 | byte, at + 9
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + width + 1
    raise AssertionError


def write_varint(number: int) -> bytes:
    """Return the shortest varint of a number, which may be negative."""
    number &= 2**64 - 1
    if number >= 2**56:
        head, groups = number >> 8, []
        for _ in range(8):
            groups.append(head & 0x7F | 0x80)
            head >>= 7
        return bytes(reversed(groups)) + bytes((number & 0xFF,))
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def signed(number: int, bits: int = 64) -> int:
    """Return an unsigned number as the two's complement that it stands for."""
    return number - (1 << bits) if number >> bits - 1 else number


_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)


def serial_bytes(serial: int) -> int:
    """Return how many bytes a value of a serial type has."""
    if serial >= 12:
        return (serial - 12) // 2
    if serial in (10, 11):
        raise FormatError("a serial type that is reserved")
    return (*_INTEGER_BYTES, 8, 0, 0)[serial]


def decode_value(serial: int, content: bytes) -> Value:
    """Return the value of a serial type."""
    if serial >= 12:
        return content.decode("utf-8", "surrogateescape") if serial % 2 else content
    if serial == 0:
        return None
    if serial == 7:
        number: float = struct.unpack(">d", content)[0]
        return None if number != number else number  # noqa: PLR0124 -- SQLite reads NaN as NULL
    if serial in (8, 9):
        return serial - 8
    return int.from_bytes(content, "big", signed=True)


def decode_record(payload: bytes) -> list[Value]:
    """Return the values of a record."""
    size, at = read_varint(payload, 0)
    if size > len(payload) or size < at:
        raise FormatError("the header of a record has no room")
    serials = []
    while at < size:
        serial, at = read_varint(payload, at)
        serials.append(serial)
    if at != size:
        raise FormatError("the header of a record ends in a serial type")
    values = []
    for serial in serials:
        end = at + serial_bytes(serial)
        if end > len(payload):
            raise FormatError("a value goes past the end of its record")
        values.append(decode_value(serial, payload[at:end]))
        at = end
    if at != len(payload):
        raise FormatError("a record has bytes after its last value")
    return values


def encode_record(values: Iterable[Value]) -> bytes:
    """Return a record of values."""
    serials, body = b"", b""
    for value in values:
        serial, content = _encode_value(value)
        serials += write_varint(serial)
        body += content
    size = len(serials) + 1
    if size > 127:
        size += 1
    return write_varint(size) + serials + body


def _encode_value(value: Value) -> tuple[int, bytes]:
    if value is None:
        return 0, b""
    if isinstance(value, float):
        return 7, struct.pack(">d", value)
    if isinstance(value, int):
        for serial, width in enumerate(_INTEGER_BYTES):
            if serial and -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
                return serial, value.to_bytes(width, "big", signed=True)
        raise FormatError("a number of over 64 bits")
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return 13 + 2 * len(data), data
    return 12 + 2 * len(value), value


# --- pages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a b-tree page.

    Attributes:
        start: Where it begins on its page.
        end: Where it ends.
        child: The left child, on interior pages; else 0.
        row_id: On pages of tables; else 0.
        payload_size: Of the whole payload; 0 on interior pages of tables.
        local: What of the payload stands on the page.
        overflow: The first page of the rest; 0 if there is none.
    """

    start: int
    end: int
    child: int
    row_id: int
    payload_size: int
    local: bytes
    overflow: int


class SqliteFile:
    """The pages of a database file, to be read and forged."""

    def __init__(self, data: bytes) -> None:
        """Take a file apart. Bytes after the last whole page are dropped.

        Raises:
            FormatError: If there is no page size in it, or not one whole page.
        """
        size = int.from_bytes(data[16:18], "big")
        self.page_bytes = 65536 if size == 1 else size
        if self.page_bytes < 512 or self.page_bytes & self.page_bytes - 1:
            raise FormatError("a page size that is none")
        if len(data) < self.page_bytes:
            raise FormatError("no whole page")
        count = len(data) // self.page_bytes
        self.pages = [
            bytearray(data[number * self.page_bytes : (number + 1) * self.page_bytes])
            for number in range(count)
        ]

    def to_bytes(self) -> bytes:
        """Return the file."""
        return b"".join(self.pages)

    def get_field(self, field: str) -> int:
        """Return a field of the header."""
        at, width = FIELDS[field]
        return int.from_bytes(self.pages[0][at : at + width], "big")

    def set_field(self, field: str, number: int) -> None:
        """Change a field of the header."""
        at, width = FIELDS[field]
        self.pages[0][at : at + width] = (number & (1 << 8 * width) - 1).to_bytes(width, "big")

    @property
    def usable_bytes(self) -> int:
        """How much of a page is used."""
        return self.page_bytes - self.get_field("reserved bytes")

    def page(self, number: int) -> bytearray:
        """Return a page.

        Raises:
            FormatError: If the file has no such page.
        """
        if not 1 <= number <= len(self.pages):
            raise FormatError(f"there is no page {number}")
        return self.pages[number - 1]

    def append(self, content: bytes = b"") -> int:
        """Add a page, and return its number; the header counts it."""
        self.pages.append(bytearray(content.ljust(self.page_bytes, b"\0")))
        self.set_field("page count", len(self.pages))
        return len(self.pages)

    # --- reading

    @staticmethod
    def header_at(number: int) -> int:
        """Return where the b-tree header of a page begins."""
        return HEADER_BYTES if number == SCHEMA_ROOT else 0

    def kind(self, number: int) -> int:
        """Return what kind of b-tree page it is, if it is one."""
        return self.page(number)[self.header_at(number)]

    def right_child(self, number: int) -> int:
        """Return the last child of an interior page."""
        at = self.header_at(number) + 8
        return int.from_bytes(self.page(number)[at : at + 4], "big")

    def cells(self, number: int) -> Iterator[Cell]:
        """Yield the cells of a b-tree page, in the order of its pointers.

        Raises:
            FormatError: If it is no such page, or a cell does not fit onto it.
        """
        page, at, kind = self.page(number), self.header_at(number), self.kind(number)
        if kind not in (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF):
            raise FormatError(f"page {number} is none of a b-tree")
        count = int.from_bytes(page[at + 3 : at + 5], "big")
        first = at + (12 if kind in INTERIOR else 8)
        if first + 2 * count > self.usable_bytes:
            raise FormatError(f"page {number} has more cells than room")
        for pointer in range(first, first + 2 * count, 2):
            start = int.from_bytes(page[pointer : pointer + 2], "big")
            if start < first + 2 * count:
                raise FormatError("a cell begins among the cell pointers")
            yield self._cell(page, kind, start)

    def _cell(self, page: bytearray, kind: int, start: int) -> Cell:
        at, child, row_id, size = start, 0, 0, 0
        if kind in INTERIOR:
            child, at = int.from_bytes(page[at : at + 4], "big"), at + 4
        if kind != TABLE_INTERIOR:
            size, at = read_varint(page, at)
        if kind in (TABLE_INTERIOR, TABLE_LEAF):
            row_id, at = read_varint(page, at)
        kept = self.local_bytes(size, is_table=kind in (TABLE_INTERIOR, TABLE_LEAF))
        local, overflow, end = bytes(page[at : at + kept]), 0, at + kept
        if kept < size:
            overflow, end = int.from_bytes(page[end : end + 4], "big"), end + 4
        if end > self.usable_bytes:
            raise FormatError("a cell goes past the end of its page")
        return Cell(start, end, child, signed(row_id), size, local, overflow)

    def local_bytes(self, payload: int, *, is_table: bool) -> int:
        """Return how much of a payload stands on the page itself."""
        usable = self.usable_bytes
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if payload <= most:
            return payload
        least = (usable - 12) * 32 // 255 - 23
        kept = least + (payload - least) % (usable - 4)
        return kept if kept <= most else least

    def chain(self, cell: Cell) -> Iterator[int]:
        """Yield the overflow pages of a cell; as many as its size says, whatever they are."""
        left, number = cell.payload_size - len(cell.local), cell.overflow
        while left > 0:
            yield number
            left -= self.usable_bytes - 4
            number = int.from_bytes(self.page(number)[:4], "big")

    def payload(self, cell: Cell) -> bytes:
        """Return the whole payload of a cell."""
        parts = [cell.local]
        if cell.payload_size > self.page_bytes * len(self.pages):
            raise FormatError("a payload is larger than the file")
        parts += [bytes(self.page(number)[4 : self.usable_bytes]) for number in self.chain(cell)]
        return b"".join(parts)[: cell.payload_size]

    def walk(self, root: int) -> Iterator[int]:
        """Yield the pages of a b-tree, parents first; for editing, so each page once.

        Raises:
            FormatError: If a page is no b-tree page.
        """
        ahead, seen = [root], set[int]()
        while ahead:
            number = ahead.pop()
            if number in seen:
                continue
            seen.add(number)
            yield number
            if self.kind(number) in INTERIOR:
                children = [cell.child for cell in self.cells(number)]
                ahead += [self.right_child(number), *reversed(children)]

    def entries(self, root: int) -> list[tuple[int, bytes]]:
        """Return the row id and payload of each entry of a b-tree, in its order.

        Raises:
            FormatError: If a page is met twice: such a tree may have any number of entries.
        """
        return list(self._entries(root, set()))

    def _entries(self, number: int, seen: set[int]) -> Iterator[tuple[int, bytes]]:
        if number in seen or len(seen) > len(self.pages):
            raise FormatError(f"page {number} is met twice")
        seen.add(number)
        kind = self.kind(number)
        for cell in self.cells(number):
            if kind in INTERIOR:
                yield from self._entries(cell.child, seen)
            if kind != TABLE_INTERIOR:
                yield cell.row_id, self.payload(cell)
        if kind in INTERIOR:
            yield from self._entries(self.right_child(number), seen)

    # --- writing

    def write_node(self, number: int, kind: int, cells: Sequence[bytes], right: int = 0) -> None:
        """Make a page a b-tree page with just these cells.

        Raises:
            FormatError: If they do not fit.
        """
        page, at = self.page(number), self.header_at(number)
        page[at:] = bytes(self.page_bytes - at)
        first = at + (12 if kind in INTERIOR else 8)
        start = self.usable_bytes - sum(map(len, cells))
        if first + 2 * len(cells) > start:
            raise FormatError("the cells do not fit onto the page")
        page[at : at + 8] = struct.pack(">BHHHB", kind, 0, len(cells), start & 0xFFFF, 0)
        if kind in INTERIOR:
            page[at + 8 : at + 12] = right.to_bytes(4, "big")
        for place, cell in enumerate(cells):
            page[first + 2 * place : first + 2 * place + 2] = start.to_bytes(2, "big")
            page[start : start + len(cell)] = cell
            start += len(cell)

    def leaf_cell(self, payload: bytes, row_id: int | None) -> bytes:
        """Return a leaf cell, of a table if there is a row id; the rest of its payload goes to new pages."""
        kept = self.local_bytes(len(payload), is_table=row_id is not None)
        head = write_varint(len(payload)) + (b"" if row_id is None else write_varint(row_id))
        return head + payload[:kept] + self._spill(payload[kept:])

    def _spill(self, rest: bytes) -> bytes:
        """Write what is left of a payload to new pages, and return the number of the first."""
        if not rest:
            return b""
        step, following = self.usable_bytes - 4, 0
        for at in reversed(range(0, len(rest), step)):
            following = self.append(following.to_bytes(4, "big") + rest[at : at + step])
        return following.to_bytes(4, "big")

    def write_tree(self, root: int, entries: Sequence[tuple[int, bytes]], *, is_table: bool) -> None:
        """Make a page the root of a b-tree with just these entries, on new pages where it needs them."""
        leaf_kind = TABLE_LEAF if is_table else INDEX_LEAF
        cells = [(row_id, self.leaf_cell(data, row_id if is_table else None)) for row_id, data in entries]
        if self._fits(root, 8, [cell for _, cell in cells]):
            self.write_node(root, leaf_kind, [cell for _, cell in cells])
            return
        level = list(self._new_leaves(leaf_kind, cells, is_table=is_table))
        while not self._fits(root, 12, [divider for _, divider in level[:-1]]):
            level = list(self._new_parents(level, is_table=is_table))
        kind = TABLE_INTERIOR if is_table else INDEX_INTERIOR
        self.write_node(root, kind, [divider for _, divider in level[:-1]], level[-1][0])

    def _fits(self, number: int, head: int, cells: Sequence[bytes]) -> bool:
        room = self.usable_bytes - self.header_at(number) - head
        return sum(map(len, cells)) + 2 * len(cells) <= room

    def _new_leaves(
        self, kind: int, cells: list[tuple[int, bytes]], *, is_table: bool
    ) -> Iterator[tuple[int, bytes]]:
        """Yield new leaves: the number of each, and the cell that divides it from the next one."""
        while cells:
            taken = 1
            while taken < len(cells) and self._fits(2, 8, [cell for _, cell in cells[: taken + 1]]):
                taken += 1
            members, cells = cells[:taken], cells[taken:]
            divider = write_varint(members[-1][0])
            if not is_table and len(cells) == 1:  # an index keeps each entry once: a divider is one
                divider = members.pop()[1]
            elif not is_table and cells:
                divider, cells = cells[0][1], cells[1:]
            number = self.append()
            self.write_node(number, kind, [cell for _, cell in members])
            yield number, number.to_bytes(4, "big") + divider

    def _new_parents(self, level: list[tuple[int, bytes]], *, is_table: bool) -> Iterator[tuple[int, bytes]]:
        while level:
            taken = 1
            while taken < len(level) and self._fits(2, 12, [divider for _, divider in level[:taken]]):
                taken += 1
            if len(level) - taken == 1:  # none is left with a single child and no cell
                taken -= 1
            members, level = level[:taken], level[taken:]
            number = self.append()
            kind = TABLE_INTERIOR if is_table else INDEX_INTERIOR
            self.write_node(number, kind, [divider for _, divider in members[:-1]], members[-1][0])
            yield number, number.to_bytes(4, "big") + members[-1][1][4:]
