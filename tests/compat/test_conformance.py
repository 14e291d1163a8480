"""LangGraph's own conformance suite: every capability that it knows is detected and passed.

Under LangGraph's savers our serializer must change nothing in the suite's report. Delta
histories, which the suite does not know yet, are compared with those of LangGraph's saver.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import aiosqlite
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync

from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, InMemorySaver, SqliteSaver
from tests.compat.agents import counter
from tests.support.servers.postgres import schema, server

Saver = BaseCheckpointSaver[Any]
Opened = AbstractAsyncContextManager[Saver]

BASE: Final = {"put", "put_writes", "get_tuple", "list", "delete_thread"}
OPTIONAL: Final = {"delete_for_runs", "copy_thread", "prune"}
KNOWN: Final = frozenset(BASE | OPTIONAL)

SEALED: Final = EncryptedSerializer.from_key(bytes(range(32)))
SERDES: Final = {"plain": None, "sealed": SEALED}


class Awaited(Theirs):
    """LangGraph's SqliteSaver cannot be awaited, and the suite awaits: here each method calls its twin."""

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **named: Any) -> AsyncIterator[Any]:
        for found in self.list(config, **named):
            yield found

    async def aput(self, *arguments: Any) -> Any:
        return self.put(*arguments)

    async def aput_writes(self, *arguments: Any, **named: Any) -> None:
        self.put_writes(*arguments, **named)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)


@asynccontextmanager
async def sqlite_saver(cls: Any, serde: Any) -> AsyncIterator[Saver]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield cls(connection, serde=serde)


@asynccontextmanager
async def aiosqlite_saver(cls: Any, serde: Any) -> AsyncIterator[Saver]:
    async with aiosqlite.connect(":memory:") as connection:
        yield cls(connection, serde=serde)


@asynccontextmanager
async def memory_saver(cls: Any, serde: Any) -> AsyncIterator[Saver]:
    async with cls(serde=serde) as saver:
        yield saver


@asynccontextmanager
async def own_connection(serde: Any) -> AsyncIterator[Saver]:
    async with AsyncSqliteSaver.from_conn_string(":memory:", serde=serde) as saver:
        yield saver


@asynccontextmanager
async def postgres_saver(dsn: str, serde: Any) -> AsyncIterator[Saver]:
    with schema(dsn) as place:
        async with AsyncPostgresSaver.from_conn_string(place, serde=serde) as saver:
            await saver.setup()
            yield saver


OURS: Final[dict[str, Callable[[Any], Opened]]] = {
    "SqliteSaver": partial(sqlite_saver, SqliteSaver),
    "AsyncSqliteSaver": own_connection,
    "AsyncSqliteSaver on aiosqlite": partial(aiosqlite_saver, AsyncSqliteSaver),
    "InMemorySaver": partial(memory_saver, InMemorySaver),
}
THEIRS: Final[dict[str, Callable[[Any], Opened]]] = {
    "SqliteSaver": partial(sqlite_saver, Awaited),
    "AsyncSqliteSaver": partial(aiosqlite_saver, TheirAsync),
    "InMemorySaver": partial(memory_saver, TheirMemory),
}


def report_on(opened: Callable[[Any], Opened], serde: Any) -> dict[str, dict[str, Any]]:
    """Run the suite, each capability on a new saver; return what it found by capability."""

    async def savers() -> AsyncIterator[Saver]:
        async with opened(serde) as saver:
            yield saver

    report = asyncio.run(validate(checkpointer_test(name="saver")(savers)))
    return {name: asdict(result) for name, result in report.results.items()}


def test_the_suite_knows_no_capability_that_is_not_named_here() -> None:
    """A release with more of them makes this fail, rather than pass with less than all."""
    assert {each.value for each in Capability} == KNOWN


@pytest.mark.parametrize("serde", SERDES)
@pytest.mark.parametrize("saver", OURS)
def test_our_savers_have_and_pass_every_capability(saver: str, serde: str) -> None:
    report = report_on(OURS[saver], SERDES[serde])
    assert {name for name, result in report.items() if result["detected"]} == KNOWN
    for name, result in report.items():
        assert result["passed"], (name, result["failures"])
        assert result["tests_passed"] > 0, name
        assert result["tests_failed"] == result["tests_skipped"] == 0, name


