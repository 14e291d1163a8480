"""Threads of real graphs: what LangGraph wrote ours reads, and what ours wrote LangGraph resumes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.types import Command

from sealpoint import EncryptedSerializer
from sealpoint.base import WRITES_IDX_MAP
from sealpoint.sqlite import SqliteSaver
from tests.compat.agents import QUESTION, THREAD, agent, counter

SEALED = EncryptedSerializer.from_key(bytes(range(32)))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield connection


@pytest.fixture(params=[None, SEALED], ids=["plain", "sealed"])
def theirs(request: pytest.FixtureRequest, connection: sqlite3.Connection) -> Theirs:
    return Theirs(connection, serde=request.param)


@pytest.fixture
def ours(theirs: Theirs, connection: sqlite3.Connection) -> SqliteSaver:
    return SqliteSaver(connection, serde=theirs.serde)


def rewrite(source: SqliteSaver, target: SqliteSaver) -> None:
    """Put all that one saver lists into another, oldest first, with the paths and places of the writes."""
    source.setup()  # older savers of LangGraph have no column for the paths
    paths = source.conn.execute("SELECT checkpoint_id, task_id, task_path FROM writes").fetchall()
    path_of = {(checkpoint_id, task_id): path for checkpoint_id, task_id, path in paths}
    for found in reversed([*source.list(None)]):
        config: Any = found.parent_config or {
            "configurable": {**found.config["configurable"], "checkpoint_id": None}
        }
        stored = target.put(config, found.checkpoint, found.metadata, {})
        for task_id in dict.fromkeys(task_id for task_id, _, _ in found.pending_writes or ()):
            own = [(channel, value) for task, channel, value in found.pending_writes or () if task == task_id]
            special = [write for write in own if write[0] in WRITES_IDX_MAP]
            path = path_of[found.checkpoint["id"], task_id]
            target.put_writes(stored, [write for write in own if write not in special], task_id, path)
            target.put_writes(stored, special, task_id, path)


def test_a_thread_with_messages_and_an_interrupt_reads_equal(theirs: Theirs, ours: SqliteSaver) -> None:
    """Before and after the interrupt, with subgraphs, in every namespace."""
    graph = agent(theirs)
    steps: list[Any] = [QUESTION, Command(resume=True)]
    for step in steps:
        graph.invoke(step, THREAD)
        mine, other = [*ours.list(None)], [*theirs.list(None)]
        assert mine == other  # type: ignore[comparison-overlap]
        assert len({found.config["configurable"]["checkpoint_ns"] for found in mine}) == 2
        for found in mine:
            assert ours.get_tuple(found.config) == theirs.get_tuple(found.config)  # type: ignore[comparison-overlap]
    assert any(channel == "__interrupt__" for found in mine for _, channel, _ in found.pending_writes or ())


def test_what_ours_wrote_langgraph_resumes(theirs: Theirs, ours: SqliteSaver) -> None:
    """The thread is put anew by our saver, row by row, into a second database, and goes on there."""
    agent(theirs).invoke(QUESTION, THREAD)
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        rewrite(ours, SqliteSaver(connection, serde=theirs.serde))
        resumed = agent(Theirs(connection, serde=theirs.serde))
        assert resumed.get_state(THREAD, subgraphs=True).tasks[0].interrupts[0].value == {"question": "pay?"}
        final = resumed.invoke(Command(resume=True), THREAD)
    assert final == agent(theirs).invoke(Command(resume=True), THREAD)
    assert final["spent"] == 12


def test_a_copied_thread_goes_on_by_itself(theirs: Theirs, ours: SqliteSaver) -> None:
    agent(theirs).invoke(QUESTION, THREAD)
    ours.copy_thread("agent", "copy")
    ours.delete_thread("agent")
    final = agent(theirs).invoke(Command(resume=True), {"configurable": {"thread_id": "copy"}})
    assert final["spent"] == 12
    assert agent(theirs).get_state(THREAD).values == {}


def test_runs_are_deleted_by_the_id_that_langgraph_stores(theirs: Theirs, ours: SqliteSaver) -> None:
    for run_id in ("run1", "run2"):
        config: Any = {"configurable": {"thread_id": run_id}, "metadata": {"run_id": run_id}}
        agent(theirs).invoke(QUESTION, config)
    ours.delete_for_runs(["run1"])
    assert {found.config["configurable"]["thread_id"] for found in ours.list(None)} == {"run2"}


@pytest.mark.parametrize("steps", [1, 2, 4, 7, 9, 12])
def test_prune_keeps_the_state_of_delta_channels(theirs: Theirs, ours: SqliteSaver, steps: int) -> None:
    """The state is the same after, fewer rows hold it, and the graph goes on from it as it would have."""
    config: Any = {"configurable": {"thread_id": "counter"}}
    graph = counter(theirs, steps)
    graph.invoke({"n": 0, "items": ["start"]}, config)
    before, rows = graph.get_state(config), len([*ours.list(None)])
    ours.copy_thread("counter", "untouched")
    ours.prune(["counter"])
    assert graph.get_state(config) == before
    assert len([*ours.list(config)]) < rows or steps < 7  # by then both channels were stored in full
    resumed = graph.invoke({"n": steps + 1}, config)
    assert resumed == graph.invoke({"n": steps + 1}, {"configurable": {"thread_id": "untouched"}})
    assert resumed["items"][: steps + 1] == ["start", *(f"item {n}" for n in range(steps))]


def test_prune_keeps_the_state_of_a_thread_at_its_interrupt(theirs: Theirs, ours: SqliteSaver) -> None:
    agent(theirs).invoke(QUESTION, THREAD)
    ours.copy_thread("agent", "untouched")
    ours.prune(["agent"])
    final = agent(theirs).invoke(Command(resume=True), THREAD)
    assert final == agent(theirs).invoke(Command(resume=True), {"configurable": {"thread_id": "untouched"}})
