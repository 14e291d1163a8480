"""Connections to the Postgres server of a thread store: their settings, time limits and errors."""

from __future__ import annotations

import math
import re
import select
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealpoint.errors import (
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreFullError,
    ThreadStoreMissingError,
    ThreadStoreReadOnlyError,
    ThreadStoreTimeoutError,
    excerpt,
)
from sealpoint.forks import inherited, reset_in_child
from sealpoint.postgres.server import require_psycopg, watched_steps

if TYPE_CHECKING:
    from psycopg import Connection

Result = TypeVar("Result")

MAX_IDLE: Final = 8
"""How many connections are kept open; threads that call at the same time may have more."""

GRACE_SECONDS: Final = 0.5
"""How much longer than the server this process waits, so that the server can report its own time limit."""

_SETTINGS: Final = {
    "search_path": "pg_catalog, pg_temp",  # pg_temp is searched first unless it is named
    "row_security": "off",  # an error if a policy would hide rows
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "1min",
    # Each statement has one good plan, by the index; planning takes longer than running it.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "jit": "off",
}
_IDLE: Final = 0
"""libpq's PQTRANS_IDLE."""

_BINARY: Final = 1
"""The format of a parameter."""

_TIMED_OUT: Final = {"57014", "55P03"}  # a statement or a lock
_READ_ONLY: Final = "25006"
_FORBIDDEN: Final = "42501"
_DISK_FULL: Final = "53100"
_NO_TABLE: Final = {"42P01", "3F000"}

_REACH_HINT: Final = "check that psql connects with the same URL; the server's log says why it does not"
_GRANT_HINT: Final = (
    "name the primary server, and a role that may SELECT from the tables, INSERT into heads and specials, and"
    " UPDATE the column gone of heads"
)
ABSENT_HINT: Final = "create it with create=True or `sealpoint heads adopt DB --create`"


