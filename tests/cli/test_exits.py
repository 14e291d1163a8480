"""Which error ends in which exit code."""

from __future__ import annotations

import errno
import inspect
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as postgres

from sealpoint import errors
from sealpoint.admin.results.exits import Exit, exit_code, message

CLASSES = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.SealpointError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_error_of_ours_is_a_bug(kind: type[errors.SealpointError]) -> None:
    base = OSError if issubclass(kind, OSError) else kind
    error: errors.SealpointError = base.__new__(kind)  # whatever it asks for when it is made
    assert exit_code(error) not in (Exit.DONE, Exit.BUG)


def test_what_the_system_refuses_is_told_in_its_words() -> None:
    """Without numbers, and only if it names a file: an error of ours has words of its own."""
    assert message(PermissionError(errno.EACCES, "Permission denied", "/x")) == "/x: Permission denied"
    assert message(OSError(errno.ENOSPC, "No space left on device")).endswith("No space left on device")
    assert message(errors.SourceError("no words of the system")) == "no words of the system"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.RingFileError("x"), Exit.USAGE),
        (errors.RingFileMissingError("x"), Exit.KEYS),
        (errors.KeyTransitionError("x"), Exit.USAGE),
        (errors.KeyInUseError("x"), Exit.FOUND),
        (errors.UnknownKeyError("k1", ()), Exit.KEYS),
        (errors.KeyDisabledError("x"), Exit.KEYS),
        (errors.SourceError("x"), Exit.KEYS),
        (errors.KeyMaterialError("x"), Exit.KEYS),
        (errors.FilePermissionsError("x"), Exit.KEYS),
        (errors.IntegrityError("x"), Exit.UNOPENED),
        (errors.PlaintextError("x"), Exit.UNOPENED),
        (errors.DecodeError("x"), Exit.UNOPENED),
        (errors.DatabaseCorruptError("x"), Exit.UNOPENED),
        (errors.SchemaError("x"), Exit.USAGE),
        (errors.DatabaseMissingError("x"), Exit.USAGE),
        (errors.MissingExtraError("tomlkit", "cli"), Exit.USAGE),
        (errors.HeldError("x"), Exit.HELD),
        (errors.AccessError("x"), Exit.USAGE),
        (errors.StoppedError("x"), Exit.STOPPED),
        (errors.ScrubError("x"), Exit.STOPPED),
        (errors.ThreadStoreDownError("x"), Exit.STOPPED),
        (errors.ThreadStoreMissingError("x"), Exit.USAGE),
        (errors.ThreadStoreTimeoutError("x"), Exit.STOPPED),
        (errors.ThreadStoreFullError("x"), Exit.STOPPED),
        (errors.ThreadStoreError("x"), Exit.USAGE),
        (errors.WrongThreadStoreError("x"), Exit.USAGE),
        (errors.ThreadStoreBehindError("x"), Exit.UNOPENED),
        (errors.RolledBackError("t", None, "1"), Exit.UNOPENED),
        (errors.MaintenanceError("x"), Exit.USAGE),
        (KeyboardInterrupt(), Exit.STOPPED),
        (OSError(errno.ENOSPC, "full"), Exit.STOPPED),
        (OSError(errno.EDQUOT, "full"), Exit.STOPPED),
        (OSError(errno.EMFILE, "files"), Exit.STOPPED),
        (OSError(errno.ENFILE, "files"), Exit.STOPPED),
        (OSError(errno.EAGAIN, "processes"), Exit.STOPPED),
        (OSError(errno.ENOMEM, "memory"), Exit.STOPPED),
        (MemoryError(), Exit.STOPPED),
        (PermissionError(errno.EACCES, "no"), Exit.USAGE),
        (OSError(errno.ELOOP, "links"), Exit.USAGE),
        (OSError(errno.ENOTSUP, "no"), Exit.USAGE),
        (OSError(errno.EXDEV, "no"), Exit.USAGE),
        (postgres.DiskFull(), Exit.STOPPED),
        (postgres.AdminShutdown(), Exit.STOPPED),
        (postgres.InvalidPassword(), Exit.USAGE),
        (postgres.UndefinedTable(), Exit.USAGE),
        (psycopg.OperationalError("connection refused"), Exit.STOPPED),
        (ValueError("x"), Exit.BUG),
        (OSError("x"), Exit.BUG),
        (sqlite3.ProgrammingError("x"), Exit.BUG),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_code_of_an_error(error: BaseException, code: Exit) -> None:
    assert exit_code(error) is code


def test_codes_of_sqlite(tmp_path: Path) -> None:
    """As SQLite itself raises them: no room, no such folder, no database, no leave to write."""
    (tmp_path / "text").write_text("no database at all" * 100)
    with closing(sqlite3.connect(tmp_path / "small.db")) as small:
        small.execute("PRAGMA max_page_count = 2")
        small.execute("CREATE TABLE t (x)")
        with pytest.raises(sqlite3.Error) as full:
            small.execute("INSERT INTO t VALUES (zeroblob(100000))")
    with pytest.raises(sqlite3.Error) as away:
        sqlite3.connect(tmp_path / "no" / "x.db")
    with closing(sqlite3.connect(tmp_path / "text")) as text, pytest.raises(sqlite3.Error) as none:
        text.execute("SELECT * FROM t")
    read_only = f"file:{tmp_path}/small.db?mode=ro"
    with closing(sqlite3.connect(read_only, uri=True)) as reader, pytest.raises(sqlite3.Error) as shut:
        reader.execute("INSERT INTO t VALUES (1)")
    codes = [exit_code(met.value) for met in (full, away, none, shut)]
    assert codes == [Exit.STOPPED, Exit.USAGE, Exit.UNOPENED, Exit.USAGE]


def test_message_of_postgres_quotes_no_row() -> None:
    """Its first line alone: those below it may show values."""
    error = postgres.UniqueViolation("duplicate key\nDETAIL:  Key (thread_id)=(alice) already exists.")
    assert message(error) == "duplicate key"


def test_message_of_too_little_memory() -> None:
    """Python's own error says nothing."""
    assert message(MemoryError()).startswith("not enough memory")
