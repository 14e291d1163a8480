"""`require_sealing` of graphs: the table of docs/savers.md, for each way to make a graph."""

from __future__ import annotations

import asyncio
import pickle
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from langgraph.types import CachePolicy

from sealpoint import KeyRing, RingCipher
from sealpoint.errors import SealingCheckError
from sealpoint.langgraph import (
    EncryptedSerializer,
    SealedCache,
    SealedSaver,
    SealedStore,
    arequire_sealing,
    require_sealing,
)

PAGE = Path(__file__).parents[2] / "docs" / "savers.md"
ROW = re.compile(r"^\| `?(\w+)`? \| `?(\w+)`? \| `?(\w+)`? \| (.+) \|$", re.MULTILINE)


class State(TypedDict):
    n: int


def add(state: State) -> State:
    return {"n": state["n"] + 1}


def a_graph(**parts: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("add", add, cache_policy=CachePolicy())
    builder.add_edge(START, "add")
    return builder.compile(**parts)


def an_entrypoint(**parts: Any) -> Any:
    @entrypoint(**parts)
    def workflow(n: int) -> int:
        return n + 1

    return workflow


def an_agent(**parts: Any) -> Any:
    agents = pytest.importorskip("langchain.agents")
    return agents.create_agent(a_model(), **parts)


def a_deep_agent(**parts: Any) -> Any:
    deepagents = pytest.importorskip("deepagents")
    return deepagents.create_deep_agent(a_model(), **parts)


def a_model() -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    return GenericFakeChatModel(messages=iter(()))


KINDS: dict[str, Callable[..., Any]] = {
    "StateGraph": a_graph,
    "entrypoint": an_entrypoint,
    "create_agent": an_agent,
    "create_deep_agent": a_deep_agent,
}


def sealing() -> EncryptedSerializer:
    return EncryptedSerializer.from_key(bytes(range(32)))


def parts_of(checkpointer: str, store: str, cache: str) -> dict[str, Any]:
    """What the classes of a row are, empty."""
    made: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "SealedSaver": lambda: SealedSaver(InMemorySaver(), serde=sealing()),
        "InMemorySaver": InMemorySaver,
        "SealedStore": lambda: SealedStore(InMemoryStore(), serde=sealing()),
        "InMemoryStore": InMemoryStore,
        "SealedCache": lambda: SealedCache(InMemoryCache(), serde=sealing()),
        "InMemoryCache": InMemoryCache,
    }
    return {"checkpointer": made[checkpointer](), "store": made[store](), "cache": made[cache]()}


def says(check: Callable[[], Any]) -> str:
    """What a check says, as the table shows it."""
    try:
        found = check()
    except SealingCheckError as error:
        return f"raises: {error.reason}" if error.hint else "no hint"
    return f"`{found}`"


SECTION = PAGE.read_text(encoding="utf-8").partition("## Check a graph")[2].partition("\n## ")[0]
TABLE = ROW.findall(SECTION)[1:]  # without its head


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", range(8))
def test_the_table(kind: str, row: int) -> None:
    assert len(TABLE) == 8
    *classes, expected = TABLE[row]
    graph = KINDS[kind](**parts_of(*classes))
    assert says(lambda: require_sealing(graph)) == expected
    assert says(lambda: asyncio.run(arequire_sealing(graph))) == expected


@pytest.mark.parametrize("flag", [True, False])
def test_a_checkpointer_that_is_a_flag_is_none(flag: bool) -> None:
    """It is for subgraphs: that of the graph that runs it, or none at all."""
    assert require_sealing(a_graph(checkpointer=flag)) == dict.fromkeys(("checkpointer", "store", "cache"))


# --- subgraphs -----------------------------------------------------------------------------------


