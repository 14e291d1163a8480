"""Slack of a SQLite file: bytes that no statement reads, and that may contain deleted content.

    python -IS slack.py FILE

A separate program, started by `rows`: if a process closes any descriptor of a file, it loses its POSIX locks
on the file, and SQLite needs these locks. Imports no other module of sealpoint, because importing would take
longer than reading most files.

Prints the number of bytes that are not zero, and do not belong to a header, pointer or cell. Such bytes may
be in

- b-tree pages: the unallocated space, the free blocks and the fragments;
- overflow pages: bytes after the end of the payload;
- the reserved space of pages, and the space in the header that is reserved for expansion;
- unreferenced pages, and bytes after the last page.

Free pages and the log are counted elsewhere. Even in a new file, SQLite leaves remains of its own structures:
pointers to moved cells, headers of free blocks, numbers of pages and rows. So only runs of at least
`LEAST_BYTES` are counted, and stale pointers after a page's last pointer are not.

Each page may be visited once, so that a cycle of pages ends the walk. If the file violates the format, the
exit code is `DAMAGED`.

Source: https://www.sqlite.org/fileformat2.html, sections 1.2 to 1.8 and 2.6
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Final

# The exit code if the file cannot be parsed.
DAMAGED: Final = 3

# Least length of a run of bytes that counts as content; a run may contain single zero bytes, as in UTF-16.
LEAST_BYTES: Final = 8

_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_HEADER_BYTES: Final = 100
_LOCK_BYTE: Final = 1 << 30
_SCHEMA_BYTES: Final = 1 << 16  # longer than the type and names of any table, which precede its root page
_UTF16BE: Final = 3
_HOLES_BYTES: Final = 64 * 1024 * 1024
# In numbers below this limit, the first byte is a control character, so not text.
_STALE_LIMIT: Final = 0x2000


class Walk:
    """A walk over all pages of an open, non-empty database file."""

    def __init__(self, descriptor: int) -> None:
        self.slack = 0
        self._descriptor = descriptor
        header = os.pread(descriptor, _HEADER_BYTES, 0)
        _require(len(header) == _HEADER_BYTES and header.startswith(b"SQLite format 3\0"))
        self._page_bytes = 65536 if (size := _number(header, 16, 2)) == 1 else size
        _require(self._page_bytes in [1 << power for power in range(9, 17)])
        self._usable = self._page_bytes - header[20]
        _require(self._usable >= 480)
        self._trunk, self._free, self._has_maps = (_number(header, at) for at in (32, 36, 52))
        status = os.fstat(descriptor)
        self._pages = status.st_size // self._page_bytes
        # A sparse file may claim any number of pages, and each page takes a bit of memory.
        _require(status.st_size <= _HOLES_BYTES + 16 * 512 * status.st_blocks)
        self._encoding = _number(header, 56)
        self._visited = bytearray(self._pages // 8 + 1)
        self._ahead = [(1, True)]

    def run(self) -> None:
        """Visit all pages."""
        if self._has_maps:  # pointer maps of auto-vacuum, on fixed pages, without content
            for page in range(2, self._pages + 1, self._usable // 5 + 1):
                self._visit(page + (page == _LOCK_BYTE // self._page_bytes + 1))
        self._walk_free()
        while self._ahead:
            _require(len(self._ahead) <= self._pages)  # all different in a valid file
            self._walk_tree(*self._ahead.pop())
        for page in range(1, self._pages + 1):
            if not self._is_visited(page):
                self._count(self._read(page))
        self._count(os.pread(self._descriptor, self._page_bytes, self._pages * self._page_bytes))

    def _is_visited(self, page: int) -> bool:
        return bool(self._visited[page >> 3] & 1 << (page & 7))

    def _visit(self, page: int) -> None:
        _require(0 < page <= self._pages and not self._is_visited(page))
        self._visited[page >> 3] |= 1 << (page & 7)

    def _read(self, page: int) -> bytes:
        self._visit(page)
        data = os.pread(self._descriptor, self._page_bytes, (page - 1) * self._page_bytes)
        _require(len(data) == self._page_bytes)
        return data

    def _count(self, data: bytes) -> None:
        for part in data.strip(b"\0").split(b"\0\0"):
            content = len(part) - part.count(0)
            if content >= LEAST_BYTES:
                self.slack += content

    def _walk_free(self) -> None:
        trunk, pages = self._trunk, 0
        while trunk:
            data = self._read(trunk)
            leaves = _number(data, 4)
            _require(leaves <= self._usable // 4 - 2)
            for place in range(leaves):
                self._visit(_number(data, 8 + 4 * place))
            pages += 1 + leaves
            trunk = _number(data, 0)
        _require(pages == self._free)

    def _walk_tree(self, page: int, is_schema: bool) -> None:
        """Visit a b-tree page and the overflow pages of its cells, and count the page's slack."""
        data = self._read(page)
        start = _HEADER_BYTES if page == 1 else 0
        kind, cells = data[start], _number(data, start + 3, 2)
        _require(kind in (_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF))
        pointers = start + 8
        if kind in (_INDEX_INTERIOR, _TABLE_INTERIOR):
            self._ahead.append((_number(data, pointers), is_schema))
            pointers += 4
        end = pointers + 2 * cells
        _require(end <= self._usable)
        used = [(start, end)]
        if page == 1:
            self._count(data[72:92])
        for place in range(pointers, end, 2):
            cell = _number(data, place, 2)
            used.append((cell, self._walk_cell(data, cell, kind, is_schema)))
        block = _number(data, start + 1, 2)
        while block:
            used.append((block, block + 4))  # the rest of the block is slack
            following = _number(data, block, 2)
            _require(not following or following > block)
            block = following
        used.sort()
        used.append((self._page_bytes, self._page_bytes))
        for (_, left), (right, _) in pairwise(used):
            _require(left <= right)
            if left < right:
                gap = data[left:right]
                is_text = self._encoding == _UTF16BE  # letters would look like pointers
                stale = 0 if is_text or left != end else _stale_bytes(gap, end, self._usable)
                self._count(gap[stale:])

    def _walk_cell(self, data: bytes, at: int, kind: int, is_schema: bool) -> int:
        """Visit the overflow pages of a cell; return the offset of the cell's end."""
        is_table = kind in (_TABLE_INTERIOR, _TABLE_LEAF)
        size = 0
        if kind in (_INDEX_INTERIOR, _TABLE_INTERIOR):
            self._ahead.append((_number(data, at), is_schema))
            at += 4
        if kind != _TABLE_INTERIOR:
            size, at = _varint(data, at)
        if is_table:
            _, at = _varint(data, at)
        most = self._usable - 35 if is_table else (self._usable - 12) * 64 // 255 - 23
        least = (self._usable - 12) * 32 // 255 - 23
        local = size
        if size > most:
            local = least + (size - least) % (self._usable - 4)
            local = local if local <= most else least
        payload, at = data[at : at + local], at + local
        if local < size:
            payload += self._walk_chain(_number(data, at), size - local, is_schema)
            at += 4
        _require(at <= self._usable)
        if is_schema and kind == _TABLE_LEAF and (root := _root_of(payload)):
            self._ahead.append((root, False))
        return at

    def _walk_chain(self, page: int, left: int, is_schema: bool) -> bytes:
        """Visit the overflow pages of ``left`` bytes; return the first bytes if ``is_schema``."""
        content = b""
        while left > 0:
            data = self._read(page)
            end = min(4 + left, self._usable)
            self._count(data[end:])
            if is_schema and len(content) < _SCHEMA_BYTES:
                content += data[4:end]
            left -= end - 4
            page = _number(data, 0)
        _require(page == 0)
        return content


