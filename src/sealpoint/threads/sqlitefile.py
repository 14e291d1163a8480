"""The file of a thread store in SQLite: how it is created, opened and checked."""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from sealpoint.errors import (
    AccessError,
    DatabaseCorruptError,
    HaltedError,
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreFullError,
    ThreadStoreMissingError,
    ThreadStoreTimeoutError,
    excerpt,
)
from sealpoint.guards import statements
from sealpoint.guards.files import create_file, open_file, prepare, require_whole, switch_log_on
from sealpoint.keys.files import PrivateFolder
from sealpoint.seal.heads import Kind
from sealpoint.threads.database import CLOCK, END, SPOT, same_spot, specials_of, standing
from sealpoint.threads.store import SEPARATOR

# Errors that a call on the file may raise: `translated` returns sealpoint's error for each
FOREIGN: Final = (sqlite3.Error, UnicodeError, MemoryError, OSError, DatabaseCorruptError)

_CREATE_HINT: Final = (
    "create it with create=True or `sealpoint heads adopt DB --create --reason TEXT --threads {}`;"
    " if there was one, restore it"
)
_WRITE_HINT: Final = "let this account write to the file and its folder"
RESTORE_HINT: Final = "name the file of a thread store, or restore the file from backup"


def damaged(path: Path, what: str) -> ThreadStoreDownError:
    """Return the error for a damaged file: its contents are not what a thread store writes."""
    return ThreadStoreDownError(f"thread store {path}: {what}", hint=RESTORE_HINT)


_Cause = tuple[type[ThreadStoreError], str, str | None]
_FULL: Final[_Cause] = (ThreadStoreFullError, "the disk is full", None)
_LOCKED: Final[_Cause] = (ThreadStoreTimeoutError, "another connection kept the file locked", None)
_UNWRITABLE: Final = "this account may not write to the file, or to its log next to it"
# Our error, its text and its hint by SQLite's code, the exact one first
_CAUSES: Final[dict[int, _Cause | None]] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR_SHMSIZE: _FULL,
    sqlite3.SQLITE_READONLY: (ThreadStoreError, _UNWRITABLE, _WRITE_HINT),
    sqlite3.SQLITE_READONLY_DBMOVED: None,
}


def translated(error: Exception, path: Path) -> ThreadStoreError:
    """Return the `ThreadStoreError` that reports an error of SQLite or of the file system."""
    if isinstance(error, ThreadStoreError):
        return error
    kind, what, hint = _cause(error, path)
    return kind(f"thread store {path}: {what}", hint=hint)


def _cause(error: Exception, path: Path) -> _Cause:
    if isinstance(error, DatabaseCorruptError | AccessError):  # what another account has put there
        return ThreadStoreDownError, str(error), error.hint
    if isinstance(error, OSError):
        return _of_system(error, path)
    if isinstance(error, UnicodeEncodeError):
        return ThreadStoreError, "the name of a checkpoint contains a lone surrogate", "use Unicode text"
    exact = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    if found := _CAUSES.get(exact, _CAUSES.get(exact & 0xFF)):
        return found
    if exact & 0xFF == sqlite3.SQLITE_CANTOPEN and path.exists():
        # SQLite needs to create the log, even for reading.
        if os.access(path, os.R_OK) and not os.access(path.parent, os.W_OK):
            return ThreadStoreError, "this account may not write to the folder", _WRITE_HINT
        return ThreadStoreDownError, "the file, or its log next to it, cannot be opened", None
    ours = statements.translated(error)
    if ours is not error:
        return ThreadStoreDownError, str(ours), ours.hint if isinstance(ours, HaltedError) else RESTORE_HINT
    reported = excerpt(getattr(error, "sqlite_errorname", "an error"))
    return ThreadStoreDownError, f"SQLite reports {reported}", None


def _of_system(error: OSError, path: Path) -> _Cause:
    if isinstance(error, FileNotFoundError):
        if path.parent.is_dir():
            hint = _CREATE_HINT.format(shlex.quote(str(path)))
            return ThreadStoreMissingError, "there is no such file", hint
        return ThreadStoreMissingError, "there is no such folder", "create the folder, or name another"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return ThreadStoreError, "this account may not write to the file or its folder", _WRITE_HINT
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _FULL
    code = errno.errorcode.get(error.errno or 0, "the file cannot be opened")
    return ThreadStoreDownError, code, None


# ruff: noqa: S608 -- statements are put together from constants and placeholders only


VERSION: Final = 2

_HEADS: Final = """CREATE TABLE heads (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    mac BLOB NOT NULL,
    at INTEGER NOT NULL
{}) STRICT"""

_KEPT: Final = (
    """CREATE TABLE store (
    version INTEGER NOT NULL,
    identity TEXT NOT NULL,
    raised INTEGER NOT NULL,
    trimmed INTEGER NOT NULL
) STRICT""",
    "CREATE TABLE identities (identity TEXT NOT NULL) STRICT",
    "CREATE TABLE adopted (seq INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT NOT NULL) STRICT",
)
_BY_CHECKPOINT: Final = "CREATE INDEX heads_by_checkpoint ON heads (thread_id, checkpoint_ns, checkpoint_id)"