@pytest.mark.parametrize("saver", THEIRS)
def test_langgraphs_savers_pass_with_our_serializer_what_they_pass_without(saver: str) -> None:
    """The same capabilities, with the same number of tests passed, failed and skipped."""
    without, with_ours = (report_on(THEIRS[saver], serde) for serde in (None, SEALED))
    assert with_ours == without
    assert {name for name, result in with_ours.items() if result["passed"]} == BASE


def test_langgraphs_postgres_saver_passes_with_our_serializer_what_it_passes_without(
    pytestconfig: pytest.Config,
) -> None:
    saver = partial(postgres_saver, server(pytestconfig))
    without, with_ours = (report_on(saver, serde) for serde in (None, SEALED))
    assert with_ours == without
    assert {name for name, result in with_ours.items() if result["passed"]} == BASE | {"prune"}
    assert sum(result["tests_passed"] for result in with_ours.values()) >= 66
    assert not any(result["tests_failed"] for result in with_ours.values())


# --- delta histories, which the suite does not know yet -------------------------------------------

THREAD: Final[Any] = {"configurable": {"thread_id": "t"}}
CHANNELS: Final = ["items", "more", "n", "absent"]


async def fork(saver: Any) -> None:
    """Run a graph with two delta channels, update its state in the middle, and run on from there."""
    graph = counter(saver, 7)
    await graph.ainvoke({"n": 0, "items": ["start"]}, THREAD)
    middle = [found async for found in graph.aget_state_history(THREAD)][3].config
    await graph.ainvoke(None, await graph.aupdate_state(middle, {"items": ["forked"], "more": ["forked"]}))


async def history(saver: Saver, config: Any) -> Any:
    return await saver.aget_delta_channel_history(config=config, channels=CHANNELS)


async def put_again(found: list[Any], saver: Saver) -> None:
    """Put all checkpoints of a listing and their writes into another saver, oldest first."""
    for each in reversed(found):
        parent: Any = each.parent_config or {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        config = await saver.aput(parent, each.checkpoint, {}, {})
        for task_id in dict.fromkeys(task_id for task_id, _, _ in each.pending_writes):
            own = [(channel, value) for task, channel, value in each.pending_writes if task == task_id]
            await saver.aput_writes(config, own, task_id)


@pytest.mark.parametrize("serde", SERDES)
@pytest.mark.parametrize("saver", OURS)
def test_our_savers_find_langgraphs_delta_histories_over_forks(saver: str, serde: str) -> None:
    """Of every checkpoint of a forked thread: what LangGraph's saver finds for the same checkpoints."""

    async def compare() -> None:
        async with THEIRS["AsyncSqliteSaver"](None) as theirs, OURS[saver](SERDES[serde]) as ours:
            await fork(theirs)
            found = [each async for each in theirs.alist(THREAD)]
            await put_again(found, ours)
            histories = [await history(theirs, each.config) for each in found]
            assert [await history(ours, each.config) for each in found] == histories
            assert sum("seed" in each["items"] for each in histories) > 2
            parents = [str(each.parent_config) for each in found]
            assert len(set(parents)) < len(parents)  # it is a fork

    asyncio.run(compare())


@pytest.mark.parametrize("saver", OURS)
def test_a_forked_graph_ends_as_under_langgraphs_saver(saver: str) -> None:
    """Sealed: the state of every checkpoint is rebuilt from the history of its own path."""

    async def states(checkpointer: Any) -> list[Any]:
        await fork(checkpointer)
        history = counter(checkpointer, 7).aget_state_history(THREAD)
        return [(state.values, state.next, state.metadata["step"]) async for state in history]

    async def compare() -> None:
        async with THEIRS["AsyncSqliteSaver"](None) as theirs, OURS[saver](SEALED) as ours:
            assert await states(ours) == await states(theirs)

    asyncio.run(compare())
