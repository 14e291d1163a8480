"""Beside a thread store, a statement that fails, or a task that is cancelled, ends one call only."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final, TypedDict

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from psycopg.rows import dict_row

from sealpoint.errors import ConfigError
from sealpoint.langgraph import SealedSaver
from sealpoint.sqlite import SqliteSaver as OurSqliteSaver
from sealpoint.sqlite.aio import AsyncSqliteSaver as OurAsyncSqliteSaver
from sealpoint.threads import MemoryThreadStore
from tests.graphs.savers import SEALED
from tests.sealed.savers import HEADS, SAVERS, opened
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server


def begins_transactions() -> bool:
    """Whether an INSERT does, which it does not in a Turkish locale on Python 3.11 and 3.12."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (1)")
        return connection.in_transaction


needs_transactions: Final = pytest.mark.skipif(
    not begins_transactions(), reason="in this locale Python's sqlite3 begins no transaction for an INSERT"
)
AT: Final[Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
METADATA: Final[Any] = {"step": 1}
REFUSED: Final = "transaction that other code began"


def checkpoint(number: int) -> Any:
    return {**empty_checkpoint(), "id": f"{number:08}"}


class Stage:
    """LangGraph's asynchronous saver within SealedSaver, and another connection to its file.

    Attributes:
        bare: The saver.
        saver: The same within SealedSaver, with a checkpoint.
        config: Names that checkpoint.
        other: The other connection.
    """

    def __init__(self, bare: AsyncSqliteSaver, other: sqlite3.Connection) -> None:
        self.bare, self.other = bare, other
        self.saver = SealedSaver(bare, serde=SEALED, threads=MemoryThreadStore())
        self.config: Any = None

    async def ids(self) -> list[str]:
        return [found.checkpoint["id"] async for found in self.saver.alist(AT)]

    async def require_usable(self, *ids: str) -> None:
        """Check which checkpoints there are, and that another one can be stored."""
        assert await self.ids() == [*ids]
        assert not self.bare.conn.in_transaction
        last: Any = await self.saver.aget_tuple(AT)
        assert last.checkpoint["id"] == ids[0]
        await self.saver.aput(last.config, checkpoint(90), METADATA, {})
        assert await self.ids() == [checkpoint(90)["id"], *ids]
        stored = self.other.execute("SELECT checkpoint_id FROM checkpoints ORDER BY 1 DESC").fetchall()
        assert [checkpoint_id for (checkpoint_id,) in stored] == [checkpoint(90)["id"], *ids]


@asynccontextmanager
async def stage(folder: Path, *, busy_timeout_ms: int = 0) -> AsyncIterator[Stage]:
    path = str(folder / "db")
    async with AsyncSqliteSaver.from_conn_string(path) as bare:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            made = Stage(bare, other)
            made.config = await made.saver.aput(AT, checkpoint(1), METADATA, {})
            await bare.conn.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
            yield made


async def update_state(of: Stage) -> None:
    class State(TypedDict):
        text: str

    graph = StateGraph(State)
    graph.add_node("node", lambda state: state)
    graph.add_edge(START, "node")
    agent = graph.compile(checkpointer=of.saver)
    await agent.aupdate_state({"configurable": {"thread_id": "other"}}, {"text": "x"}, as_node="node")


ACTS: Final[dict[str, Callable[[Stage], Awaitable[Any]]]] = {
    "put": lambda of: of.saver.aput(of.config, checkpoint(2), METADATA, {}),
    "put_writes": lambda of: of.saver.aput_writes(of.config, [("a", 1)], "task"),
    "update_state": update_state,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_locked_database(tmp_path: Path, act: str) -> None:
    async def run() -> None:
        async with stage(tmp_path) as of:
            of.other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await ACTS[act](of)
            of.other.execute("ROLLBACK")
            await of.require_usable("00000001")

    asyncio.run(run())


@needs_transactions
@pytest.mark.parametrize("act", ACTS)
def test_a_task_cancelled_while_its_statement_runs(tmp_path: Path, act: str) -> None:
    """The statement runs to its end all the same, and begins a transaction that its task will not commit."""

    async def run() -> None:
        async with stage(tmp_path, busy_timeout_ms=60_000) as of:
            loop, reached = asyncio.get_running_loop(), asyncio.Event()

            def trace(statement: str) -> None:
                if statement.startswith("INSERT"):
                    loop.call_soon_threadsafe(reached.set)

            await of.bare.conn.set_trace_callback(trace)
            of.other.execute("BEGIN IMMEDIATE")
            task = asyncio.ensure_future(ACTS[act](of))
            await reached.wait()
            task.cancel()
            await asyncio.sleep(0)
            of.other.execute("ROLLBACK")
            with pytest.raises(asyncio.CancelledError):
                await task
            await of.require_usable("00000001")

    asyncio.run(run())


@needs_transactions
def test_a_coroutine_that_is_closed(tmp_path: Path) -> None:
    """It may not wait any more, so the next call rolls back."""

    async def run() -> None:
        async with stage(tmp_path) as of:
            steps = of.saver.aput(of.config, checkpoint(2), METADATA, {}).__await__()
            while not of.bare.conn.in_transaction:
                future = next(steps)
                future._asyncio_future_blocking = False  # as a task does
                await asyncio.wait([future])
                if future.exception() is not None:
                    raise future.exception()
            steps.close()
            await of.require_usable("00000001")

    asyncio.run(run())


@needs_transactions
def test_a_task_cancelled_at_any_moment(tmp_path: Path) -> None:
    """Also while its statement waits for the thread, and begins the transaction after the task."""

    async def run() -> None:
        async with stage(tmp_path) as of:
            conn: Any = of.bare.conn
            for moment in [*range(40)] * by_extent(3, 8):
                task = asyncio.ensure_future(of.saver.aput(of.config, checkpoint(2), METADATA, {}))
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await conn._execute(lambda: None)  # all that was queued has run
                assert not conn.in_transaction

    asyncio.run(run())


@needs_transactions
def test_a_transaction_of_the_caller_is_refused_and_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path) as of:
            conn = of.bare.conn
            await conn.execute("CREATE TABLE own (n)")
            for connection in (conn, of.saver.conn):
                await connection.execute("INSERT INTO own VALUES (1)")
                for _ in range(2):
                    with pytest.raises(ConfigError, match=REFUSED):
                        await of.saver.aget_tuple(AT)
                await connection.commit()
            assert of.other.execute("SELECT count(*) FROM own").fetchone() == (2,)
            await of.require_usable("00000001")

    asyncio.run(run())


def test_a_call_that_fails_within_a_transaction_of_the_caller(tmp_path: Path) -> None:
    """The caller began it after the call was let in: what it did is not rolled back."""

    async def run() -> None:
        async with stage(tmp_path) as of:
            conn = of.bare.conn
            async with of.bare.lock:
                task = asyncio.ensure_future(of.saver.aput(of.config, checkpoint(2), METADATA, {}))
                await asyncio.sleep(0)
                await conn.execute("BEGIN")
                of.other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await task
            of.other.execute("ROLLBACK")
            assert conn.in_transaction
            with pytest.raises(ConfigError, match=REFUSED):
                await of.saver.aget_tuple(AT)
            await conn.rollback()
            await of.require_usable("00000001")

    asyncio.run(run())


def test_a_call_that_fails_beside_another(tmp_path: Path) -> None:
    """One waits for the saver while another is in its transaction, which is not rolled back."""

    async def run() -> None:
        async with stage(tmp_path, busy_timeout_ms=60_000) as of:
            loop, reached = asyncio.get_running_loop(), asyncio.Event()
            await of.bare.conn.set_trace_callback(lambda _: loop.call_soon_threadsafe(reached.set))
            of.other.execute("BEGIN IMMEDIATE")
            task = asyncio.ensure_future(of.saver.aput(of.config, checkpoint(2), METADATA, {}))
            await reached.wait()
            waiting = asyncio.ensure_future(of.saver.aput(of.config, checkpoint(3), METADATA, {}))
            for _ in range(5):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            of.other.execute("ROLLBACK")
            await task
            await of.require_usable("00000002", "00000001")

    asyncio.run(run())


class Asked(sqlite3.Connection):
    """Notes which threads ask whether it is in a transaction.

    From SQLite 3.53 on they would wait for the statement that runs, with Python's lock held: for ever if it
    calls back.
    """

    askers: set[int] | None = None

    @property
    def in_transaction(self) -> bool:
        if self.askers is not None:
            self.askers.add(threading.get_ident())
        return super().in_transaction


def test_a_connection_is_not_asked_while_its_statement_runs(tmp_path: Path) -> None:
    """Our saver's; LangGraph's is locked before, while its tables are looked at."""
    reached, called = threading.Event(), threading.Event()

    class Saver(OurSqliteSaver):
        def put_writes(self, *arguments: Any) -> None:
            called.set()
            super().put_writes(*arguments)

    def put() -> int:
        saver.put(config, checkpoint(2), METADATA, {})
        return threading.get_ident()

    path = tmp_path / "db"
    with (
        closing(sqlite3.connect(path, check_same_thread=False, factory=Asked)) as connection,
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
        ThreadPoolExecutor() as pool,
    ):
        saver = SealedSaver(Saver(connection), serde=SEALED, threads=MemoryThreadStore())
        config = saver.put(AT, checkpoint(1), METADATA, {})
        other.execute("BEGIN IMMEDIATE")
        connection.set_trace_callback(lambda _: reached.set())
        first = pool.submit(put)
        assert reached.wait(60)
        connection.askers = set()
        second = pool.submit(saver.put_writes, config, [("a", 1)], "task")
        assert called.wait(60)
        askers, connection.askers = connection.askers, None
        other.execute("ROLLBACK")
        second.result()
        assert askers <= {first.result()}
        assert len([*saver.list(AT)]) == 2


def test_a_connection_of_aiosqlite_is_not_asked_while_its_statement_runs(tmp_path: Path) -> None:
    """Of our saver, whose lock is another one."""

    async def run() -> None:
        loop, reached, called = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        class Saver(OurAsyncSqliteSaver):
            def put_writes(self, *arguments: Any) -> None:
                loop.call_soon_threadsafe(called.set)
                super().put_writes(*arguments)

        async with aiosqlite.connect(tmp_path / "db", factory=Asked) as connection:
            with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
                saver = SealedSaver(Saver(connection), serde=SEALED, threads=MemoryThreadStore())
                config = await saver.aput(AT, checkpoint(1), METADATA, {})
                plain: Any = connection._conn
                execute: Any = connection._execute
                own = await execute(threading.get_ident)
                other.execute("BEGIN IMMEDIATE")
                await connection.set_trace_callback(lambda _: loop.call_soon_threadsafe(reached.set))
                first = asyncio.ensure_future(saver.aput(config, checkpoint(2), METADATA, {}))
                await reached.wait()
                plain.askers = set()
                second = asyncio.ensure_future(saver.aput_writes(config, [("a", 1)], "task"))
                await called.wait()
                askers, plain.askers = plain.askers, None
                other.execute("ROLLBACK")
                await first
                await second
                assert askers <= {own}

    asyncio.run(run())


def test_a_saver_with_a_lock_and_without_a_connection() -> None:
    class Saver(InMemorySaver):
        lock = threading.Lock()

    saver = SealedSaver(Saver(), serde=SEALED, threads=MemoryThreadStore())
    saver.put(AT, checkpoint(1), METADATA, {})
    assert saver.get_tuple(AT)


def test_a_connection_of_an_asynchronous_saver_is_asked_on_its_thread(tmp_path: Path) -> None:
    async def run() -> None:
        async with aiosqlite.connect(tmp_path / "db", factory=Asked) as connection:
            with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
                of = Stage(AsyncSqliteSaver(connection), other)
                plain: Any = connection._conn
                plain.askers = set()
                of.config = await of.saver.aput(AT, checkpoint(1), METADATA, {})
                for act in ACTS.values():
                    await act(of)
                assert threading.get_ident() not in plain.askers
                assert plain.askers

    asyncio.run(run())


def test_the_first_page_of_a_file_may_be_in_memory(tmp_path: Path) -> None:
    """As after a statement whose cursor nobody has read to its end."""

    async def run() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as bare:
            await bare.conn.execute("PRAGMA journal_mode = WAL")
            saver = SealedSaver(bare, serde=SEALED, threads=MemoryThreadStore())
            await saver.aput(AT, checkpoint(1), METADATA, {})
            assert await saver.aget_tuple(AT)

    asyncio.run(run())


def test_methods_without_await_on_an_asynchronous_saver(tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path) as of:
            of.other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await asyncio.to_thread(of.saver.put, of.config, checkpoint(2), METADATA, {})
            of.other.execute("ROLLBACK")
            assert not of.bare.conn.in_transaction
            found = await asyncio.to_thread(of.saver.get_tuple, AT)
            assert found is not None
            await of.bare.conn.execute("BEGIN")
            with pytest.raises(ConfigError, match=REFUSED):
                await asyncio.to_thread(of.saver.get_tuple, AT)
            await of.bare.conn.rollback()
            await of.require_usable("00000001")

    asyncio.run(run())


class Failing(sqlite3.Connection):
    """Cannot commit while `is_locked`: like a file without WAL that another process reads."""

    is_locked = False

    def commit(self) -> None:
        if self.is_locked:
            raise sqlite3.OperationalError("database is locked")
        super().commit()


@pytest.mark.parametrize("options", [{"isolation_level": None}, {"autocommit": True}], ids=str)
def test_a_connection_without_transactions(tmp_path: Path, options: dict[str, Any]) -> None:
    """A part of a call would stay when its process ends, and be refused from then on."""
    if "autocommit" in options and sys.version_info < (3, 12):
        pytest.skip("new in Python 3.12")
    with closing(sqlite3.connect(tmp_path / "db", check_same_thread=False, **options)) as connection:
        for threads in (None, MemoryThreadStore()):
            with pytest.raises(ConfigError, match="each write of a call alone"):
                SealedSaver(SqliteSaver(connection), serde=SEALED, threads=threads).get_tuple(AT)
        allowed = SealedSaver(SqliteSaver(connection), serde=SEALED, allow_partial_writes=True)
        allowed.put_writes(allowed.put(AT, checkpoint(1), METADATA, {}), [("a", 1)], "task")
        assert len([*allowed.list(AT)]) == 1


@needs_transactions
def test_a_commit_that_fails(tmp_path: Path) -> None:
    """LangGraph's synchronous saver leaves the row in the transaction: the next call would store it."""
    path = tmp_path / "db"
    with closing(sqlite3.connect(path, check_same_thread=False, factory=Failing)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED, threads=MemoryThreadStore())
        config = saver.put(AT, checkpoint(1), METADATA, {})
        for act in (
            lambda: saver.put(config, checkpoint(2), METADATA, {}),
            lambda: saver.put_writes(config, [("a", 1)], "task"),
        ):
            connection.is_locked = True
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                act()
            connection.is_locked = False
            found = [*saver.list(AT)]
            assert [(each.checkpoint["id"], each.pending_writes) for each in found] == [("00000001", [])]
        saver.put(config, checkpoint(2), METADATA, {})
        connection.execute("BEGIN")
        with pytest.raises(ConfigError, match=REFUSED):
            saver.get_tuple(AT)
        connection.rollback()
        assert saver.conn is connection
        saver.put(config, checkpoint(3), METADATA, {})
        assert [each.checkpoint["id"] for each in saver.list(AT)] == ["00000003", "00000002", "00000001"]


@pytest.fixture
def dsn(pytestconfig: pytest.Config) -> Any:
    with schema(server(pytestconfig)) as made:
        yield made


def test_a_failed_transaction_of_the_caller_on_postgres(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        bare = PostgresSaver(connection)
        bare.setup()
        saver = SealedSaver(bare, serde=SEALED, threads=MemoryThreadStore())
        config = saver.put(AT, checkpoint(1), METADATA, {})
        connection.execute("SET statement_timeout = 200")
        with psycopg.connect(dsn) as other:
            other.execute("LOCK TABLE checkpoints")
            with pytest.raises(psycopg.errors.QueryCanceled):
                saver.put(config, checkpoint(2), METADATA, {})
        assert [each.checkpoint["id"] for each in saver.list(AT)] == ["00000001"]
        connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT FROM nothing")
        with pytest.raises(ConfigError, match=REFUSED):
            saver.get_tuple(AT)
        connection.execute("ROLLBACK")
        assert saver.get_tuple(AT) is not None


AWAITED: Final = [name for name, entry in SAVERS.items() if entry.awaited and "pipeline" not in name]


@pytest.mark.parametrize("name", AWAITED)
def test_a_task_cancelled_anywhere(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """After so many turns of the loop, once and twice; the second time psycopg closes a connection."""
    often = (1,) if name == "LangGraph AsyncPostgresSaver" else (1, 2)
    place = request.getfixturevalue("dsn") if SAVERS[name].kind == "postgres" else str(tmp_path / "db")

    async def run(saver: Any) -> None:
        config = await saver.aput(AT, checkpoint(0), METADATA, {})
        for turns in range(0, 40, by_extent(4, 1)):
            for times in often:
                task = asyncio.ensure_future(saver.aput(config, checkpoint(2 * turns + times), METADATA, {}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                for _ in range(times):
                    task.cancel()
                    await asyncio.sleep(0)
                await asyncio.wait([task])
                config = await saver.aput(config, checkpoint(100 + 2 * turns + times), METADATA, {})
                last = await saver.aget_tuple(AT)
                assert last.checkpoint["id"] == config["configurable"]["checkpoint_id"]
        assert len([found async for found in saver.alist(AT)]) > len(range(0, 40, by_extent(4, 1)))

    with opened(name, place, HEADS) as (saver, runner):
        runner.run(run(saver))