_SECOND: Final = (
    "CREATE INDEX heads_live ON heads (thread_id, checkpoint_ns, kind, checkpoint_id) WHERE gone = 0",
    """CREATE TABLE specials (
    seq INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    call BLOB NOT NULL,
    since INTEGER NOT NULL,
    head_seq INTEGER NOT NULL
) STRICT""",
    "CREATE INDEX specials_by_checkpoint ON specials (thread_id, checkpoint_ns, checkpoint_id)",
)

FIRST: Final = (*_KEPT, _HEADS.format(""), _BY_CHECKPOINT)  # the schema of version 1

# The column as ALTER TABLE writes it.
SCHEMA: Final = (
    *_KEPT,
    _HEADS.format(", gone INTEGER NOT NULL DEFAULT 0"),
    _BY_CHECKPOINT,
    *_SECOND,
)

# Upgrades a store from version 1 to version 2, except for the version itself
UPGRADE: Final = (
    "ALTER TABLE heads ADD COLUMN gone INTEGER NOT NULL DEFAULT 0",
    f"""UPDATE heads SET gone = 1 WHERE kind = {Kind.DELETED:d} OR EXISTS (
        SELECT 1 FROM heads AS later WHERE {same_spot("later", "heads")} AND later.seq > heads.seq
    )""",
    *_SECOND,
)

# Names of subqueries: SQLite's authorizer sees them as it sees views
SUBQUERIES: Final = ("latest", "head", "found")

_RECORD: Final = "seq || ' ' || idx || ' ' || since || ' ' || hex(call) || ' ' || hex(task_id)"
RECORDS: Final = f"group_concat({_RECORD}, '{SEPARATOR}')"
_END: Final = END.format(schema="")
_CLOCK: Final = CLOCK.format(schema="")
READ_CLOCK: Final = f"SELECT {_CLOCK} FROM store LIMIT 1"


def _specials(which: str) -> str:
    return specials_of(RECORDS, which).format(schema="")


# Needs one descent of the index; the answer is final unless the checkpoint with the greatest id was deleted.
NEWEST: Final = f"""
    SELECT checkpoint_id, kind, mac, {_specials(same_spot("special", "heads"))},
        (SELECT raised FROM store), ({_END}) FROM heads
    WHERE thread_id = ? AND checkpoint_ns = ?
    ORDER BY checkpoint_id DESC, seq DESC LIMIT 1"""

NEWEST_PUT, BETWEEN, LIVE = standing(RECORDS, "{schema}heads AS head INDEXED BY heads_live WHERE gone = 0")

FIND: Final = f"""
    SELECT head.kind, head.mac, {_specials(SPOT)}, {_CLOCK}
    FROM store LEFT JOIN (SELECT kind, mac FROM heads WHERE {SPOT} ORDER BY seq DESC LIMIT 1) AS head"""

# BEGIN IMMEDIATE succeeds on a file that is read-only; a statement that would write does not.
REQUIRE_WRITABLE: Final = "UPDATE store SET raised = raised WHERE 0"

APPEND: Final = """
    INSERT INTO heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at, gone)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
REPLACE: Final = f"UPDATE heads SET gone = 1 WHERE {SPOT} AND gone = 0"

LAST_SPECIAL: Final = "SELECT coalesce(max(seq), 0) FROM specials"

APPEND_SPECIAL: Final = f"""
    INSERT INTO specials (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, call, since, head_seq)
    VALUES (?, ?, ?, ?, ?, ?, ?, ({_END}))"""

# SQLite takes columns that are not grouped from the row that has the max().
HEADS: Final = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, kind, mac, at, max(seq) FROM heads {conditions}
    GROUP BY thread_id, checkpoint_ns, checkpoint_id
    ORDER BY thread_id, checkpoint_ns, checkpoint_id LIMIT ?"""

FORGET: Final = f"DELETE FROM heads WHERE {SPOT}"
# The last number is kept, so that it is not used again; its event stays ended, as by a deletion.
FORGET_SPECIALS: Final = f"DELETE FROM specials WHERE {SPOT} AND seq < ({LAST_SPECIAL})"
END_SPECIALS: Final = f"UPDATE specials SET head_seq = -1 WHERE {SPOT}"
TRIMMED: Final = "UPDATE store SET trimmed = trimmed + ?"

RAISE: Final = f"""
    UPDATE store SET raised = max(raised, ? - ({_END}))"""
RECORD: Final = "INSERT INTO adopted SELECT coalesce(max(seq), 0), ?, ? FROM heads"
NAME: Final = "INSERT INTO identities SELECT ? WHERE ? NOT IN (SELECT identity FROM identities)"


_NEW: Final = "new.db"
_APPLICATION_ID: Final = 0x53505448  # "SPTH"

UPGRADE_SECONDS: Final = 60.0  # how long the upgrade of a store may take, which changes every row once

