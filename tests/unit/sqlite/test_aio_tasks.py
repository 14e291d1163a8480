"""AsyncSqliteSaver among tasks: many at once, cancelled ones, and a loop that goes on meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from sealpoint.serde import JsonPlusSerializer
from sealpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.databases.checkpoints import at, make
from tests.unit.sqlite.openers import Opened, rows, run

WAIT_SECONDS: Final = 60
"""After which a thread that nobody lets go gives up, and its test fails."""


class Gate(JsonPlusSerializer):
    """Stops in the middle of a write until it is let go. Serializers run on the saver's threads."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.open = asyncio.Event(), threading.Event()
        self.loop = asyncio.get_running_loop()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        self.loop.call_soon_threadsafe(self.reached.set)
        if not self.open.wait(WAIT_SECONDS):
            raise TimeoutError
        return super().dumps_typed(obj)


def gated(opened: Opened, path: str, work: Callable[[AsyncSqliteSaver, Gate], Awaitable[None]]) -> None:
    """Run with one checkpoint that is there already, and a gate before every further write."""

    async def begin(saver: AsyncSqliteSaver) -> None:
        await saver.aput(at(), make("1"), {}, {})
        saver.serde = gate = Gate()
        try:
            await work(saver, gate)
        finally:
            gate.open.set()

    run(opened, path, begin)


def test_other_tasks_go_on_while_one_writes(opened: Opened, path: str) -> None:
    """If the loop were blocked, nobody would open the gate; reads too do not wait for the write."""

    async def work(saver: AsyncSqliteSaver, gate: Gate) -> None:
        task = asyncio.create_task(saver.aput(at(), make("2"), {}, {}))
        await gate.reached.wait()
        found = [each async for each in saver.alist(at())]
        assert [each.checkpoint["id"] for each in found] == ["1"]
        assert not task.done()
        gate.open.set()
        assert await task == at("t", "2")

    gated(opened, path, work)


WRITES: Final[dict[str, Callable[[AsyncSqliteSaver], Awaitable[Any]]]] = {
    "aput": lambda saver: saver.aput(at("t", "1"), make("2", x=1), {"step": 1}, {}),
    "aput_writes": lambda saver: saver.aput_writes(at("t", "1"), [("a", 1), ("b", 2), ("c", 3)], "task"),
}
WHOLE: Final = {"aput": 1, "aput_writes": 3}


@pytest.mark.parametrize("write", WRITES)
def test_a_cancelled_write_is_whole_or_absent(opened: Opened, path: str, write: str) -> None:
    """Cancelled in the middle, it waits for its thread; the same write can be done again."""

    async def work(saver: AsyncSqliteSaver, gate: Gate) -> None:
        task = asyncio.ensure_future(WRITES[write](saver))
        await gate.reached.wait()
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        assert len(rows(path)) == 1
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(rows(path)) == 1 + WHOLE[write]
        await WRITES[write](saver)
        assert len(rows(path)) == 1 + WHOLE[write]
        found = await saver.aget_tuple(at())
        assert found is not None
        assert found.checkpoint["id"] == ("2" if write == "aput" else "1")

    gated(opened, path, work)
    assert len(rows(path)) == 1 + WHOLE[write]


def test_an_error_after_the_cancellation_is_not_reported_by_the_loop(opened: Opened, path: str) -> None:
    """Nobody waits for it any more; nothing is stored."""
    unhandled: list[Any] = []

    async def work(saver: AsyncSqliteSaver, gate: Gate) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        task = asyncio.create_task(saver.aput(at(), make("2", x=object()), {}, {}))
        await gate.reached.wait()
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    gated(opened, path, work)
    assert unhandled == []
    assert len(rows(path)) == 1


def test_a_connection_of_its_own_is_closed_after_the_statement_that_runs(path: str) -> None:
    """SQLite would not survive it the other way: a cancelled task leaves its thread at work."""
    order: list[str] = []

    async def work() -> None:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            await saver.setup()
            held, release = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def hold() -> None:
                with saver.cursor() as cursor:
                    loop.call_soon_threadsafe(held.set)
                    release.wait(WAIT_SECONDS)
                    cursor.execute("SELECT 1")
                    order.append("released")

            holding = asyncio.create_task(asyncio.to_thread(hold))
            await held.wait()
            loop.call_later(0, release.set)  # on a loop that closing must not block
        order.append("closed")
        await holding

    asyncio.run(work())
    assert order == ["released", "closed"]
