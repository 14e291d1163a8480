"""The tables of a wrapped SQLite saver."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from typing import Any, Final

from sealpoint.errors import ConfigError, SchemaError
from sealpoint.sealed.tables.base import ALLOW_HINT, Tables, run_on_loop
from sealpoint.sealed.watched import is_watched
from sealpoint.sqlite import layout

_VERSION: Final = "PRAGMA main.schema_version"


class SqliteTables(Tables):
    """Those of a saver with a connection of sqlite3."""

    def __init__(self) -> None:
        """Create an object for the tables of one database."""
        self._version: int | None = None  # of the schema that was checked
        self._cursor: sqlite3.Cursor | None = None

    def require(self, saver: Any) -> None:
        """Check the tables if the version of the schema has changed: one PRAGMA otherwise."""
        with getattr(saver, "lock", nullcontext()):
            self.check(_connection_of(saver))

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`, for a subclass with async methods."""
        self.require(saver)

    def check(self, connection: sqlite3.Connection) -> None:
        """Check the tables on a connection, on a thread that may use it."""
        cursor = self._cursor
        if cursor is None or cursor.connection is not connection:
            cursor = self._cursor = connection.cursor()
            cursor.row_factory = None
        (version,) = cursor.execute(_VERSION).fetchone()
        if version == self._version:
            return
        self._version = self._cursor = None  # a refused schema is refused again
        theirs = connection.text_factory
        connection.text_factory = str
        try:
            layout.require_unhidden(cursor)
            layout.require_tables(cursor)
        except SchemaError as error:
            raise SchemaError(str(error), hint=ALLOW_HINT) from None
        finally:
            connection.text_factory = theirs
            cursor.close()
        self._version = version


class AioSqliteTables(SqliteTables):
    """Those of a saver with a connection of aiosqlite."""

    def require(self, saver: Any) -> None:
        """Check the tables through the loop of the saver, as its own methods do."""
        run_on_loop(self.arequire, saver)

    async def arequire(self, saver: Any) -> None:
        """Check the tables on the connection's thread, which is started first if it is not yet."""
        connection = _connection_of(saver)
        if not saver.is_setup and getattr(connection, "_connection", connection) is None:
            async with saver.lock:
                if getattr(connection, "_connection", connection) is None:
                    await connection
        await connection._execute(lambda: self.check(connection._conn))


def _connection_of(saver: Any) -> Any:
    """Return the connection of a saver, and not what notes its transactions, which has no settings.

    Raises:
        ConfigError: If it has none, so that its tables cannot be looked at.
    """
    connection = getattr(saver, "conn", None)
    if connection is None:
        raise ConfigError(f"{type(saver).__name__} has no connection to look at its tables", hint=ALLOW_HINT)
    return connection.plain if is_watched(connection) else connection
