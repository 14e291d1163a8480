"""One SQLite connection, shared by threads and, through its file, by processes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sealpoint.sqlite import schema

BUSY_TIMEOUT_MS: Final = 60_000
"""How long a write waits for other processes before it gives up."""


class Database:
    """Guards a connection: one statement at a time, and writes in transactions of their own."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take over ``connection``. Nothing is read or written before the first use."""
        self.connection = connection
        self.lock = threading.RLock()
        self.is_setup = False
        self.has_task_path = True

    def setup(self) -> None:
        """Make the tables if they are missing, and check them if they are not. Once a connection.

        Raises:
            SchemaError: If they are not what LangGraph or this package made.
        """
        with self.lock:
            if self.is_setup:
                return
            self._configure()
            schema.require_tables(self.connection)
            self._create()
            self.is_setup = True

    def _configure(self) -> None:
        """Wait for other processes, trust no schema, and let readers go on while one writes."""
        (timeout_ms,) = self.connection.execute("PRAGMA busy_timeout").fetchone()
        self.connection.execute(f"PRAGMA busy_timeout = {max(timeout_ms, BUSY_TIMEOUT_MS)}")
        self.connection.execute("PRAGMA trusted_schema = OFF")
        (mode,) = self.connection.execute("PRAGMA main.journal_mode").fetchone()
        if mode not in ("wal", "memory") and not self.connection.in_transaction:
            self._switch_log_on()

    def _switch_log_on(self) -> None:
        try:
            self.connection.execute("PRAGMA main.journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # What may only be read stays as it is. For what is busy SQLite does not wait here: another
            # process is switching, and this connection will see it; or it works without until one has.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
                raise

    def _create(self) -> None:
        tables = schema.existing_tables(self.connection)
        self.has_task_path = "writes" not in tables or schema.has_task_path(self.connection)
        if len(tables) == 2 and self.has_task_path:
            return
        try:
            with self._transaction():
                self.connection.execute(schema.CREATE_CHECKPOINTS)
                self.connection.execute(schema.CREATE_WRITES)
                if not schema.has_task_path(self.connection):
                    self.connection.execute(schema.ADD_TASK_PATH)
            self.has_task_path = True
        except sqlite3.OperationalError as error:
            # An older database that may only be read is read as it is.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY or len(tables) < 2:
                raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit what the block does, or nothing of it.

        The write lock is taken at the start: a transaction that reads first and then writes
        fails at once where another process has written in between. In a transaction that the
        caller left open, a savepoint keeps our part together, and the commit is for both.
        """
        nested = self.connection.in_transaction
        self.connection.execute("SAVEPOINT sealpoint" if nested else "BEGIN IMMEDIATE")
        try:
            yield
            if nested:
                self.connection.commit()
            else:  # where commit() would do nothing if the connection has autocommit=True
                self.connection.execute("COMMIT")
        except BaseException:
            # SQLite itself may have rolled back already, on a full disk for instance.
            if self.connection.in_transaction:
                undo = ("ROLLBACK TO sealpoint", "RELEASE sealpoint") if nested else ("ROLLBACK",)
                for statement in undo:
                    self.connection.execute(statement)
            raise

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Give a cursor in a transaction, alone on the connection."""
        with self.lock:
            self.setup()
            with self._transaction():
                yield self.connection.cursor()

    def read(self, statement: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query. The lock is held for the query alone, not while rows are used."""
        with self.lock:
            self.setup()
            cursor = self.connection.cursor()
            cursor.row_factory = None
            return cursor.execute(statement, parameters).fetchall()
