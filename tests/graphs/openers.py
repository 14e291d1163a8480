"""How each saver is opened: on a file, on Postgres or in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final, Literal

import aiosqlite
import psycopg
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from sealpoint.langgraph import AsyncSqliteSaver, InMemorySaver, SealedSaver
from tests.support.databases.threads import thread_store

NO_WAITING: Final = "PRAGMA synchronous = OFF"
"""The files need not survive a power cut."""

Kind = Literal["memory", "file", "postgres"]
Opener = Callable[[str, Any], AbstractAsyncContextManager[Any]]
"""Opens a saver: on a path or a DSN, with a serializer or None."""


@dataclass(frozen=True)
class Entry:
    """A line of the table.

    Attributes:
        awaited: Whether the graph's methods with an ``a`` in front are used.
        keeps_history: Whether more than the last checkpoint is kept.
    """

    kind: Kind
    opener: Opener
    awaited: bool = False
    keeps_history: bool = True


def on_sqlite3(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        with closing(sqlite3.connect(place, check_same_thread=False)) as connection:
            connection.execute(NO_WAITING)
            yield saver(connection, serde=serde)

    return opener


def on_aiosqlite(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        async with aiosqlite.connect(place) as connection:
            await connection.execute(NO_WAITING)
            yield saver(connection, serde=serde)

    return opener


def on_psycopg(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        with psycopg.connect(place, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
            opened = saver(connection, serde=serde)
            opened.setup()
            yield opened

    return opener


def on_async_psycopg(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(
            place, autocommit=True, prepare_threshold=0, row_factory=dict_row
        ) as connection:
            opened = saver(connection, serde=serde)
            await opened.setup()
            yield opened

    return opener


@asynccontextmanager
async def their_memory(place: str, serde: Any) -> AsyncIterator[Any]:
    yield TheirMemory(serde=serde)


@asynccontextmanager
async def our_memory(place: str, serde: Any) -> AsyncIterator[Any]:
    with InMemorySaver(serde=serde) as saver:
        yield saver


@asynccontextmanager
async def ours_by_path(place: str, serde: Any) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(place, serde=serde) as saver:
        saver.conn.execute(NO_WAITING)
        yield saver


# --- pools and pipelines --------------------------------------------------------------------------

CONNECTION: Final[dict[str, Any]] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


def on_pool(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        with ConnectionPool(place, kwargs=CONNECTION, min_size=1, max_size=3) as pool:
            opened = saver(pool, serde=serde)
            opened.setup()
            yield opened

    return opener


def on_async_pool(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        async with AsyncConnectionPool(place, kwargs=CONNECTION, min_size=1, max_size=3, open=False) as pool:
            opened = saver(pool, serde=serde)
            await opened.setup()
            yield opened

    return opener


def on_pipeline(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        async with on_psycopg(saver)(place, serde):
            pass  # the tables, which a pipeline does not make
        with psycopg.connect(place, **CONNECTION) as connection, connection.pipeline() as pipe:
            yield saver(connection, pipe, serde=serde)

    return opener


def on_async_pipeline(saver: Any) -> Opener:
    @asynccontextmanager
    async def opener(place: str, serde: Any) -> AsyncIterator[Any]:
        async with on_async_psycopg(saver)(place, serde):
            pass
        async with (
            await psycopg.AsyncConnection.connect(place, **CONNECTION) as connection,
            connection.pipeline() as pipe,
        ):
            yield saver(connection, pipe, serde=serde)

    return opener


# --- wrapped --------------------------------------------------------------------------------------


def wrapped(opener: Opener, *, beside_a_store: bool = False, **options: Any) -> Opener:
    """With a serializer: SealedSaver around the saver without any, perhaps beside a thread store."""

    @asynccontextmanager
    async def sealed(place: str, serde: Any) -> AsyncIterator[Any]:
        async with opener(place, None) as saver:
            if serde is None:
                yield saver
            elif beside_a_store:
                with thread_store(place) as threads:
                    yield SealedSaver(saver, serde=serde, threads=threads, allow_shared_role=True, **options)
            else:
                yield SealedSaver(saver, serde=serde, **options)

    return sealed
