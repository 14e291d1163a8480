"""Savers that are created before a fork, as under `gunicorn --preload` and in Celery's parent process."""

from __future__ import annotations

import asyncio
import copy
import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any
from weakref import finalize

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool

from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver, SqliteSaver
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore
from tests.postgres.test_schema import schema_of
from tests.support.keys.rings import NEW, SECRET
from tests.support.runs.forks import in_child
from tests.support.servers.postgres import schema, server

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
SAID = "ForkedError: this {} was created before the process forked, and its connection cannot be shared"
Make = Callable[[Path], Any]


def serde() -> EncryptedSerializer:
    return EncryptedSerializer(RingCipher(KeyRing([Key("k1", NEW, KeyState.ACTIVE)], index=SECRET)))


def connect(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / "state.db", check_same_thread=False)


def put(saver: Any) -> Any:
    return saver.put(CONFIG, empty_checkpoint(), {}, {})["configurable"]["checkpoint_id"]


def remembered(folder: Path) -> SealedSaver:
    store = SqliteThreadStore(folder / "threads.db", create=True)
    saver = SealedSaver(SqliteSaver(connect(folder)), serde=serde(), threads=store)
    finalize(saver, store.close)
    return saver


SAVERS: dict[str, tuple[str, Make]] = {
    "SqliteSaver": ("SqliteSaver", lambda folder: SqliteSaver(connect(folder), serde=serde())),
    "AsyncSqliteSaver": ("SqliteSaver", lambda folder: AsyncSqliteSaver(connect(folder), serde=serde())),
    "SealedSaver": ("SqliteSaver", lambda folder: SealedSaver(SqliteSaver(connect(folder)), serde=serde())),
    "SealedSaver on LangGraph's": (
        "SqliteSaver",
        lambda folder: SealedSaver(LangGraphSqliteSaver(connect(folder)), serde=serde()),
    ),
    "a copy, as `compile` makes one": (
        "SqliteSaver",
        lambda folder: copy.copy(SealedSaver(LangGraphSqliteSaver(connect(folder)), serde=serde())),
    ),
    "SealedSaver with a thread store": ("SqliteSaver", remembered),
}
USES: dict[str, Callable[[Any], object]] = {
    "put": put,
    "get_tuple": lambda saver: saver.get_tuple(CONFIG),
    "list": lambda saver: [*saver.list(CONFIG)],
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "aget_tuple": lambda saver: asyncio.run(saver.aget_tuple(CONFIG)),
    "setup": lambda saver: asyncio.run(setup) if inspect.iscoroutine(setup := saver.setup()) else setup,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", SAVERS)
def test_saver_of_the_parent_is_refused_in_the_child(name: str, use: str, tmp_path: Path) -> None:
    kind, make = SAVERS[name]
    with ExitStack() as stack:
        saver = make(tmp_path)
        stack.callback(saver.conn.close)
        stored = put(saver)
        assert in_child(lambda: USES[use](saver)) == SAID.format(kind)
        assert in_child(lambda: in_child(lambda: USES[use](saver))) == SAID.format(kind)
        assert saver.get_tuple(CONFIG).checkpoint["id"] == stored


@pytest.mark.parametrize("name", ["SqliteSaver", "SealedSaver"])
def test_fork_while_another_thread_uses_the_saver(name: str, tmp_path: Path) -> None:
    """Its lock is never released in the child, where that thread does not exist."""
    saver = SAVERS[name][1](tmp_path)
    put(saver)
    held, done = Event(), Event()

    def hold() -> None:
        with saver.lock:
            held.set()
            done.wait()

    thread = Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: saver.get_tuple(CONFIG)) == SAID.format("SqliteSaver")
    finally:
        done.set()
        thread.join()
        saver.conn.close()


def test_connection_of_aiosqlite(tmp_path: Path) -> None:
    """Its thread and its loop do not exist in the child."""

    async def make() -> AsyncSqliteSaver:
        saver = AsyncSqliteSaver(await aiosqlite.connect(tmp_path / "state.db"), serde=serde())
        await saver.aput(CONFIG, empty_checkpoint(), {}, {})
        return saver

    loop = asyncio.new_event_loop()
    try:
        saver = loop.run_until_complete(make())
        for use in ("put", "get_tuple", "aget_tuple"):
            assert in_child(lambda use=use: USES[use](saver)) == SAID.format("SqliteSaver")  # type: ignore[misc]
        assert loop.run_until_complete(saver.aget_tuple(CONFIG)) is not None
        loop.run_until_complete(saver.conn.close())  # type: ignore[func-returns-value,arg-type]
    finally:
        loop.close()


def test_end_of_a_block_in_the_child_does_not_close_the_connection(tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "state.db"), serde=serde()) as saver:
        stored = put(saver)
        assert in_child(saver._database.close) == "None"
        assert [found.checkpoint["id"] for found in saver.list(CONFIG)] == [stored]
        put(saver)