# Size at which SQLite itself moves the log into the file; the store does it earlier, see `claim`
_LOG_PAGES: Final = 4000


class Opened:
    """An open file of a thread store, and the state of its connection.

    The connection compiles no trigger and no view, and interrupts a statement at the time limit.
    """

    __slots__ = ("_path", "appended", "claim", "connection", "identity", "inode", "until")

    def __init__(
        self, path: Path, connection: sqlite3.Connection, inode: tuple[int, int], timeout: float
    ) -> None:
        self._path, self.connection, self.inode = path, connection, inode
        self.identity = ""
        self.claim = 0
        self.appended: int | None = None  # since the log was last moved; `None` before the first change
        self.until = time.monotonic() + timeout
        prepare(connection, _authorize)
        connection.set_progress_handler(statements.make_handler(self._require_time), statements.STEP_OPCODES)

    def _require_time(self, _: None) -> None:
        if time.monotonic() > self.until:
            raise ThreadStoreTimeoutError(
                f"thread store {self._path}: a call took longer than the time limit"
            )


def _authorize(_action: int, _first: object, _second: object, _schema: object, owner: str | None) -> int:
    """Authorizer of SQLite: deny every action of a trigger or view, whose name is ``owner``."""
    return sqlite3.SQLITE_OK if owner is None or owner in SUBQUERIES else statements.deny()


def create(path: Path) -> None:
    """Create the file of an empty store, readable only by this account; do nothing if the file exists."""
    if path.exists():
        return
    try:
        # The name appears when the store is complete: no other process opens a part of it.
        with PrivateFolder(path, "new") as folder:
            with closing(create_file(folder.path / _NEW, folder.descriptor)) as connection:
                fill(connection)
            folder.publish(_NEW, path)
    except FileExistsError:
        return  # another process was faster
    except FOREIGN as error:
        raise translated(error, path) from None


def fill(connection: sqlite3.Connection) -> str:
    """Create the tables of a thread store in an empty database; return the identifier of the new store."""
    identity = os.urandom(16).hex()
    connection.execute("BEGIN")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO store VALUES (?, ?, 0, 0)", (VERSION, identity))
    connection.execute("INSERT INTO identities VALUES (?)", (identity,))
    connection.execute("COMMIT")
    return identity


def connect(path: Path, timeout: float) -> Opened:
    """Open the file of a thread store, apply settings to the connection, and check the tables.

    Raises:
        ThreadStoreError: If the file is not a thread store or is replaced. Errors in `FOREIGN` pass through.
    """
    before = path.stat()
    connection = open_file(path, "mode=rw", timeout=timeout)
    try:
        opened = Opened(path, connection, (before.st_ino, before.st_dev), timeout)
        connection.execute("PRAGMA synchronous = NORMAL")  # heads need no more durability than checkpoints
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        with closing(connection.cursor()) as cursor:
            require_whole(cursor, path.resolve())  # the log is next to the target of a link
            _upgrade(opened)
            opened.identity = _identify(connection, path)
            switch_log_on(cursor)  # again, if another program has changed the mode
        after = path.stat()
        if (after.st_ino, after.st_dev) != opened.inode:
            raise ThreadStoreDownError(f"thread store {path}: another file replaced it just now")
    except BaseException:
        connection.close()
        raise
    return opened


def _upgrade(opened: Opened) -> None:
    """Upgrade a store of version 1 to this version; `_identify` checks any other file."""
    connection = opened.connection
    if _tables(connection) != {*FIRST}:
        return
    opened.until = time.monotonic() + UPGRADE_SECONDS
    connection.execute("BEGIN IMMEDIATE")
    if _tables(connection) == {*FIRST}:  # otherwise another process was faster
        for statement in UPGRADE:
            connection.execute(statement)
        connection.execute("UPDATE store SET version = ?", (VERSION,))
    connection.execute("COMMIT")


def _tables(connection: sqlite3.Connection) -> set[str | None]:
    """Return the CREATE statements of the file's schema; an empty set if there are too many."""
    rows = connection.execute(
        "SELECT sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' LIMIT ?",
        (len(SCHEMA) + 1,),
    ).fetchall()
    return {sql for (sql,) in rows} if len(rows) <= len(SCHEMA) else set()


def _identify(connection: sqlite3.Connection, path: Path) -> str:
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    if number != _APPLICATION_ID:
        raise ThreadStoreMissingError(
            f"thread store {path}: the file is not a thread store", hint=RESTORE_HINT
        )
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    # Another encoding would have another order of ids.
    if encoding != "UTF-8" or _tables(connection) != {*SCHEMA}:
        raise damaged(path, "its tables are not those of a thread store")
    row = connection.execute("SELECT version, identity FROM store LIMIT 1").fetchone()
    version, identity = row or (None, None)
    if not isinstance(version, int) or not isinstance(identity, str):
        raise damaged(path, "it has no version or no identity")
    if version != VERSION:
        raise ThreadStoreDownError(
            f"thread store {path}: its version is {version}, and this sealpoint reads {VERSION}",
            hint="upgrade to the release that wrote it, or a later one",
        )
    return identity
