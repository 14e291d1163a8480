"""A connection to a SQLite file with checked tables: cursors, transactions and queries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sealpoint.databases.sqlite.connection import connect, translate_errors
from sealpoint.databases.sqlite.scan import text_or_bytes
from sealpoint.errors import SchemaError, TextError
from sealpoint.sqlite import guard, layout
from sealpoint.sqlite.budget import capacity_bytes

Result = TypeVar("Result")


class CheckedFile:
    """An open file, whose schema is checked again in each transaction if it has changed.

    For one thread at a time.

    Attributes:
        connection: It has our own settings; no statement runs on it but those of this package.
        encoding: Of the texts in the file.
        tables: Which of ``checkpoints`` and ``writes`` there are.
        has_task_path: Whether ``writes`` has the column, which older databases lack.
    """

    def __init__(self, path: Path, is_over: Callable[[], bool], *, writable: bool = False) -> None:
        """Open an existing file, and check its tables as the saver does.

        Args:
            path: The file.
            is_over: Called while a statement runs; if it returns true, the statement ends with `HaltedError`.
            writable: Whether anything will be written.

        Raises:
            SchemaError: If it has neither of the two tables, or they are altered.
            DatabaseCorruptError: If it is damaged, or is not a database.
        """
        self._path, self._is_over = path, is_over
        self._file = path.resolve()
        self.connection = connect(path, writable=writable)
        self._version: int | None = None
        try:
            with self.reading() as cursor:
                (self.encoding,) = cursor.execute("PRAGMA main.encoding").fetchone()
        except BaseException:
            self.connection.close()
            raise

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor with guarded statements, and raise our own errors."""
        guarded = guard.guarding(self.connection, self._is_over)
        with translate_errors(), guarded, closing(self.connection.cursor()) as cursor:
            yield cursor

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the database within the context.

        In WAL mode writers continue meanwhile; in other modes they wait.
        """
        try:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                self._require_checked(cursor)
            yield
        finally:
            self.roll_back()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor in a read transaction, or in that of a snapshot."""
        with self.cursor() as cursor:
            is_ours = not self.connection.in_transaction
            if is_ours:
                cursor.execute("BEGIN")
            try:
                self._require_checked(cursor)
                yield cursor
            finally:
                if is_ours:
                    self.roll_back()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor in a write transaction, which remains open unless there is an error."""
        with self.cursor() as cursor:
            # In WAL mode a transaction that begins as a reader fails with SQLITE_BUSY, without waiting, if
            # another connection has written since. IMMEDIATE waits for the write lock.
            cursor.execute("BEGIN IMMEDIATE")
            try:
                self._require_checked(cursor)
                guard.allow(self.size_bytes(cursor))
                yield cursor
            except BaseException:
                self.roll_back()
                raise

    def roll_back(self) -> None:
        """Roll back the open transaction, if any."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _require_checked(self, cursor: sqlite3.Cursor) -> None:
        """Check the tables again if they were changed, inside the transaction that relies on it."""
        (version,) = cursor.execute("PRAGMA main.schema_version").fetchone()
        if version == self._version:
            return
        self._version = None  # a refused schema is refused again
        guard.allow(self.size_bytes(cursor))
        self.tables = layout.require_tables(cursor)
        self.has_task_path = layout.has_task_path(cursor)
        if not self.tables:
            raise SchemaError(
                f"{self._path} has neither of the tables 'checkpoints' and 'writes'",
                hint="is it the right file? a saver creates them when it is first used",
            )
        self._version = version

    def size_bytes(self, cursor: sqlite3.Cursor) -> int:
        """Return the capacity of the file and its log."""
        return capacity_bytes(cursor, self._file)

    def query(
        self,
        statement: str,
        parameters: tuple[Any, ...],
        take: Callable[[sqlite3.Cursor, int], Result],
        subqueries: Collection[str] = (),
    ) -> Result:
        """Return the result of ``take`` for the rows of a query and the size of the file.

        Text that is not UTF-8, as in a forged file, is read as bytes; then ``take`` is called again.
        """
        try:
            return self._query(statement, parameters, take, subqueries)
        except TextError:
            self.connection.text_factory = text_or_bytes
        try:
            return self._query(statement, parameters, take, subqueries)
        finally:
            self.connection.text_factory = str

    def _query(
        self,
        statement: str,
        parameters: tuple[Any, ...],
        take: Callable[[sqlite3.Cursor, int], Result],
        subqueries: Collection[str],
    ) -> Result:
        with self.reading() as cursor:
            most_bytes = self.size_bytes(cursor)
            guard.allow(most_bytes, len(parameters), subqueries)
            return take(cursor.execute(statement, parameters), most_bytes)
