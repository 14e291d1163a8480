"""The tables of the wrapped saver or Store: what is looked at before it is used.

What hangs on a table runs in the session of the saver that writes it: a trigger could drop or copy rows, a
view could answer with other ones. LangGraph takes a schema as it comes. So it is checked here, by the
functions that `SqliteSaver` and the commands of this package use: on Postgres at the first use, on SQLite
also whenever it has changed. A change while a call runs is noticed by the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final, Protocol

from sealpoint.base.saver import arun, run
from sealpoint.crypto.cipher import CipherTally
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.steps import R, Steps, areply, reply
from sealpoint.threadpool import is_on


class Tables(Protocol):
    """The tables of one database."""

    def require(self, saver: Any) -> None:
        """Look at them, through the connection of a saver or Store.

        Raises:
            SchemaError: If a statement could do or show something else than it says.
        """

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`."""


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


def run_on_loop(check: Callable[[Any], Any], saver: Any) -> None:
    """Run a check on the loop of an async saver, from another thread.

    On the loop's own thread nothing is checked: there the saver refuses each call that is not awaited.
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


def tables_of(
    wrapped: Any, heads: Heads | None, *, allow_partial: bool, allow_schema: bool, allow_shared_role: bool
) -> Tables | None:
    """Return what looks at the tables of a saver or Store; each option is what it is told not to look at.

    sealpoint's savers look at their tables themselves, and others, such as InMemoryStore, have none that are
    known here.
    """
    for base in type(wrapped).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in _KINDS:
            module, kind = _KINDS[name]
            found: Tables = getattr(import_module(f"sealpoint.sealed.{module}"), kind).of(
                is_store=name.startswith("langgraph.store."),
                heads=heads,
                allow_partial=allow_partial,
                allow_schema=allow_schema,
                allow_shared_role=allow_shared_role,
            )
            return found
    return None
