"""Every store of LangGraph that SealedStore wraps, and the forms in which each is tested."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import aiosqlite
import psycopg
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from sealpoint.langgraph import SealedStore
from tests.graphs.openers import CONNECTION, NO_WAITING
from tests.graphs.savers import SEALED

Opener = Callable[..., AbstractAsyncContextManager[Any]]
"""Opens a store on a path or a DSN, with options of its class."""


@dataclass(frozen=True)
class Entry:
    """A line of the table; of an ``awaited`` one the methods with an ``a`` in front are used."""

    kind: Literal["memory", "sqlite", "postgres"]
    opener: Opener
    awaited: bool = False


@asynccontextmanager
async def in_memory(place: str, **options: Any) -> AsyncIterator[Any]:
    yield InMemoryStore(**options)


@asynccontextmanager
async def on_sqlite3(place: str, **options: Any) -> AsyncIterator[Any]:
    with closing(sqlite3.connect(place, check_same_thread=False, isolation_level=None)) as connection:
        connection.execute(NO_WAITING)
        store = SqliteStore(connection, **options)
        store.setup()
        yield store


@asynccontextmanager
async def on_aiosqlite(place: str, **options: Any) -> AsyncIterator[Any]:
    async with aiosqlite.connect(place, isolation_level=None) as connection:
        await connection.execute(NO_WAITING)
        store = AsyncSqliteStore(connection, **options)
        await store.setup()
        yield store


@asynccontextmanager
async def on_psycopg(place: str, **options: Any) -> AsyncIterator[Any]:
    with psycopg.connect(place, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        store = PostgresStore(connection, **options)
        store.setup()
        yield store


@asynccontextmanager
async def on_pool(place: str, **options: Any) -> AsyncIterator[Any]:
    with ConnectionPool(place, kwargs=CONNECTION, min_size=1, max_size=3) as pool:
        store = PostgresStore(cast("Any", pool), **options)
        store.setup()
        yield store


@asynccontextmanager
async def on_async_psycopg(place: str, **options: Any) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(
        place, autocommit=True, prepare_threshold=0, row_factory=dict_row
    ) as connection:
        store = AsyncPostgresStore(connection, **options)
        await store.setup()
        yield store


@asynccontextmanager
async def on_async_pool(place: str, **options: Any) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(place, kwargs=CONNECTION, min_size=1, max_size=3) as pool:
        store = AsyncPostgresStore(cast("Any", pool), **options)
        await store.setup()
        yield store


STORES: Final = {
    "InMemoryStore": Entry("memory", in_memory),
    "SqliteStore": Entry("sqlite", on_sqlite3),
    "PostgresStore": Entry("postgres", on_psycopg),
    "AsyncSqliteStore": Entry("sqlite", on_aiosqlite, awaited=True),
    "AsyncPostgresStore": Entry("postgres", on_async_psycopg, awaited=True),
    "InMemoryStore, awaited": Entry("memory", in_memory, awaited=True),
    "PostgresStore, pool": Entry("postgres", on_pool),
    "PostgresStore, awaited": Entry("postgres", on_psycopg, awaited=True),
    "AsyncPostgresStore, pool": Entry("postgres", on_async_pool, awaited=True),
}
KINDS: Final = ("InMemoryStore", "SqliteStore", "PostgresStore")
"""One of each kind."""

FORMS: Final[dict[str, dict[str, Any]]] = {
    "sealed": {},
    "fields": {"plain_fields": ("lang",), "indexed_fields": ("user",)},
    "all options": {"plain_fields": ("lang",), "indexed_fields": ("user",), "pseudonyms": True},
}


class Sync:
    """A store whose methods are called without ``await``, also if those that are awaited are used."""

    def __init__(self, store: Any, runner: asyncio.Runner, *, awaited: bool) -> None:
        self.store, self.runner, self.awaited = store, runner, awaited

    def __getattr__(self, name: str) -> Any:
        if not self.awaited:
            return getattr(self.store, name)
        method = getattr(self.store, f"a{name}")

        def call(*arguments: Any, **named: Any) -> Any:
            return self.runner.run(method(*arguments, **named))

        return call

    def sealed(self, **options: Any) -> Sync:
        """The store within a SealedStore."""

        async def wrap() -> Any:  # where the loop runs
            return SealedStore(self.store, **{"serde": SEALED, **options})

        return Sync(self.runner.run(wrap()), self.runner, awaited=self.awaited)


@contextmanager
def opened(name: str, *places: str, **options: Any) -> Iterator[list[Sync]]:
    """A store of the table on each place, with one loop, which runs only while something is awaited."""
    entry, stack = STORES[name], AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            yield [
                Sync(
                    runner.run(stack.enter_async_context(entry.opener(place, **options))),
                    runner,
                    awaited=entry.awaited,
                )
                for place in places
            ]
        finally:
            runner.run(stack.aclose())


Execute = Callable[..., list[Any]]
"""Executes SQL, with ``?`` for each value, and returns the rows."""


@contextmanager
def beside(place: str) -> Iterator[Execute]:
    """A connection to the database of a store."""
    if "dbname" in place or "://" in place:
        with psycopg.connect(place, autocommit=True) as connection:

            def execute(statement: str, *values: Any) -> list[Any]:
                cursor: Any = connection.execute(statement.replace("?", "%s"), values)
                return cursor.fetchall() if cursor.description else []

            yield execute
    else:
        with closing(sqlite3.connect(place, isolation_level=None)) as file:
            yield lambda statement, *values: file.execute(statement, values).fetchall()
