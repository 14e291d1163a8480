"""One SQLite connection, shared by threads and, through its file, by processes."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

from sealpoint.errors import (
    DamagedFileError,
    EndlessTreeError,
    MetadataError,
    RowError,
    SchemaError,
    TextError,
    excerpt,
)
from sealpoint.sqlite import guard, schema
from sealpoint.sqlite.query import add_functions

Result = TypeVar("Result")

BUSY_TIMEOUT_MS: Final = 60_000
"""How long a write waits for other processes before it gives up."""

MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
"""The largest row, value or text that is read or written; SQLite would go to four times that."""


class Session:
    """One transaction of ours on a connection: what its queries find belongs together."""

    __slots__ = ("_database", "cursor")

    def __init__(self, database: Database, cursor: sqlite3.Cursor) -> None:
        """Work on ``cursor``, for ``database``."""
        self._database = database
        self.cursor = cursor

    @property
    def has_task_path(self) -> bool:
        """Whether ``writes`` has the column."""
        return self._database.has_task_path

    def read(
        self, statement: str, parameters: Sequence[Any] | dict[str, Any] = (), budget: Budget | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query. See `Database.read`."""
        database, taken = self._database, budget or _UNLIMITED
        while True:
            size_bytes = database.size_bytes
            guard.allow(size_bytes, len(parameters), schema.SUBQUERIES)
            try:
                return taken.take(self.cursor.execute(statement, parameters), size_bytes)
            except (EndlessTreeError, sqlite3.OperationalError) as error:
                if not guard.is_spent(error) or database.look_at_size(self.cursor) <= size_bytes:
                    raise  # the file has not grown since its size was last looked at

    def row(self, statement: str, parameters: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the first row of a query that finds it by its key."""
        found: tuple[Any, ...] | None = self.cursor.execute(statement, parameters).fetchone()
        return found

    def run(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement that changes something for each of ``rows``."""
        guard.allow(self._database.size_bytes + _BYTES_PER_ROW * len(rows))
        self.cursor.executemany(statement, rows)


class Database:
    """Guards a connection: one statement at a time, and each in a transaction of a schema that was checked.

    Attributes:
        size_bytes: How much the file could hold when it was last looked at.
        has_task_path: Whether ``writes`` has the column, which older databases lack.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Take over ``connection``. Nothing is read or written before the first use."""
        self.connection = connection
        self.lock = threading.RLock()
        self.is_setup = False
        self.has_task_path = True
        self.size_bytes = 0
        self._version: int | None = None  # of the schema that was checked
        self._on_thread = getattr(connection, "on_thread", None)  # a connection of aiosqlite has one

    def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function with the plain connection in front, on the thread that it belongs to."""
        if self._on_thread is None:
            return function(self.connection, *arguments)
        result: Result = self._on_thread(function, *arguments)
        return result

    def setup(self) -> None:
        """Make the tables if they are missing, and check them if they are not. Once a connection.

        Raises:
            SchemaError: If they are not what LangGraph or this package made.
        """
        with self.lock:
            if not self.is_setup:
                self._call(self._set_up)

    def close(self) -> None:
        """Close the connection when no statement runs, which SQLite would not survive."""
        with self.lock:
            self.connection.close()

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.set_authorizer(guard.authorize)
        with closing(_own_cursor(connection)) as cursor, own_words(), guard.guarding(connection):
            self._configure(connection, cursor)
            cursor.execute("PRAGMA main.schema_version")
            self._check(cursor, cursor.fetchone()[0])
            self._create(connection, cursor)
        self.is_setup = True

    def _configure(self, connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        """Wait for other processes, trust no schema, and let readers go on while one writes."""
        (timeout_ms,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute(f"PRAGMA busy_timeout = {max(timeout_ms, BUSY_TIMEOUT_MS)}")
        cursor.execute("PRAGMA trusted_schema = OFF")
        add_functions(connection)
        limit = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, MAX_VALUE_BYTES))
        (mode,) = cursor.execute("PRAGMA main.journal_mode").fetchone()
        if mode not in ("wal", "memory") and not connection.in_transaction:
            self._switch_log_on(cursor)

    def _switch_log_on(self, cursor: sqlite3.Cursor) -> None:
        try:
            cursor.execute("PRAGMA main.journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            # What may only be read stays as it is. For what is busy SQLite does not wait here: another
            # process is switching, and this connection will see it; or it works without until one has.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
                raise

    def _check(self, cursor: sqlite3.Cursor, version: int) -> None:
        """Check the tables, which are good until the schema has another version."""
        self._version = None
        schema.require_tables(cursor)
        self.has_task_path = schema.has_task_path(cursor)
        self.look_at_size(cursor)
        self._version = version

    def _require_checked(self, cursor: sqlite3.Cursor) -> None:
        """Check the tables again if the schema has changed: inside of the transaction that relies on it."""
        cursor.execute("PRAGMA main.schema_version")
        (version,) = cursor.fetchone()
        if version != self._version:
            self._check(cursor, version)

    def look_at_size(self, cursor: sqlite3.Cursor) -> int:
        """Return how much the file can hold now, with its log."""
        (pages,) = cursor.execute("PRAGMA main.page_count").fetchone()
        (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
        self.size_bytes = pages * page_bytes
        return self.size_bytes

    def _create(self, connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        tables = schema.existing_tables(cursor)
        has_task_path = "writes" not in tables or self.has_task_path
        if len(tables) == 2 and has_task_path:
            return
        try:
            with _Transaction(connection):
                cursor.execute(schema.CREATE_CHECKPOINTS)
                cursor.execute(schema.CREATE_WRITES)
                if not schema.has_task_path(cursor):
                    cursor.execute(schema.ADD_TASK_PATH)
        except sqlite3.OperationalError as error:
            # An older database that may only be read is read as it is.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY or len(tables) < 2:
                raise

    def write(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of ``rows``, in a transaction."""
        self.change(lambda session: session.run(statement, rows))

    def change(self, work: Callable[[Session], Result]) -> Result:
        """Return what ``work`` does in a transaction that writes, alone on the connection."""
        with self.lock:
            if not self.is_setup:
                self.setup()
            found: Result = self._call(self._change, work)
            return found

    def _change(self, connection: sqlite3.Connection, work: Callable[[Session], Result]) -> Result:
        cursor = _own_cursor(connection)
        guard.begin(connection)
        try:
            with _Transaction(connection):
                self._require_checked(cursor)
                found: Result = work(Session(self, cursor))
            return found
        except _FOREIGN as error:
            guard.raise_cause(error)
            raise _in_own_words(error) from None
        finally:
            guard.end(connection)
            cursor.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Cursor]:
        """Give a cursor for statements of the application, in a transaction, alone on the connection."""
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
            SchemaError: If the tables have changed, and are not what they should be any more.
        """
        return self.together(lambda session: session.read(statement, parameters, budget))

    def together(self, work: Callable[[Session], Result]) -> Result:
        """Return what ``work`` reads, all of it from one state of the database."""
        with self.lock:
            if not self.is_setup:  # asked here, which saves a call and a second lock
                self.setup()
            found: Result = self._call(self._together, work)
            return found

    def _together(self, connection: sqlite3.Connection, work: Callable[[Session], Result]) -> Result:
        # One function, because it is the whole cost of a small read beside SQLite's.
        cursor = _own_cursor(connection)
        is_ours = not connection.in_transaction  # else the application has one open
        guard.begin(connection)
        try:
            if is_ours:
                cursor.execute("BEGIN")
            self._require_checked(cursor)
            found = work(Session(self, cursor))
            if is_ours:
                cursor.execute("COMMIT")
        except _FOREIGN as error:
            guard.raise_cause(error)
            raise _in_own_words(error) from None
        finally:
            if is_ours and connection.in_transaction:
                cursor.execute("ROLLBACK")
            guard.end(connection)
            cursor.close()  # see `open_cursor`
        return found


def _own_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor whose rows are tuples, and whose text is `str`, whatever the application has set."""
    factory = connection.text_factory
    if factory is not str and not isinstance(factory, _Text):
        connection.text_factory = _Text(factory)
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


