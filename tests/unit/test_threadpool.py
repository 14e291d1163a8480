"""Threads for async methods: bounded, in the caller's context, and not those of the loop's executor."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

import pytest

from sealpoint.threadpool import MAX_THREADS, ThreadPool
from tests.support.runs.forks import in_child

NAME: ContextVar[str] = ContextVar("NAME", default="none")
WAIT_SECONDS = 60
"""After which a thread gives up that a failing test has left behind."""

ENDING = """
import asyncio, threading
from sealpoint.threadpool import ThreadPool, shared

pools = [shared, ThreadPool()]

async def main():
    asyncio.get_running_loop().slow_callback_duration = 600  # a machine under load is not what is tested
    await asyncio.gather(*(pool.run(threading.get_ident) for pool in pools for _ in range(20)))
    tasks = [asyncio.ensure_future(pool.run(threading.Event().wait, 0.2)) for pool in pools]
    await asyncio.sleep(0)

asyncio.run(main())
print("ended")
"""

AFTER_MAIN = """
import asyncio, atexit, os, sqlite3, sys, threading, time
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver
from sealpoint.threads import SqliteThreadStore

folder, way, has_store = sys.argv[1:]
ring = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=b"i" * 32)
serde = EncryptedSerializer(RingCipher(ring))
store = SqliteThreadStore(folder + "/threads.db", create=True) if has_store == "store" else None
at = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

async def work(count):
    async with AsyncSqliteSaver.from_conn_string(folder + "/state.db") as own:
        saver = SealedSaver(own, serde=serde, **({"threads": store} if store else {}))
        for number in range(count):
            made = empty_checkpoint()
            made["channel_values"]["x"], made["channel_versions"]["x"] = "a" * 2_000_000, number
            await saver.aput(at, made, {}, {"x": number})
            found = await saver.aget_tuple(at)
            assert found.checkpoint["id"] == made["id"]
    print("ended", flush=True)

if way == "thread":
    def run():
        threading.main_thread().join()
        asyncio.run(work(3))
    asyncio.run(work(1))  # which starts the threads of the pool
    threading.Thread(target=run).start()
elif way == "running":
    threading.Thread(target=lambda: asyncio.run(work(6))).start()
else:
    asyncio.run(work(1))
    atexit.register(lambda: asyncio.run(work(3)))
"""


@pytest.mark.parametrize("times", [1, pytest.param(34, marks=pytest.mark.soak)])  # 204 ends in six ways
@pytest.mark.parametrize("has_store", ["store", "none"])
@pytest.mark.parametrize("way", ["thread", "running", "atexit"])
def test_loop_that_outlives_the_main_thread(way: str, has_store: str, times: int, tmp_path: Path) -> None:
    """The interpreter starts no thread any more: the work is done by the caller."""
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        command = [sys.executable, "-W", "ignore", "-c", AFTER_MAIN, str(folder), way, has_store]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        wanted = "ended\n" if way == "running" else "ended\nended\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_the_context_is_copied() -> None:
    async def run() -> tuple[str, str]:
        NAME.set("caller")
        seen = await ThreadPool().run(lambda: (NAME.get(), NAME.set("thread"))[0])
        return seen, NAME.get()

    assert asyncio.run(run()) == ("caller", "caller")


def test_the_number_of_threads_is_bounded() -> None:
    pool, seen = ThreadPool(), set[int]()
    begun, gate = threading.Semaphore(0), threading.Event()

    def work() -> None:
        seen.add(threading.get_ident())
        begun.release()
        assert gate.wait(WAIT_SECONDS)

    async def run() -> None:
        tasks = [asyncio.ensure_future(pool.run(work)) for _ in range(3 * MAX_THREADS)]
        for _ in range(MAX_THREADS):
            assert await asyncio.to_thread(begun.acquire, timeout=WAIT_SECONDS)
        gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert len(seen) == MAX_THREADS


def test_the_default_executor_is_not_used() -> None:
    gate = threading.Event()

    async def run() -> int:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, gate.wait, WAIT_SECONDS)
        try:
            return await ThreadPool().run(threading.get_ident)
        finally:
            gate.set()
            await waiting

    assert asyncio.run(run()) != threading.get_ident()


def test_a_cancelled_task_waits_for_its_thread() -> None:
    begun, gate, ended = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert gate.wait(WAIT_SECONDS)
        ended.append("thread")

    async def run() -> None:
        task = asyncio.ensure_future(ThreadPool().run(work))
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended.append("task")

    asyncio.run(run())
    assert ended == ["thread", "task"]


def test_shutdown_does_not_wait_and_is_not_the_end() -> None:
    """Other calls begin on new threads, while a call of before still runs."""
    pool, begun, gate = ThreadPool(), threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return gate.wait(WAIT_SECONDS)

    async def run() -> bool:
        task = asyncio.ensure_future(pool.run(work))
        assert await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        pool.shutdown()
        assert await pool.run(int, "7") == 7
        gate.set()
        return await task

    assert asyncio.run(run())


def test_a_child_has_threads_of_its_own() -> None:
    pool = ThreadPool()

    async def call() -> int:
        return await pool.run(os.getpid)

    assert asyncio.run(call()) == os.getpid()
    with pool._lock:  # as if another thread were just starting one
        assert in_child(lambda: asyncio.run(call()) == os.getpid())


@pytest.mark.parametrize("flags", [[], ["-X", "dev"]])
def test_the_process_ends(flags: list[str]) -> None:
    """Also while calls run, of tasks that were not awaited, and without a warning."""
    command = [sys.executable, "-W", "error", *flags, "-c", ENDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
