"""Translation of SQLite's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sealpoint.errors import DatabaseCorruptError, MetadataError, RowError, SchemaError, TextError, excerpt

MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
"""The largest row, value or text that is read or written; SQLite's own limit is four times as high."""

# In a hostile file the index may share pages with a table, which REINDEX would overwrite: only on a copy.
_REINDEX: Final = (
    "the table may be complete: on a copy run `sqlite3 COPY REINDEX`, then `sealpoint verify COPY`;"
    " if that passes, use the copy"
)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our own errors for SQLite's, whose messages may quote a hostile file at any length.

    Raises:
        SchemaError: If the schema has text that is not UTF-8, or a trigger or a view would have run.
        RowError: If a row has over `MAX_VALUE_BYTES` bytes.
        TextError: If a row has text that is not UTF-8.
        MetadataError: If a filter searches metadata that is not JSON.
        DatabaseCorruptError: If the file is damaged or not a database, or needs more memory than available.
        sqlite3.DatabaseError: If SQLite raises it for any other reason.
    """
    try:
        yield
    except FOREIGN as error:
        raise translated(error) from None


def oversized() -> RowError:
    """Return the error for a row that is not read."""
    return RowError(f"a row has over {MAX_VALUE_BYTES} bytes")


FOREIGN: Final = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)


def translated(error: Exception) -> Exception:
    """Return the error of this package for one of SQLite, or the same error if it quotes nothing."""
    if isinstance(error, UnicodeDecodeError):
        return SchemaError("the schema contains text that is not UTF-8")
    if isinstance(error, MemoryError):  # a damaged file may require any amount
        return DatabaseCorruptError("SQLite lacks the memory that the file requires")
    code, text = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF, str(error)
    if code == sqlite3.SQLITE_AUTH:
        return SchemaError("a trigger or a view would have run with one of our statements")
    if code == sqlite3.SQLITE_TOOBIG:
        return oversized()
    if text.startswith("Could not decode to UTF-8"):
        return TextError("a row contains text that is not UTF-8")
    if text.startswith("malformed JSON"):
        return MetadataError("metadata that the filter searches is not JSON")
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_INDEX:
        return DatabaseCorruptError("an index of the file disagrees with its table", hint=_REINDEX)
    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or text.startswith("unsupported file")
    return DatabaseCorruptError(f"SQLite cannot read the file: {excerpt(text)}") if damaged else error
