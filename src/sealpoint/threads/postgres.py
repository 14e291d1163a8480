"""PostgresThreadStore: a thread store in a schema of a Postgres database, for the processes of many hosts."""

from __future__ import annotations

import math
import os
import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealpoint.errors import (
    SharedRoleError,
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreFullError,
    ThreadStoreMissingError,
    ThreadStoreTimeoutError,
    excerpt,
)
from sealpoint.forks import inherited, reset_in_child
from sealpoint.postgres import (
    LOST,
    OWN_PARTS,
    READ_ONLY,
    address_of,
    parts_of,
    refusal_of,
    require_psycopg,
    settle,
    state_of,
    watched_connection,
)
from sealpoint.seal.heads import Head, Kind, Special
from sealpoint.seal.places import Spot
from sealpoint.threads import pgstatements as statements
from sealpoint.threads.database import AFTER, END, DatabaseStore
from sealpoint.threads.store import TIMEOUT_SECONDS, Answer
from sealpoint.urls import URL_HINT

if TYPE_CHECKING:
    from psycopg import Connection

Result = TypeVar("Result")

MAX_IDLE: Final = 8  # how many connections are kept open; threads that call at the same time may have more

# How much longer than the server this process waits, so that the server can report its own time limit
GRACE_SECONDS: Final = 0.5

