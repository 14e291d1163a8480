"""The tables of the wrapped saver or Store: their schema is checked before the saver or Store is used.

Code in the schema runs in the session of the saver: a trigger could drop or copy rows, a view could return
other rows. LangGraph does not check the schema. So this module checks it, by the functions that `SqliteSaver`
and the commands of this package use: on Postgres at the first use, on SQLite also after each change of the
schema. A change during a call is noticed by the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final, NoReturn, Protocol

from sealpoint.base.saver import arun, run
from sealpoint.errors import ForkedError, SealpointError
from sealpoint.forks import inherited
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.steps import R, Steps, areply, reply, unwatched
from sealpoint.threadpool import is_on


class Tables(Protocol):
    """Checks the tables of one database."""

    def require(self, saver: Any) -> None:
        """Check the tables through the connection of a saver or Store.

        Raises:
            SchemaError: If a statement of the saver could reach other data than its tables, or run code.
        """

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`."""


ALLOW_HINT: Final = (
    "if you added it yourself, and trust it: pass allow_schema=True to SealedSaver or"
    " SealedStore; otherwise find out who added it before you use the database"
)


class InheritedSaver:
    """A saver that must not be used in this process: each access to an attribute raises `ForkedError`."""

    def __init__(self, saver: Any) -> None:
        inherited.append(saver)
        self._name = type(saver).__name__

    def __getattr__(self, name: str) -> NoReturn:
        raise ForkedError(self._name)


class Wrapping:
    """A saver or Store that wraps another, and checks the tables of the wrapped one before each use."""

    inner: Any
    serde: Any
    _tables: Tables | None

    def reset_after_fork(self) -> None:
        """Refuse every later use if the connection of the wrapped saver or Store belongs to the parent.

        A pool that the child opens itself may be used. Without an attribute ``conn``, no use is refused.
        """
        inner = vars(self).get("inner")  # which a copy does not have at first
        connection = getattr(inner, "__dict__", {}).get("conn")  # runs no code of the saver
        if connection is not None and not getattr(connection, "closed", False):
            self.inner = InheritedSaver(inner)

    def _run(self, steps: Steps[R], *, looks: bool = True) -> R:
        """Run a procedure on the wrapped saver or Store, and count an error that it raises.

        With ``looks=False`` the tables are not checked: the call that read the row has just checked them.
        """
        try:  # without a context: every read and write passes here
            if looks and self._tables is not None:
                self._tables.require(self.inner)
            return run(steps, partial(reply, self.inner))
        except SealpointError as error:
            self.serde.tally.refuse(error)
            raise

    async def _arun(self, steps: Steps[R], *, looks: bool = True) -> R:
        with self.serde.tally:
            if looks and self._tables is not None:
                await self._tables.arequire(self.inner)
            return await arun(steps, partial(areply, self.inner))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that only the wrapped saver or Store has, such as ``setup`` and ``conn``."""
        if name.startswith("_") or name == "inner":  # a copy has no attributes at first
            raise AttributeError(name)
        found = getattr(self.inner, name)
        if name == "conn":
            return unwatched(found)
        if name == "setup" and self._tables is not None:
            return _checked(self._tables, found, self.inner)
        return found


def _checked(tables: Tables, setup: Callable[[], Any], saver: Any) -> Callable[[], Any]:
    """Return a saver's method ``setup``, preceded by the check of the saver's tables."""
    if iscoroutinefunction(setup):

        async def asetup() -> Any:
            await tables.arequire(saver)
            return await setup()

        return asetup

    def checked_setup() -> Any:
        tables.require(saver)
        return setup()

    return checked_setup


def run_on_loop(check: Callable[[Any], Any], saver: Any) -> None:
    """Run a check on the loop of an async saver, from another thread.

    On the loop's own thread nothing is checked: the saver itself refuses sync calls there.
    """
    if not is_on(saver.loop):
        asyncio.run_coroutine_threadsafe(check(saver), saver.loop).result()


_KINDS: Final = {
    "langgraph.checkpoint.sqlite.SqliteSaver": ("sqlitetables", "SqliteTables"),
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": ("sqlitetables", "AioSqliteTables"),
    "langgraph.checkpoint.postgres.PostgresSaver": ("pgtables", "PostgresTables"),
    "langgraph.checkpoint.postgres.aio.AsyncPostgresSaver": ("pgtables", "AioPostgresTables"),
    "langgraph.store.sqlite.base.SqliteStore": ("sqlitetables", "SqliteTables"),
    "langgraph.store.sqlite.aio.AsyncSqliteStore": ("sqlitetables", "AioSqliteTables"),
    "langgraph.store.postgres.base.PostgresStore": ("pgtables", "PostgresTables"),
    "langgraph.store.postgres.aio.AsyncPostgresStore": ("pgtables", "AioPostgresTables"),
}


def tables_of(wrapped: Any, heads: Heads | None, **allowed: bool) -> Tables | None:
    """Return the object that checks the tables of a saver or Store; ``None`` for other classes.

    sealpoint's savers check their tables themselves; other classes, such as InMemoryStore, have no tables.
    ``allowed`` has options that turn off a check: ``allow_partial``, ``allow_schema``, ``allow_shared_role``.
    """
    for base in type(wrapped).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in _KINDS:
            module, kind = _KINDS[name]
            make: Callable[..., Tables] = getattr(import_module(f"sealpoint.sealed.{module}"), kind)
            return make(is_store=name.startswith("langgraph.store."), heads=heads, **allowed)
    return None