def test_saver_with_its_own_file_that_a_child_opens_too(tmp_path: Path) -> None:
    """The parent has the file closed while it forks, so that the child takes its locks itself."""
    name = str(tmp_path / "state.db")

    def work() -> None:
        with SqliteSaver.from_conn_string(name, serde=serde()) as own:
            for _ in range(20):
                put(own)

    with SqliteSaver.from_conn_string(name, serde=serde()) as saver:
        connection = saver.conn
        connection.row_factory = sqlite3.Row
        for rounds in range(1, 6):
            put(saver)
            assert in_child(work) == "None"
            assert len([*saver.list(CONFIG)]) == 21 * rounds
        assert saver.conn is connection
        assert saver.conn.row_factory is sqlite3.Row
        saver.conn.execute("BEGIN IMMEDIATE")  # of the application: it is neither closed nor ended
        assert in_child(lambda: USES["put"](saver)) == SAID.format("SqliteSaver")
        saver.conn.rollback()
        put(saver)


def test_sealed_saver_with_its_own_file_goes_on_after_a_fork(tmp_path: Path) -> None:
    """Beside a thread store it asks the connection for its state, before the saver has a statement to run."""
    name, store = tmp_path / "state.db", SqliteThreadStore(tmp_path / "threads.db", create=True)
    with SqliteSaver.from_conn_string(str(name)) as inner:
        saver = SealedSaver(inner, serde=serde(), threads=store)
        for rounds in range(1, 4):
            assert in_child(lambda: put(saver)) == SAID.format("SqliteSaver")
            stored = put(saver)
            assert in_child(lambda: None) == "None"
            assert next(saver.list(CONFIG)).checkpoint["id"] == stored
            assert in_child(lambda: None) == "None"
            assert inner.conn.execute("SELECT count(*) FROM checkpoints").fetchone() == (rounds,)
        away = name.rename(tmp_path / "away.db")
        assert in_child(lambda: None) == "None"  # nothing can be opened again
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            inner.get_tuple(CONFIG)
        away.rename(name)
        assert inner.get_tuple({"configurable": {"thread_id": "none", "checkpoint_ns": ""}}) is None
        assert len([*saver.list(CONFIG)]) == rounds
    store.close()


def test_async_saver_with_its_own_file_goes_on_after_a_fork(tmp_path: Path) -> None:
    store = SqliteThreadStore(tmp_path / "threads.db", create=True)

    async def work() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "state.db")) as inner:
            saver = SealedSaver(inner, serde=serde(), threads=store)
            for _ in range(3):
                stored = await saver.aput(CONFIG, empty_checkpoint(), {}, {})
                assert in_child(lambda: None) == "None"
                found = await saver.aget_tuple(CONFIG)
                assert found is not None
                assert found.config == stored
                assert in_child(lambda: None) == "None"

    asyncio.run(work())
    store.close()


def test_saver_that_the_child_creates(tmp_path: Path) -> None:
    """Also on the ring and on the thread store of the parent."""
    ring, store = serde(), SqliteThreadStore(tmp_path / "threads.db", create=True)
    ours = SealedSaver(SqliteSaver(connect(tmp_path)), serde=ring, threads=store)
    put(ours)

    def work() -> object:
        theirs = SealedSaver(SqliteSaver(connect(tmp_path)), serde=ring, threads=store)
        return put(theirs) == theirs.get_tuple(CONFIG).checkpoint["id"]  # type: ignore[union-attr]

    assert in_child(work) == "True"
    ours.conn.close()
    store.close()


def test_saver_in_memory_goes_on_in_the_child() -> None:
    saver = SealedSaver(InMemorySaver(), serde=serde())
    put(saver)
    assert in_child(lambda: saver.get_tuple(CONFIG) is not None) == "True"


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with schema(server(pytestconfig)) as dsn:
        with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
            PostgresSaver(connection).setup()
        yield dsn


def pool(url: str, *, opened: bool) -> ConnectionPool[psycopg.Connection[DictRow]]:
    options = {"autocommit": True, "row_factory": dict_row}
    return ConnectionPool(url, kwargs=options, min_size=1, open=opened)


def test_connection_and_pool_of_postgres(url: str) -> None:
    store = PostgresThreadStore(url, schema=f"{schema_of(url)}_threads", create=True)
    with (
        psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection,
        pool(url, opened=True) as connections,
    ):
        for conn in (connection, connections):
            saver = SealedSaver(PostgresSaver(conn), serde=serde(), threads=store, allow_shared_role=True)
            put(saver)
            assert in_child(lambda: put(saver)) == SAID.format("PostgresSaver")  # noqa: B023
            assert saver.get_tuple(CONFIG) is not None
    store.close()


def test_pool_that_the_child_opens(url: str) -> None:
    """Created by the parent with ``open=False``, as applications do at import."""
    connections = pool(url, opened=False)
    store = PostgresThreadStore(url, schema=f"{schema_of(url)}_threads", create=True)
    saver = SealedSaver(PostgresSaver(connections), serde=serde(), threads=store, allow_shared_role=True)

    def work() -> object:
        with connections:
            return put(saver) == saver.get_tuple(CONFIG).checkpoint["id"]  # type: ignore[union-attr]

    assert in_child(work) == "True"
    store.close()
