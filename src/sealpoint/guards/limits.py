"""How much is read of a database: of one row, of a query, and of a file that claims more than it has."""

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
    """Return the error for a row that is not read."""
    return RowError(f"a row has over {MAX_VALUE_BYTES} bytes")


# Capacity of a file that consists of holes: a walk through as many bytes ends after some seconds, also if it
# sorts what it finds. Some file systems count new blocks seconds later; until then so much is read of a file.
HOLES_BYTES: Final = 8 * 1024 * 1024

_COMPRESSED: Final = 16  # times, at most, that a file system keeps a file smaller than it is


def capacity_bytes(cursor: sqlite3.Cursor, file: Path | None) -> int:
    """Return how many bytes the pages of a database can hold, with those of its log.

    A file with holes claims more than it has: its blocks on the disk are counted. Its data extents would be
    exact, but need a descriptor, and closing one ends all locks that SQLite has on the file in this process.
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
    """How much of a query is taken into memory."""

    def __init__(self, rows: int, size_bytes: int, *, uncounted: int = 0) -> None:
        """Create a budget of ``rows`` and, for their texts and values, ``size_bytes``.

        The first ``uncounted`` rows are not part of either.
        """
        self._bytes, self._uncounted = size_bytes, uncounted
        self._most_rows = uncounted + max(rows, 1)
        self.spent = False

    def take(self, cursor: sqlite3.Cursor, most_bytes: int = sys.maxsize) -> list[tuple[Any, ...]]:
        """Return the rows that fit, including the one that exceeds the budget."""
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
            raise EndlessTreeError("the rows of a table are more than the file can hold")
        return taken


UNLIMITED: Final = Budget(sys.maxsize, sys.maxsize)
