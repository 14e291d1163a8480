"""Databases with values that are together far larger than the file, and a file that is mostly a hole.

A large value stands in a chain of pages. Here the first page of the chain follows itself,
and the value says that it is long: SQLite walks in a circle, and reads as much as is said.

Cells and varints: https://www.sqlite.org/fileformat2.html, sections 1.6 and 2.1.
"""

from __future__ import annotations

import mmap
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

_SMALL: Final = 2_200_000  # what a value has before it is swollen: enough for a chain of pages
_PAGE: Final = 4096


def tamper(statement: str, rows: int, size: int) -> Callable[[Path], None]:
    """Return what inserts ``rows`` rows into a file and swells a value of each to about ``size`` bytes.

    Args:
        statement: Inserts a row; its parameters are the number of the row and the size of a zeroblob.
        rows: How many rows.
        size: Bytes of each value.
    """

    def swell(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.executemany(statement, [(number, _SMALL) for number in range(rows)])
            connection.commit()
        kind = _varint(2 * _SMALL + 12)
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            position = data.find(kind)
            while position >= 0:
                _swell_cell(data, position, size)
                position = data.find(kind, position + 1)
        _lengthen(path, size // _PAGE + 1000)

    return swell


def _swell_cell(data: mmap.mmap, kind_at: int, size: int) -> None:
    """Let the value whose type stands at a position be ``size`` bytes long, and its chain of pages a circle.

    The cell may grow by a byte, for longer varints; then it begins a byte earlier.
    """
    start = kind_at // _PAGE * _PAGE
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    pointers = range(start + 8, start + 8 + 2 * count, 2)
    pointer = max((at for at in pointers if start + _u16(data, at) < kind_at), key=lambda at: _u16(data, at))
    cell = start + _u16(data, pointer)
    payload, width = _read_varint(data, cell)
    _, rowid_width = _read_varint(data, cell + width)
    body = cell + width + rowid_width
    end = body + _kept(payload)
    growth = (size - _SMALL) // (_PAGE - 4) * (_PAGE - 4)  # so much of it stands in the page as before
    old = _varint(2 * _SMALL + 12)
    new = _varint(2 * (_SMALL + growth) + 12)
    more = len(new) - len(old)
    new = _varint(2 * (_SMALL + growth - more) + 12)
    header = bytes((data[body] + more,)) + data[body + 1 : kind_at] + new
    local = (header + data[kind_at + len(old) : end])[: end - body]
    forged = _varint(payload + growth) + data[cell + width : body] + local + data[end : end + 4]
    moved = end + 4 - len(forged)
    data[moved : end + 4] = forged
    data[pointer : pointer + 2] = (moved - start).to_bytes(2, "big")
    data[start + 5 : start + 7] = min(_u16(data, start + 5), moved - start).to_bytes(2, "big")
    page = int.from_bytes(data[end : end + 4], "big")
    data[(page - 1) * _PAGE : (page - 1) * _PAGE + 4] = page.to_bytes(4, "big")


def _lengthen(path: Path, pages: int) -> None:
    """Let the file be as long as its longest value, which SQLite asks for, by a hole that takes no room."""
    pages = max(pages, path.stat().st_size // _PAGE)
    with path.open("r+b") as file:
        file.seek(28)
        file.write(pages.to_bytes(4, "big"))
        file.truncate(pages * _PAGE)


def _u16(data: mmap.mmap, position: int) -> int:
    return int.from_bytes(data[position : position + 2], "big")


def _kept(payload: int) -> int:
    """How much of a payload stands in the page itself."""
    least = (_PAGE - 12) * 32 // 255 - 23
    kept = least + (payload - least) % (_PAGE - 4)
    return kept if kept <= _PAGE - 35 else least


def _varint(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def _read_varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    number = width = 0
    while True:
        byte = data[position + width]
        number, width = number << 7 | byte & 0x7F, width + 1
        if byte < 0x80:
            return number, width
