"""What the errors of SQLite and of the file system mean for a thread store."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import (
    AccessError,
    DatabaseCorruptError,
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreFullError,
    ThreadStoreMissingError,
    ThreadStoreReadOnlyError,
    ThreadStoreTimeoutError,
    excerpt,
)

FOREIGN: Final = (sqlite3.Error, UnicodeError, MemoryError, OSError)
"""What a call on the file may raise: `translated` returns our error for it."""

_CREATE_HINT: Final = (
    "create it with create=True or `sealpoint heads adopt DB --create`; if there was one, restore it"
)
RESTORE_HINT: Final = "name the file of a thread store, or restore it from backup"


def damaged(path: Path, what: str) -> ThreadStoreDownError:
    """Return the error for a file that is not as a thread store writes it."""
    return ThreadStoreDownError(f"thread store {path}: {what}", hint=RESTORE_HINT)


def require_row(path: Path, row: Sequence[Any] | None, *types: type) -> Sequence[Any]:
    """Return a row whose values have these types; in a damaged file they may have any.

    Raises:
        ThreadStoreDownError: If there is no row, or a value has another type.
    """
    if row is None or any(type(value) is not wanted for value, wanted in zip(row, types, strict=True)):
        raise damaged(path, "a row does not contain what a thread store writes")
    return row


def translated(error: Exception, path: Path) -> ThreadStoreError:
    """Return the error of a thread store for one of SQLite or of the file system."""
    name = f"thread store {path}"
    if isinstance(error, ThreadStoreError):
        return error
    if isinstance(error, DatabaseCorruptError | AccessError):  # what another account has put there
        return ThreadStoreDownError(f"{name}: {error}", hint=error.hint)
    if isinstance(error, UnicodeEncodeError):
        return ThreadStoreError(
            f"{name}: the name of a checkpoint holds a lone surrogate", hint="use Unicode text"
        )
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, path)
    if isinstance(error, OSError):
        return _of_system(error, path)
    return damaged(path, "the file is damaged")


def _of_sqlite(error: sqlite3.Error, path: Path) -> ThreadStoreError:
    name = f"thread store {path}"
    exact = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    code = exact & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return ThreadStoreTimeoutError(f"{name}: a call took longer than the time limit")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ThreadStoreTimeoutError(f"{name}: another connection kept it locked")
    if code == sqlite3.SQLITE_FULL or exact == sqlite3.SQLITE_IOERR_SHMSIZE:
        return ThreadStoreFullError(f"{name}: the disk is full")
    if code == sqlite3.SQLITE_READONLY and exact != sqlite3.SQLITE_READONLY_DBMOVED:
        return ThreadStoreReadOnlyError(f"{name}: the file, or its log beside it, may not be written")
    if code == sqlite3.SQLITE_CANTOPEN and path.exists():
        # SQLite needs to create the log, even for reading.
        if os.access(path, os.R_OK) and not os.access(path.parent, os.W_OK):
            return ThreadStoreReadOnlyError(f"{name}: the folder may not be written")
        return ThreadStoreDownError(f"{name}: the file, or its log beside it, cannot be opened")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, "the file is damaged, or not a database")
    if code == sqlite3.SQLITE_AUTH:
        return damaged(path, "a trigger or a view would have run")
    if str(error).startswith("Could not decode to UTF-8"):
        return damaged(path, "a row contains text that is not UTF-8")
    return ThreadStoreDownError(
        f"{name}: SQLite reports {excerpt(getattr(error, 'sqlite_errorname', 'an error'))}"
    )


def _of_system(error: OSError, path: Path) -> ThreadStoreError:
    name = f"thread store {path}"
    if isinstance(error, FileNotFoundError):
        if path.parent.is_dir():
            return ThreadStoreMissingError(f"{name}: there is no such file", hint=_CREATE_HINT)
        return ThreadStoreMissingError(
            f"{name}: there is no such folder", hint="create the folder, or name another"
        )
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return ThreadStoreReadOnlyError(f"{name}: this account may not write to it, or to its folder")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ThreadStoreFullError(f"{name}: the disk is full")
    return ThreadStoreDownError(
        f"{name}: {errno.errorcode.get(error.errno or 0, 'the file cannot be opened')}"
    )
