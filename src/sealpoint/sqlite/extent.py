"""Whether a file has all of its pages.

SQLite refuses a file that has fewer pages than its header counts, and reads zeros where its last page is cut
off: rows that end there are missing or changed. With a write-ahead log it does not compare at all.

    log    header of 32 bytes, of which 16 to 23 are its salts; then frames
    frame  page number, 4 bytes; 4 more; the salts of its log, 8 bytes; 8 more; the page

The first frame with other salts is of an earlier log: there the log ends.

Source: SQLite's file format, sections 1.3.7 (the header's size of the database) and 4.1 (the log).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sealpoint.errors import DatabaseCorruptError

_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_LOCK_BYTE: Final = 1 << 30  # SQLite writes no page there


def require_whole(cursor: sqlite3.Cursor, file: Path | None) -> None:
    """Check that each page of the database is in its file, or in the log.

    A file of 0 bytes is a new database. In a file whose header is older than its last change, only a page
    that is incomplete is noticed. In an open transaction, whose pages may be in memory alone, nothing is
    checked.

    Args:
        cursor: Of the connection; gives rows as tuples.
        file: The file; ``None`` for a database in memory.

    Raises:
        DatabaseCorruptError: If a page is missing, or a part of it.
    """
    if file is None or cursor.connection.in_transaction:
        return
    cursor.execute("BEGIN")  # no other process shortens the file meanwhile
    try:
        (pages,) = cursor.execute("PRAGMA main.page_count").fetchone()
        (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
        try:
            kept = file.stat().st_size // page_bytes
        except FileNotFoundError:  # removed meanwhile
            return
        if kept < pages and not _is_in_log(file.with_name(f"{file.name}-wal"), kept + 1, pages, page_bytes):
            raise DatabaseCorruptError("the file is shorter than its header says: its end is cut off")
    finally:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")


def _is_in_log(log: Path, first: int, last: int, page_bytes: int) -> bool:
    """Whether a log has the pages from ``first`` to ``last``, except one that is never written."""
    numbers = {_LOCK_BYTE // page_bytes + 1}
    try:
        with log.open("rb") as stream:
            salts = stream.read(_LOG_HEADER_BYTES)[16:24]
            while (frame := stream.read(_FRAME_HEADER_BYTES))[8:16] == salts and salts:
                number = int.from_bytes(frame[:4])
                if not number:
                    break  # a hole
                if first <= number <= last:
                    numbers.add(number)
                stream.seek(page_bytes, os.SEEK_CUR)
    except FileNotFoundError:
        return False
    return numbers.issuperset(range(first, last + 1))
