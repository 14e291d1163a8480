"""Graphs with SealedSaver and SealedStore: nodes remember across threads, and nothing is readable."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import BaseStore

from sealpoint.langgraph import InMemorySaver, SealedSaver
from tests.graphs.savers import SEALED
from tests.sealed.stores import FORMS, STORES, beside, opened
from tests.support.servers.postgres import schema, server

SECRET = "canary 4929 1234"


class State(TypedDict):
    said: str
    known: list[str]


def memories(store: Any, user: str) -> Any:
    return store.search(("memories", user), filter={"kind": "said"}, limit=100)


def remember(state: State, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
    user = config["configurable"]["user"]
    known = [each.value["text"] for each in memories(store, user)]
    store.put(("memories", user), f"m{len(known)}", {"kind": "said", "text": state["said"], "lang": "en"})
    return {"known": sorted(known)}


async def aremember(state: State, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
    user = config["configurable"]["user"]
    found = await store.asearch(("memories", user), filter={"kind": "said"}, limit=100)
    known = [each.value["text"] for each in found]
    value = {"kind": "said", "text": state["said"], "lang": "en"}
    await store.aput(("memories", user), f"m{len(known)}", value)
    return {"known": sorted(known)}


def again(state: State, config: RunnableConfig) -> dict[str, Any]:
    """A node that finds the store by itself, as tools do."""
    assert len(memories(get_store(), config["configurable"]["user"])) == len(state["known"]) + 1
    return {}


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_an_agent_remembers_across_threads(
    name: str, form: str, pytestconfig: pytest.Config, tmp_path: Any
) -> None:
    entry = STORES[name]

    def run(place: str) -> None:
        with opened(name, place) as (inner,):
            sealed = inner.sealed(**FORMS[form]).store
            builder = StateGraph(State).add_node("again", again)
            builder.add_node("remember", aremember if entry.awaited else remember)
            builder.add_edge(START, "remember").add_edge("remember", "again")
            graph = builder.compile(checkpointer=SealedSaver(InMemorySaver(), serde=SEALED), store=sealed)
            answers = []
            for number, user in enumerate(["ann", "bob", "ann"]):
                config: Any = {"configurable": {"thread_id": f"t{number}", "user": user}}
                given: Any = {"said": f"{SECRET} {number}", "known": []}
                if entry.awaited:
                    answers.append(inner.runner.run(graph.ainvoke(given, config)))
                else:
                    answers.append(graph.invoke(given, config))
            assert [each["known"] for each in answers] == [[], [], [f"{SECRET} 0"]]
        if entry.kind != "memory":
            with beside(place) as execute:
                assert len(rows := execute("SELECT prefix, key, CAST(value AS TEXT) FROM store")) == 3
            assert SECRET not in str(rows)
            assert ("memories.ann" in str(rows)) is (form != "all options")

    if entry.kind == "postgres":
        with schema(server(pytestconfig)) as dsn:
            run(dsn)
    else:
        run(str(tmp_path / "store.db"))


def test_nodes_share_a_store_at_once() -> None:
    """Branches of one step use it concurrently, sync ones on threads."""
    from langgraph.store.memory import InMemoryStore

    from sealpoint.langgraph import SealedStore

    store = SealedStore(InMemoryStore(), serde=SEALED)
    builder: Any = StateGraph(State)
    for number in range(8):

        def node(state: Any, *, store: BaseStore, number: int = number) -> None:
            store.put(("n",), f"k{number}", {"n": number})
            assert store.get(("n",), f"k{number}").value == {"n": number}  # type: ignore[union-attr]

        builder.add_node(f"node{number}", node)
        builder.add_edge(START, f"node{number}")
    asyncio.run(builder.compile(store=store).ainvoke({"said": "", "known": []}))
    assert len(store.search(("n",), limit=100)) == 8
