"""A graph of 100 supersteps from end to end, durability "sync"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.harness import Case, Options, timed
from benchmarks.payloads import payload
from benchmarks.peers import LG_ENC, Saver, savers

SUPERSTEPS: Final = 100


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    number: int


def cases(options: Options) -> Iterator[Case]:
    """Make one case: a thread of its own for every run, which grows by one message every other step."""
    with savers(options.folder) as opened:
        peers = {peer: timed(graph_run(saver), loops=1) for peer, saver in opened.items()}
        yield Case(f"graph of {SUPERSTEPS} supersteps", peers, LG_ENC, rounds=9)


def graph_run(saver: Saver) -> Callable[[], object]:
    """Prepare a run of the graph on a saver, in a thread of its own each time."""
    graph: Any = _graph().compile(checkpointer=saver)
    threads = count()

    def run() -> None:
        config = {"configurable": {"thread_id": f"graph-{next(threads)}"}, "recursion_limit": SUPERSTEPS + 1}
        end = graph.invoke({"messages": [], "number": 0}, config, durability="sync")
        if end["number"] != SUPERSTEPS:
            raise SystemExit("error: the graph did not take all its steps")

    return run


def _graph() -> StateGraph[State]:
    script = payload("50 messages")["messages"]

    def step(state: State) -> dict[str, Any]:
        number = state["number"]
        return {"number": number + 1, "messages": [script[number // 2]] if number % 2 == 0 else []}

    graph = StateGraph(State)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: "step" if state["number"] < SUPERSTEPS else END)
    return graph
