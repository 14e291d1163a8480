"""The unused parts of a SQLite file, found without sealpoint: by its schema, and the parser of `format`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from fuzz.sqlitefile.format import INTERIOR, SqliteFile

_CONTENT: Final = re.compile(rb"(?:\0?[^\0]){8,}")


class Gap(NamedTuple):
    """A part of a page that holds nothing.

    Attributes:
        kind: Of a b-tree page, with ``gap``, or with ``block`` for a free block; else ``overflow``,
            ``header`` or ``unused``.
        data: What stands there all the same.
    """

    kind: str
    data: bytes

    @property
    def content(self) -> int:
        """How many bytes of it can be of something other than the structures of SQLite."""
        return sum(len(run) - run.count(0) for run in _CONTENT.findall(self.data))


_NAMES: Final = {2: "index interior", 5: "table interior", 10: "index leaf", 13: "table leaf"}


def gaps(path: Path) -> list[Gap]:
    """Return all unused parts of a valid file that has no log; of the free list none."""
    file = SqliteFile(path.read_bytes())
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        roots = [
            root for (root,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")
        ]
    found, met = list[Gap](), set(_free(file))
    for root in (1, *roots):
        for number in file.walk(root):
            met.add(number)
            found += _of_page(file, number)
            for cell in file.cells(number):
                chain = list(file.chain(cell))
                met.update(chain)
                if chain:
                    rest = cell.payload_size - len(cell.local) - (len(chain) - 1) * (file.usable_bytes - 4)
                    found.append(Gap("overflow", bytes(file.page(chain[-1])[4 + rest :])))
    if file.get_field("largest root"):
        met.update(range(2, len(file.pages) + 1, file.usable_bytes // 5 + 1))
    unmet = [number for number in range(1, len(file.pages) + 1) if number not in met]
    found += [Gap("unused", bytes(file.page(number))) for number in unmet]
    return [*found, Gap("header", bytes(file.page(1)[72:92]))]


def slack_bytes(path: Path) -> int:
    """Return how many bytes of content the unused parts have."""
    return sum(gap.content for gap in gaps(path))


def _free(file: SqliteFile) -> Iterator[int]:
    trunk = file.get_field("first free page")
    while trunk:
        page = file.page(trunk)
        numbers = [int.from_bytes(page[at : at + 4], "big") for at in range(0, file.usable_bytes, 4)]
        yield trunk
        yield from numbers[2 : 2 + numbers[1]]
        trunk = numbers[0]


def _of_page(file: SqliteFile, number: int) -> Iterator[Gap]:
    page, head, kind = file.page(number), file.header_at(number), file.kind(number)
    cells, name = list(file.cells(number)), _NAMES[kind]
    end = head + (12 if kind in INTERIOR else 8) + 2 * len(cells)
    free = bytearray(b"\1") * len(page)  # one for each byte that nothing uses
    free[:end] = bytes(end)
    for cell in cells:
        free[cell.start : cell.end] = bytes(cell.end - cell.start)
    block, blocks = int.from_bytes(page[head + 1 : head + 3], "big"), list[tuple[int, int]]()
    while block:
        following, size = (int.from_bytes(page[at : at + 2], "big") for at in (block, block + 2))
        blocks.append((block + 4, block + size))
        free[block : block + size] = bytes(size)
        block = following
    yield from (Gap(f"{name} block", bytes(page[start:stop])) for start, stop in blocks)
    for match in re.finditer(b"\1+", free):
        data = bytes(page[match.start() : match.end()])
        stale = len(_stale(data, end, file.usable_bytes)) if match.start() == end else 0
        yield Gap(f"{name} gap", data[2 * stale :])


def _stale(data: bytes, first: int, end: int) -> list[int]:
    """Return the numbers that may be pointers to cells that were moved."""
    numbers: Iterable[int] = (int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data) - 1, 2))
    return list(takewhile(lambda number: not number or first <= number < min(end, 0x2000), numbers))
