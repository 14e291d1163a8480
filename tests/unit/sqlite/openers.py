"""AsyncSqliteSaver on each kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from typing import Any, Final

import aiosqlite

from sealpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.databases.checkpoints import dump

Opened = Callable[[str], AbstractAsyncContextManager[AsyncSqliteSaver]]


@asynccontextmanager
async def given(path: str) -> AsyncIterator[AsyncSqliteSaver]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield AsyncSqliteSaver(connection)


@asynccontextmanager
async def on_open(path: str) -> AsyncIterator[AsyncSqliteSaver]:
    async with aiosqlite.connect(path) as connection:
        yield AsyncSqliteSaver(connection)


@asynccontextmanager
async def on_unopened(path: str) -> AsyncIterator[AsyncSqliteSaver]:
    connection = aiosqlite.connect(path)
    try:
        yield AsyncSqliteSaver(connection)
    finally:
        await connection.close()


OWN: Final[dict[str, Opened]] = {"own": AsyncSqliteSaver.from_conn_string, "given": given}
AIOSQLITE: Final[dict[str, Opened]] = {"aiosqlite": on_open, "aiosqlite, not opened": on_unopened}
ALL: Final = {**OWN, **AIOSQLITE}


def run(opened: Opened, path: str, work: Callable[[AsyncSqliteSaver], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with opened(path) as saver:
            return await work(saver)

    return asyncio.run(run())


def rows(path: str) -> list[Any]:
    """What is in the file, past any saver."""
    with closing(sqlite3.connect(path)) as connection:
        return dump(connection)
