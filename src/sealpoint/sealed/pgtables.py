"""The tables of a wrapped saver or Store on Postgres, and the rights of its session."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from sealpoint.base.saver import arun, run
from sealpoint.errors import OldTablesError, SchemaError, SharedRoleError, ThreadStoreError, excerpt
from sealpoint.guards.pgtables import NAMES, STORE_NAMES, TABLES, Row, refuse_schema, require_tables
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.steps import R
from sealpoint.sealed.tables import ALLOW_HINT, run_on_loop
from sealpoint.threadpool import finish, shared

# Qualified names: until the search path is set, an operator could be another role's own.
_RESOLVE: Final = "SELECT pg_catalog.current_schemas(true), ARRAY[{}]"
_OID: Final = "pg_catalog.to_regclass('{}')::pg_catalog.oid"
_SETTLE: Final = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
_FOUND: Final = f"{TABLES} r.oid = ANY(%s::oid[])"
# The saver's statements would call such a function if its types fit better, though pg_catalog comes first.
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
_OF_PGVECTOR: Final = ["<=>", "<#>", "<->", "vector", "halfvec"]  # names in the statements of a Store
# A session can return to the role of its login; only a superuser can become another role.
_WHO: Final = """
    SELECT pg_try_advisory_xact_lock(%s), ARRAY[session_user::text, current_user::text,
        (SELECT rolname::text FROM pg_stat_get_activity(pg_backend_pid()) JOIN pg_roles ON oid = usesysid)]"""
_LOCK_BITS: Final = 63


# Yields statements, each with its values, and functions; see `PostgresTables.require`
_Look = Generator[tuple[str, Sequence[Any]] | Callable[[], Any], Any, R]


class PostgresTables:
    """Checks the tables of one database, and the rights of a session of psycopg."""

    def __init__(
        self, *, is_store: bool, heads: Heads | None, allow_schema: bool, allow_shared_role: bool, **_: object
    ) -> None:
        """Create an object for one database: see `sealpoint.sealed.tables.tables_of`.

        With ``heads``, the check asks their thread store whether the session's roles can write to the store.
        """
        is_asked = heads is not None and not allow_shared_role and hasattr(heads.store, "require_apart")
        self._heads = heads if is_asked else None
        self._names: Sequence[str] = STORE_NAMES if is_store else NAMES  # the first table is required
        self._has_schema = not allow_schema
        self._is_checked = allow_schema and not is_asked

    def _given(self, saver: Any) -> tuple[Any, Any]:
        """Return two context managers: one for a connection or a cursor, one for the connection's lock."""
        if self._names is not STORE_NAMES:
            return saver._cursor(), nullcontext()
        # A Store's cursor takes no lock. Connection first, then the lock, as in the Store: no deadlock.
        is_pool = hasattr(saver.conn, "getconn")
        return saver.conn.connection() if is_pool else nullcontext(saver.conn), saver.lock

    def require(self, saver: Any) -> None:
        """See `Tables.require`."""
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
        """See `Tables.arequire`."""
        if not self._is_checked:
            await shared.run(self.require, saver)

    def _look(self) -> _Look[bool]:
        """Check the tables and the rights; return whether the check is complete.

        The check runs in a transaction that is rolled back.
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


class AioPostgresTables(PostgresTables):
    """Checks the tables of one database, and the rights of an asynchronous session of psycopg."""

    def require(self, saver: Any) -> None:
        """See `Tables.require`."""
        if not self._is_checked:
            run_on_loop(self.arequire, saver)

    async def arequire(self, saver: Any) -> None:
        """Check the tables. A cancelled task completes the check: its transaction must not stay open."""
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
    """Check the tables that the saver's statements access, and return the names of those that exist.

    Also refuse functions, operators and types in a schema of the search path that could replace the server's
    own, or have a name in ``more``, unless an extension created them.
    """
    rows = yield _FOUND, ([oid for oid in oids if oid is not None],)
    others = [schema for schema in path if schema != "pg_catalog"]
    shadows = yield _SHADOWS, (others, others, more, others, more)
    try:
        if next(schema for schema in path if not schema.startswith("pg_temp")) != "pg_catalog":
            raise refuse_schema("the search path of the session names another schema before pg_catalog")
        for what, name in shadows:
            raise refuse_schema(f"the search path contains {what} {excerpt(name)} that is not the server's")
        return require_tables([Row(*row) for row in rows])
    except OldTablesError:
        raise
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None


def _ask(heads: Heads, lock: int, roles: Sequence[str]) -> bool:
    """Ask the thread store whether roles can write to it; a store on the same server sees the session's lock.

    Return whether the store could be asked. If roles can write, a `SharedRoleError` is raised or counted.
    """
    store: Any = heads.store
    try:
        store.require_apart(lock, roles)
    except ThreadStoreError as error:
        heads.report(error)
        return isinstance(error, SharedRoleError)  # it is reported once
    return True
