"""Transactions that write, alone or inside of one that the application has open."""

from __future__ import annotations

import sqlite3


class Transaction:
    """Commits what its block does, or nothing of it.

    The write lock is taken at the start: a transaction that reads first and then writes
    fails at once where another process has written in between. In a transaction that the
    caller left open, a savepoint keeps our part together, and the commit is for both.
    """

    __slots__ = ("_connection", "_cursor", "_nested")

    def __init__(self, connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        """Prepare a transaction whose own statements run on ``cursor``, as those of the block may."""
        self._connection = connection
        self._cursor = cursor

    def __enter__(self) -> None:
        self._nested = self._connection.in_transaction
        try:
            self._cursor.execute("SAVEPOINT sealpoint" if self._nested else "BEGIN IMMEDIATE")
        except BaseException as error:
            if not isinstance(error, sqlite3.Error):  # Ctrl-C after BEGIN: no other code would undo it
                self._undo()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._undo()
            return
        try:
            if self._nested:
                self._connection.commit()
            else:  # where commit() would do nothing if the connection has autocommit=True
                self._cursor.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        # SQLite itself may have rolled back already, on a full disk for instance.
        if self._connection.in_transaction:
            undo = ("ROLLBACK TO sealpoint", "RELEASE sealpoint") if self._nested else ("ROLLBACK",)
            for statement in undo:
                self._cursor.execute(statement)
