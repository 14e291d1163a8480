"""Synchronous nodes that fill the loop's executor, and wait for an agent on the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as Theirs
from langgraph.graph import END, START, StateGraph

from sealpoint.langgraph import AsyncSqliteSaver, SealedSaver
from sealpoint.sealed.steps import LARGE_BYTES
from sealpoint.threads import MemoryThreadStore, SqliteThreadStore
from tests.graphs.savers import SEALED

THREADS = 2
RUNS = 5
WAIT_SECONDS = 60
"""After which a node gives up: the test fails then, and does not hang."""

STORES: dict[str, Callable[[Path], Any]] = {
    "no store": lambda _: None,
    "memory": lambda _: MemoryThreadStore(),
    "file": lambda folder: SqliteThreadStore(folder / "threads", create=True, timeout=WAIT_SECONDS),
}


class State(TypedDict):
    text: str


async def alone(saver: Any, size: int) -> list[str]:
    """Run an agent several times, each of whose runs waits in a thread for a run of another."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(THREADS)
    loop.set_default_executor(executor)

    async def answer(state: State) -> State:
        return {"text": state["text"].upper()}

    inner = StateGraph(State)
    inner.add_node("answer", answer)
    inner.add_edge(START, "answer")
    inner.add_edge("answer", END)
    sub = inner.compile(checkpointer=saver)

    def ask(state: State, config: RunnableConfig) -> State:
        thread_id = f"sub {config['configurable']['thread_id']}"
        work = sub.ainvoke(state, {"configurable": {"thread_id": thread_id}})
        found: Any = asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_SECONDS)
        return {"text": found["text"]}

    outer = StateGraph(State)
    outer.add_node("ask", ask)
    outer.add_edge(START, "ask")
    outer.add_edge("ask", END)
    agent: Any = outer.compile(checkpointer=saver)
    runs = [agent.ainvoke({"text": "x" * size}, {"configurable": {"thread_id": f"{n}"}}) for n in range(RUNS)]
    return [found["text"] for found in await asyncio.gather(*runs)]


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["theirs", "memory", "ours", "ours on aiosqlite"])
@pytest.mark.broad("size", "store", "kind")
def test_nodes_that_wait_for_an_agent_end(tmp_path: Path, kind: str, store: str, size: int) -> None:
    """They hold all threads of the executor in which LangGraph runs them."""
    threads = STORES[store](tmp_path)

    async def run() -> list[str]:
        async with AsyncExitStack() as stack:
            path = str(tmp_path / "db")
            saver: Any = InMemorySaver()
            if kind in ("theirs", "ours on aiosqlite"):
                saver = await stack.enter_async_context(Theirs.from_conn_string(path))
            if kind == "ours on aiosqlite":
                saver = AsyncSqliteSaver(saver.conn)
            elif kind == "ours":
                saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
            return await alone(SealedSaver(saver, serde=SEALED, threads=threads), size)

    assert asyncio.run(run()) == ["X" * size] * RUNS
    if threads is not None:
        threads.close()
