"""The tables of the installed LangGraph pass the check of SealedSaver, and a trigger on them does not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row

from sealpoint.errors import SchemaError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.servers.postgres import schema, server

SERDE = EncryptedSerializer.from_key(bytes(range(32)))
CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with schema(server(pytestconfig)) as dsn:
        yield dsn


def use(inner: Any) -> None:
    """Make the tables, then store and read."""
    saver: Any = SealedSaver(inner, serde=SERDE)
    saver.setup()
    config = saver.put(CONFIG, empty_checkpoint(), {"source": "input", "step": -1}, {})
    saver.put_writes(config, [("n", 1)], "task")
    assert saver.get_tuple(CONFIG).pending_writes == [("task", "n", 1)]


async def ause(inner: Any) -> None:
    saver: Any = SealedSaver(inner, serde=SERDE)
    await saver.setup()
    config = await saver.aput(CONFIG, empty_checkpoint(), {"source": "input", "step": -1}, {})
    await saver.aput_writes(config, [("n", 1)], "task")
    assert (await saver.aget_tuple(CONFIG)).pending_writes == [("task", "n", 1)]


def test_sqlite(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", check_same_thread=False)) as connection:
        use(SqliteSaver(connection))
        connection.execute("CREATE TRIGGER mine AFTER INSERT ON writes BEGIN SELECT 1; END")
        with pytest.raises(SchemaError, match="trigger 'mine'"):
            SealedSaver(SqliteSaver(connection), serde=SERDE).get_tuple(CONFIG)


def test_async_sqlite(tmp_path: Path) -> None:
    async def run() -> None:
        async with aiosqlite.connect(tmp_path / "x.db") as connection:
            await ause(AsyncSqliteSaver(connection))
            await connection.execute("CREATE TRIGGER mine AFTER INSERT ON writes BEGIN SELECT 1; END")
            with pytest.raises(SchemaError, match="trigger 'mine'"):
                await SealedSaver(AsyncSqliteSaver(connection), serde=SERDE).aget_tuple(CONFIG)

    asyncio.run(run())


def test_postgres(url: str) -> None:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        use(PostgresSaver(connection))
        connection.execute("CREATE RULE mine AS ON INSERT TO checkpoints DO INSTEAD NOTHING")
        with pytest.raises(SchemaError, match="rule 'mine'"):
            SealedSaver(PostgresSaver(connection), serde=SERDE).get_tuple(CONFIG)


def test_async_postgres(url: str) -> None:
    async def run() -> None:
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, row_factory=dict_row
        ) as connection:
            await ause(AsyncPostgresSaver(connection))
            await connection.execute("CREATE RULE mine AS ON INSERT TO checkpoints DO INSTEAD NOTHING")
            with pytest.raises(SchemaError, match="rule 'mine'"):
                await SealedSaver(AsyncPostgresSaver(connection), serde=SERDE).aget_tuple(CONFIG)

    asyncio.run(run())
