"""To LangGraph the bridge's classes are its own, and what they read back is of LangGraph's classes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import langgraph.checkpoint.serde.types as their_types
import pytest
from langgraph.channels import BinaryOperatorAggregate, EphemeralValue, LastValue
from langgraph.checkpoint import base
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as TheirSqliteSaver
from langgraph.errors import EmptyChannelError
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send, interrupt

import sealpoint.langgraph as bridge
from sealpoint.base import create_checkpoint, empty_checkpoint
from tests.compat.agents import QUESTION, THREAD, agent, counter

SEALED: Final = bridge.EncryptedSerializer.from_key(bytes(range(32)))
COPY: Final[Any] = {"configurable": {"thread_id": "copy"}}
NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)

THEIRS: Final[dict[str, Any]] = {
    "Send": Send("node", {"a": [1]}),
    "Interrupt": Interrupt(value={"question": "pay?"}, id="i1"),
    "Command": Command(resume={"i1": True}, goto=[Send("node", 1)], update={"a": 1}),
    "Item": Item(namespace=("a", "b"), key="k", value={"v": 1}, created_at=NOW, updated_at=NOW),
    "_DeltaSnapshot": their_types._DeltaSnapshot(["a", "b"]),
}


@pytest.fixture(params=[None, SEALED], ids=["plain", "sealed"])
def serde(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[bridge.SqliteSaver, bridge.AsyncSqliteSaver, bridge.InMemorySaver])
def saver(request: pytest.FixtureRequest, serde: Any) -> Iterator[Any]:
    if request.param is bridge.InMemorySaver:
        with bridge.InMemorySaver(serde=serde) as memory:
            yield memory
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield request.param(connection, serde=serde)


def test_savers_and_serializers_are_langgraphs(saver: Any) -> None:
    assert isinstance(saver, base.BaseCheckpointSaver)
    for serializer in (SEALED, bridge.JsonPlusSerializer()):
        assert isinstance(serializer, TheirSerializer)
        assert isinstance(serializer, SerializerProtocol)


@pytest.mark.parametrize("name", THEIRS)
def test_values_come_back_as_langgraphs_own(saver: Any, name: str) -> None:
    """Out of a checkpoint, and out of the write on top of it."""
    value = THEIRS[name]
    checkpoint = base.empty_checkpoint()
    checkpoint["channel_values"] = {"x": value, "many": [value]}
    config = saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {})
    saver.put_writes(config, [("x", value)], "task")
    found = saver.get_tuple(config)
    read = found.checkpoint["channel_values"]
    for each in (read["x"], read["many"][0], found.pending_writes[0][2]):
        assert type(each) is type(value)
        assert each == value


def test_serializers_alone_read_langgraphs_own() -> None:
    for serializer in (SEALED, bridge.JsonPlusSerializer()):
        for value in THEIRS.values():
            read = serializer.loads_typed(serializer.dumps_typed(value))
            assert type(read) is type(value)
            assert read == value


def test_an_interrupt_in_the_state_of_a_graph_is_langgraphs(saver: Any) -> None:
    graph = agent(saver)
    graph.invoke(QUESTION, THREAD)
    (paused,) = graph.get_state(THREAD).tasks
    assert [type(each) for each in paused.interrupts] == [Interrupt]
    assert interrupt.__module__ == Interrupt.__module__


def test_empty_channels_raise_langgraphs_error() -> None:
    assert bridge.EmptyChannelError is EmptyChannelError is base.EmptyChannelError


class RaisingChannel(LastValue[str]):
    """A channel as they were in older releases."""

    def checkpoint(self) -> str:
        return self.get()


def test_our_create_checkpoint_asks_langgraphs_channels() -> None:
    """A channel without a value is left out, also by the stand-in for one; a value that is false is not."""
    spoken: Any = LastValue(str)
    spoken.update(["value"])
    channels: dict[str, Any] = {
        "set": spoken,
        "empty": LastValue(str),
        "gone": EphemeralValue(str),
        "raising": RaisingChannel(str),
        "total": BinaryOperatorAggregate(int, lambda one, other: one + other),
    }
    before: Any = {**empty_checkpoint(), "channel_versions": dict.fromkeys(channels, "1")}
    made = create_checkpoint(before, channels, 1)
    assert made["channel_values"] == {"set": "value", "total": 0}
    assert SEALED.loads_typed(SEALED.dumps_typed(made)) == made


# --- upkeep of the threads of a real graph --------------------------------------------------------


def states(graph: Any, config: Any) -> list[Any]:
    """What a graph says of every checkpoint, apart from its thread."""
    return [
        (each.values, each.next, [(task.name, task.interrupts, task.error) for task in each.tasks])
        for each in graph.get_state_history(config)
    ]


def paused_agent(saver: Any, config: Any) -> Any:
    graph = agent(saver)
    graph.invoke(QUESTION, config)
    return graph


def counted(saver: Any, config: Any) -> Any:
    graph = counter(saver, 11)
    graph.invoke({"n": 0, "items": ["start"]}, config)
    return graph


GRAPHS: Final[list[Callable[[Any, Any], Any]]] = [paused_agent, counted]


@pytest.mark.parametrize("run", GRAPHS)
def test_a_copied_thread_has_the_same_states(saver: Any, run: Any) -> None:
    graph = run(saver, THREAD)
    before = states(graph, THREAD)
    saver.copy_thread("agent", "copy")
    assert states(graph, COPY) == before == states(graph, THREAD)
    assert len(before) > 1


@pytest.mark.parametrize("run", GRAPHS)
def test_a_pruned_thread_has_the_same_state(saver: Any, run: Any) -> None:
    """The latest, with all that its delta channels and its subgraphs need."""
    graph = run(saver, THREAD)
    before, rows = graph.get_state(THREAD, subgraphs=True), len([*saver.list(None)])
    saver.prune(["agent"])
    assert graph.get_state(THREAD, subgraphs=True) == before
    assert len([*saver.list(None)]) < rows or run is paused_agent
    saver.prune(["agent"], strategy="delete")
    assert [*saver.list(None)] == []


def test_runs_are_deleted_and_others_stay(saver: Any) -> None:
    graphs = [paused_agent, counted]
    for run, run_id in zip(graphs, ("one", "two"), strict=True):
        run(saver, {"configurable": {"thread_id": run_id}, "metadata": {"run_id": run_id}})
    other: Any = {"configurable": {"thread_id": "two"}}
    before = states(counter(saver, 11), other)
    saver.delete_for_runs(["one", "none"])
    assert states(counter(saver, 11), other) == before
    assert [*saver.list({"configurable": {"thread_id": "one"}})] == []
    writes = saver.conn.execute("SELECT DISTINCT thread_id FROM writes").fetchall()
    assert writes == [("two",)]


def test_a_method_that_an_older_langgraph_does_not_know_is_absent() -> None:
    class Older(bridge.SealedSaver):
        _absent: ClassVar[Any] = object

    with closing(sqlite3.connect(":memory:")) as connection:
        saver: Any = Older(TheirSqliteSaver(connection), serde=SEALED)
        with pytest.raises(NotImplementedError):
            saver.prune(["agent"])


# --- the extra ------------------------------------------------------------------------------------

BLOCKED: Final = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "langgraph":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import sealpoint, sealpoint.memory, sealpoint.sqlite.aio
try:
    import sealpoint.langgraph
except ImportError as error:
    print(error)
"""


def test_without_langgraph_the_error_names_the_extra() -> None:
    """And nothing else of the package needs it."""
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, check=True, text=True)
    assert done.stdout == "sealpoint.langgraph needs LangGraph: pip install 'sealpoint[langgraph]'\n"