class _Text:
    """A text factory: the application's, except on a thread that runs a statement of ours.

    SQLite's module has one for a connection, and asks for it when a row is fetched.
    """

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __call__(self, text: bytes) -> Any:
        if not guard.is_ours():
            return self._theirs(text)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise TextError("a row holds text that is not UTF-8") from None


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


_BYTES_PER_ROW: Final = 100  # of opcodes for a row that is written
_FOREIGN: Final = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)


def _in_own_words(error: Exception) -> Exception:
    """Return our own error for one of SQLite's; itself, if it tells nothing of the file."""
    if isinstance(error, UnicodeDecodeError):
        return SchemaError("the schema holds text that is not UTF-8")
    if isinstance(error, MemoryError):  # a damaged file may ask for any amount
        return DamagedFileError("SQLite finds no memory for what the file asks for")
    code, text = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF, str(error)
    if code == sqlite3.SQLITE_AUTH:
        return SchemaError("a trigger or a view would have run with one of our statements")
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

    def take(self, cursor: sqlite3.Cursor, most_bytes: int = sys.maxsize) -> list[tuple[Any, ...]]:
        """Return the rows that fit, and the one with which there is no room for another.

        Args:
            cursor: Has executed the query.
            most_bytes: What the file can hold.

        Raises:
            EndlessTreeError: If they have more bytes than that.
        """
        taken: list[tuple[Any, ...]] = []
        rows, room = self._rows, min(self._bytes, most_bytes)
        size_bytes, self.spent = room, False
        for row in cursor:
            if taken and (rows <= 0 or size_bytes < 0):
                self.spent = True
                break
            taken.append(row)
            rows -= 1
            for column in row:
                if type(column) is bytes or type(column) is str:
                    size_bytes -= len(column)
        if room - size_bytes > most_bytes:
            raise EndlessTreeError("the rows of a table are more than the file can hold")
        return taken


_UNLIMITED: Final = Budget(sys.maxsize, sys.maxsize)
