"""Real graphs for the tests beside LangGraph: messages, an interrupt, a subgraph, a delta channel."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import interrupt

from tests.compat import versions

THREAD: Any = {"configurable": {"thread_id": "agent"}}
QUESTION: Any = {"messages": [HumanMessage("pay 12 euros", id="m1")], "log": ["asked"]}


def extend(so_far: list[str] | None, updates: Sequence[list[str]]) -> list[str]:
    """The reducer of the delta channel."""
    return [*(so_far or []), *(line for update in updates for line in update)]


def delta(every: int) -> Any:
    """A delta channel of lines, stored in full every few updates; a plain one before there were any."""
    if versions.IS_NEW:
        from langgraph.channels import DeltaChannel

        return DeltaChannel(extend, snapshot_frequency=every)
    return lambda so_far, lines: extend(so_far, [lines])


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], delta(3)]
    spent: Annotated[int, operator.add]


class Payment(TypedDict):
    approved: bool
    log: Annotated[list[str], delta(3)]


def plan(state: State) -> Any:
    call: Any = {"name": "pay", "args": {"amount": 12}, "id": "c1", "type": "tool_call"}
    return {"messages": [AIMessage("", tool_calls=[call], id="m2")], "log": ["planned"]}


def ask(state: Payment) -> Any:
    return {"approved": interrupt({"question": "pay?"}), "log": ["approved"]}


def pay(state: State) -> Any:
    return {"messages": [ToolMessage("paid", tool_call_id="c1", id="m3")], "log": ["paid"], "spent": 12}


def agent(checkpointer: Any) -> Any:
    """Plans, asks for approval in a subgraph, and pays."""
    approval: Any = StateGraph(Payment)
    approval.add_node("ask", ask)
    approval.add_edge(START, "ask")
    graph: Any = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("approval", approval.compile())
    graph.add_node("pay", pay)
    for one, other in ((START, "plan"), ("plan", "approval"), ("approval", "pay"), ("pay", END)):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=checkpointer)


class Count(TypedDict):
    items: Annotated[list[str], delta(3)]
    more: Annotated[list[str], delta(4)]
    n: int


def count(state: Count) -> Any:
    n = state.get("n", 0)
    return {"items": [f"item {n}"], "n": n + 1, **({"more": [f"more {n}"]} if n % 3 else {})}


def counter(checkpointer: Any, steps: int) -> Any:
    """Counts to ``steps``, with two delta channels that are stored in full every few updates."""
    graph: Any = StateGraph(Count)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count" if state["n"] % steps else END)
    return graph.compile(checkpointer=checkpointer)
