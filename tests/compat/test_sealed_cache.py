"""SealedCache around each of LangGraph's caches: graphs, values that were moved, keys that are gone."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.cache.base import BaseCache, FullKey
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    ConfigError,
    IntegrityError,
    PlaintextError,
    SealedValueError,
    SealingError,
    SealpointError,
    TagError,
    UnboundValueError,
)
from sealpoint.langgraph import EncryptedSerializer, SealedCache
from tests.support.keys.rings import NEW, OLD, make_ring
from tests.support.runs.forks import in_child
from tests.support.servers.ports import valkey

SECRET: Final = "4929 1234 5678 9012"
NAMES: Final[list[FullKey]] = [
    (("a",), "x"),
    (("a",), "y"),
    (("a", "b"), "x"),
    (("c,d", "e"), "x"),
    ((), "x"),
]
KINDS: Final = ("memory", "sqlite", "redis")


class Raw:
    """A cache of LangGraph, and what is stored in it."""

    cache: BaseCache[Any]

    def read(self, name: FullKey) -> tuple[Any, Any]:
        raise NotImplementedError

    def write(self, name: FullKey, tag: Any, blob: Any) -> None:
        raise NotImplementedError

    def everything(self) -> bytes:
        raise NotImplementedError

    def other(self) -> BaseCache[Any]:
        """One more cache over the same store."""
        raise NotImplementedError


class Memory(Raw):
    def __init__(self) -> None:
        self.cache = self.memory = InMemoryCache[Any]()

    def read(self, name: FullKey) -> tuple[Any, Any]:
        return self.memory._cache[name[0]][name[1]][:2]

    def write(self, name: FullKey, tag: Any, blob: Any) -> None:
        self.memory._cache.setdefault(name[0], {})[name[1]] = (tag, blob, None)

    def everything(self) -> bytes:
        return repr(self.memory._cache).encode()

    def other(self) -> BaseCache[Any]:
        made = InMemoryCache[Any]()
        made._cache = self.memory._cache
        return made


class Sqlite(Raw):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.cache = SqliteCache(path=str(path))

    def execute(self, statement: str, *values: Any) -> Any:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).fetchone()

    def read(self, name: FullKey) -> tuple[Any, Any]:
        found = self.execute(
            "SELECT encoding, val FROM cache WHERE (ns, key) = (?, ?)", ",".join(name[0]), name[1]
        )
        return found[0], found[1]

    def write(self, name: FullKey, tag: Any, blob: Any) -> None:
        self.execute(
            "INSERT OR REPLACE INTO cache VALUES (?, ?, NULL, ?, ?)", ",".join(name[0]), name[1], tag, blob
        )

    def everything(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.parent.glob(f"{self.path.name}*"))

    def other(self) -> BaseCache[Any]:
        return SqliteCache(path=str(self.path))


class Redis(Raw):
    def __init__(self, client: Any) -> None:
        from langgraph.cache.redis import RedisCache

        self.client = client
        self.cache = self.redis = RedisCache[Any](client)

    def read(self, name: FullKey) -> tuple[Any, Any]:
        tag, blob = self.client.get(self.redis._make_key(*name)).split(b":", 1)
        return tag.decode(), blob

    def write(self, name: FullKey, tag: Any, blob: Any) -> None:
        self.client.set(self.redis._make_key(*name), tag.encode() + b":" + blob)

    def everything(self) -> bytes:
        return repr([(key, self.client.get(key)) for key in self.client.keys("*")]).encode()

    def other(self) -> BaseCache[Any]:
        return type(self.redis)(self.client)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server of its own."""
    client = valkey(tmp_path_factory.mktemp("valkey"))
    try:
        yield client
    finally:
        client.shutdown()


@pytest.fixture(params=KINDS)
def raw(request: pytest.FixtureRequest, tmp_path: Path) -> Raw:
    if request.param == "memory":
        return Memory()
    if request.param == "sqlite":
        return Sqlite(tmp_path / "cache.db")
    client = request.getfixturevalue("server")
    client.flushall()
    return Redis(client)


@pytest.fixture
def cache(raw: Raw) -> SealedCache[Any]:
    return SealedCache(raw.cache, serde=make_serde())


def make_serde(old: KeyState = KeyState.DECRYPT_ONLY) -> EncryptedSerializer:
    return EncryptedSerializer(RingCipher(make_ring(old)))


def put(cache: SealedCache[Any], *names: FullKey) -> None:
    cache.set({name: (f"{SECRET} {name}", None) for name in names})


def refused(cache: SealedCache[Any]) -> dict[str, int]:
    cipher = cache.serde.cipher
    assert isinstance(cipher, RingCipher)
    return dict(cipher.stats().refused)


# --- graphs ---------------------------------------------------------------------------------------


