"""The tables of a wrapped Postgres saver, and the rights of its session on the thread store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sealpoint.errors import SchemaError, SealpointError, SharedRoleError, ThreadStoreError, excerpt
from sealpoint.postgres.layout import NAMES, TABLES, Row, refuse_schema, require_tables
from sealpoint.sealed.tables.base import ALLOW_HINT, Tables, run_on_loop
from sealpoint.threadpool import shared

# Before the search path is set, all is qualified: an operator could be one from another role's schema.
_RESOLVE: Final = f"""
    SELECT pg_catalog.current_schemas(true),
        ARRAY[{", ".join(f"pg_catalog.to_regclass('{name}')::pg_catalog.oid" for name in NAMES)}]"""
_SETTLE: Final = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
_FOUND: Final = f"{TABLES} c.oid = ANY(%s::oid[])"
# The statements of the saver would call one whose types fit better, though pg_catalog is searched first.
_SHADOWS: Final = """
    SELECT what, name FROM (
        SELECT 'a function', proname, oid, 'pg_proc'::regclass FROM pg_proc AS own
        WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname = ANY(%s::text[]))
        AND proname IN (SELECT proname FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace)
        UNION ALL SELECT 'an operator', oprname, oid, 'pg_operator'::regclass FROM pg_operator
        WHERE oprnamespace IN (SELECT oid FROM pg_namespace WHERE nspname = ANY(%s::text[]))
        AND oprname IN (SELECT oprname FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace)
    ) AS found(what, name, oid, class) WHERE NOT EXISTS (
        SELECT FROM pg_depend WHERE classid = class AND objid = found.oid AND deptype = 'e'
    ) LIMIT 1"""
# A session can return to the role that it was authenticated as; only a superuser can be another.
_WHO: Final = """
    SELECT pg_try_advisory_xact_lock(%s), ARRAY[session_user::text, current_user::text,
        (SELECT rolname::text FROM pg_stat_get_activity(pg_backend_pid()) JOIN pg_roles ON oid = usesysid)]"""
_LOCK_BITS: Final = 63


class Rights(NamedTuple):
    """How the rights on a thread store are asked for.

    Attributes:
        require_apart: Looks for them, and raises `SharedRoleError`; see `PostgresThreadStore`.
        report: Raises an error, or counts it.
    """

    require_apart: Callable[[int, Sequence[str]], None]
    report: Callable[[SealpointError], None]


class _Statement(NamedTuple):
    text: str
    values: Sequence[Any] = ()


_Request = _Statement | Callable[[], Any]
_Look = Generator[_Request, Any, bool]


class PostgresTables(Tables):
    """Those of a saver with a connection of psycopg, or a pool of them."""

    def __init__(self, *, has_schema: bool, rights: Rights | None) -> None:
        """Create an object for one saver.

        Args:
            has_schema: Whether to look at the schema.
            rights: Asks for the rights on the thread store; ``None`` if they are not asked for.
        """
        self._has_schema, self._rights = has_schema, rights
        self._is_checked = not has_schema and rights is None

    def require(self, saver: Any) -> None:
        """Check tables and rights at the first use.

        Raises:
            SchemaError: See `Tables.require`.
            SharedRoleError: If the saver's session could write the thread store.
            ThreadStoreError: If the store could not be asked.
        """
        if self._is_checked:
            return
        from psycopg.rows import tuple_row

        with saver._cursor() as cursor:
            if self._is_checked:  # another thread has used the saver meanwhile
                return
            connection = cursor.connection
            with connection.transaction(force_rollback=True), connection.cursor(row_factory=tuple_row) as own:
                look = self._look()
                reply: Any = None
                try:
                    while True:
                        request = look.send(reply)
                        if isinstance(request, _Statement):
                            reply = own.execute(request.text, request.values).fetchall()
                        else:
                            reply = request()
                except StopIteration as end:
                    self._is_checked = end.value

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`, for a subclass with async methods."""
        if not self._is_checked:
            await shared.run(self.require, saver)

    def _look(self) -> _Look:
        """Look at the tables and the rights; return whether that was all.

        It takes place in a transaction that is rolled back.
        """
        ((path, oids),) = yield _Statement(_RESOLVE)
        yield _Statement(_SETTLE)
        has_tables = not self._has_schema or (yield from _schema(path, oids))
        return (self._rights is None or (yield from _rights(self._rights))) and has_tables


class AioPostgresTables(PostgresTables):
    """Those of a saver with an async connection of psycopg, or a pool of them."""

    def require(self, saver: Any) -> None:
        """Check through the loop of the saver, as its own methods do."""
        if not self._is_checked:
            run_on_loop(self.arequire, saver)

    async def arequire(self, saver: Any) -> None:
        """Async version of `PostgresTables.require`."""
        if self._is_checked:
            return
        from psycopg.rows import tuple_row

        async with saver._cursor() as cursor:
            if self._is_checked:  # another task has used the saver meanwhile
                return
            connection = cursor.connection
            async with (
                connection.transaction(force_rollback=True),
                connection.cursor(row_factory=tuple_row) as own,
            ):
                look = self._look()
                reply: Any = None
                try:
                    while True:
                        request = look.send(reply)
                        if isinstance(request, _Statement):
                            await own.execute(request.text, request.values)
                            reply = await own.fetchall()
                        else:
                            reply = await shared.run(request)
                except StopIteration as end:
                    self._is_checked = end.value


def _schema(path: Sequence[str], oids: Sequence[int | None]) -> _Look:
    """Check the tables to which the saver's statements lead, and return whether there are any.

    Args:
        path: The schemas in which the session searches.
        oids: The tables.

    Raises:
        SchemaError: See `Tables.require`. Also if a function or an operator of another schema may come before
            the server's, unless an extension has made it.
    """
    rows = yield _Statement(_FOUND, ([oid for oid in oids if oid is not None],))
    others = [schema for schema in path if schema != "pg_catalog"]
    shadows = yield _Statement(_SHADOWS, (others, others))
    try:
        if next(schema for schema in path if not schema.startswith("pg_temp")) != "pg_catalog":
            raise refuse_schema("the search path of the session names another schema before pg_catalog")
        for what, name in shadows:
            raise refuse_schema(f"the search path leads to {what} {excerpt(name)} that is not the server's")
        tables = require_tables([Row(*row) for row in rows])
    except SchemaError as error:
        raise SchemaError(str(error), hint=ALLOW_HINT) from None
    return "checkpoints" in tables  # else the saver has to create them


def _rights(rights: Rights) -> _Look:
    """Check that no role of the session could write the thread store; return whether it could be asked.

    The store sees the lock of this transaction if both are in one cluster.
    """
    lock = secrets.randbits(_LOCK_BITS)
    ((_, roles),) = yield _Statement(_WHO, (lock,))
    was_asked: bool = yield partial(_ask, rights, lock, roles)
    return was_asked


def _ask(rights: Rights, lock: int, roles: Sequence[str]) -> bool:
    try:
        rights.require_apart(lock, roles)
    except ThreadStoreError as error:
        rights.report(error)
        return isinstance(error, SharedRoleError)  # it is reported once
    return True