def _stale_bytes(gap: bytes, start: int, end: int) -> int:
    """Return the number of bytes at the start of unallocated space that are zero or stale cell pointers."""
    content = gap.rstrip(b"\0")
    limit = min(end, _STALE_LIMIT)
    for place in range(0, len(content) - 1, 2):
        number = content[place] << 8 | content[place + 1]
        if number and not start <= number < limit:
            return place
    return len(content) & ~1


def _root_of(record: bytes) -> int:
    """Return ``rootpage``, the fourth column of a schema record; 0 if it has none."""
    size, at = _varint(record, 0)
    place, width, serial = size, 0, 0
    for _ in range(4):
        place += width
        serial, at = _varint(record, at)
        width = (serial - 12) // 2 if serial >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[serial]
    _require(serial in (0, 1, 2, 3, 4, 5, 6, 8) and place + width <= len(record))
    return int.from_bytes(record[place : place + width], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(at, at + 8):
        byte = data[place]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place + 1
    return number << 8 | data[at + 8], at + 9


def _number(data: bytes, at: int, width: int = 4) -> int:
    _require(at + width <= len(data))
    return int.from_bytes(data[at : at + width], "big")


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("the file violates the SQLite file format")


def main() -> int:
    """Print the number of slack bytes of the file in the argument."""
    descriptor = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
    if os.fstat(descriptor).st_size == 0:  # the whole database is in the log
        sys.stdout.write("0")
        return 0
    try:
        walk = Walk(descriptor)
        walk.run()
    except (ValueError, IndexError):  # IndexError: a varint past the end
        return DAMAGED
    sys.stdout.write(str(walk.slack))
    return 0


if __name__ == "__main__":
    sys.exit(main())
