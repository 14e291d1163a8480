"""The tables of a wrapped saver or Store on SQLite, and the files beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing, nullcontext
from typing import Any, Final

from sealpoint.errors import ConfigError, OldTablesError, SchemaError, excerpt
from sealpoint.guards import tables
from sealpoint.guards.files import inspect, require_whole, rolled_back
from sealpoint.sealed.steps import unwatched
from sealpoint.sealed.tables import ALLOW_HINT, run_on_loop

# Not the schema's version, which can be set back after a change. Bytes: text of a file may be invalid.
_SCHEMA: Final = """
    SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
    FROM main.sqlite_schema"""
_REFERRING: Final = """
    SELECT found.name, key."table"
    FROM main.sqlite_schema AS found, pragma_foreign_key_list(found.name, 'main') AS key
    WHERE found.type = 'table'"""

_PARTIAL_HINT: Final = (
    "open it without isolation_level=None and autocommit=True; or pass allow_partial_writes=True: then a"
    " deleted write is not detected"
)


class SqliteTables:
    """Checks the tables of one database, through a connection of sqlite3."""

    def __init__(self, *, is_store: bool, allow_partial: bool, allow_schema: bool, **_: object) -> None:
        """Create an object for one database: see `sealpoint.sealed.tables.tables_of`.

        With ``allow_schema``, only the files next to the database are checked. With ``allow_partial``, the
        saver may store the writes of a call one by one.
        """
        self._names = tables.STORE if is_store else tables.SAVER
        self._has_schema, self._allow_partial = not allow_schema, allow_partial
        self._schema: list[Any] | None = None  # the schema that was checked
        self._cursor: sqlite3.Cursor | None = None

    def require(self, saver: Any) -> None:
        """See `Tables.require`."""
        with getattr(saver, "lock", None) or nullcontext():
            self.check(_connection_of(saver))

    async def arequire(self, saver: Any) -> None:
        """See `Tables.arequire`."""
        self.require(saver)

    def check(self, connection: sqlite3.Connection) -> None:
        """Check the tables of the database through a connection of sqlite3."""
        if not self._allow_partial and _is_autocommit(connection):
            raise ConfigError("the saver's connection commits each write of a call alone", hint=_PARTIAL_HINT)
        cursor = self._cursor
        if cursor is None or cursor.connection is not connection:
            file, cursor = inspect(connection), connection.cursor()
            cursor.row_factory = None
            require_whole(cursor, file)
            for name in () if self._has_schema else self._names:
                tables.require_age(cursor, name)
            self._cursor = cursor
        if not self._has_schema:
            return
        if cursor.execute(_SCHEMA).fetchall() == self._schema:
            return
        self._schema = self._cursor = None  # a refused schema is refused again

        def look() -> list[Any]:  # keeps the schema that was checked, even if it changes meanwhile
            found = cursor.execute(_SCHEMA).fetchall()
            _require_known(connection, cursor, self._names)
            return found

        with closing(cursor):
            self._schema = look() if connection.in_transaction else rolled_back(cursor, look)


def _require_known(connection: sqlite3.Connection, cursor: sqlite3.Cursor, names: Collection[str]) -> None:
    theirs = connection.text_factory
    connection.text_factory = str
    try:
        tables.require_unhidden(cursor, names)
        tables.require_tables(cursor, names)
        for name, other in cursor.execute(_REFERRING).fetchall():
            if other.lower() in names and name.lower() not in names:  # which are checked already
                raise SchemaError(f"table {excerpt(name)} has a foreign key to {excerpt(other)}")
    except OldTablesError:
        raise
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None
    finally:
        connection.text_factory = theirs


class AioSqliteTables(SqliteTables):
    """Checks the tables of one database, through a connection of aiosqlite, on the connection's thread."""

    def require(self, saver: Any) -> None:
        """See `Tables.require`."""
        run_on_loop(self.arequire, saver)

    async def arequire(self, saver: Any) -> None:
        """Check the tables on the connection's thread, which is started first if necessary."""
        connection = _connection_of(saver)
        if not saver.is_setup and getattr(connection, "_connection", connection) is None:
            async with saver.lock:
                if getattr(connection, "_connection", connection) is None:
                    await connection
        await connection._execute(lambda: self.check(connection._conn))


def _is_autocommit(connection: sqlite3.Connection) -> bool:
    """Whether a connection never begins a transaction by itself; ``autocommit`` is new in Python 3.12."""
    mode: object = getattr(connection, "autocommit", None)
    return mode is True or (mode is not False and connection.isolation_level is None)


def _connection_of(saver: Any) -> Any:
    """Return the SQLite connection of a saver or Store."""
    connection = getattr(saver, "conn", None)
    if connection is None:
        raise ConfigError(f"{type(saver).__name__} has no connection to check its tables", hint=ALLOW_HINT)
    return unwatched(connection)
