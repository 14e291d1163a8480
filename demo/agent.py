"""The demo's agent: it pays an insurance claim after a human has approved. Scripted: no model, no network.

`python -m demo.agent DATABASE RING` is the second process, which resumes the thread with the approval;
`python -m demo.agent DATABASE RING ask` is the fourth, which sends a new request.
"""

from __future__ import annotations

import atexit
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from langsmith import tracing_context

from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SealedStore
from sealpoint.threads import SqliteThreadStore

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

NAME: Final = "Maria Lindqvist"
AMOUNT: Final = "48,250.00 EUR"
IBAN: Final = "NO93 8601 1117 947"
DIAGNOSIS: Final = "hip replacement"
APPROVER: Final = "Dr. Ingrid Sand"
MEMBER: Final = "member-7731"
THREAD_ID: Final = "claim-2291"
THREADS: Final = "threads.db"

THREAD: Final[RunnableConfig] = {"configurable": {"thread_id": THREAD_ID, "member": MEMBER}}


class Claim(MessagesState):
    """The agent's state: the conversation, and two fields that PostgresSaver stores in a JSON column."""

    office: str
    number: int


@dataclass(frozen=True)
class Memory:
    """What the agent remembers of a member, in LangGraph's Store, in the threads of all claims."""

    member: str
    note: str


CLAIM: Final[Claim] = {
    "messages": [HumanMessage(f"Please pay the claim of {NAME}.")],
    "office": "Bergen",
    "number": 2291,
}


def seal(
    saver: BaseCheckpointSaver[Any], ring: Path, *, pseudonyms: bool = False
) -> BaseCheckpointSaver[Any]:
    """Wrap a saver, so that all it stores is sealed with the keys of ``ring``.

    Args:
        saver: The saver.
        ring: The ring file. What must be in the database is remembered in a file beside it.
        pseudonyms: Replace the thread ids, for another database: nothing is remembered.
    """
    serde = EncryptedSerializer.from_key_file(ring)
    threads = None if pseudonyms else _threads(ring.with_name(THREADS))
    return SealedSaver(saver, serde=serde, pseudonyms=pseudonyms, threads=threads)


def seal_store(store: BaseStore, ring: Path) -> SealedStore:
    """Wrap a store, so that all it stores is sealed with the keys of ``ring``, and names are replaced."""
    return SealedStore(store, serde=EncryptedSerializer.from_key_file(ring), pseudonyms=True)


@cache
def _threads(path: Path) -> SqliteThreadStore:
    store = SqliteThreadStore(path, create=True)
    atexit.register(store.close)
    return store


@tool
def pay(payee: str, iban: str, amount: str) -> str:  # noqa: ARG001 -- a tool's parameters are its schema
    """Pay a claim if a human approves."""
    answer = interrupt({"question": f"Pay {amount} to {payee}?", "reason": DIAGNOSIS})
    return f"{amount} sent to {payee}" if answer["approved"] else "nothing sent"


def act(state: Claim, runtime: Runtime[Memory]) -> dict[str, Any]:
    """Follow the script: first call the tool, then report its result. Remember what is to be remembered."""
    last = state["messages"][-1]
    if runtime.store is not None:
        runtime.store.put(("members", runtime.context.member), "note", {"note": runtime.context.note})
    if isinstance(last, HumanMessage):
        arguments = {"payee": NAME, "iban": IBAN, "amount": AMOUNT}
        call = {"name": "pay", "args": arguments, "id": "call-1", "type": "tool_call"}
        return {"messages": [AIMessage("I will pay after approval.", tool_calls=[call])]}
    return {"messages": [AIMessage(f"Done: {last.content}.")]}


def _run(
    saver: BaseCheckpointSaver[Any],
    step: Any,
    thread: RunnableConfig,
    store: BaseStore | None = None,
    memory: Memory | None = None,
) -> dict[str, Any]:
    graph = StateGraph(Claim, context_schema=Memory)
    graph.add_node("agent", act)
    graph.add_node("tools", ToolNode([pay]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    compiled = graph.compile(checkpointer=saver, store=store)
    with tracing_context(enabled=False):  # no network call, even if the environment enables tracing
        return compiled.invoke(step, thread, context=memory)


def ask(
    saver: BaseCheckpointSaver[Any],
    thread: RunnableConfig = THREAD,
    claim: Claim = CLAIM,
    store: BaseStore | None = None,
    memory: Memory | None = None,
) -> str:
    """Run until the agent asks for approval; return its question. With a store, it remembers ``memory``."""
    state = _run(saver, claim, thread, store, memory)
    return str(state["__interrupt__"][0].value["question"])


def resume(saver: BaseCheckpointSaver[Any], thread: RunnableConfig = THREAD) -> str:
    """Approve, run to the end, and return the agent's last message."""
    state = _run(saver, Command(resume={"approved": True, "by": APPROVER}), thread)
    return str(state["messages"][-1].content)


def main(database: str, ring: str, step: str = "resume") -> None:
    """Continue the thread in ``database`` with the keys of ``ring``."""
    act: Callable[[BaseCheckpointSaver[Any]], str] = {"resume": resume, "ask": ask}[step]
    with closing(sqlite3.connect(Path(database), check_same_thread=False)) as connection:
        print(act(seal(SqliteSaver(connection), Path(ring))))


if __name__ == "__main__":
    main(*sys.argv[1:])
