"""One SQLite connection, shared by threads and, through its file, by processes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from sealpoint.errors import DamagedFileError, MetadataError, RowError, SchemaError, TextError, excerpt
from sealpoint.sqlite import schema
from sealpoint.sqlite.query import add_functions

Result = TypeVar("Result")

BUSY_TIMEOUT_MS: Final = 60_000
"""How long a write waits for other processes before it gives up."""

MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
"""The largest row, value or text that is read or written; SQLite would go to four times that."""


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
            with own_words():
                self._configure()
                schema.require_tables(self.connection)
                self._create()
            self.is_setup = True

    def close(self) -> None:
        """Close the connection when no statement runs, which SQLite would not survive."""
        with self.lock:
            self.connection.close()

    def _configure(self) -> None:
        """Wait for other processes, trust no schema, and let readers go on while one writes."""
        (timeout_ms,) = self.connection.execute("PRAGMA busy_timeout").fetchone()
        self.connection.execute(f"PRAGMA busy_timeout = {max(timeout_ms, BUSY_TIMEOUT_MS)}")
        self.connection.execute("PRAGMA trusted_schema = OFF")
        add_functions(self.connection)
        limit = self.connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, MAX_VALUE_BYTES))
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
            with _Transaction(self.connection):
                self.connection.execute(schema.CREATE_CHECKPOINTS)
                self.connection.execute(schema.CREATE_WRITES)
                if not schema.has_task_path(self.connection):
                    self.connection.execute(schema.ADD_TASK_PATH)
            self.has_task_path = True
        except sqlite3.OperationalError as error:
            # An older database that may only be read is read as it is.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY or len(tables) < 2:
                raise

    def write(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of ``rows``, in a transaction: what `writing` does, in half its time."""
        with self.lock:
            if not self.is_setup:
                self.setup()
            cursor = self.connection.cursor()
            try:
                with _Transaction(self.connection):
                    cursor.executemany(statement, rows)
            except _FOREIGN as error:
                raise _in_own_words(error) from None
            finally:
                cursor.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Give a cursor in a transaction, alone on the connection."""
        with self.lock:
            self.setup()
            with own_words(), _Transaction(self.connection), self.open_cursor() as cursor:
                yield cursor

    def open_cursor(self) -> closing[sqlite3.Cursor]:
        """Return a cursor that is closed at the end of a block, and so while the lock is still held.

        One that is left to be collected resets its statement then. Cursors share statements, so that
        may befall another thread between its parameters and their use.
        """
        return closing(self.connection.cursor())

    def read(
        self, statement: str, parameters: Sequence[Any] | dict[str, Any] = (), budget: Budget | None = None
    ) -> list[tuple[Any, ...]]:
        """Return all rows of a query. The lock is held for the query alone, not while rows are used.

        Args:
            statement: A query.
            parameters: What is bound to its placeholders.
            budget: How much to take of it; at least one row in any case.

        Raises:
            RowError: If a row is larger than `MAX_VALUE_BYTES`.
            MetadataError: If the query looks into metadata that is not JSON.
            DamagedFileError: If the file is damaged, or no database.
        """
        with self.lock:
            if not self.is_setup:  # asked here, which saves a call and a second lock
                self.setup()
            cursor = self.connection.cursor()
            try:
                cursor.row_factory = None
                cursor.execute(statement, parameters)
                return cursor.fetchall() if budget is None else budget.take(cursor)
            except _FOREIGN as error:  # here and in `write` at no cost, where `own_words` takes a call or two
                raise _in_own_words(error) from None
            finally:
                cursor.close()  # see `open_cursor`, which takes twice as long as this


class _Transaction:
    """Commits what its block does, or nothing of it.

    The write lock is taken at the start: a transaction that reads first and then writes
    fails at once where another process has written in between. In a transaction that the
    caller left open, a savepoint keeps our part together, and the commit is for both.
    """

    __slots__ = ("_connection", "_nested")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._nested = self._connection.in_transaction
        try:
            self._connection.execute("SAVEPOINT sealpoint" if self._nested else "BEGIN IMMEDIATE")
        except BaseException as error:
            if not isinstance(error, sqlite3.Error):  # Ctrl-C, when it was done: nobody else would end it
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
                self._connection.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        # SQLite itself may have rolled back already, on a full disk for instance.
        if self._connection.in_transaction:
            undo = ("ROLLBACK TO sealpoint", "RELEASE sealpoint") if self._nested else ("ROLLBACK",)
            for statement in undo:
                self._connection.execute(statement)


async def off_the_loop(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on a worker thread, so that the event loop goes on.

    A task that is cancelled meanwhile waits for the thread, which cannot be stopped: else the
    connection might be closed under it, which SQLite would not survive.
    """
    import asyncio  # whoever awaits this has it; for all others it is a third of the import

    call = partial(copy_context().run, function, *arguments)
    work = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        work.exception()  # nobody asks any more
        raise


@contextmanager
def own_words() -> Iterator[None]:
    """Raise our own errors for what a hostile file makes SQLite say, which may quote it at any length."""
    try:
        yield
    except _FOREIGN as error:
        raise _in_own_words(error) from None


_FOREIGN: Final = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)


def _in_own_words(error: Exception) -> Exception:
    """Return our own error for one of SQLite's; itself, if it tells nothing of the file."""
    if isinstance(error, UnicodeDecodeError):
        return SchemaError("the schema holds text that is not UTF-8")
    if isinstance(error, MemoryError):  # a damaged file may ask for any amount
        return DamagedFileError("SQLite finds no memory for what the file asks for")
    code, text = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF, str(error)
    if code == sqlite3.SQLITE_TOOBIG:
        return RowError(f"a row has over {MAX_VALUE_BYTES} bytes")
    if text.startswith("Could not decode to UTF-8"):
        return TextError("a row holds text that is not UTF-8")
    if text.startswith("malformed JSON"):
        return MetadataError("metadata that the filter looks into is not JSON")
    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or text.startswith("unsupported file")
    return DamagedFileError(f"SQLite cannot read the file: {excerpt(text)}") if damaged else error


class Budget:
    """How much of a query is taken into memory.

    Attributes:
        spent: Whether there was more than that.
    """

    def __init__(self, rows: int, size_bytes: int) -> None:
        """Begin with room for ``rows`` and, of their texts and values, ``size_bytes``."""
        self._rows, self._bytes = rows, size_bytes
        self.spent = False

    def take(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        """Return the rows that fit, and the one with which there is no room for another."""
        taken: list[tuple[Any, ...]] = []
        rows, size_bytes = self._rows, self._bytes
        for row in cursor:
            if taken and (rows <= 0 or size_bytes < 0):
                self.spent = True
                break
            taken.append(row)
            rows -= 1
            for column in row:
                if type(column) is bytes or type(column) is str:
                    size_bytes -= len(column)
        return taken
