"""One SQLite connection, which threads share; processes share its file."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sealpoint.errors import (
    ConfigError,
    EndlessTreeError,
    ForkedError,
    SchemaError,
    SealpointError,
    TextError,
)
from sealpoint.forks import close_at_fork, inherited
from sealpoint.guards import statements, tables
from sealpoint.guards.files import (
    BUSY_TIMEOUT_MS,
    open_file,
    prepare,
    reopen_file,
    require_whole,
    switch_log_on,
)
from sealpoint.guards.limits import UNLIMITED, Budget, capacity_bytes
from sealpoint.guards.statements import FOREIGN, translate_errors, translated
from sealpoint.locks import take
from sealpoint.sqlite import schema


def own_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor that returns tuples and `str`, whatever factories the application has set."""
    factory = connection.text_factory
    if factory is not str and not isinstance(factory, _Text):
        connection.text_factory = _Text(factory)
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


class _Text:
    """The text factory of the application, except on a thread that runs a statement of this package.

    Python's sqlite3 has one text factory per connection, and calls it when a row is fetched.
    """

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs

    def __call__(self, text: bytes) -> Any:
        if not statements.is_ours():
            return self._theirs(text)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise TextError("a row contains text that is not UTF-8") from None


@contextmanager
def transaction(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> Iterator[None]:
    """Commit all changes of a block, or none if it raises; ``cursor`` runs the transaction's own statements.

    The write lock is taken at the start: a transaction that reads first and then writes
    fails at once if another process has written in between. In a transaction that the
    caller left open, a savepoint groups the block's changes, and the commit includes both.
    """
    is_nested = connection.in_transaction
    undo = ("ROLLBACK TO sealpoint", "RELEASE sealpoint") if is_nested else ("ROLLBACK",)
    has_begun = True
    try:
        try:
            cursor.execute("SAVEPOINT sealpoint" if is_nested else "BEGIN IMMEDIATE")
        except sqlite3.Error:  # not Ctrl-C, which may come after BEGIN
            has_begun = False
            raise
        yield
        if is_nested:
            connection.commit()
        else:  # where commit() would do nothing if the connection has autocommit=True
            cursor.execute("COMMIT")
    except BaseException:
        # SQLite itself may have rolled back already, on a full disk for instance.
        if has_begun and connection.in_transaction:
            for statement in undo:
                cursor.execute(statement)
        raise


Result = TypeVar("Result")
Saver = TypeVar("Saver", bound="_Saver")

# What begins a transaction
READ: Final = "BEGIN"
WRITE: Final = "BEGIN IMMEDIATE"  # reading first and then writing fails if another process has written

_VERSION: Final = "PRAGMA main.schema_version"
_BYTES_PER_ROW: Final = 100  # opcodes per written row


class _Saver(Protocol):
    _database: Database


class Session:
    """One transaction on a connection: all queries in it see the same state of the database."""

    __slots__ = ("cursor", "database")

    def __init__(self, database: Database, cursor: sqlite3.Cursor) -> None:
        self.database = database
        self.cursor = cursor

    def read(
        self, statement: str, parameters: Sequence[Any] | dict[str, Any] = (), budget: Budget | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query. See `Database.read`."""
        database, taken = self.database, budget or UNLIMITED
        while True:
            size_bytes = database.size_bytes
            statements.allow(size_bytes, len(parameters), schema.SUBQUERIES)
            try:
                return taken.take(self.cursor.execute(statement, parameters), size_bytes)
            except (EndlessTreeError, sqlite3.OperationalError) as error:
                if not statements.is_spent(error) or database.look_at_size(self.cursor) <= size_bytes:
                    raise  # the file has not grown since the last check of its size

    def run_once(self, statement: str, parameters: Sequence[Any]) -> None:
        """Run a statement that writes a few rows; the budget of opcodes is that of the transaction."""
        self.cursor.execute(statement, parameters)

    def run(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement that writes, once with each of ``rows`` as parameters."""
        statements.allow(self.database.size_bytes + _BYTES_PER_ROW * len(rows))
        self.cursor.executemany(statement, rows)


def refuse_connection(given: object) -> ConfigError:
    """Return the error for an argument of a saver that is not a connection."""
    return ConfigError(
        f"{type(given).__name__} is not a connection of sqlite3 or aiosqlite",
        hint="open a file by its path: SqliteSaver.from_conn_string(PATH), in a `with`",
    )


def open_for(make: Callable[[sqlite3.Connection], Saver], conn_string: str) -> Saver:
    """Return ``make(connection)`` for a new connection, which is closed if ``make`` raises."""
    is_file, file = conn_string not in ("", ":memory:"), os.path.realpath(conn_string)
    if is_file:
        connection = open_file(file, "mode=rwc", isolation_level="")
    else:
        connection = sqlite3.connect(conn_string, check_same_thread=False)
    try:
        saver = make(connection)
        saver._database.own_file = file if is_file else None
        return saver
    except BaseException:
        connection.close()
        raise


class Database:
    """Guards a connection: one statement at a time, each in a transaction with a checked schema.

    Nothing is read or written before the first use.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        if not hasattr(connection, "cursor"):
            raise refuse_connection(connection)
        self.connection = connection
        self.own_file: str | None = None  # the file of a connection that this package opened
        self._is_closed, self._quiet = False, list[bool]()  # while the process forks
        self.lock = threading.RLock()
        self.is_setup = False
        self._is_inherited = False
        self.has_task_path = True
        self.size_bytes = 0
        self._file: Path | None = None
        self._version: int | None = None  # version of the checked schema
        self._tables = set[str]()  # which of the two tables exist
        self._session: Session | None = None  # of `_work`: creating a cursor takes as long as a small query
        self._handler = statements.make_handler()
        self._on_thread = getattr(connection, "on_thread", None)  # only connections of aiosqlite have one
        close_at_fork(self)

    def before_fork(self) -> None:
        """Close a connection that this package opened, if no transaction is open: see `sealpoint.forks`."""
        if self.own_file is None or self._is_closed:
            return
        take(self.lock, BUSY_TIMEOUT_MS / 1000, self._quiet)
        if True in self._quiet and not self.connection.in_transaction:
            self._session, self._version, self.is_setup, self._is_closed = None, None, False, True
            self.connection.close()

    def after_fork(self) -> None:
        """Open the file again, because others share the connection, and unblock other threads."""
        quiet, self._quiet = self._quiet, []
        if True in quiet:
            try:
                with suppress(SealpointError, OSError, sqlite3.Error):  # the next use raises it
                    self._reopen()
            finally:
                self.lock.release()

    def _reopen(self) -> None:
        if self._is_closed and self.own_file is not None:
            reopen_file(self.connection, self.own_file, "mode=rw", isolation_level="")
            self._is_closed = False

    def reset_after_fork(self) -> None:
        """Refuse every later use: SQLite forbids to use or close the connection of the parent."""
        inherited.append(self.connection)
        self.lock, self._quiet = threading.RLock(), []
        self.is_setup, self._is_inherited = False, True  # so that each use calls `setup`

    def setup(self) -> None:
        """Create missing tables, and check existing ones; once per connection."""
        with self.lock:
            if self._is_inherited:
                raise ForkedError("SqliteSaver")
            if self.is_setup:
                return
            self._reopen()
            if self._on_thread is None:
                self._set_up(self.connection)
            else:
                self._on_thread(self._set_up)

    def close(self) -> None:
        """Close the connection once no statement runs: closing it earlier would crash SQLite."""
        with self.lock:
            if not self._is_inherited:
                self.own_file = None
                if not self._is_closed:
                    self.connection.close()

    def _set_up(self, connection: sqlite3.Connection) -> None:
        with translate_errors():
            self._file = prepare(connection)
        with closing(own_cursor(connection)) as cursor, translate_errors(), statements.guarding(connection):
            (timeout_ms,) = cursor.execute("PRAGMA busy_timeout").fetchone()
            cursor.execute(f"PRAGMA busy_timeout = {max(timeout_ms, BUSY_TIMEOUT_MS)}").fetchall()
            statements.add_check(connection)
            schema.add_functions(connection)
            require_whole(cursor, self._file)
            switch_log_on(cursor)
            self._check(cursor)
            self._create(connection, cursor)
        self.is_setup = True

    def _check(self, cursor: sqlite3.Cursor) -> None:
        """Check the tables if the schema has changed, inside the transaction that relies on it."""
        (version,) = cursor.execute(_VERSION).fetchone()
        if version != self._version:
            self._version = None
            self._tables = tables.require_tables(cursor)
            if self.is_setup and len(self._tables) < 2:
                raise SchemaError("one of the tables 'checkpoints' and 'writes' is missing")
            self.has_task_path = tables.has_task_path(cursor)
            self.look_at_size(cursor)
            self._version = version

    def look_at_size(self, cursor: sqlite3.Cursor) -> int:
        """Return how many bytes the file and its log can hold now."""
        self.size_bytes = capacity_bytes(cursor, self._file)
        return self.size_bytes

    def _create(self, connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
        has_all = len(self._tables) == 2
        if has_all and self.has_task_path:
            return
        try:
            with transaction(connection, cursor):
                cursor.execute(schema.CREATE_CHECKPOINTS)
                cursor.execute(schema.CREATE_WRITES)
                if not tables.has_task_path(cursor):
                    cursor.execute(schema.ADD_TASK_PATH)
        except sqlite3.OperationalError as error:
            # An older read-only database is read without this column.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY or not has_all:
                raise

    @contextmanager
    def cursor(self, *, in_transaction: bool) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor for the application, with exclusive use of the connection.

        The cursor is closed while the lock is held: a garbage-collected cursor would reset its statement,
        which cursors share, possibly while another thread binds parameters to the statement and runs it.
        """
        with self.lock:
            self.setup()
            with closing(self.connection.cursor()) as cursor:
                if in_transaction:
                    with translate_errors(), transaction(self.connection, cursor):
                        yield cursor
                else:
                    yield cursor

    def read(
        self, statement: str, parameters: Sequence[Any] | dict[str, Any] = (), budget: Budget | None = None
    ) -> list[tuple[Any, ...]]:
        """Return all rows of a query. The lock is held during the query, not while rows are used."""
        return self.run(READ, Session.read, statement, parameters, budget)

    def run(self, begin: str, work: Callable[..., Result], *arguments: Any, is_alone: bool = False) -> Result:
        """Run ``work`` in a transaction, with exclusive use of the connection; return its result.

        With ``is_alone``, ``work`` is one statement with the condition `statements.REQUIRE_CHECK`, and runs
        without a transaction.
        """
        with self.lock:
            if not self.is_setup:  # checked here, which saves a call and a second lock
                self.setup()
            if self._on_thread is None:
                return self._work(self.connection, begin, work, arguments, is_alone)
            return self._on_thread(self._work, begin, work, arguments, is_alone)  # type: ignore[no-any-return]

    def _work(
        self,
        connection: sqlite3.Connection,
        begin: str,
        work: Callable[..., Result],
        arguments: Sequence[Any],
        is_alone: bool,
    ) -> Result:
        # One function: besides SQLite it is the whole cost of a small statement.
        if connection.in_transaction:  # the application has an open transaction
            with (
                closing(own_cursor(connection)) as cursor,
                translate_errors(),
                statements.guarding(connection, handler=self._handler),
                transaction(connection, cursor) if begin is WRITE else nullcontext(),
            ):
                self._check(cursor)
                return work(Session(self, cursor), *arguments)
        session, self._session = self._session, None
        if session is None or connection.text_factory is not str:
            session, is_alone = Session(self, own_cursor(connection)), False
        statements.begin(connection, self._handler, unchecked_bytes=self.size_bytes if is_alone else None)
        try:
            if is_alone:  # no transaction is around a statement that was compiled for the present schema
                found = work(session, *arguments)
            else:
                session.cursor.execute(begin)
                self._check(session.cursor)
                found = work(session, *arguments)
                session.cursor.execute("COMMIT")
            self._session = session  # whose last statement has ended
            return found
        except BaseException as error:
            if connection.in_transaction:  # SQLite itself may have rolled back, for instance on a full disk
                session.cursor.execute("ROLLBACK")
            if not isinstance(error, FOREIGN):
                raise
            if not (is_alone and statements.needs_check()):
                statements.raise_cause(error)
                raise translated(error) from None
        finally:
            statements.end(connection)
            if self._session is None:
                session.cursor.close()  # see `cursor`
        return self._work(connection, begin, work, arguments, is_alone=False)
