"""Limits of what is read from a database: for a row, for a query, and for a file, which may have holes."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import EndlessTreeError, RowError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

# The largest row, value or text that is read or written; SQLite's own limit is four times as high
MAX_VALUE_BYTES: Final = 256 * 1024 * 1024


def oversized() -> RowError:
    """Return the error for a row that exceeds `MAX_VALUE_BYTES`."""
    return RowError(f"a row has over {MAX_VALUE_BYTES} bytes")


# Capacity assumed for a file without blocks: reading and sorting this many bytes takes some seconds. Some
# file systems count new blocks only seconds later.
HOLES_BYTES: Final = 8 * 1024 * 1024

_COMPRESSED: Final = 16  # the highest compression ratio of file systems


def capacity_bytes(cursor: sqlite3.Cursor, file: Path | None) -> int:
    """Return how many bytes the pages of a database and of its log can hold.

    A file with holes is larger than its data, so its blocks on the disk are counted. Data extents would be
    exact, but need a descriptor: closing it ends all locks that SQLite has on the file in this process.
    """
    (pages,) = cursor.execute("PRAGMA main.page_count").fetchone()
    (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
    size = int(pages) * int(page_bytes)
    if file is None or size <= HOLES_BYTES:
        return size
    blocks = 0
    for path in (file, file.with_name(f"{file.name}-wal")):
        with suppress(OSError):
            blocks += path.stat().st_blocks
    return min(size, max(blocks * 512 * _COMPRESSED, HOLES_BYTES))


class Budget:
    """How many rows and bytes of a query are held in memory at once."""

    def __init__(self, rows: int, size_bytes: int, *, uncounted: int = 0) -> None:
        """Create a budget of ``rows`` and, for their texts and values, ``size_bytes``.

        The first ``uncounted`` rows count neither as rows nor by their bytes.
        """
        self._bytes, self._uncounted = size_bytes, uncounted
        self._most_rows = uncounted + max(rows, 1)
        self.spent = False

    def take(self, cursor: sqlite3.Cursor, most_bytes: int = sys.maxsize) -> list[tuple[Any, ...]]:
        """Return rows until the budget is spent, including the row that exceeds it."""
        taken: list[tuple[Any, ...]] = []
        self.spent, size_bytes, room = False, 0, min(self._bytes, most_bytes)
        for row in cursor:
            taken.append(row)
            if len(taken) <= self._uncounted:
                continue
            for value in row:
                if type(value) is str or type(value) is bytes:  # a number counts as 0
                    size_bytes += len(value)
            if size_bytes > room or len(taken) == self._most_rows:
                self.spent = next(cursor, None) is not None
                break
        if size_bytes > most_bytes:
            raise EndlessTreeError("a table yields more rows than the file can hold")
        return taken


UNLIMITED: Final = Budget(sys.maxsize, sys.maxsize)
