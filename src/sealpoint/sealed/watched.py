"""Connections to SQLite that note which transactions a wrapped saver has begun.

The copy of a saver gets one, and the caller keeps the connection itself: what the caller executes does not
pass through here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Self

from sealpoint.sqlite import SqliteSaver


class Owner:
    """Whether the open transaction of a connection was begun by a saver."""

    __slots__ = ("is_saver",)

    def __init__(self) -> None:
        """Begin without a transaction."""
        self.is_saver = False

    def run(
        self, connection: sqlite3.Connection, call: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Call what the saver calls, on its thread, and note whether that begins a transaction."""
        self.is_saver = self.is_saver or not is_within(connection)
        try:
            return call(*arguments, **options)
        finally:
            self.is_saver = self.is_saver and is_within(connection)

    def end(self, connection: sqlite3.Connection) -> bool:
        """Roll back the transaction of the saver; return whether one of the caller is open."""
        if self.is_saver and is_within(connection):
            connection.rollback()
        self.is_saver = False
        return is_within(connection)


class Watched:
    """A connection of sqlite3, for a saver."""

    __slots__ = ("owner", "plain")

    def __init__(self, plain: sqlite3.Connection) -> None:
        """Pass on to ``plain`` what is called."""
        self.plain, self.owner = plain, Owner()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.plain, name)
        return partial(self.owner.run, self.plain, found) if callable(found) else found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.owner.run(self.plain, self.plain.__exit__, *raised)

    def cursor(self, *arguments: Any) -> WatchedCursor:
        """Return a cursor whose statements are noted."""
        return WatchedCursor(self, self.plain.cursor(*arguments))


class WatchedCursor:
    """A cursor of a `Watched` connection."""

    __slots__ = ("_connection", "_plain")

    def __init__(self, connection: Watched, plain: sqlite3.Cursor) -> None:
        """Pass on to ``plain`` what is called."""
        self._connection, self._plain = connection, plain

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._plain, name)
        if not name.startswith("execute"):  # nothing else begins or ends a transaction
            return found
        connection = self._connection
        return partial(connection.owner.run, connection.plain, found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain)


@cache
def _watching(kind: Any) -> Any:
    """Return a class of connections that share the state of one of aiosqlite's class ``kind``."""

    class WatchedAsync(kind):  # type: ignore[misc]
        __slots__ = ("owner", "plain")

        def __init__(self, plain: Any) -> None:
            self.__dict__ = plain.__dict__  # type: ignore[misc]
            self.plain, self.owner = plain, Owner()

        def __del__(self) -> None:  # ``plain`` warns if it was not closed
            pass

        async def _execute(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            return await self.plain._execute(self.owner.run, self._conn, function, *arguments, **options)

        async def end(self) -> bool:
            """Call `Owner.end` after all that was called before, and before all that is called later."""
            return bool(await self.plain._execute(self.owner.end, self._conn))

    return WatchedAsync


def watch(saver: Any) -> None:
    """Give a copy of a saver a connection that notes its transactions, if it has one to SQLite.

    Sealpoint's own savers roll back themselves.
    """
    connection: Any = getattr(saver, "__dict__", {}).get("conn")
    if isinstance(saver, SqliteSaver):
        return
    if isinstance(connection, sqlite3.Connection):
        saver.conn = Watched(connection)
    elif type(connection).__module__.startswith("aiosqlite.") and hasattr(connection, "_execute"):
        kind: Any = type(connection)
        saver.conn = _watching(kind)(connection)


def is_watched(connection: Any) -> bool:
    """Whether a connection is one that `watch` has made."""
    return type(getattr(connection, "owner", None)) is Owner


def is_within(connection: Any) -> bool:
    """Whether a connection, which may be closed, is in a transaction, as far as SQLite is concerned."""
    try:
        return bool(getattr(connection, "in_transaction", False))
    except (sqlite3.ProgrammingError, ValueError):
        return False