class State(TypedDict):
    question: str
    answer: str


def build(cache: BaseCache[Any], runs: list[str], node: str = "answer", ttl: int | None = None) -> Any:
    def answer(state: State) -> dict[str, str]:
        runs.append(state["question"])
        return {"answer": f"{SECRET} for {state['question']}"}

    builder = StateGraph(State).add_node(node, answer, cache_policy=CachePolicy(ttl=ttl))
    return builder.add_edge(START, node).compile(cache=cache)


@pytest.mark.parametrize("node", ["answer", "one, two"])
@pytest.mark.parametrize("ttl", [None, 60])
def test_a_node_runs_once(raw: Raw, cache: SealedCache[Any], node: str, ttl: int | None) -> None:
    """Also one whose name has a comma, with which LangGraph's SqliteCache alone fails."""
    runs: list[str] = []
    graph = build(cache, runs, node, ttl)
    ends = [graph.invoke({"question": "which card?"})["answer"] for _ in range(2)]
    ends.append(asyncio.run(graph.ainvoke({"question": "which card?"}))["answer"])
    assert ends == [f"{SECRET} for which card?"] * 3
    assert runs == ["which card?"]
    assert SECRET.encode() not in raw.everything()
    assert b".row@new" in raw.everything()
    graph.clear_cache()
    graph.invoke({"question": "which card?"})
    assert len(runs) == 2


def test_async_graphs_store_and_clear(cache: SealedCache[Any]) -> None:
    runs: list[str] = []
    graph = build(cache, runs)

    async def work() -> None:
        for _ in range(2):
            await graph.ainvoke({"question": "which card?"})
        await graph.aclear_cache()
        await graph.ainvoke({"question": "which card?"})

    asyncio.run(work())
    assert len(runs) == 2


def test_two_processes_share_a_cache(raw: Raw, cache: SealedCache[Any]) -> None:
    runs: list[str] = []
    build(cache, runs).invoke({"question": "which card?"})
    build(SealedCache(raw.other(), serde=make_serde()), runs).invoke({"question": "which card?"})
    assert len(runs) == 1


# --- what comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]])
def test_each_key_has_its_value(cache: SealedCache[Any], order: list[FullKey]) -> None:
    put(cache, *order)
    expected = {name: f"{SECRET} {name}" for name in order}
    assert cache.get(order) == expected
    assert cache.get([*order, (("a",), "missing")]) == expected
    assert asyncio.run(cache.aget(order[::-1])) == expected
    assert [*cache.get(order)] == order
    assert cache.get([]) == {}
    cache.clear([("a",)])
    assert cache.get(order[1:2]).keys() == {*order[1:2]} - {(("a",), "x"), (("a",), "y")}
    asyncio.run(cache.aclear())
    assert cache.get(order) == {}


@given(
    names=st.lists(
        st.tuples(st.lists(st.text("ab", min_size=1)).map(tuple), st.text("ab,")), unique=True, max_size=8
    ),
    value=st.none() | st.integers(-(2**63), 2**63) | st.lists(st.text() | st.binary()),
)
def test_values_come_back_as_they_were(names: list[FullKey], value: Any) -> None:
    sealed: SealedCache[Any] = SealedCache(InMemoryCache(), serde=make_serde())
    asyncio.run(sealed.aset(dict.fromkeys(names, (value, None))))
    assert sealed.get(names) == dict.fromkeys(names, value)


def test_what_has_no_type_stores_nothing(raw: Raw, cache: SealedCache[Any]) -> None:
    with pytest.raises(SealpointError):
        cache.set({(("a",), "x"): ("text", None), (("a",), "y"): (lambda: None, None)})
    assert cache.get(NAMES) == {}
    assert b"@new" not in raw.everything()


@pytest.mark.parametrize(
    "name", [(("a\0b",), "x"), (("",), "x"), ("ab", "x"), ((1,), "x"), (("a",), 1), (("\ud800",), "x")]
)
def test_names_that_cannot_be_bound(cache: SealedCache[Any], name: Any) -> None:
    with pytest.raises(ConfigError):
        cache.set({name: ("text", None)})


# --- what is refused ------------------------------------------------------------------------------


def plain(value: Any) -> tuple[str, bytes]:
    return JsonPlusSerializer().dumps_typed(value)


