"""AsyncSqliteSaver: `SqliteSaver` with the constructors of LangGraph's async saver.

The saver does not need aiosqlite, but accepts aiosqlite's connections. With these, SQLite runs on the thread
of the connection, through a proxy for its plain connection.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Self, TypeVar

from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite.database import open_for, refuse_connection
from sealpoint.sqlite.saver import SqliteSaver
from sealpoint.threadpool import is_on

Result = TypeVar("Result")

_FETCHED_ROWS: Final = 16


class AsyncSqliteSaver(SqliteSaver):
    """`SqliteSaver` for code on an event loop: use the methods with the prefix ``a``.

    The sync methods work, too; with a connection of aiosqlite only on other threads than the loop's.

    Attributes:
        loop: The event loop on which the saver was made, or ``None`` if none was running.

    Example:
        >>> import asyncio
        >>> from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer
        >>> async def main():
        ...     serde = EncryptedSerializer.from_key_file("keys.toml")
        ...     async with AsyncSqliteSaver.from_conn_string("state.db", serde=serde) as saver:
        ...         print(await saver.aget_tuple({"configurable": {"thread_id": "1"}}))
        >>> asyncio.run(main())
        None
    """

    def __init__(self, conn: Any, *, serde: SerializerProtocol | None = None) -> None:
        """Create a saver on an open connection.

        Args:
            conn: A connection of sqlite3 opened with ``check_same_thread=False``, or one of aiosqlite that
                belongs to the running loop. The caller closes it.
            serde: An `EncryptedSerializer` to seal every value.

        Raises:
            ConfigError: If ``conn`` is not such a connection.
        """
        try:
            self.loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self.loop = None
        if isinstance(conn, sqlite3.Connection):
            super().__init__(conn, serde=serde)
            return
        thread = _Thread(conn)
        super().__init__(_Connection(thread), serde=serde)  # type: ignore[arg-type]  # what Database uses of one
        self._database.lock = _Lock(thread)  # type: ignore[assignment]
        self.conn = conn

    @classmethod
    @asynccontextmanager
    async def from_conn_string(  # type: ignore[override]  # asynchronous, as LangGraph's is
        cls, conn_string: str, *, serde: SerializerProtocol | None = None
    ) -> AsyncIterator[Self]:
        """Open a database for an ``async with`` block, and close it at the end of the block.

        Args:
            conn_string: Path of the file, or ``:memory:``.
            serde: As for the constructor.
        """
        saver = open_for(partial(cls, serde=serde), conn_string)
        try:
            yield saver
        finally:
            await saver._pool.run(saver._database.close)
            saver._pool.shutdown()

    async def setup(self) -> None:  # type: ignore[override]  # asynchronous, as LangGraph's is
        """Create the tables, or check existing ones. Every other method does this if necessary."""
        await self._pool.run(self._database.setup)


class _Thread:
    """Runs functions on the thread of an aiosqlite connection, and waits for them."""

    def __init__(self, connection: Any) -> None:
        if not callable(getattr(connection, "_execute", None)):
            raise refuse_connection(connection)
        self._connection = connection
        self.loop = asyncio.get_running_loop()
        self._opened = False

    def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on the connection's thread, with the plain connection as its first argument."""
        return asyncio.run_coroutine_threadsafe(self._call(function, arguments), self.loop).result()

    async def _call(self, function: Callable[..., Result], arguments: Sequence[Any]) -> Result:
        aio = self._connection
        if not self._opened and getattr(aio, "_connection", aio) is None:
            await aio  # created, but not opened yet; a closed connection cannot be reopened
        self._opened = True
        result: Result = await aio._execute(lambda: function(aio._conn, *arguments))
        return result


class _Lock:
    """A lock that the event loop never waits for: the thread that holds it may be waiting for the loop."""

    def __init__(self, thread: _Thread) -> None:
        self._thread, self._lock = thread, threading.RLock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and is_on(self._thread.loop):
            raise asyncio.InvalidStateError("on the event loop, use the methods with the prefix 'a'")
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class _Connection:
    """The methods of a connection that `Database` uses, on the thread of an aiosqlite connection."""

    def __init__(self, thread: _Thread) -> None:
        self._thread, self.on_thread = thread, thread.run

    @property
    def in_transaction(self) -> bool:
        return self._thread.run(lambda plain: bool(plain.in_transaction))

    def cursor(self) -> _Cursor:
        return _Cursor(self._thread, self._thread.run(sqlite3.Connection.cursor))

    def commit(self) -> None:
        self._thread.run(sqlite3.Connection.commit)


class _Cursor:
    """A cursor for the application, whose methods are called on the aiosqlite connection's thread, too."""

    def __init__(self, thread: _Thread, cursor: sqlite3.Cursor) -> None:
        self._thread, self._cursor = thread, cursor
        self.row_factory: Any = None

    def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return self._thread.run(lambda _: function(self._cursor, *arguments))

    def execute(self, *statement: Any) -> Self:
        self._cursor.row_factory = self.row_factory
        self._run(sqlite3.Cursor.execute, *statement)
        return self

    def __getattr__(self, name: str) -> Any:
        return partial(self._run, getattr(sqlite3.Cursor, name))

    def __iter__(self) -> Iterator[Any]:
        while rows := self._run(sqlite3.Cursor.fetchmany, _FETCHED_ROWS):
            yield from rows
