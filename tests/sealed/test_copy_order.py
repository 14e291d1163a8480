"""A thread that is copied before its writes are bound is read in the order of its source."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Final, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver
from tests.support.keys.rings import NEW
from tests.support.servers.postgres import schema, server

CIPHER: Final = RingCipher(KeyRing([Key("k1", NEW, KeyState.ACTIVE)]))
MOVING: Final = EncryptedSerializer(CIPHER, plaintext="allow")


def extend(state: list[str] | None, writes: list[list[str]]) -> list[str]:
    return [*(state or []), *(each for write in writes for each in write)]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]
    plain: Annotated[list[str], operator.add]


def build(saver: Any, width: int) -> Any:
    def fan(_: State) -> list[Send]:
        return [Send("worker", {"number": number}) for number in range(width)]

    def worker(state: Any) -> State:
        said = [f"w{state['number']}"]
        return {"log": said, "plain": said}

    builder = StateGraph(State).add_node("first", lambda _: {"log": ["first"]}).add_node("worker", worker)
    for name in ("left", "right", "middle"):  # tasks of one step, whose ids are hashes
        builder.add_node(name, lambda _, name=name: {"log": [name]}).add_edge("first", name)
    builder.add_edge(START, "first").add_conditional_edges("first", fan, ["worker"]).add_edge("worker", END)
    return builder.compile(checkpointer=saver)


def bare(saver: Any) -> Any:
    return saver


def beginning(saver: Any) -> Any:
    return SealedSaver(saver, serde=MOVING, unbound="allow", allow_write_with=JsonPlusSerializer())


def sealing(saver: Any) -> Any:
    return SealedSaver(saver, serde=MOVING, unbound="allow")


STEPS: Final[list[Callable[[Any], Any]]] = [bare, beginning, sealing]


@contextmanager
def sqlite(_: str) -> Iterator[Any]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


@contextmanager
def postgres(dsn: str) -> Iterator[Any]:
    with schema(dsn) as there, PostgresSaver.from_conn_string(there) as saver:
        saver.setup()
        yield saver


def states(saver: Any, thread: str, width: int) -> list[Any]:
    graph = build(saver, width)
    at: Any = {"configurable": {"thread_id": thread}}
    return [
        (each.values, each.next, [task.result for task in each.tasks]) for each in graph.get_state_history(at)
    ]


TURNS: Final = st.lists(st.integers(0, 2), min_size=1, max_size=3).map(sorted)


@pytest.mark.parametrize("place", [sqlite, postgres])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=TURNS, copies=st.integers(1, 2), width=st.integers(1, 5))
def test_a_copy_has_the_states_of_its_source(
    place: Any, steps: list[int], copies: int, width: int, pytestconfig: pytest.Config
) -> None:
    """Each turn of the thread is written at one step of the migration, and copies are made of the copy."""
    at: Any = {"configurable": {"thread_id": "t0"}}
    with place(server(pytestconfig)) as saver:
        for step in steps:
            build(STEPS[step](saver), width).invoke({"log": [f"turn {step}"]}, at)
        reader = STEPS[max(steps[-1], 1)](saver)
        wanted = states(reader, "t0", width)
        for number in range(copies):
            reader.copy_thread(f"t{number}", f"t{number + 1}")
            assert states(reader, f"t{number + 1}", width) == wanted