_SETTINGS: Final = {
    # Each statement has one good plan, by the index; planning takes longer than running it.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}
_IDLE: Final = 0  # libpq's PQTRANS_IDLE

_BINARY: Final = 1  # the format of a parameter

_FORBIDDEN: Final = "42501"
_REACH_HINT: Final = "check that psql connects with the same URL; if not, the server's log has the reason"
_GRANT_HINT: Final = (
    "name the primary server, and a role that may SELECT from the tables, INSERT into heads and specials, and"
    " UPDATE the column gone of heads"
)

_Translation = tuple[type[ThreadStoreError], str, str | None]
_LATE: Final[_Translation] = (ThreadStoreTimeoutError, "the server did not answer within {:g} s", None)
_ABSENT: Final[_Translation] = (ThreadStoreMissingError, "its tables do not exist", None)
# Our error, its text and its hint by SQLSTATE
_ERRORS: Final[dict[str, _Translation]] = {
    "57014": _LATE,  # a statement
    "55P03": _LATE,  # a lock
    READ_ONLY: (ThreadStoreError, "the server allows this session only to read", _GRANT_HINT),
    _FORBIDDEN: (ThreadStoreError, "the role lacks a permission", _GRANT_HINT),
    "53100": (ThreadStoreFullError, "the disk of the server is full", None),
    "42P01": _ABSENT,
    "3F000": _ABSENT,
    LOST: (ThreadStoreDownError, "the connection is lost", _REACH_HINT),
}


class Pool:
    """Connections to one server, opened on demand; ``prepare`` is called with each new connection.

    psycopg_pool is not used: its threads, which open and check connections, do not exist after a fork, and it
    has no time limit for a whole call.
    """

    def __init__(self, conninfo: str, timeout: float, prepare: Callable[[Connection[Any]], None]) -> None:
        parts = parts_of(conninfo)
        if parts is None:
            raise ThreadStoreDownError("the URL of the thread store cannot be parsed", hint=URL_HINT)
        shown = " ".join(f"{part}={value}" for part, value in address_of(parts).items() if value)
        self.name = f"thread store {excerpt(shown or 'on the default server')}"  # for messages
        self._parts = parts
        self._timeout, self._prepare = timeout, prepare
        self._idle: list[Any] = []
        self._closed = 0  # number of calls of `close`
        self._lock = threading.Lock()
        reset_in_child(self)
        weakref.finalize(self, _close_all, self._idle)  # at the end of the process, too

    def read(self, work: Callable[..., Result], *arguments: Any, is_read: bool = True) -> Result:
        """Call ``work`` with a connection and ``arguments``; repeat the call if the connection is lost.

        ``is_read`` is false if ``work`` needs the right to write.
        """
        connection = self._take()
        try:
            with self._using(connection, is_read=is_read):
                return work(connection, *arguments)
        except ThreadStoreDownError:
            if not connection.broken:
                raise
        with self._using(self._connect(), is_read=is_read) as connection:
            return work(connection, *arguments)

    def writing(self) -> AbstractContextManager[Any]:
        """Return a context manager that provides a connection. Its block is not repeated after an error."""
        return self._using(self._take(), is_read=False)

    def close(self) -> None:
        """Close the connections that are idle now, and the others when their calls end."""
        with self._lock:
            self._closed += 1
        _close_all(self._idle)

    def reset_after_fork(self) -> None:
        """Forget the connections and the lock of the parent."""
        inherited.extend(self._idle)  # closing one would end the session of the parent
        self._idle.clear()
        self._lock = threading.Lock()

    @contextmanager
    def _using(self, connection: Any, *, is_read: bool) -> Iterator[Any]:
        connection.extend(self._timeout)
        try:
            yield connection
        except require_psycopg().Error as error:
            raise self._translated(error, is_read=is_read) from None
        except BaseException as error:
            if not isinstance(error, ThreadStoreError):
                connection.close()
            raise
        finally:
            self._give(connection)

    def _take(self) -> Any:
        """Return an idle connection that is not known to be closed, or else a new connection."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            # Input that no statement requested means that the server ended the session.
            if not connection.closed and not connection.input.poll(0):
                return connection
            connection.close()

    def _give(self, connection: Any) -> None:
        """Keep a connection for another call, unless it is lost or closed, or still runs a statement."""
        if connection.broken:
            return
        is_idle = connection.pgconn.transaction_status == _IDLE
        with self._lock:
            if is_idle and connection.closed_before == self._closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Any:
        psycopg, closed_before = require_psycopg(), self._closed
        milliseconds = max(1, int(self._timeout * 1000))
        limits = {
            "connect_timeout": str(max(2, math.ceil(self._timeout))),  # libpq's least is two seconds
            "tcp_user_timeout": str(milliseconds),
            "keepalives_idle": "30",
        }
        timeouts = dict.fromkeys(("statement_timeout", "lock_timeout"), f"{milliseconds}ms")
        try:
            connection = _connection_class().connect(**(self._parts | limits | OWN_PARTS), autocommit=True)
        except psycopg.errors.ConnectionTimeout:
            raise ThreadStoreTimeoutError(f"{self.name}: the server does not answer") from None
        except (psycopg.Error, UnicodeError) as error:
            refusal = refusal_of(str(error))
            what = f"{self.name}: no connection: {refusal.reason if refusal else type(error).__name__}"
            raise ThreadStoreDownError(what, hint=refusal.hint if refusal else _REACH_HINT) from None
        connection.extend(self._timeout)
        connection.closed_before = closed_before
        try:
            settle(connection, _SETTINGS | timeouts)
            self._prepare(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, psycopg.Error):
                raise self._translated(error, is_read=True) from None
            raise
        return connection

    def _translated(self, error: Any, *, is_read: bool) -> ThreadStoreError:
        """Return sealpoint's error for a server's error; omit the server's text, which may contain values."""
        code = state_of(error)
        unknown = ThreadStoreDownError, f"{type(error).__name__} (SQLSTATE {code or 'none'})", None
        kind, what, hint = _ERRORS.get(code, unknown)
        if code == _FORBIDDEN and is_read:
            kind, what = ThreadStoreDownError, "the role may not read it"
        return kind(f"{self.name}: {what.format(self._timeout)}", hint=hint)


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


@cache
def _connection_class() -> Any:
    """Return a subclass of psycopg's connection that ends a call if the server does not answer in time.

    A connection has one cursor for all statements: creating a cursor takes as long as a small statement.
    """
    psycopg = require_psycopg()

    class LimitedConnection(watched_connection()):  # type: ignore[misc]
        until = math.inf

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.own_cursor = self.cursor(binary=True)
            self.prepared: dict[bytes, bytes] = {}
            self.input = select.poll()
            self.input.register(self.fileno(), select.POLLIN)

        def extend(self, seconds: float) -> None:
            """Let the next statement take ``seconds``, plus time for the server to report its own limit."""
            self.until = time.monotonic() + seconds + GRACE_SECONDS

        def check(self, ready: bool) -> None:
            if not ready and time.monotonic() > self.until:
                raise ThreadStoreTimeoutError("the server of the thread store does not answer")

        def insert(self, statement: bytes, values: Sequence[bytes]) -> int:
            """Execute an INSERT without a cursor, in a third of the time; return the number of rows."""
            name = self.prepared.get(statement)
            if name is None:
                name = b"sealpoint_%d" % len(self.prepared)
                self.pgconn.send_prepare(name, statement)
                self._result()
                self.prepared[statement] = name
            self.pgconn.send_query_prepared(name, [*values], [_BINARY] * len(values))
            return int(self._result().command_tuples or 0)

        def _result(self) -> Any:
            (result,) = self.wait(psycopg.generators.execute(self.pgconn))
            if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
                raise psycopg.errors.error_from_result(result)
            return result

    return LimitedConnection


FLUSHED_EVENTS: Final = 64  # number of calls that append events before one waits for the disk

SCHEMA: Final = "sealpoint_threads"

APPEND_ROWS: Final = 10_000  # how many rows `adopt` sends at a time

_HAS_ROWS: Final = 2  # libpq's PGRES_TUPLES_OK


class PostgresThreadStore(DatabaseStore):
    """A thread store in Postgres. `ThreadStore` describes the methods.

    The role needs SELECT on the tables of the schema, INSERT on ``heads`` and ``specials``, and UPDATE on the
    column ``gone`` of ``heads``. The role of commands that adopt, trim or compare pins must own the tables,
    and so must the first role that opens a store of an earlier version.

    Attributes:
        identity: Identifier of this store in sealed values: 32 hex digits.

    Example:
        >>> from sealpoint.threads import PostgresThreadStore
        >>> threads = PostgresThreadStore("service=threads", create=True)  # doctest: +SKIP
    """

    _statements, _names, _encoded = statements, (bytes, bytes, bytes), staticmethod(statements.encoded)

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = SCHEMA,
        create: bool = False,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Open a thread store.

        Args:
            conninfo: The database, as a URL of libpq or ``service=NAME``. On the server of the checkpoints,
                use a role that is not the saver's role, and that the saver's role cannot become.
            schema: The schema of the tables.
            create: Whether to create the schema and the tables if there are none.
            timeout: Time limit of each call of a method, in seconds; to open a connection, at least two.

        Raises:
            ThreadStoreError: If the store cannot be reached, or is not a thread store.
            MissingExtraError: If psycopg is not installed.
        """
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise ThreadStoreError("the schema name of the thread store must consist of a-z, 0-9 and _")
        self._schema, self._claim, self._appended = schema, 0, 0
        self.identity = ""
        self._creates = create
        self._pool = Pool(conninfo, timeout, self._open)
        try:
            self.identity = self._pool.read(self._identify)
        except BaseException:
            self._pool.close()
            raise
        self._creates = False

    @property
    def claim(self) -> int:
        """Clock up to which all events are flushed to the disk; a power failure may undo later events."""
        return self._claim

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        return self._answer(self._rows(statements.NEWEST, self._encoded(thread_id, checkpoint_ns)))

    def find(self, spots: Sequence[Spot]) -> Answer:
        wanted = [self._encoded(*spot) for spot in dict.fromkeys(spots)]
        columns = [[spot[column] for spot in wanted] for column in range(3)]
        return self._answer(self._rows(statements.FIND, columns))

    def require_writable(self) -> None:
        if not self._appended:  # earlier events of other processes are flushed, too, for `claim`
            rows = self._pool.read(self._execute_flushed, statements.MARK, is_read=False)
            self._claim, self._appended = self._clock([row[:2] for row in rows]), 1
        statement = _text(statements.REQUIRE_WRITABLE, self._schema)
        self._pool.read(lambda connection: connection.insert(statement, ()), is_read=False)

    def require_apart(self, lock: int, roles: Sequence[str]) -> None:
        """Check that no role that a saver's session has, or can become, may write to this store.

        Args:
            lock: Number of an advisory lock that the saver's session holds. If this connection sees the
                lock, both sessions are in the same cluster; otherwise no role is refused.
            roles: Names of the roles of the saver's session.

        Raises:
            SharedRoleError: If such a role may write to the store.
        """
        halves = lock >> 32, lock & 0xFFFFFFFF  # as pg_locks shows it
        for role, right in self._rows(statements.WRITER, (roles, *halves)):
            raise SharedRoleError(role, right, hint=statements.HINT.format(schema=self._schema))

    def append(self, heads: Sequence[Head]) -> None:
        if not heads:
            return
        # A deletion is flushed before the database deletes rows: after a power failure it would else lack
        # rows that the store still remembers. Other events are flushed now and then, for `claim`.
        is_put = all(head.kind is Kind.PUT for head in heads)
        flushed = not is_put or self._appended % FLUSHED_EVENTS == 0
        with self._pool.writing() as connection:
            if len(heads) == 1 and not flushed:
                ((spot, _, mac),) = heads
                values = (*self._encoded(*spot), mac)
                if not connection.insert(_text(statements.APPEND_PUT, self._schema), values):
                    self._clock([])
            else:
                run = self._execute_flushed if flushed else self._execute
                statement = statements.APPEND if is_put else statements.APPEND_ANY
                clock = self._clock(run(connection, statement, statements.columns_of(heads)))
                if flushed:
                    self._claim = max(self._claim, clock)
        self._appended += 1

    def last_special(self) -> int:
        ((last,),) = self._pool.read(self._execute, statements.LAST_SPECIAL, is_read=False)
        return int(last)

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        columns = statements.special_columns([(spot, specials)])
        with self._pool.writing() as connection:
            self._execute(connection, statements.APPEND_SPECIALS, columns)

    def _execute_flushed(self, connection: Connection[Any], *arguments: Any) -> list[tuple[Any, ...]]:
        with connection.transaction():
            self._execute(connection, statements.FLUSH)
            return self._execute(connection, *arguments)

    def end(self) -> int:
        """Wait until running transactions that append have ended; return the number of the last event."""
        # Waits for transactions that have a number, and may commit later. Only a role that may change the
        # table may lock it.
        with self._pool.writing() as connection, connection.transaction():
            self._execute(connection, statements.LOCK)
            ((number,),) = self._execute(connection, END)
        return int(number)

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        rest, events = iter([*heads]), iter([*specials])
        with self._pool.writing() as connection, self._long(connection):
            while batch := [*islice(rest, APPEND_ROWS)]:
                connection.extend(statements.LONG_SECONDS)
                self._clock(self._execute(connection, statements.APPEND_ANY, statements.columns_of(batch)))
            while also := [*islice(events, APPEND_ROWS)]:
                connection.extend(statements.LONG_SECONDS)
                self._execute(connection, statements.APPEND_SPECIALS, statements.special_columns(also))
            for name in sorted(identities):
                self._execute(connection, statements.NAME, (name,))
            self._execute(connection, statements.RAISE, (clock,))
            self._execute(connection, statements.RECORD, (reason,))

    def _trim_page(self, before: int, after: Sequence[bytes], most: int) -> list[tuple[Any, ...]]:
        conditions = f"WHERE {AFTER}" if after else ""
        with self._pool.writing() as connection, self._long(connection):
            return self._execute(connection, statements.TRIM, (*after, most, before), conditions)

    @contextmanager
    def _long(self, connection: Any) -> Iterator[None]:
        """Run a block in a transaction with the long time limit of maintenance for each statement."""
        connection.extend(statements.LONG_SECONDS)
        with connection.transaction():
            self._execute(connection, statements.LONG)
            yield

    def close(self) -> None:
        """Close the connections; a later call opens new connections."""
        self._pool.close()

    def _rows(
        self, statement: str, values: Sequence[Any] = (), conditions: str = ""
    ) -> list[tuple[Any, ...]]:
        return self._pool.read(self._execute, statement, values, conditions)

    def _execute(
        self, connection: Any, statement: str, values: Sequence[Any] = (), conditions: str = ""
    ) -> list[tuple[Any, ...]]:
        cursor = connection.own_cursor.execute(_text(statement, self._schema, conditions), values)
        if cursor.pgresult.status != _HAS_ROWS:
            return []
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _open(self, connection: Any) -> None:
        if self._creates:
            self._create(connection)
        found = self._tables(connection)
        if found == statements.FIRST_COLUMNS:
            self._upgrade(connection)
            found = self._tables(connection)
        if not found:
            raise ThreadStoreMissingError(f"{self._pool.name}: its tables do not exist")
        if found != statements.COLUMNS:
            raise self._damaged("its tables are not those of a thread store")
        self._execute(connection, statements.NO_FLUSH)  # heads need no more durability than checkpoints
        if self.identity not in ("", self._identify(connection)):
            raise self._damaged("another thread store has taken its place")

    def _create(self, connection: Any) -> None:
        with connection.transaction():
            self._execute(connection, statements.LOCK_CREATION)
            if self._tables(connection):
                return
            if not self._execute(connection, statements.HAS_SCHEMA, (self._schema,)):
                self._execute(connection, statements.CREATE_SCHEMA)
            for statement in (*statements.CREATE, *statements.UPGRADE):
                self._execute(connection, statement)
            identity = os.urandom(16).hex()
            self._execute(connection, statements.FILL, (statements.VERSION, identity))
            self._execute(connection, statements.NAME, (identity,))

    def _upgrade(self, connection: Any) -> None:
        psycopg = require_psycopg()
        try:
            with connection.transaction():
                self._execute(connection, statements.LONG)
                self._execute(connection, statements.LOCK_CREATION)
                ((version, _),) = self._execute(connection, statements.IDENTITY)
                for statement in statements.UPGRADE if version == 1 else ():  # another process may be faster
                    connection.extend(statements.LONG_SECONDS)
                    self._execute(connection, statement)
                self._execute(connection, statements.SET_VERSION)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            what = f"{self._pool.name}: it is of an earlier version, and this role may not upgrade it"
            raise ThreadStoreError(what, hint=statements.UPGRADE_HINT) from None

    def _tables(self, connection: Connection[Any]) -> dict[str, str | None]:
        """Return each table's columns as text; ``None`` for a view, or with triggers, rules or policies."""
        rows = self._execute(connection, statements.TABLES, (self._schema,))
        return {name: columns if is_plain else None for name, is_plain, columns in rows}

    def _identify(self, connection: Connection[Any]) -> str:
        rows = self._execute(connection, statements.IDENTITY)
        if len(rows) != 1 or rows[0][0] != statements.VERSION:
            raise self._damaged("it has no version that this sealpoint reads")
        return str(rows[0][1])

    def _damaged(self, what: str) -> ThreadStoreDownError:
        return ThreadStoreDownError(f"{self._pool.name}: {what}", hint=statements.DAMAGED_HINT)


@cache
def _text(statement: str, schema: str, conditions: str = "") -> bytes:
    parts = {"schema": f'"{schema}".', "name": schema, "records": statements.RECORDS}
    return statement.format(**parts, conditions=conditions).replace("?", "%s").encode()