class Pool:
    """Connections to one server.

    Attributes:
        name: Host, port and database, for messages: no user, no password, no options.
    """

    def __init__(self, conninfo: str, timeout: float, prepare: Callable[[Connection[Any]], None]) -> None:
        """Connect on demand to ``conninfo``; ``prepare`` is called with each new connection.

        Raises:
            ThreadStoreDownError: If ``conninfo`` cannot be read.
            MissingExtraError: If psycopg is not installed.
        """
        self._parts = _parts(conninfo)
        self.name = f"thread store {_name_of(self._parts)}"
        self._timeout, self._prepare = timeout, prepare
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        reset_in_child(self)

    def read(self, work: Callable[..., Result], *arguments: Any, is_read: bool = True) -> Result:
        """Call ``work`` with a connection and ``arguments``; once more if the connection is lost.

        It may be called twice. ``is_read`` is false if it needs the right to write.

        Raises:
            ThreadStoreError: For an error of the server or of the connection.
        """
        connection = self._take()
        try:
            return self._use(connection, work, arguments, is_read=is_read)
        except ThreadStoreDownError:
            if not connection.broken:
                raise
        return self._use(self._connect(), work, arguments, is_read=is_read)

    def write(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Call ``work`` with a connection and ``arguments``, once.

        Raises:
            ThreadStoreError: For an error of the server or of the connection.
        """
        return self._use(self._take(), work, arguments, is_read=False)

    def close(self) -> None:
        """Close the connections that are idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def reset_after_fork(self) -> None:
        """Forget the connections and the lock of the parent."""
        inherited.extend(self._idle)  # closing one would end the session of the parent
        self._idle, self._lock = [], threading.Lock()

    def _use(
        self, connection: Any, work: Callable[..., Result], arguments: tuple[Any, ...], *, is_read: bool
    ) -> Result:
        connection.extend(self._timeout)
        try:
            result = work(connection, *arguments)
        except require_psycopg().Error as error:
            self._give(connection)
            raise self._translated(error, is_read=is_read) from None
        except ThreadStoreError:
            self._give(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._give(connection)
        return result

    def _take(self) -> Any:
        """Return a connection that the server has not closed, as far as this process knows."""
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect()
            # Input that no statement asked for is the end of the session.
            if not connection.closed and not connection.input.poll(0):
                return connection
            connection.close()

    def _give(self, connection: Any) -> None:
        """Keep a connection for another call, unless it is lost or still runs a statement."""
        if connection.broken:
            return
        with self._lock:
            if connection.pgconn.transaction_status == _IDLE and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Any:
        psycopg = require_psycopg()
        milliseconds = max(1, int(self._timeout * 1000))
        own = {
            "connect_timeout": str(max(2, math.ceil(self._timeout))),  # libpq's least is two seconds
            "tcp_user_timeout": str(milliseconds),
            "keepalives_idle": "30",
            "client_encoding": "utf8",
            "application_name": "sealpoint",
        }
        settings = _SETTINGS | {"statement_timeout": f"{milliseconds}ms", "lock_timeout": f"{milliseconds}ms"}
        try:
            connection = _connection_class().connect(**{**self._parts, **own}, autocommit=True)
        except psycopg.errors.ConnectionTimeout:
            raise ThreadStoreTimeoutError(f"{self.name}: the server does not answer") from None
        except (psycopg.Error, UnicodeError) as error:
            # The message may contain a part of a password, or the name of the role.
            what = f"{self.name}: no connection ({type(error).__name__})"
            raise ThreadStoreDownError(what, hint=_REACH_HINT) from None
        connection.extend(self._timeout)
        try:
            # Qualified, because the search path is only set by this.
            wanted = ", ".join(["pg_catalog.set_config(%s, %s, false)"] * len(settings))
            connection.execute(f"SELECT {wanted}", [part for item in settings.items() for part in item])
            self._prepare(connection)
        except psycopg.Error as error:
            connection.close()
            raise self._translated(error, is_read=True) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _translated(self, error: Any, *, is_read: bool) -> ThreadStoreError:
        """Return our own error for one of a server, without its text, which may contain values."""
        code, kind = error.sqlstate or "", type(error).__name__
        if code in _TIMED_OUT:
            return ThreadStoreTimeoutError(
                f"{self.name}: the server did not answer within {self._timeout:g} s"
            )
        if code == _READ_ONLY:
            return ThreadStoreReadOnlyError(
                f"{self.name}: the server lets this session only read", hint=_GRANT_HINT
            )
        if code == _FORBIDDEN and not is_read:
            return ThreadStoreReadOnlyError(f"{self.name}: the role lacks a permission", hint=_GRANT_HINT)
        if code == _FORBIDDEN:
            return ThreadStoreDownError(f"{self.name}: the role may not read it", hint=_GRANT_HINT)
        if code == _DISK_FULL:
            return ThreadStoreFullError(f"{self.name}: the disk of the server is full")
        if code in _NO_TABLE:
            return ThreadStoreMissingError(f"{self.name}: its tables do not exist", hint=ABSENT_HINT)
        if not code and isinstance(error, require_psycopg().OperationalError):
            return ThreadStoreDownError(f"{self.name}: the connection is lost", hint=_REACH_HINT)
        return ThreadStoreDownError(f"{self.name}: {kind} (SQLSTATE {code or 'none'})")


@cache
def _connection_class() -> Any:
    """Return psycopg's connection, with a time limit in this process: a server may stop without a word.

    It has one cursor for all statements: making one takes as long as executing a small statement.
    """
    psycopg = require_psycopg()

    class LimitedConnection(psycopg.Connection):  # type: ignore[misc,name-defined]
        until = math.inf

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.own_cursor = self.cursor(binary=True)
            self.prepared: dict[bytes, bytes] = {}
            self.input = select.poll()
            self.input.register(self.fileno(), select.POLLIN)

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(watched_steps(gen, self._check), *arguments, **options)

        def extend(self, seconds: float) -> None:
            """Wait so long for the next statement, and as much more for the server to report its limit."""
            self.until = time.monotonic() + seconds + GRACE_SECONDS

        def _check(self, ready: bool) -> None:
            if not ready and time.monotonic() > self.until:
                raise ThreadStoreTimeoutError("the server of the thread store does not answer")

        def insert(self, statement: bytes, values: Sequence[bytes]) -> int:
            """Execute a statement without a cursor, in a third of the time.

            Returns:
                How many rows it has inserted.
            """
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


def _name_of(parts: dict[str, Any]) -> str:
    """Return where a server is: host, port, database and service.

    Raises:
        ThreadStoreDownError: If a password may have slipped into one of them.
    """
    given = {part: str(parts.get(part) or "") for part in ("host", "hostaddr", "port", "dbname", "service")}
    if "@" in "".join(given.values()) or not re.fullmatch(r"[\d,]*", given["port"]):
        raise _unreadable()
    shown = " ".join(f"{part}={value}" for part, value in given.items() if value)
    return excerpt(shown or "on the default server")


def _parts(conninfo: str) -> dict[str, Any]:
    psycopg = require_psycopg()
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(conninfo))
    except (psycopg.Error, UnicodeError):
        raise _unreadable() from None


def _unreadable() -> ThreadStoreDownError:
    return ThreadStoreDownError(
        "the URL of the thread store cannot be read", hint="write special characters in it as %XX"
    )
