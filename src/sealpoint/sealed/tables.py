"""The tables of the wrapped saver or Store: what is looked at before it is used.

What hangs on a table runs in the session of the saver that writes it: a trigger could drop or copy rows, a
view could answer with other ones. LangGraph takes a schema as it comes. So it is checked here, by the
functions that `SqliteSaver` and the commands of this package use: on Postgres at the first use, on SQLite
also whenever it has changed. A change while a call runs is noticed by the next call.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from sealpoint.base.saver import arun, run
from sealpoint.crypto.cipher import CipherTally
from sealpoint.errors import (
    ConfigError,
    OldTablesError,
    SchemaError,
    SharedRoleError,
    ThreadStoreError,
    excerpt,
)
from sealpoint.postgres import NAMES, STORE_NAMES, TABLES, Row, refuse_schema, require_tables
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.steps import R, Steps, areply, reply
from sealpoint.sqlite import schema
from sealpoint.sqlite.aio import is_on
from sealpoint.sqlitefile.opening import inspect, require_whole
from sealpoint.threadpool import finish, shared

ALLOW_HINT: Final = (
    "if you have put it there yourself, and trust what it does: pass allow_schema=True to SealedSaver or"
    " SealedStore; otherwise find out who did before you use the database"
)


def checked(tables: Tables, setup: Callable[[], Any], saver: Any) -> Callable[[], Any]:
    """Return a saver's method ``setup``, with the check of its tables before it."""
    if iscoroutinefunction(setup):

        async def asetup() -> Any:
            await tables.arequire(saver)
            return await setup()

        return asetup

    def checked_setup() -> Any:
        tables.require(saver)
        return setup()

    return checked_setup


def run_checked(steps: Steps[R], inner: Any, tables: Tables | None, tally: CipherTally) -> R:
    """Look at the tables of a saver or Store, run a procedure on it, and count the error that is raised."""
    with tally:
        if tables is not None:
            tables.require(inner)
        return run(steps, partial(reply, inner))


async def arun_checked(steps: Steps[R], inner: Any, tables: Tables | None, tally: CipherTally) -> R:
    """Async version of `run_checked`."""
    with tally:
        if tables is not None:
            await tables.arequire(inner)
        return await arun(steps, partial(areply, inner))


def _run_on_loop(check: Callable[[Any], Any], saver: Any) -> None:
    """Run a check on the loop of an async saver, from another thread.

    On the loop's own thread nothing is checked: there the saver refuses each call that is not awaited.
    """
    if not is_on(saver.loop):
        asyncio.run_coroutine_threadsafe(check(saver), saver.loop).result()


# Before the search path is set, all is qualified: an operator could be one from another role's schema.
_RESOLVE: Final = "SELECT pg_catalog.current_schemas(true), ARRAY[{}]"
_OID: Final = "pg_catalog.to_regclass('{}')::pg_catalog.oid"
_SETTLE: Final = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
_FOUND: Final = f"{TABLES} r.oid = ANY(%s::oid[])"
# The statements of the saver would call one whose types fit better, though pg_catalog is searched first.
_SHADOWS: Final = """
    SELECT what, name FROM (
        SELECT 'a function', proname, oid, 'pg_proc'::regclass FROM pg_proc AS own
        WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname = ANY(%s::text[]))
        AND proname IN (SELECT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace)
        UNION ALL SELECT 'an operator', oprname, oid, 'pg_operator'::regclass FROM pg_operator
        WHERE oprnamespace IN (SELECT oid FROM pg_namespace WHERE nspname = ANY(%s::text[]))
        AND (oprname IN (SELECT oprname FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace)
            OR oprname = ANY(%s::text[]))
        UNION ALL SELECT 'a type', typname, oid, 'pg_type'::regclass FROM pg_type
        WHERE typnamespace IN (SELECT oid FROM pg_namespace WHERE nspname = ANY(%s::text[]))
        AND typname = ANY(%s::text[])
    ) AS found(what, name, oid, class) WHERE NOT EXISTS (
        SELECT FROM pg_depend WHERE classid = class AND objid = found.oid AND deptype = 'e'
    ) LIMIT 1"""
_OF_PGVECTOR: Final = ["<=>", "<#>", "<->", "vector", "halfvec"]  # what the statements of a Store name
# A session can return to the role that it was authenticated as; only a superuser can be another.
_WHO: Final = """
    SELECT pg_try_advisory_xact_lock(%s), ARRAY[session_user::text, current_user::text,
        (SELECT rolname::text FROM pg_stat_get_activity(pg_backend_pid()) JOIN pg_roles ON oid = usesysid)]"""
_LOCK_BITS: Final = 63


# Yields statements, each with its values, and functions; see `_PostgresTables.require`
_Look = Generator[tuple[str, Sequence[Any]] | Callable[[], Any], Any, R]


