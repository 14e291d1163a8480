"""``kill -9`` before and after every write of a conversation: a new process goes on, with no false alarm."""

from __future__ import annotations

import operator
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import psycopg
import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from sealpoint.errors import SealpointError
from tests.faults.headwork import SYNC, pipe, process, sealed
from tests.graphs.openers import CONNECTION
from tests.sealed.deltas import extend
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server

DURABILITIES: Final = ("sync", "async", "exit")
STORES: Final = ("append", "append_specials")
SAVES: Final = ("put", "put_writes")
DAILY_STEP: Final = by_extent(19, 13)
SOAK_ROUNDS: Final = 2

ANSWERS: Final = {"pay 5?": "yes", "pay 50,000?": "no", "sure?": "so"}
INPUT: Final[Any] = {"log": ["begun"], "flagged": False, "turn": 0}
END: Final[Any] = {
    "log": ["asked", "begun", "done", "policy 1", "policy 2"],
    "answers": ["yes", "no", "so"],
    "amount": 50_000,
    "flagged": True,
    "turn": 2,
}


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]
    answers: list[str]
    amount: int
    flagged: bool
    turn: Annotated[int, operator.add]


def conversation() -> Any:
    """A graph that fans out, checks and asks at once, and keeps a log that is made of its writes."""
    graph: Any = StateGraph(State)
    graph.add_node("begin", lambda _: {"log": ["asked"], "turn": 1})
    graph.add_node("each", lambda rule: {"log": [f"policy {rule}"]})
    graph.add_node("check", lambda _: {"amount": 50_000, "flagged": True})
    graph.add_node("ask", lambda _: {"answers": [interrupt(question) for question in ANSWERS]})
    graph.add_node("end", lambda _: {"log": ["done"], "turn": 1})
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", lambda _: [Send("each", rule) for rule in (1, 2)], ["each"])
    graph.add_edge("each", "check")
    graph.add_edge("each", "ask")
    graph.add_edge(["check", "ask"], "end")
    return graph


def converse(saver: Any, thread: str, durability: Any) -> Any:
    """Go on from what is stored, until the conversation has ended; return its state.

    LangGraph's own ``next`` is empty also if all nodes of a step have ended and the step was not stored.
    """
    graph = conversation().compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": thread}}
    while True:
        state = graph.get_state(config)
        log = state.values.get("log")
        if log and log[-1] == "done":
            return {**state.values, "log": sorted(log)}  # the order of the tasks of a step is not promised
        given: Any = None if log else INPUT
        if state.interrupts:
            given = Command(resume=ANSWERS[state.interrupts[0].value])
        graph.invoke(given, config, durability=durability)


def killed(kind: str, place: str, thread: str, durability: str, moment: int, done: Any = None) -> None:
    """Converse, and be killed at a moment: before or after a write to the database or to the store.

    Sends how many moments there were, if the conversation ends before.
    """
    moments = count()

    def at_moment() -> None:
        if next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def deadly(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            at_moment()
            outcome = method(*arguments, **options)
            at_moment()
            return outcome

        return call

    def make(store: Any) -> Any:
        for name in STORES:
            setattr(store, name, deadly(getattr(store, name)))
        return store

    with sealed(kind, place, make) as saver:
        inner = type(saver.inner)
        for name in SAVES:  # of this process alone
            setattr(inner, name, deadly(getattr(inner, name)))
        converse(saver, thread, durability)
    done.send(next(moments))


@pytest.fixture
def place(kind: str, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    with ExitStack() as stack:
        if "Postgres" not in kind:
            yield str(tmp_path / "x.db")
            return
        dsn = stack.enter_context(schema(server(pytestconfig)))
        with psycopg.connect(dsn, **CONNECTION) as connection:
            PostgresSaver(connection).setup()
        yield dsn


@pytest.mark.costly
@pytest.mark.broad(every=6)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kind", SYNC)
@pytest.mark.parametrize(
    ("step", "rounds"),
    [(DAILY_STEP, 1), pytest.param(1, SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_killed_between_any_two_writes(
    place: str, kind: str, durability: str, step: int, rounds: int, record_property: Any
) -> None:
    ours, theirs = pipe()
    whole = process(killed, kind, place, "whole", durability, -1, theirs)
    moments = ours.recv()
    whole.join()
    kills = [(round_, moment) for round_ in range(rounds) for moment in range(0, moments, step)]
    with sealed(kind, place) as saver:
        assert converse(saver, "whole", durability) == END
        for each, moment in kills:
            thread = f"{each} {moment}"
            gone = process(killed, kind, place, thread, durability, moment)
            gone.join()
            assert gone.exitcode == -signal.SIGKILL
            assert converse(saver, thread, durability) == END
            assert [*saver.list({"configurable": {"thread_id": thread}})]
    record_property("kills", len(kills))


def racing(kind: str, place: str, thread: str, durability: str, ends: Any) -> None:
    """Converse while another process does; send the error of sealpoint that this ends with, or nothing."""
    with sealed(kind, place) as saver:
        try:
            converse(saver, thread, durability)
        except SealpointError as error:
            ends.send(repr(error))
        except Exception:  # noqa: BLE001 -- of LangGraph, which forbids two runs on a thread
            ends.send(None)
        else:
            ends.send(None)


@pytest.mark.broad(every=6)
@pytest.mark.parametrize("kind", SYNC)
@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.soak)])
def test_two_workers_on_one_thread(place: str, kind: str, rounds: int) -> None:
    """Without a lock, as after a timeout: what they make of it is LangGraph's, and there is no alarm."""
    with sealed(kind, place) as saver:
        for number in range(rounds):
            thread, durability = f"thread {number}", DURABILITIES[number % 2]
            ends = [pipe() for _ in range(2)]
            workers = [process(racing, kind, place, thread, durability, theirs) for _, theirs in ends]
            assert [ours.recv() for ours, _ in ends] == [None, None]
            for worker in workers:
                worker.join()
            assert len(converse(saver, thread, durability)["answers"]) == len(ANSWERS)
            assert [*saver.list({"configurable": {"thread_id": thread}})]
