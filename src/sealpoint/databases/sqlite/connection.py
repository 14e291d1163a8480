"""Connections to SQLite files for maintenance: they wait for locks, trust no schema, and raise our errors."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sealpoint.errors import AccessError, StoppedError
from sealpoint.sqlite import guard
from sealpoint.sqlite.database import BUSY_TIMEOUT_MS
from sealpoint.sqlite.extent import require_whole
from sealpoint.sqlite.failures import FOREIGN, translated
from sealpoint.sqlite.opening import open_file, prepare

CACHE_KIB: Final = 32 * 1024
"""Cache size for a batch: its pages are read once for reading, comparing and changing."""

# Temporary conditions: the disk is full, or another process has the file.
_TEMPORARY: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the file cannot be written or read",
    sqlite3.SQLITE_BUSY: f"another connection kept the database locked for {BUSY_TIMEOUT_MS // 1000} s",
}

_ELSEWHERE: Final = (
    "let this account open the file and write beside it; to only read it, copy it with the files beside it"
)
_TAKE_BACK: Final = "start an agent on it, or: sqlite3 DB .schema; then run the same command again"
_PERMANENT: Final = {
    sqlite3.SQLITE_READONLY: ("the file, or its log beside it, may not be written", _ELSEWHERE),
    sqlite3.SQLITE_CANTOPEN: ("the file, or its log beside it, cannot be opened", _ELSEWHERE),
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        "an interrupted change must be rolled back, which needs write access",
        _TAKE_BACK,
    ),
}


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open an existing file: with a busy timeout, an untrusted schema and explicit transactions.

    Raises:
        StoppedError: If it is locked, or its log cannot be read without writing to the folder.
        DatabaseCorruptError: If it is damaged, or is not a database.
    """
    path = path.resolve()  # SQLite looks for the log beside the file itself
    with translate_errors():
        if writable:
            return _connect(path, "mode=rw")
        try:
            return _connect(path, "mode=ro")
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
            if code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) or _has_log(path):
                raise
        # With immutable=1 SQLite ignores a log and the transactions in it: only used without a log.
        return _connect(path, "mode=ro&immutable=1")  # a read-only medium


def _has_log(path: Path) -> bool:
    return any(os.path.lexists(path.with_name(path.name + suffix)) for suffix in ("-wal", "-journal"))


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = open_file(path, options, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        file = prepare(connection)
        with guard.guarding(connection):
            # A batch that is lost in a power failure is repeated by the next run.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # SqliteRows does it after each batch
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(
                "SELECT 1 FROM main.sqlite_master LIMIT 1"
            ).fetchall()  # the first statement that reads
            with closing(connection.cursor()) as cursor:
                require_whole(cursor, file)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our own errors for those of SQLite, including temporary conditions.

    Raises:
        StoppedError: If the disk is full, if the file is locked or cannot be opened, read or written, or if
            there is not enough memory.
        DatabaseCorruptError: If the file is damaged, or is not a database.
        SchemaError: If the schema contains text that is not UTF-8, or a trigger or a view would have run.
        RowError: If a row is larger than `MAX_VALUE_BYTES`.
        TextError: If a row contains text that is not UTF-8.
        MetadataError: If a statement searches metadata that is not JSON.
        sqlite3.DatabaseError: If SQLite reports anything else; its error is raised as it is.
    """
    try:
        yield
    except FOREIGN as error:
        raise _stopped(error) or translated(error) from None


def _stopped(error: Exception) -> StoppedError | None:
    """Return our own error for a temporary condition: a full disk, a lock."""
    if isinstance(error, MemoryError):
        return StoppedError("no memory for a value of this size, or of a damaged file")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    for known in (code, code & 0xFF):
        if known in _TEMPORARY:
            return StoppedError(_TEMPORARY[known])
        if known in _PERMANENT:
            cause, hint = _PERMANENT[known]
            return AccessError(cause, hint=hint)
    return None