class _PostgresTables:
    def __init__(self, names: Sequence[str], *, has_schema: bool, heads: Heads | None) -> None:
        """Create an object for one database, with tables of these names; the first one is needed.

        With ``heads`` it asks their thread store for rights of the session's roles.
        """
        self._names, self._has_schema, self._heads = names, has_schema, heads
        self._is_checked = not has_schema and heads is None

    def _given(self, saver: Any) -> tuple[Any, Any]:
        """Return contexts: of a connection, or of a cursor on it, and of a lock for it."""
        if self._names is not STORE_NAMES:
            return saver._cursor(), nullcontext()
        # The cursor of a Store locks nothing. The connection comes first, as in its methods: no deadlock.
        is_pool = hasattr(saver.conn, "getconn")
        return saver.conn.connection() if is_pool else nullcontext(saver.conn), saver.lock

    def require(self, saver: Any) -> None:
        if self._is_checked:
            return
        from psycopg.rows import tuple_row

        def reply(request: Any) -> Any:
            return own.execute(*request).fetchall() if isinstance(request, tuple) else request()

        given, lock = self._given(saver)
        with given as found, lock:
            if self._is_checked:  # another thread has used the saver meanwhile
                return
            connection = found if self._names is STORE_NAMES else found.connection
            with connection.transaction(force_rollback=True), connection.cursor(row_factory=tuple_row) as own:
                self._is_checked = run(self._look(), reply)

    async def arequire(self, saver: Any) -> None:
        if not self._is_checked:
            await shared.run(self.require, saver)

    def _look(self) -> _Look[bool]:
        """Look at the tables and the rights; return whether that was all.

        It takes place in a transaction that is rolled back.
        """
        ((path, oids),) = yield _RESOLVE.format(", ".join(map(_OID.format, self._names))), ()
        yield _SETTLE, ()
        more = _OF_PGVECTOR if self._names is STORE_NAMES else []
        has_tables = not self._has_schema or self._names[0] in (yield from _schema(path, oids, more))
        if self._heads is None:
            return has_tables
        # The store sees the lock of this transaction if both are in one cluster.
        lock = secrets.randbits(_LOCK_BITS)
        ((_, roles),) = yield _WHO, (lock,)
        return (yield partial(_ask, self._heads, lock, roles)) and has_tables


class _AioPostgresTables(_PostgresTables):
    def require(self, saver: Any) -> None:
        if not self._is_checked:
            _run_on_loop(self.arequire, saver)

    async def arequire(self, saver: Any) -> None:
        """Check the tables, to the end also if the task is cancelled: its transaction must not stay open."""
        if not self._is_checked:
            await finish(asyncio.ensure_future(self._check(saver)))

    async def _check(self, saver: Any) -> None:
        from psycopg.rows import tuple_row

        async def reply(request: Any) -> Any:
            if not isinstance(request, tuple):
                return await shared.run(request)
            await own.execute(*request)
            return await own.fetchall()

        given, lock = self._given(saver)
        async with given as found, lock:
            if self._is_checked:  # another task has used the saver meanwhile
                return
            connection = found if self._names is STORE_NAMES else found.connection
            async with (
                connection.transaction(force_rollback=True),
                connection.cursor(row_factory=tuple_row) as own,
            ):
                self._is_checked = await arun(self._look(), reply)


def _schema(path: Sequence[str], oids: Sequence[int | None], more: Sequence[str]) -> _Look[set[str]]:
    """Check the tables to which the saver's statements lead, and return those that there are.

    Also whether a function, an operator or a type in a schema of the path may come before the server's,
    or has one of the names in ``more``, unless an extension has made it.
    """
    rows = yield _FOUND, ([oid for oid in oids if oid is not None],)
    others = [schema for schema in path if schema != "pg_catalog"]
    shadows = yield _SHADOWS, (others, others, more, others, more)
    try:
        if next(schema for schema in path if not schema.startswith("pg_temp")) != "pg_catalog":
            raise refuse_schema("the search path of the session names another schema before pg_catalog")
        for what, name in shadows:
            raise refuse_schema(f"the search path leads to {what} {excerpt(name)} that is not the server's")
        return require_tables([Row(*row) for row in rows])
    except OldTablesError:
        raise
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None


def _ask(heads: Heads, lock: int, roles: Sequence[str]) -> bool:
    """Look for rights of roles on the thread store, by a lock that the session holds.

    Return whether it could be asked. A right is a `SharedRoleError`, which is raised or counted.
    """
    store: Any = heads.store
    try:
        store.require_apart(lock, roles)
    except ThreadStoreError as error:
        heads.report(error)
        return isinstance(error, SharedRoleError)  # it is reported once
    return True