Edit = Callable[[str, bytes], tuple[str, bytes]]
EDITS: Final[dict[str, tuple[Edit, type[SealpointError]]]] = {
    "bytes": (lambda tag, blob: (tag, blob[:-1] + bytes([blob[-1] ^ 1])), IntegrityError),
    "cut": (lambda tag, blob: (tag, blob[:10]), SealedValueError),
    "type": (lambda tag, blob: (tag.replace("msgpack", "json"), blob), IntegrityError),
    "other key": (lambda tag, blob: (tag.replace("@new", "@old"), blob), IntegrityError),
    "not bound": (lambda tag, blob: (tag.replace(".row", ""), blob), UnboundValueError),
    "not bound at all": (lambda _tag, _blob: make_serde().dumps_typed("forged"), UnboundValueError),
    "of LangGraph": (lambda _tag, blob: ("msgpack+aes", blob), UnboundValueError),
    "no tag": (lambda tag, blob: (tag + "!", blob), TagError),
    "plain": (lambda _tag, _blob: plain([("answer", "forged")]), PlaintextError),
    "plain of ours": (lambda _tag, blob: ("sealpoint", blob), PlaintextError),
}


@pytest.mark.claim("i3")
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("policy", ["refuse", "allow"])
def test_an_edited_value_is_refused(raw: Raw, edit: str, policy: Any) -> None:
    """And counted once; also if the serializer reads plain rows of a saver."""
    cipher = RingCipher(make_ring())
    cache = SealedCache(raw.cache, serde=EncryptedSerializer(cipher, plaintext=policy))
    put(cache, NAMES[0])
    change, error = EDITS[edit]
    raw.write(NAMES[0], *change(*raw.read(NAMES[0])))
    with pytest.raises(error):
        cache.get([NAMES[0]])
    assert cipher.stats().refused == {error.__name__: 1}
    with pytest.raises(error):
        asyncio.run(cache.aget(NAMES))
    assert cipher.stats().plaintext == 0


@pytest.mark.claim("i5")
@pytest.mark.parametrize("other", NAMES[1:])
def test_a_moved_value_is_refused(raw: Raw, cache: SealedCache[Any], other: FullKey) -> None:
    put(cache, NAMES[0])
    raw.write(other, *raw.read(NAMES[0]))
    assert cache.get([NAMES[0]])
    with pytest.raises(IntegrityError):
        cache.get([other])
    assert refused(cache) == {"IntegrityError": 1}


_names: Final = st.tuples(st.lists(st.text("ab,:", min_size=1), max_size=3).map(tuple), st.text("ab,:"))


@given(one=_names, other=_names)
def test_no_name_opens_the_value_of_another(one: FullKey, other: FullKey) -> None:
    """However close they are: with joined labels, one would often be the other."""
    raw = Memory()
    cache: SealedCache[Any] = SealedCache(raw.cache, serde=make_serde())
    put(cache, one)
    raw.write(other, *raw.read(one))
    if one == other:
        assert cache.get([other])
    else:
        with pytest.raises(IntegrityError):
            cache.get([other])


@pytest.mark.claim("i6")
def test_without_the_wrapper_a_moved_value_is_accepted(raw: Raw) -> None:
    """What it adds to LangGraph's argument ``serde``."""
    raw.cache.serde = make_serde()
    raw.cache.set({NAMES[0]: ("of x", None)})
    raw.write(NAMES[1], *raw.read(NAMES[0]))
    assert raw.cache.get([NAMES[1]]) == {NAMES[1]: "of x"}


@pytest.mark.parametrize("kind", [int, type(None), str])
def test_sqlite_may_hold_other_types(tmp_path: Path, kind: type) -> None:
    raw = Sqlite(tmp_path / "cache.db")
    cache: SealedCache[Any] = SealedCache(raw.cache, serde=make_serde())
    put(cache, NAMES[0])
    tag, blob = raw.read(NAMES[0])
    raw.execute("DROP TABLE cache")
    raw.execute("CREATE TABLE cache (ns, key, expiry, encoding, val, PRIMARY KEY (ns, key))")
    values: dict[type, Any] = {int: 1, type(None): None, str: "text"}
    raw.write(NAMES[0], tag, values[kind])
    with pytest.raises(SealedValueError):
        cache.get(NAMES)
    raw.write(NAMES[0], b"bytes" if kind is str else values[kind], blob)
    with pytest.raises(PlaintextError):
        cache.get(NAMES)


def test_labels_that_sqlite_joins_alike(tmp_path: Path) -> None:
    """One row has two names; under the other one it is refused, and never taken for its value."""
    cache: SealedCache[Any] = SealedCache(SqliteCache(path=str(tmp_path / "cache.db")), serde=make_serde())
    one, two = (("a,b",), "x"), (("a", "b"), "x")
    put(cache, one)
    assert cache.get([one]) == {one: f"{SECRET} {one}"}
    with pytest.raises(IntegrityError):
        cache.get([two])
    put(cache, two)
    assert cache.get([one, two]) == {two: f"{SECRET} {two}"}


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [*KeyState, None])
def test_a_value_under_a_key_that_is_gone_is_a_miss(raw: Raw, state: KeyState | None) -> None:
    before = EncryptedSerializer(RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)])))
    put(SealedCache(raw.cache, serde=before), NAMES[0])
    if state in (KeyState.STAGED, KeyState.ACTIVE):
        return
    ring = KeyRing([Key("new", NEW, KeyState.ACTIVE)]) if state is None else make_ring(state)
    after: SealedCache[Any] = SealedCache(raw.other(), serde=EncryptedSerializer(RingCipher(ring)))
    opens = state in (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED)
    assert after.get(NAMES).keys() == ({NAMES[0]} if opens else set())
    assert refused(after) == {}
    runs: list[str] = []
    for _ in range(2):
        build(after, runs).invoke({"question": "which card?"})
    assert len(runs) == 1
    put(after, NAMES[0])
    assert raw.read(NAMES[0])[0].endswith("@new")