def parent(child: Any, **parts: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("child", child)
    builder.add_edge(START, "child")
    return builder.compile(**parts)


def calling(child: Any) -> Callable[[State], Any]:
    def call(state: State) -> Any:
        return child.invoke(state)

    return call


@pytest.mark.parametrize("called", [False, True], ids=["node", "called"])
@pytest.mark.parametrize("lends", [False, True], ids=["alone", "lends"])
def test_what_a_subgraph_has_is_checked_if_langgraph_uses_it(called: bool, lends: bool) -> None:
    """LangGraph uses the cache of a subgraph, and never its checkpointer and its store."""
    saver, store, cache = InMemorySaver(), InMemoryStore(), InMemoryCache[Any]()
    child = a_graph(checkpointer=saver, store=store, cache=cache)
    lent = parts_of("SealedSaver", "SealedStore", "SealedCache") if lends else {}
    graph = parent(parent(calling(child) if called else child), **lent)
    graph.invoke({"n": 1}, {"configurable": {"thread_id": "t"}})
    assert not saver.storage
    assert not store.list_namespaces()
    assert cache._cache
    with pytest.raises(SealingCheckError) as caught:
        require_sealing(graph)
    assert caught.value.reason == (
        "cache of subgraph 'child|child' InMemoryCache: its serializer JsonPlusSerializer does not seal"
    )
    assert "SealedCache(" in caught.value.hint
    sealed = a_graph(cache=SealedCache(InMemoryCache(), serde=sealing()))
    assert require_sealing(parent(sealed))["cache of subgraph 'child'"] == "SealedCache"


# --- stores and caches alone ---------------------------------------------------------------------


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "items.db"
    with closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as made:
        yield made


OPTIONS: dict[str, dict[str, Any]] = {
    "by default": {},
    "pseudonyms": {"pseudonyms": True},
    "plain fields": {"plain_fields": ["user"]},
    "in a migration": {"unbound": "allow"},
}


def indexing() -> EncryptedSerializer:
    ring = KeyRing(sealing().cipher.ring.keys, index=bytes(32))  # type: ignore[attr-defined]
    return EncryptedSerializer(RingCipher(ring), plaintext="allow")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_sealed_store_passes_and_keeps_nothing(options: str, connection: sqlite3.Connection) -> None:
    serde, inner = indexing(), SqliteStore(connection)
    inner.setup()
    store = SealedStore(inner, serde=serde, **OPTIONS[options])
    store.put(("users",), "ada", {"user": "ada"})
    assert require_sealing(store) == {"store": "SealedStore"}
    with pytest.raises(SealingCheckError, match="aget raised NotImplementedError") as caught:
        asyncio.run(arequire_sealing(store))  # SqliteStore has no async methods
    assert caught.value.hint == "use require_sealing if the store has sync methods"
    assert connection.execute("SELECT count(*) FROM store").fetchone() == (1,)
    assert "seal" not in vars(serde)


def test_a_store_that_collects_operations_passes(tmp_path: Path) -> None:
    async def check() -> Any:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "items.db")) as inner:
            await inner.setup()
            return await arequire_sealing(SealedStore(inner, serde=sealing()))

    assert asyncio.run(check()) == {"store": "SealedStore"}


@pytest.mark.parametrize("inner", ["memory", "sqlite"])
def test_a_sealed_store_that_writes_plain_is_refused_and_keeps_nothing(
    inner: str, connection: sqlite3.Connection
) -> None:
    bare: Any = InMemoryStore() if inner == "memory" else SqliteStore(connection)
    if inner == "sqlite":
        bare.setup()
    store = SealedStore(bare, serde=indexing(), unbound="allow", allow_write_plain=True)
    with pytest.raises(SealingCheckError, match=r"item was not passed to store\.serde"):
        require_sealing(store)
    assert bare.search(()) == []


class KeepsACopy(SealedStore):
    """Seals an item, and stores it readable, too."""

    def batch(self, ops: Any) -> Any:
        self.copies = [pickle.dumps(op.value) for op in ops if isinstance(op, PutOp)]
        return super().batch(ops)


class Forgets(SealedStore):
    """Seals an item, and returns another one."""

    def get(self, *_: Any, **__: Any) -> Any:
        return None


REFUSED = {KeepsACopy: "was pickled", Forgets: "get did not return the item"}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_store_that_seals_and_does_more_or_less_is_refused(kind: type[SealedStore]) -> None:
    inner = InMemoryStore()
    with pytest.raises(SealingCheckError, match=REFUSED[kind]):
        require_sealing(kind(inner, serde=sealing()))
    assert inner.search(()) == []


@pytest.mark.parametrize("kind", ["SealedCache", "serde", "sqlite"])
def test_a_cache_that_seals_passes_and_keeps_nothing(kind: str, tmp_path: Path) -> None:
    inner: Any = SqliteCache(path=str(tmp_path / "cache.db")) if kind == "sqlite" else InMemoryCache()
    cache: Any = SealedCache(inner, serde=sealing()) if kind != "serde" else InMemoryCache(serde=sealing())
    cache.set({(("nodes",), "a"): (1, None)})
    for found in (require_sealing(cache), asyncio.run(arequire_sealing(cache))):
        assert found == {"cache": type(cache).__name__}
    assert cache.get([(("nodes",), "a")]) == {(("nodes",), "a"): 1}
    if kind == "sqlite":
        (count,) = inner._conn.execute("SELECT count(*) FROM cache").fetchone()
        inner._conn.close()
    else:
        count = sum(len(kept) for kept in (cache if kind == "serde" else inner)._cache.values())
    assert count == 1


def test_a_cache_that_keeps_the_value_itself_is_refused() -> None:
    class Keeps(InMemoryCache[Any]):
        def set(self, keys: Any) -> None:
            self.kept = dict(keys)

        def get(self, keys: Any) -> Any:
            return {key: self.kept[key][0] for key in keys if key in getattr(self, "kept", {})}

    with pytest.raises(SealingCheckError, match=r"the value was not passed to cache\.serde") as caught:
        require_sealing(Keeps(serde=sealing()))
    assert "SealedCache(" in caught.value.hint