# Not its version: that can be set back after a change. As bytes: text of a hostile file may be no text.
_SCHEMA: Final = """
    SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
    FROM main.sqlite_schema"""
_REFERRING: Final = """
    SELECT found.name, key."table"
    FROM main.sqlite_schema AS found, pragma_foreign_key_list(found.name, 'main') AS key
    WHERE found.type = 'table'"""

_PARTIAL_HINT: Final = (
    "open it without isolation_level=None and autocommit=True; or pass allow_partial_writes=True, and a"
    " deleted write is not noticed"
)


class _SqliteTables:
    def __init__(self, names: Collection[str], *, has_schema: bool, allow_partial: bool) -> None:
        """Create an object for one database, with tables of these names.

        Without ``has_schema`` only the files next to it are checked. With ``allow_partial`` the saver may
        store the writes of a call one by one.
        """
        self._names = names
        self._has_schema, self._allow_partial = has_schema, allow_partial
        self._schema: list[Any] | None = None  # that was checked
        self._cursor: sqlite3.Cursor | None = None

    def require(self, saver: Any) -> None:
        with getattr(saver, "lock", nullcontext()):
            self.check(_connection_of(saver))

    async def arequire(self, saver: Any) -> None:
        self.require(saver)

    def check(self, connection: sqlite3.Connection) -> None:
        if not self._allow_partial and _is_autocommit(connection):
            raise ConfigError("the saver's connection stores each write of a call alone", hint=_PARTIAL_HINT)
        cursor = self._cursor
        if cursor is None or cursor.connection is not connection:
            file, cursor = inspect(connection), connection.cursor()
            cursor.row_factory = None
            require_whole(cursor, file)
            for name in () if self._has_schema else self._names:
                schema.require_age(cursor, name)
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
            found = cursor.execute(_SCHEMA).fetchall()
            _require_known(connection, cursor, self._names)
        finally:
            if begins and connection.in_transaction:
                cursor.execute("ROLLBACK")
            cursor.close()
        self._schema = found


def _require_known(connection: sqlite3.Connection, cursor: sqlite3.Cursor, names: Collection[str]) -> None:
    theirs = connection.text_factory
    connection.text_factory = str
    try:
        schema.require_unhidden(cursor, names)
        schema.require_tables(cursor, names)
        for name, other in cursor.execute(_REFERRING).fetchall():
            if other.lower() in names and name.lower() not in names:  # which are checked already
                raise SchemaError(f"table {excerpt(name)} refers to {excerpt(other)}, and acts with it")
    except OldTablesError:
        raise
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None
    finally:
        connection.text_factory = theirs


class _AioSqliteTables(_SqliteTables):
    def require(self, saver: Any) -> None:
        _run_on_loop(self.arequire, saver)

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
    """Return the connection of a saver, and not what notes its transactions, which has no settings."""
    connection = getattr(saver, "conn", None)
    if connection is None:
        raise ConfigError(f"{type(saver).__name__} has no connection to look at its tables", hint=ALLOW_HINT)
    return getattr(connection, "plain", connection)


Tables = _SqliteTables | _PostgresTables


_KINDS: Final[dict[str, tuple[type[Tables], Sequence[str]]]] = {
    "langgraph.checkpoint.sqlite.SqliteSaver": (_SqliteTables, schema.SAVER),
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": (_AioSqliteTables, schema.SAVER),
    "langgraph.checkpoint.postgres.PostgresSaver": (_PostgresTables, NAMES),
    "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver": (_AioPostgresTables, NAMES),
    "langgraph.store.sqlite.base.SqliteStore": (_SqliteTables, schema.STORE),
    "langgraph.store.sqlite.aio.AsyncSqliteStore": (_AioSqliteTables, schema.STORE),
    "langgraph.store.postgres.base.PostgresStore": (_PostgresTables, STORE_NAMES),
    "langgraph.store.postgres.aio.AsyncPostgresStore": (_AioPostgresTables, STORE_NAMES),
}


def tables_of(
    wrapped: Any, heads: Heads | None, *, allow_partial: bool, allow_schema: bool, allow_shared_role: bool
) -> Tables | None:
    """Return what looks at the tables of a saver or Store; each option is what it is told not to look at.

    sealpoint's savers look at their tables themselves, and others, such as InMemoryStore, have none that are
    known here.
    """
    names = (f"{base.__module__}.{base.__qualname__}" for base in type(wrapped).__mro__)
    kind, tables = next((_KINDS[name] for name in names if name in _KINDS), (None, ()))
    if kind is None:
        return None
    if not issubclass(kind, _PostgresTables):
        return kind(tables, has_schema=not allow_schema, allow_partial=allow_partial)
    is_asked = heads is not None and not allow_shared_role and hasattr(heads.store, "require_apart")
    return kind(tables, has_schema=not allow_schema, heads=heads if is_asked else None)
