"""A row that cannot be opened stops the graph: our error, its hint in the traceback, nothing changed."""

from __future__ import annotations

import asyncio
import sqlite3
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync
from langgraph.types import Command

from sealpoint.errors import IntegrityError, PlaintextError, SealedValueError, SealpointError, UnknownKeyError
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, InMemorySaver, SqliteSaver
from tests.compat.agents import QUESTION, THREAD, agent, counter

SEALED: Final = EncryptedSerializer.from_key(bytes(range(32)))
COUNTER: Final[Any] = {"configurable": {"thread_id": "counter"}}

DAMAGES: Final[dict[str, tuple[str, type[SealpointError]]]] = {
    "a changed byte": (
        "{blob} = CAST(substr({blob}, 1, 70) || iif(substr({blob}, 71, 1) = x'00', x'01', x'00')"
        " || substr({blob}, 72) AS BLOB)",
        IntegrityError,
    ),
    "another type": ("type = 'bytes' || substr(type, instr(type, '+'))", IntegrityError),
    "an unknown key": ("type = replace(type, '@k1', '@k2')", UnknownKeyError),
    "no seal": ("type = 'bytes'", PlaintextError),
    "cut off": ("{blob} = substr({blob}, 1, 20)", SealedValueError),
    "a text": ("{blob} = 'text'", SealedValueError),
}
TABLES: Final = {"checkpoints": "checkpoint", "writes": "value"}


def damage(connection: sqlite3.Connection, table: str, how: str) -> None:
    """Damage every row of a table."""
    change = DAMAGES[how][0].format(blob=TABLES[table])
    assert connection.execute(f"UPDATE {table} SET {change}").rowcount > 0
    connection.commit()


def dump(connection: sqlite3.Connection) -> list[Any]:
    """All rows, byte for byte, with the types that SQLite stores them in."""
    columns = {"checkpoints": "typeof(checkpoint)", "writes": "typeof(value)"}
    return [
        connection.execute(f"SELECT rowid, {kind}, * FROM {table} ORDER BY rowid").fetchall()
        for table, kind in columns.items()
    ]


OPERATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "invoke": lambda graph: graph.invoke(Command(resume=True), THREAD),
    "invoke anew": lambda graph: graph.invoke(QUESTION, THREAD),
    "stream": lambda graph: [*graph.stream(Command(resume=True), THREAD)],
    "get_state": lambda graph: graph.get_state(THREAD),
    "get_state_history": lambda graph: [*graph.get_state_history(THREAD)],
    "update_state": lambda graph: graph.update_state(THREAD, {"log": ["more"]}),
}


async def collect(found: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in found]


ASYNC_OPERATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "ainvoke": lambda graph: graph.ainvoke(Command(resume=True), THREAD),
    "astream": lambda graph: collect(graph.astream(Command(resume=True), THREAD)),
    "aget_state": lambda graph: graph.aget_state(THREAD),
    "aget_state_history": lambda graph: collect(graph.aget_state_history(THREAD)),
    "aupdate_state": lambda graph: graph.aupdate_state(THREAD, {"log": ["more"]}),
}


def check_error(error: BaseException, how: str) -> None:
    """Exactly this error, and what to do about it under the traceback."""
    wanted = DAMAGES[how][1]
    assert type(error) is wanted
    assert isinstance(error, SealpointError)
    assert error.hint
    assert f"\nhint: {error.hint}\n" in "".join(traceback.format_exception(error))


@pytest.fixture(params=[Theirs, SqliteSaver, InMemorySaver], ids=["theirs", "ours", "in memory"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param is InMemorySaver:
        with InMemorySaver(serde=SEALED) as memory:
            yield memory
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield request.param(connection, serde=SEALED)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("table", TABLES)
def test_it_stops_the_graph(saver: Any, table: str, how: str) -> None:
    graph = agent(saver)
    graph.invoke(QUESTION, THREAD)
    damage(saver.conn, table, how)
    before = dump(saver.conn)
    for operation in OPERATIONS.values():
        with pytest.raises(SealpointError) as stopped:
            operation(graph)
        check_error(stopped.value, how)
        assert dump(saver.conn) == before


@asynccontextmanager
async def theirs(path: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        yield TheirAsync(connection, serde=SEALED)


@asynccontextmanager
async def on_aiosqlite(path: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as connection:
        yield AsyncSqliteSaver(connection, serde=SEALED)


def own(path: str) -> Any:
    return AsyncSqliteSaver.from_conn_string(path, serde=SEALED)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("opened", [theirs, own, on_aiosqlite])
def test_it_stops_the_graph_on_a_loop(opened: Any, how: str, tmp_path: Any) -> None:
    path = str(tmp_path / "db")

    async def run() -> None:
        async with opened(path) as saver:
            graph = agent(saver)
            await graph.ainvoke(QUESTION, THREAD)
            with closing(sqlite3.connect(path)) as outside:
                damage(outside, "checkpoints", how)
                before = dump(outside)
                for operation in ASYNC_OPERATIONS.values():
                    with pytest.raises(SealpointError) as stopped:
                        await operation(graph)
                    check_error(stopped.value, how)
                    assert dump(outside) == before

    asyncio.run(run())


def test_the_same_operations_change_a_sound_database(saver: Any) -> None:
    """So that the tests above compare what would have changed."""
    graph = agent(saver)
    graph.invoke(QUESTION, THREAD)
    for name in ("update_state", "invoke", "invoke anew"):
        before = dump(saver.conn)
        OPERATIONS[name](graph)
        assert dump(saver.conn) != before


def test_one_write_that_a_delta_channel_needs_is_enough(saver: Any) -> None:
    """Its update is not left out of the rebuilt state: the graph stops, though the latest rows are sound."""
    graph = counter(saver, 6)
    graph.invoke({"n": 0, "items": ["start"]}, COUNTER)
    conn = saver.conn
    sound = graph.get_state(COUNTER).values["items"]
    (latest,) = conn.execute("SELECT max(checkpoint_id) FROM checkpoints").fetchone()
    needed = []
    for rowid, kind in conn.execute(
        "SELECT rowid, type FROM writes WHERE channel = 'items' AND checkpoint_id < ?", (latest,)
    ).fetchall():
        conn.execute("UPDATE writes SET type = 'msgpack' WHERE rowid = ?", (rowid,))
        before = dump(conn)
        try:
            assert graph.get_state(COUNTER).values["items"] == sound
        except PlaintextError:
            needed.append(rowid)
            with pytest.raises(PlaintextError):
                graph.invoke({"n": 7}, COUNTER)
            with pytest.raises(PlaintextError):
                graph.update_state(COUNTER, {"items": ["more"]})
        assert dump(conn) == before
        conn.execute("UPDATE writes SET type = ? WHERE rowid = ?", (kind, rowid))
    assert needed
    assert graph.get_state(COUNTER).values["items"] == sound
