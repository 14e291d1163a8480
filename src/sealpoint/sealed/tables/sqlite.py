"""The tables of a wrapped SQLite saver."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from typing import Any, Final

from sealpoint.errors import ConfigError, SchemaError, excerpt
from sealpoint.sealed.tables.base import ALLOW_HINT, Tables, run_on_loop
from sealpoint.sealed.watched import is_watched
from sealpoint.sqlite import layout
from sealpoint.sqlite.extent import require_whole
from sealpoint.sqlite.opening import inspect

# Not its version: that can be set back after a change. As bytes: text of a hostile file may be no text.
_SCHEMA: Final = """
    SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
    FROM main.sqlite_schema"""
_REFERRING: Final = """
    SELECT found.name FROM main.sqlite_schema AS found, pragma_foreign_key_list(found.name, 'main') AS key
    WHERE found.type = 'table' AND lower(key."table") IN ('checkpoints', 'writes') LIMIT 1"""

_PARTIAL_HINT: Final = (
    "open it without isolation_level=None and autocommit=True; or pass allow_partial_writes=True, and a"
    " deleted write is not noticed"
)


class SqliteTables(Tables):
    """Those of a saver with a connection of sqlite3."""

    def __init__(self, *, has_schema: bool, allow_partial: bool) -> None:
        """Create an object for the tables of one database.

        Args:
            has_schema: Whether the schema is checked, and not only the files beside the database.
            allow_partial: Whether the saver may store the writes of a call one by one.
        """
        self._has_schema, self._allow_partial = has_schema, allow_partial
        self._schema: list[Any] | None = None  # that was checked
        self._cursor: sqlite3.Cursor | None = None

    def require(self, saver: Any) -> None:
        """Check the tables if the schema has changed, which is read each time."""
        with getattr(saver, "lock", nullcontext()):
            self.check(_connection_of(saver))

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`, for a subclass with async methods."""
        self.require(saver)

    def check(self, connection: sqlite3.Connection) -> None:
        """Check the tables on a connection, on a thread that may use it.

        Raises:
            SchemaError: See `Tables.require`.
            DatabaseCorruptError: At the first use, if a file beside the database is not what SQLite makes.
            ConfigError: If the connection stores each row in a transaction of its own.
        """
        if not self._allow_partial and _is_autocommit(connection):
            raise ConfigError("the saver's connection stores each write of a call alone", hint=_PARTIAL_HINT)
        cursor = self._cursor
        if cursor is None or cursor.connection is not connection:
            file, cursor = inspect(connection), connection.cursor()
            cursor.row_factory = None
            require_whole(cursor, file)
            self._cursor = cursor
        if not self._has_schema:
            return
        if cursor.execute(_SCHEMA).fetchall() == self._schema:
            return
        self._schema = self._cursor = None  # a refused schema is refused again
        begins = not connection.in_transaction
        try:
            if begins:  # what is remembered is what was checked, whatever is changed meanwhile
                cursor.execute("BEGIN")
            schema = cursor.execute(_SCHEMA).fetchall()
            _require_known(connection, cursor)
        finally:
            if begins and connection.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.close()
        self._schema = schema


def _require_known(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    """Check the schema.

    Raises:
        SchemaError: See `Tables.require`.
    """
    theirs = connection.text_factory
    connection.text_factory = str
    try:
        layout.require_unhidden(cursor)
        layout.require_tables(cursor)
        for (name,) in cursor.execute(_REFERRING).fetchall():
            raise SchemaError(f"table {excerpt(name)} refers to a table of the saver, and acts with it")
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None
    finally:
        connection.text_factory = theirs


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


def _is_autocommit(connection: sqlite3.Connection) -> bool:
    """Whether no statement begins a transaction; ``autocommit`` is new in Python 3.12."""
    mode: object = getattr(connection, "autocommit", None)
    return mode is True or (mode is not False and connection.isolation_level is None)


def _connection_of(saver: Any) -> Any:
    """Return the connection of a saver, and not what notes its transactions, which has no settings.

    Raises:
        ConfigError: If it has none, so that its tables cannot be looked at.
    """
    connection = getattr(saver, "conn", None)
    if connection is None:
        raise ConfigError(f"{type(saver).__name__} has no connection to look at its tables", hint=ALLOW_HINT)
    return connection.plain if is_watched(connection) else connection
