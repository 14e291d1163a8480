"""The file of a thread store in SQLite: how it is created, opened and checked."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from sealpoint.errors import DatabaseCorruptError, ThreadStoreDownError, ThreadStoreMissingError
from sealpoint.keys.folder import PrivateFolder
from sealpoint.sqlite.extent import require_whole
from sealpoint.sqlite.opening import create_file, open_file, prepare
from sealpoint.threads.sqliteerrors import FOREIGN, RESTORE_HINT, damaged, translated
from sealpoint.threads.statements import FIRST, SCHEMA, SUBQUERIES, UPGRADE, VERSION

_NEW: Final = "new.db"
_APPLICATION_ID: Final = 0x53505448  # "SPTH"

UPGRADE_SECONDS: Final = 60.0
"""How long the upgrade of a store may take, which changes every row once."""

_LOG_PAGES: Final = 4000
"""Size at which SQLite itself moves the log into the file; the store does it earlier, see `claim`."""

_STEP_OPCODES: Final = 10_000
"""How often a statement is checked: about every 0.3 ms."""


class Opened:
    """A file that is open, and what was read from it and written to it since.

    Attributes:
        connection: Compiles no trigger and no view, and ends a statement that is late.
        inode: Inode and device, which another file under the same name does not have.
        identity: Name of the store.
        appended: Events since the log was last moved into the file; ``None`` before the first change.
        claim: See `ThreadStore`.
        until: When a statement is late, by `time.monotonic`.
        cause: Exception of a signal handler that ended a statement, which SQLite would drop.
    """

    __slots__ = ("appended", "cause", "claim", "connection", "identity", "inode", "until")

    def __init__(self, connection: sqlite3.Connection, inode: tuple[int, int], timeout: float) -> None:
        """Guard ``connection`` from now on."""
        self.connection, self.inode = connection, inode
        self.identity = ""
        self.claim = 0
        self.appended: int | None = None
        self.until = time.monotonic() + timeout
        self.cause: BaseException | None = None
        prepare(connection, _authorize)
        # A generator that has begun, because a signal handler may raise before the first line of a function.
        ticks = self._ticks()
        next(ticks)
        connection.set_progress_handler(partial(next, ticks), _STEP_OPCODES)

    def _ticks(self) -> Iterator[int]:
        late = 0
        while True:
            try:
                while True:  # inside of ``try``: a handler may raise where a loop begins again
                    yield late
                    late = int(time.monotonic() > self.until)
            except GeneratorExit:
                return
            except BaseException as error:  # noqa: BLE001 -- `SharedFile.run` raises it
                self.cause, late = error, 1


def _authorize(_action: int, _first: object, _second: object, _schema: object, owner: str | None) -> int:
    """Return whether SQLite may compile an action of a statement; ``owner`` is its trigger or view."""
    return sqlite3.SQLITE_OK if owner is None or owner in SUBQUERIES else sqlite3.SQLITE_DENY


def create(path: Path) -> None:
    """Create an empty store, unless there is a file: complete, and readable for this account only.

    Raises:
        ThreadStoreError: If the folder does not exist, cannot be written to, or has no space.
    """
    if path.exists():
        return
    try:
        # The name appears when the store is complete: no other process opens a part of it.
        with PrivateFolder(path, "new") as folder:
            _fill(folder)
            folder.publish(_NEW, path)
    except FileExistsError:
        return  # another process was faster
    except FOREIGN as error:
        raise translated(error, path) from None


def _fill(folder: PrivateFolder) -> None:
    identity = os.urandom(16).hex()
    with closing(create_file(folder.path / _NEW, folder.descriptor)) as connection:
        connection.execute("BEGIN")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO store VALUES (?, ?, 0, 0)", (VERSION, identity))
        connection.execute("INSERT INTO identities VALUES (?)", (identity,))
        connection.execute("COMMIT")


def connect(path: Path, timeout: float) -> Opened:
    """Open a store, with its settings made and its schema checked.

    Raises:
        ThreadStoreError: If it is missing, not a store, damaged, locked, or cannot be read.
    """
    try:
        before = path.stat()
        connection = open_file(path, "mode=rw", timeout=timeout)
        try:
            opened = Opened(connection, (before.st_ino, before.st_dev), timeout)
            _settle(connection)
            with closing(connection.cursor()) as cursor:
                require_whole(cursor, path.resolve())  # its log is beside the target of a link
            _upgrade(opened)
            opened.identity = _identify(connection, path)
            _switch_log_on(connection)
            after = path.stat()
            if (after.st_ino, after.st_dev) != opened.inode:
                raise ThreadStoreDownError(f"thread store {path}: another file replaced it just now")
        except BaseException:
            connection.close()
            raise
    except (*FOREIGN, DatabaseCorruptError) as error:
        raise translated(error, path) from None
    return opened


def _settle(connection: sqlite3.Connection) -> None:
    """Make the settings."""
    connection.execute("PRAGMA synchronous = NORMAL")  # heads are not more durable than checkpoints
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _upgrade(opened: Opened) -> None:
    """Make a store of version 1 one of this version; any other file is left to `_identify`."""
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
    """Return the statements of the schema, or nothing if they are too many."""
    rows = connection.execute(
        "SELECT sql FROM main.sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' LIMIT ?",
        (len(SCHEMA) + 1,),
    ).fetchall()
    return {sql for (sql,) in rows} if len(rows) <= len(SCHEMA) else set()


def _identify(connection: sqlite3.Connection, path: Path) -> str:
    """Check that a file is a store, and return its identity."""
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
            hint="use the sealpoint that wrote it, or a later one",
        )
    return identity


def _switch_log_on(connection: sqlite3.Connection) -> None:
    """Use WAL again, if another program has changed the mode; a store that cannot be written to is left."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        return
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
            raise