# --- the wrapped cache ----------------------------------------------------------------------------


def test_a_cache_is_taken_over_once(raw: Raw, cache: SealedCache[Any]) -> None:
    for given_cache in (raw.cache, cache):
        with pytest.raises(ConfigError, match="wrapped already"):
            SealedCache(given_cache, serde=make_serde())
    with pytest.raises(SealingError):
        raw.cache.set({NAMES[0]: ("text", None)})
    assert SECRET.encode() not in raw.everything()


def test_what_is_no_cache_or_serializer() -> None:
    class Flip:
        def encrypt(self, data: bytes) -> tuple[str, bytes]:
            return "flip", data

        def decrypt(self, _name: str, data: bytes) -> bytes:
            return data

    cache = InMemoryCache[Any]()
    ours = make_serde()
    unfit: list[tuple[Any, Any]] = [
        *((each, ours) for each in ("text", InMemoryCache, InMemoryStore())),
        (cache, JsonPlusSerializer()),
    ]
    for wrapped, serde in unfit:
        with pytest.raises(ConfigError):
            SealedCache(wrapped, serde=serde)
    with pytest.raises(SealingError):
        SealedCache(cache, serde=EncryptedSerializer(Flip()))
    assert SealedCache(cache, serde=make_serde()).get([NAMES[0]]) == {}  # a failure takes nothing over


def test_a_cache_that_passes_by_its_serializer_is_refused() -> None:
    class Careless(InMemoryCache[Any]):
        def set(self, keys: Any) -> None:
            self.held = {name: value for name, (value, _) in keys.items()}

        def get(self, _keys: Any) -> Any:
            return self.held

    cache = SealedCache(Careless(), serde=make_serde())
    put(cache, NAMES[0])
    with pytest.raises(SealpointError, match="where a sealed one was stored"):
        cache.get([NAMES[0]])


def test_the_connection_of_sqlite_stays_open(tmp_path: Path) -> None:
    inner = SqliteCache[Any](path=str(tmp_path / "cache.db"))
    cache = SealedCache(inner, serde=make_serde())
    put(cache, NAMES[0])
    del cache
    gc.collect()
    assert inner._conn.execute("SELECT count(*) FROM cache").fetchone() == (1,)


def test_a_child_does_not_use_the_connection_of_its_parent(tmp_path: Path) -> None:
    cache: SealedCache[Any] = SealedCache(SqliteCache(path=str(tmp_path / "cache.db")), serde=make_serde())
    put(cache, NAMES[0])
    assert in_child(lambda: cache.get([NAMES[0]])).startswith("ForkedError: this SqliteCache was created")
    assert in_child(cache.clear).startswith("ForkedError")
    memory: SealedCache[Any] = SealedCache(InMemoryCache(), serde=make_serde())
    put(memory, NAMES[0])
    assert SECRET in in_child(lambda: memory.get([NAMES[0]]))
    assert cache.get([NAMES[0]])


def test_a_server_that_is_down_has_nothing(tmp_path: Path) -> None:
    """As with LangGraph's RedisCache, which reports nothing."""
    redis_cache = pytest.importorskip("langgraph.cache.redis", reason="this LangGraph has no RedisCache")
    client = valkey(tmp_path)
    cache: SealedCache[Any] = SealedCache(redis_cache.RedisCache(client), serde=make_serde())
    put(cache, NAMES[0])
    client.shutdown()
    assert cache.get(NAMES) == asyncio.run(cache.aget(NAMES)) == {}
    put(cache, NAMES[0])
    cache.clear()
    runs: list[str] = []
    for _ in range(2):
        build(cache, runs).invoke({"question": "which card?"})
    assert len(runs) == 2


def test_bytes_that_redis_cannot_split_are_a_miss(server: Any) -> None:
    server.flushall()
    raw = Redis(server)
    cache: SealedCache[Any] = SealedCache(raw.cache, serde=make_serde())
    for data in (b"", b"no colon", b"\xff\xff:x"):
        server.set(raw.redis._make_key(*NAMES[0]), data)
        assert cache.get(NAMES) == {}
