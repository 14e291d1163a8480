"""LangGraph's RedisCache with our serializer, on a real server: a sealed value is found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from sealpoint.langgraph import EncryptedSerializer
from tests.support.servers.ports import valkey

redis_cache = pytest.importorskip("langgraph.cache.redis", reason="this LangGraph has no RedisCache")

KEY = bytes(range(32))
SECRET = "4929 1234 5678 9012"


class State(TypedDict):
    question: str
    answer: str


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """A client of a server of its own."""
    client = valkey(tmp_path)
    try:
        yield client
    finally:
        client.shutdown()


def test_a_cached_node_runs_once(server: Any) -> None:
    """The cache stores ``type:bytes`` and splits at the first ':', so a tag must not hold one."""
    runs = []

    def answer(state: State) -> dict[str, str]:
        runs.append(state["question"])
        return {"answer": f"{SECRET} for {state['question']}"}

    builder = StateGraph(State).add_node("answer", answer, cache_policy=CachePolicy())
    cache = redis_cache.RedisCache(server, serde=EncryptedSerializer.from_key(KEY))
    graph: Any = builder.add_edge(START, "answer").compile(cache=cache)
    ends = [graph.invoke({"question": "which card?"})["answer"] for _ in range(2)]
    assert ends == [f"{SECRET} for which card?"] * 2
    assert runs == ["which card?"]
    (key,) = server.keys("*")
    stored = server.get(key)
    assert stored.startswith(b"msgpack+cobblestone256@k1:")
    assert SECRET.encode() not in stored
