"""The law of a write that raises: the saver, the cache or the store holds afterwards what it held before."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.store.base import GetOp, PutOp

from sealpoint.errors import ConfigError, UnsupportedTypeError
from sealpoint.langgraph import SealedCache
from tests.graphs.savers import SEALED
from tests.sealed.savers import HEADS, SAVERS, Sync, opened
from tests.sealed.stores import FORMS, STORES
from tests.sealed.stores import opened as opened_store
from tests.support.databases.checkpoints import at, make
from tests.support.runs.extent import by_extent

Snapshot = Callable[[], Any]
_few: Final = settings(
    max_examples=by_extent(25, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
_TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
NOTHING: Final = object()  # which no serializer has a form for

goods: Final = st.sampled_from(["text", 7, None, b"bytes", ["a", {"b": 1}], {"k": "v"}])
bads: Final = st.sampled_from([NOTHING, [1, NOTHING], {"a": {"b": NOTHING}}, ("x", [NOTHING])])


def at_random(good: Any, bad: Any) -> Any:
    """Lists of ``good`` with one ``bad`` in any place."""
    lists = st.lists(good, max_size=4)
    return st.builds(lambda left, middle, right: [*left, middle, *right], lists, bad, lists)


# --- savers ---------------------------------------------------------------------------------------


def snapshot_of(name: str, saver: Any, place: str) -> Snapshot:
    """What returns all that a saver has stored."""
    inner = getattr(saver, "inner", saver)
    if isinstance(inner, TheirMemory):
        return lambda: copy.deepcopy(
            ({k: dict(v) for k, v in inner.storage.items()}, dict(inner.writes), dict(inner.blobs))
        )
    if "dbname" in place or "://" in place:

        def rows() -> Any:
            with psycopg.connect(place) as connection:
                return [
                    sorted(map(repr, connection.execute(f"SELECT * FROM {table}".encode())))
                    for table in _TABLES
                ]

        return rows
    if SAVERS[name].kind == "memory":
        return lambda: [*inner.conn.iterdump()]

    def dump() -> Any:
        with closing(sqlite3.connect(place)) as connection:
            return [*connection.iterdump()]

    return dump


def first() -> Any:
    """A checkpoint with one channel."""
    return {**make("1", a=["first"]), "channel_versions": {"a": "1"}}


@pytest.mark.broad
@pytest.mark.parametrize("form", ["sealed", "all options", HEADS])
@pytest.mark.parametrize("name", SAVERS)
def test_a_call_of_a_saver_that_raises_stores_nothing(name: str, form: str, place: Any) -> None:
    """With a value that has no form in any position: of `put`, of `put_writes`, of its metadata."""
    where = place("postgres" if SAVERS[name].kind == "postgres" else "sqlite")
    with opened(name, where, form) as (inner, runner):
        saver, snapshot = Sync(inner, runner, awaited=SAVERS[name].awaited), snapshot_of(name, inner, where)
        saver.put(at("t"), first(), {"source": "input"}, {"a": "1"})
        saver.put_writes(at("t", "1"), [("a", ["one"]), (INTERRUPT, "two")], "task")
        before = snapshot()

        def refused(act: Callable[[], Any]) -> None:
            with pytest.raises((TypeError, ValueError)):
                act()
            assert snapshot() == before

        @_few
        @given(values=at_random(goods, bads), data=st.data())
        def law(values: list[Any], data: st.DataObject) -> None:
            channels = [f"c{number}" for number in range(len(values))]
            named = [data.draw(st.sampled_from([channels[0], INTERRUPT, ERROR])), *channels[1:]]
            refused(lambda: saver.put_writes(at("t", "1"), [*zip(named, values, strict=True)], "other"))
            versions = dict.fromkeys(channels, "2")
            made: Any = make("2", **dict(zip(channels, values, strict=True)))
            made["channel_versions"] = versions
            refused(lambda: saver.put(at("t", "1"), made, {"source": "loop"}, versions))
            key = data.draw(st.sampled_from(["source", "step", "parents", "tenant", "user_id", "other"]))
            fine: Any = make("2", **{channel: ["fine"] for channel in channels})
            fine["channel_versions"] = versions
            has_json = key in ("source", "step", "parents")  # which stay readable
            value = data.draw(bads | st.just(b"bytes") if has_json else bads)
            refused(lambda: saver.put(at("t", "1"), fine, {"source": "loop", key: value}, versions))

        law()


@pytest.mark.broad
@pytest.mark.parametrize("name", SAVERS)
def test_a_name_that_a_saver_refuses_stores_nothing(name: str, place: Any) -> None:
    """A lone surrogate no database takes, and a NUL not Postgres."""
    where = place("postgres" if SAVERS[name].kind == "postgres" else "sqlite")
    with opened(name, where, "sealed") as (inner, runner):
        saver, snapshot = Sync(inner, runner, awaited=SAVERS[name].awaited), snapshot_of(name, inner, where)
        saver.put(at("t"), first(), {"source": "input"}, {"a": "1"})
        for bad in ("\ud800", "a\0b"):
            before = snapshot()
            writes = [("a", ["one"]), (bad, ["two"]), ("c", ["three"])]
            made: Any = make("2", a=["one"], **{bad: ["two"]})
            made["channel_versions"] = {"a": "2", bad: "2"}
            calls: list[tuple[str, tuple[Any, ...]]] = [
                ("put_writes", (at("t", "1"), writes, "task")),
                ("put_writes", (at("t", "1"), [("a", 1), ("b", 2)], bad)),
                ("put_writes", (at("t", "1"), [("a", 1), ("b", 2)], "path", bad)),
                ("put", (at("t", "1"), made, {"source": "loop"}, made["channel_versions"])),
            ]
            for method, arguments in calls:
                try:
                    getattr(saver, method)(*arguments)
                except Exception:  # noqa: BLE001 -- which one is the database's
                    assert snapshot() == before, (method, arguments)
                else:
                    before = snapshot()
            assert saver.get_tuple(at("t", "1")) is not None


# --- caches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_call_of_a_cache_that_raises_stores_nothing(kind: str, tmp_path: Any) -> None:
    inner: Any = InMemoryCache() if kind == "memory" else SqliteCache(path=str(tmp_path / "cache.db"))
    cache: SealedCache[Any] = SealedCache(inner, serde=SEALED)

    def snapshot() -> Any:
        return copy.deepcopy(inner._cache) if kind == "memory" else [*inner._conn.iterdump()]

    cache.set({(("ns",), "0"): ("kept", None)})
    before = snapshot()

    @_few
    @given(values=at_random(goods, bads))
    def law(values: list[Any]) -> None:
        with pytest.raises(UnsupportedTypeError):
            cache.set({(("ns",), str(number)): (value, 60) for number, value in enumerate(values)})
        assert snapshot() == before

    law()


# --- stores ---------------------------------------------------------------------------------------

surrogates: Final = st.sampled_from(["\ud800", "Ad\ud800a", "\udfff", "é\udc80", "\ude00\ud83d"])
in_values: Final = surrogates.flatmap(
    lambda text: st.sampled_from(
        [
            text,
            [text],
            {"deep": [{"er": text}]},
            {text: 1},
            {"deep": {text: {}}},
            {text},
            ("a", [text]),
            NOTHING,
        ]
    )
)


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_a_batch_of_a_store_that_raises_stores_nothing(name: str, form: str, place: Any) -> None:
    """A lone surrogate in a value, as a key in it, in a label, or in a key, in any position of a batch."""
    with opened_store(name, place(STORES[name].kind)) as (bare,):
        store = bare.sealed(**FORMS[form])
        store.put(("ns",), "kept", {"lang": "en", "text": "before"})
        before = store.search(("ns",))
        good = st.builds(
            lambda key, value: PutOp(("ns",), key, {"text": value}), st.sampled_from(["kept", "k"]), goods
        )
        field = st.sampled_from(["lang", "user", "text"])
        bad = (
            st.builds(lambda field, value: PutOp(("ns",), "bad", {field: value}), field, in_values)
            | st.builds(lambda key: PutOp(("ns",), key, {"text": "x"}), surrogates)
            | st.builds(lambda key: PutOp(("ns",), key, None), surrogates)
            | st.builds(lambda label: PutOp(("ns", label), "k", {"text": "x"}), surrogates)
        )

        @_few
        @given(ops=at_random(good | st.just(GetOp(("ns",), "kept")), bad))
        def law(ops: list[Any]) -> None:
            with pytest.raises((UnsupportedTypeError, ConfigError)):
                store.batch(ops)
            assert store.search(("ns",)) == before
            assert len(store.search(())) == len(before)

        law()


@pytest.mark.parametrize("name", STORES)
def test_a_lone_surrogate_is_refused_as_the_bare_store_refuses_it(name: str, place: Any) -> None:
    """The error is also of the class that LangGraph's own raises, and does not quote the value."""
    with opened_store(name, place(STORES[name].kind)) as (bare,):
        store = bare.sealed()
        with pytest.raises(TypeError, match="lone surrogate") as caught:
            store.put(("ns",), "k", {"name": "Ad\ud800a"})
        assert "Ad" not in str(caught.value)
        if STORES[name].kind == "sqlite":
            with pytest.raises(TypeError):
                bare.put(("ns",), "k", {"name": "Ad\ud800a"})
        store.put(("ns",), "k", {"name": "Ada"})  # and the next value is not refused
        assert store.get(("ns",), "k").value == {"name": "Ada"}


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_a_nul_that_a_store_refuses_stores_nothing(name: str, form: str, place: Any) -> None:
    """In a key, a label, or a readable field: Postgres takes none, and the deletion before it is not done."""
    with opened_store(name, place(STORES[name].kind)) as (bare,):
        store = bare.sealed(**FORMS[form])
        for op in (
            PutOp(("ns",), "a\0b", {"text": "x"}),
            PutOp(("ns",), "a\0b", None),
            PutOp(("ns", "a\0b"), "k", {"text": "x"}),
            PutOp(("ns",), "k", {"lang": "a\0b"}),
        ):
            store.put(("ns",), "kept", {"lang": "en", "text": "before"})
            store.put(("ns",), "gone", {"lang": "en", "text": "before"})
            before = [(item.key, item.value) for item in store.search(("ns",))]
            try:
                store.batch([PutOp(("ns",), "gone", None), PutOp(("ns",), "kept", {"lang": "de"}), op])
            except Exception:  # noqa: BLE001 -- which one is the database's
                found = [(item.key, item.value) for item in store.search(("ns",))]
                assert sorted(found, key=repr) == sorted(before, key=repr), op
