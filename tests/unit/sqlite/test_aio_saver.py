"""AsyncSqliteSaver: on a connection of its own, of the caller's, and of aiosqlite."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import aiosqlite
import pytest

from sealpoint.errors import ConfigError
from sealpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.databases.checkpoints import at, make
from tests.unit.sqlite.openers import AIOSQLITE, OWN, Opened, rows, run


@pytest.fixture(params=AIOSQLITE)
def on_aiosqlite(request: pytest.FixtureRequest) -> Any:
    return AIOSQLITE[request.param]


def test_setup_is_awaited_and_makes_the_tables(opened: Opened, path: str) -> None:
    async def work(saver: AsyncSqliteSaver) -> None:
        assert not saver.is_setup
        await saver.setup()
        await saver.setup()
        assert saver.is_setup

    run(opened, path, work)
    assert rows(path) == []


def test_the_connection_is_the_one_that_was_given(path: str) -> None:
    async def work() -> None:
        async with aiosqlite.connect(path) as connection:
            assert vars(AsyncSqliteSaver(connection))["conn"] is connection
        with pytest.raises(ConfigError, match="str is not a connection"):
            AsyncSqliteSaver("db")

    asyncio.run(work())


def test_one_of_its_own_is_closed_at_the_end(path: str) -> None:
    """Also after an error, which goes on."""

    async def fail(saver: AsyncSqliteSaver) -> None:
        await saver.aput(at(), make("1"), {}, {})
        kept.append(saver)
        raise KeyboardInterrupt

    kept: list[AsyncSqliteSaver] = []
    with pytest.raises(KeyboardInterrupt):
        run(AsyncSqliteSaver.from_conn_string, path, fail)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        kept[0].get_tuple(at())
    assert len(rows(path)) == 1


def test_a_closed_connection_of_aiosqlite_is_not_opened_again(path: str) -> None:
    async def work() -> None:
        for opened in AIOSQLITE.values():
            async with opened(path) as saver:
                await saver.setup()
            with pytest.raises(ValueError, match="onnection"):
                await saver.aget_tuple(at())

    asyncio.run(work())


# --- the methods without an 'a' -------------------------------------------------------------------


def use(saver: AsyncSqliteSaver) -> list[Any]:
    config = saver.put(at(), make("1", x=1), {}, {})
    saver.put_writes(config, [("x", 1)], "task")
    with saver.cursor() as cursor:
        (count,) = cursor.execute("SELECT count(*) FROM writes").fetchone()
    return [saver.get_tuple(at()), *saver.list(None), count]


def test_they_work_in_another_thread_than_the_loops(opened: Opened, path: str) -> None:
    one, other, count = run(opened, path, lambda saver: asyncio.to_thread(use, saver))
    assert one.checkpoint == other.checkpoint == make("1", x=1) | {"ts": one.checkpoint["ts"]}
    assert count == 1


CALLS: Final[dict[str, Callable[[AsyncSqliteSaver], Any]]] = {
    "get_tuple": lambda saver: saver.get_tuple(at()),
    "list": lambda saver: [*saver.list(at())],
    "put": lambda saver: saver.put(at(), make("1"), {}, {}),
    "put_writes": lambda saver: saver.put_writes(at("t", "1"), [("x", 1)], "task"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "prune": lambda saver: saver.prune(["t"]),
    "cursor": lambda saver: saver.cursor().__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
def test_on_the_loop_of_an_aiosqlite_connection_they_are_refused(
    on_aiosqlite: Opened, path: str, call: str
) -> None:
    """Before and after the connection was used, and nothing is stored."""

    async def work(saver: AsyncSqliteSaver) -> None:
        for _ in range(2):
            with pytest.raises(asyncio.InvalidStateError, match="with the prefix 'a'"):
                CALLS[call](saver)
            await saver.setup()

    run(on_aiosqlite, path, work)
    assert rows(path) == []


def test_they_are_refused_also_while_another_thread_waits_for_the_loop(
    on_aiosqlite: Opened, path: str
) -> None:
    """The lock is held then: to wait for it here would be to wait for ever."""

    async def work(saver: AsyncSqliteSaver) -> None:
        await saver.setup()
        held = asyncio.Event()
        task = asyncio.create_task(asyncio.to_thread(hold, saver, held, asyncio.get_running_loop()))
        await held.wait()
        with pytest.raises(asyncio.InvalidStateError):
            saver.get_tuple(at())
        await task

    def hold(saver: AsyncSqliteSaver, held: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        with saver.cursor() as cursor:
            loop.call_soon_threadsafe(held.set)
            cursor.execute("SELECT 1")

    run(on_aiosqlite, path, work)


@pytest.mark.parametrize("opened", OWN.values(), ids=OWN)
def test_on_a_connection_of_its_own_they_work_on_the_loop_too(opened: Opened, path: str) -> None:
    async def work(saver: AsyncSqliteSaver) -> None:
        use(saver)

    run(opened, path, work)
    assert len(rows(path)) == 2


# --- errors ---------------------------------------------------------------------------------------

NO_AIOSQLITE: Final = """
import asyncio, sys
sys.modules["aiosqlite"] = None  # any import of it fails
from sealpoint.sqlite.aio import AsyncSqliteSaver

async def main():
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        await saver.setup()
        assert await saver.aget_tuple({"configurable": {"thread_id": "t"}}) is None

asyncio.run(main())
print("langgraph" in sys.modules)
"""


def test_aiosqlite_is_not_needed() -> None:
    done = subprocess.run([sys.executable, "-c", NO_AIOSQLITE], capture_output=True, check=False, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
