"""SealedStore around each of LangGraph's stores: what it returns, refuses, and leaves in the database."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import (
    ConfigError,
    DecodeError,
    ForkedError,
    IntegrityError,
    PlaintextError,
    RowError,
    SealingError,
    SealpointError,
    UnknownKeyError,
    UnsupportedTypeError,
)
from sealpoint.langgraph import EncryptedSerializer, SealedStore
from sealpoint.seal.jsontext import MAX_DEPTH
from sealpoint.sealed.steps import LARGE_BYTES
from tests.graphs.savers import RING, SEALED
from tests.sealed.stores import FORMS, KINDS, STORES, Sync, beside, opened
from tests.support.runs.extent import by_extent
from tests.support.runs.forks import in_child

NS: Final = ("users", "u1")
VALUE: Final = {"lang": "en", "user": "u1", "text": "likes tea"}


def serde(**options: Any) -> EncryptedSerializer:
    """A serializer with counters of its own."""
    return EncryptedSerializer(RingCipher(RING), **options)


@pytest.fixture(params=KINDS)
def bare(request: pytest.FixtureRequest, place: Any) -> Iterator[Sync]:
    """A store of each kind."""
    where = place(STORES[request.param].kind)
    with opened(request.param, where) as (store,):
        yield store


@pytest.fixture
def sqlite(place: Any) -> Iterator[Any]:
    """A SqliteStore, and SQL on its file."""
    where = place("sqlite")
    with opened("SqliteStore", where) as (store,), beside(where) as execute:
        yield store, execute


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        {1: "a", 2: {3: 4}},
        {"a", "b"},
        math.inf,
        -(2**63),
        "nul \0",
        1e300,
        {"deep": [[[[1]]]]},
    ],
)
def test_what_json_would_change_comes_back(bare: Sync, value: Any) -> None:
    store = bare.sealed()
    store.put(NS, "k", {"x": value})
    for found in (store.get(NS, "k"), *store.search(NS), *store.search(NS, filter={"x": value})):
        assert (found.namespace, found.key, found.value) == (NS, "k", {"x": value})
    assert len(store.search(NS, filter={"x": value})) == 1


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | texts
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@settings(
    max_examples=by_extent(40, 500),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=json_values)
def test_plain_fields_come_back_as_they_were(bare: Sync, value: Any) -> None:
    """Whatever a database makes of numbers, such as 1e300: it is not taken for a forged one."""
    store = bare.sealed(plain_fields=["x"])
    store.put(NS, "k", {"x": value})
    found = store.get(NS, "k").value["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("field", ["plain", "indexed"])
def test_a_readable_field_with_a_lone_surrogate_is_refused_before_it_is_stored(
    bare: Sync, field: str
) -> None:
    """It is sealed as another character, and what is readable of it would differ: the item would not open."""
    store = bare.sealed(plain_fields=["plain"], indexed_fields=["indexed"])
    store.put(NS, "k", {field: "before"})
    with pytest.raises(ConfigError, match=f"field '{field}' holds a lone surrogate"):
        store.put(NS, "k", {field: "a\ud800"})
    assert store.get(NS, "k").value == {field: "before"}


def test_a_plain_field_is_not_deeper_than_the_commands_read(bare: Sync) -> None:
    store = bare.sealed(plain_fields=["x"])
    deepest = json.loads("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    store.put(NS, "k", {"x": deepest, "sealed": [deepest]})
    with pytest.raises(UnsupportedTypeError, match="nested"):
        store.put(NS, "k", {"x": [deepest]})
    assert store.get(NS, "k").value == {"x": deepest, "sealed": [deepest]}


def test_a_value_is_not_shared_with_the_caller(bare: Sync) -> None:
    store, value = bare.sealed(plain_fields=["lang"]), {"lang": ["en"], "more": {"a": [1]}}
    store.put(NS, "k", value)
    kept = json.loads(json.dumps(value))
    value["lang"].append("de")  # type: ignore[attr-defined]
    value["more"]["a"].append(2)  # type: ignore[index]
    for found in (store.get(NS, "k"), store.search(NS)[0]):
        found.value["lang"].append("fr")
        found.value["more"]["a"].append(3)
        found.value["new"] = 1
    assert store.get(NS, "k").value == store.search(NS)[0].value == kept


@pytest.mark.claim("i1")
def test_the_database_holds_names_and_nothing_else(place: Any) -> None:
    for form, visible in (("sealed", True), ("fields", True), ("all options", False)):
        where = place("sqlite")
        with opened("SqliteStore", where) as (store,), beside(where) as execute:
            sealed = store.sealed(**FORMS[form])
            sealed.put(("canary-label", "u1"), "canary-key", {**VALUE, "text": "canary-text"})
            sealed.batch([GetOp(("canary-label", "u1"), "canary-key"), ListNamespacesOp()])
            ((row,),) = execute("SELECT json_array(prefix, key, CAST(value AS TEXT)) FROM store")
        assert "canary-text" not in row
        assert ("canary-label" in row) is ("canary-key" in row) is visible


# --- searches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("filter_", [{"text": "t1"}, {"user": "u1", "n": {"$gte": 0}}])
def test_pages_have_each_item_once_though_all_have_one_time(bare: Sync, filter_: Any) -> None:
    """Postgres returns items of one time in another order for each limit."""
    store = bare.sealed(indexed_fields=["user"])
    count = 2500
    value = {"user": "u1", "text": "t1"}
    for start in range(0, count, 1000):  # three times; a limit of each page lies within one
        store.batch([PutOp(NS, f"k{n}", {**value, "n": n}) for n in range(start, min(start + 1000, count))])
    found = store.search(NS, filter=filter_, limit=count + 1)
    assert sorted(each.value["n"] for each in found) == [*range(count)]
    assert [each.key for each in store.search(NS, filter={**filter_, "n": 2000})] == ["k2000"]
    assert store.search(NS, filter=filter_, limit=5, offset=count) == []
    assert len(store.search(NS, filter=filter_, limit=5, offset=count - 2)) == 2


@pytest.mark.parametrize(("limit", "offset"), [(-1, 0), (1, -1)])
def test_negative_pages_are_refused_if_items_are_compared(bare: Sync, limit: int, offset: int) -> None:
    with pytest.raises(ConfigError):
        bare.sealed().search(NS, filter={"text": "x"}, limit=limit, offset=offset)


def test_a_forged_text_of_json_is_refused(sqlite: Any) -> None:
    """SQLite finds the first of two fields with one name, and LangGraph alone reads the last."""
    store, execute = sqlite
    sealed = store.sealed(**FORMS["fields"])
    for n, lang in enumerate(["de", "en", "en", "en"]):
        sealed.put(NS, f"k{n}", {**VALUE, "lang": lang})
        execute("UPDATE store SET updated_at = ? WHERE key = ?", f"2026-01-01 00:00:0{9 - n}", f"k{n}")
    forged = """'{"lang":"en",' || substr(CAST(value AS TEXT), 2)"""
    execute(f"UPDATE store SET value = {forged} WHERE key = 'k0'")
    assert len(store.search(NS, filter={"lang": "en"})) == 4
    for wanted in ("en", {"$eq": "en"}, {"$ne": "de"}):
        with pytest.raises(DecodeError, match="duplicate key"):
            sealed.search(NS, filter={"lang": wanted}, limit=2)
    with pytest.raises(DecodeError, match="duplicate key"):
        sealed.get(NS, "k0")
    assert sealed.search(NS, filter={"lang": "de"}) == []  # hidden: a known limit


@pytest.mark.parametrize(
    ("size", "count", "bound"), [(100, 3000, 3000), (4096, 2000, 1024), (2**17, 200, 64)]
)
def test_a_search_holds_one_page_in_memory(size: int, count: int, bound: int) -> None:
    """Of many items none is wanted: pages are larger the smaller the items are."""
    pages: list[int] = []

    class Noting(SqliteStore):
        def batch(self, ops: Any) -> Any:
            results = super().batch(ops)
            pages.extend(len(each) for each in results if isinstance(each, list))
            return results

    with closing(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)) as connection:
        bare = Noting(connection)
        store = SealedStore(bare, serde=SEALED)
        for begin in range(0, count, 100):
            store.batch([PutOp(NS, f"k{n}", {"n": n, "text": "x" * size}) for n in range(begin, begin + 100)])
        connection.execute("UPDATE store SET updated_at = datetime('2026-01-01', '+' || rowid || ' seconds')")
        assert store.search(NS, filter={"n": -1}) == []
    assert sum(pages) >= count
    assert 64 in pages
    assert max(pages) <= bound


def test_items_of_other_namespaces_are_not_returned() -> None:
    """Not even by a store, or a damaged index, that finds them."""

    class Wrong(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            return super().batch(
                [op._replace(namespace_prefix=()) if isinstance(op, SearchOp) else op for op in ops]
            )

    store = SealedStore(Wrong(), serde=SEALED)
    store.put(("a", "x"), "k", VALUE)
    store.put(("b", "x"), "k", VALUE)
    assert [each.namespace for each in store.search(("b",))] == [("b", "x")]
    assert [each.namespace for each in store.search(("b",), filter={"text": "likes tea"})] == [("b", "x")]


def test_a_forged_namespace_is_not_listed_under_the_name_of_another() -> None:
    """With pseudonyms an item names it: older stores take a ``%`` in it for any text, and find another's."""

    class Wrong(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            return super().batch(
                [
                    op._replace(namespace_prefix=()) if getattr(op, "namespace_prefix", ()) == ("%",) else op
                    for op in ops
                ]
            )

    bare = Wrong()
    store = SealedStore(bare, serde=SEALED, pseudonyms=True)
    store.put(("a", "x"), "k", VALUE)
    assert store.list_namespaces() == [("a", "x")]
    bare.put(("%",), "k", {})
    with pytest.raises(RowError, match="an item of another"):
        store.list_namespaces()


@pytest.mark.parametrize("value", [[("a", 1)], "text", 1])
def test_a_value_that_is_no_dict_is_refused(value: Any) -> None:
    for options in ({}, {"unbound": "allow", "allow_write_plain": True}):
        store = SealedStore(InMemoryStore(), serde=serde(plaintext="allow"), **options)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="not a dict"):
            store.put(NS, "k", value)


def test_one_call_of_the_wrapped_store_reads_and_one_writes() -> None:
    calls: list[list[str]] = []

    class Noting(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            calls.append([type(op).__name__ for op in ops])
            return super().batch(ops)

    store = SealedStore(Noting(), serde=SEALED, **FORMS["fields"])
    ops: list[Any] = [
        PutOp(NS, "k", VALUE),
        GetOp(NS, "k"),
        SearchOp(NS, {"user": "u1"}),
        PutOp(NS, "k", {"n": 2}),
    ]
    assert store.batch([*ops, ListNamespacesOp()])[1:3] == [None, []]
    assert calls == [["GetOp", "SearchOp", "ListNamespacesOp"], ["PutOp"]]
    assert store.get(NS, "k").value == {"n": 2}  # type: ignore[union-attr]


# --- TTL ------------------------------------------------------------------------------------------

OLD: Final = "2030-01-01 00:00:00"


@pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["SqliteStore", "PostgresStore", "AsyncSqliteStore"])
def test_only_what_is_returned_is_refreshed(name: str, form: str, place: Any) -> None:
    where = place(STORES[name].kind)
    ttl: Any = {"refresh_on_read": True, "default_ttl": 10}
    with opened(name, where, ttl=ttl) as (store,), beside(where) as execute:
        sealed = store.sealed(**FORMS[form])
        assert (sealed.store.supports_ttl, sealed.store.ttl_config) == (store.store.supports_ttl, ttl)
        for n in range(4):
            sealed.put(NS, f"k{n}", {**VALUE, "n": n})

        def refreshed(**search: Any) -> int:
            execute("UPDATE store SET expires_at = ?", OLD)
            sealed.search(NS, **search)
            ((count,),) = execute("SELECT COUNT(*) FROM store WHERE expires_at <> ?", OLD)
            return int(count)

        assert refreshed(filter={"n": {"$gt": 1}}) == 2
        assert refreshed(filter={"n": {"$gt": 0}}, limit=1, offset=1) == 1
        assert refreshed(filter={"n": {"$gt": 1}}, refresh_ttl=False) == 0
        assert refreshed(filter={"lang": "en", "user": "u1"}, limit=3) == 3
        assert refreshed() == 4


@pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")
def test_what_only_the_wrapped_store_has_is_passed_through(sqlite: Any) -> None:
    store, _ = sqlite
    sealed = store.sealed().store
    sealed.setup()
    sealed.put(NS, "k", VALUE, ttl=-1)
    assert sealed.sweep_ttl() == 1
    assert sealed.conn is store.store.conn
    with pytest.raises(AttributeError):
        sealed.no_such_name  # noqa: B018
    with pytest.raises(NotImplementedError):
        SealedStore(InMemoryStore(), serde=SEALED).put(NS, "k", VALUE, ttl=1)


# --- refusals -------------------------------------------------------------------------------------


def test_a_refused_item_is_counted_once_and_stops_a_search(sqlite: Any) -> None:
    store, execute = sqlite
    for change, error in {
        "key = 'other'": IntegrityError,
        """value = '{"lang":"de"}'""": PlaintextError,
        "value = '[1]'": RowError,
        "value = json_set(CAST(value AS TEXT), '$.role', 'admin')": RowError,
    }.items():
        counting = serde()
        sealed = store.sealed(serde=counting)
        sealed.put(NS, "k", VALUE)
        execute(f"UPDATE store SET {change}")
        calls: list[Callable[[], Any]] = [
            lambda: sealed.search(()),  # noqa: B023
            lambda: sealed.search(NS, filter={"text": "x"}),  # noqa: B023
            lambda: sealed.get(NS, "other" if "other" in change else "k"),  # noqa: B023
        ]
        for call in calls:
            with pytest.raises(error):
                call()
        assert counting.cipher.stats().refused == {error.__name__: 3}  # type: ignore[attr-defined]
        execute("DELETE FROM store")


def test_nothing_is_written_if_an_item_is_refused(sqlite: Any) -> None:
    store, execute = sqlite
    sealed = store.sealed()
    sealed.put(NS, "k", VALUE)
    execute("UPDATE store SET key = 'other'")
    for bad in (
        [GetOp(NS, "other")],
        [PutOp(NS, "bad", {"x": object()})],
        [PutOp(NS, "bad", {"__sealpoint__": 1})],
        [PutOp(NS, "bad", cast("Any", ["no dict"]))],
    ):
        with pytest.raises(SealpointError):
            sealed.batch([PutOp(NS, "new", VALUE), *bad])
        assert sealed.get(NS, "new") is None


@pytest.mark.parametrize("namespace", [("a.b",), ("",), (1,)])
def test_labels_that_a_database_would_take_for_others_are_refused(bare: Sync, namespace: Any) -> None:
    for form in FORMS.values():
        store = bare.sealed(**form)
        for op in (GetOp(namespace, "k"), PutOp(namespace, "k", VALUE), SearchOp(namespace)):
            with pytest.raises(InvalidNamespaceError):
                store.batch([op])


def test_names_with_lone_surrogates_are_refused(bare: Sync) -> None:
    for name in ((("\ud800",), "k"), (NS, "\ud800")):
        with pytest.raises(ConfigError, match="surrogate"):
            bare.sealed().put(*name, VALUE)


def test_what_is_no_store_is_refused_with_the_line_to_write() -> None:
    arguments: list[tuple[Any, dict[str, Any], Any, str]] = [
        (SqliteStore, {}, ConfigError, "class"),
        (SqliteStore.from_conn_string(":memory:"), {}, ConfigError, "context manager"),
        (AsyncSqliteStore.from_conn_string(":memory:"), {}, ConfigError, "context manager"),
        (None, {}, ConfigError, "not a store"),
        (SealedStore(InMemoryStore(), serde=SEALED), {}, ConfigError, "already"),
        (InMemoryStore(), {"serde": None}, ConfigError, "EncryptedSerializer"),
        (InMemoryStore(), {"unbound": "no"}, ConfigError, "unbound"),
        (InMemoryStore(), {"vectors": "sealed"}, ConfigError, "vectors"),
        (InMemoryStore(), {"plain_fields": "lang"}, ConfigError, "collection"),
        (InMemoryStore(), {"plain_fields": ["a"], "indexed_fields": ["a"]}, ConfigError, "indexed"),
        (InMemoryStore(), {"plain_fields": ["__sealpoint__"]}, ConfigError, "reserved"),
        (InMemoryStore(), {"allow_write_plain": True}, ConfigError, "allow_write_plain"),
    ]
    for store, options, error, words in arguments:
        with pytest.raises(error, match=words):
            SealedStore(store, **{"serde": SEALED, **options})


def test_a_cipher_that_binds_nothing_and_a_ring_without_an_index_are_refused() -> None:
    class Theirs:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "none", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext

    with pytest.raises(SealingError):
        SealedStore(InMemoryStore(), serde=EncryptedSerializer(Theirs()))
    alone = EncryptedSerializer(RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)])))
    SealedStore(InMemoryStore(), serde=alone)
    options: list[dict[str, Any]] = [{"indexed_fields": ["a"]}, {"pseudonyms": True}]
    for option in options:
        with pytest.raises(UnknownKeyError):
            SealedStore(InMemoryStore(), serde=alone, **option)


def test_the_text_of_a_store_says_nothing_secret() -> None:
    assert repr(SealedStore(InMemoryStore(), serde=SEALED)) == "SealedStore(InMemoryStore)"


# --- migration ------------------------------------------------------------------------------------


def test_a_store_migrates_without_a_stop(bare: Sync, caplog: pytest.LogCaptureFixture) -> None:
    counting = serde(plaintext="allow")
    writing = bare.sealed(serde=counting, unbound="allow", allow_write_plain=True, **FORMS["fields"])
    assert "allow_write_plain" in repr(writing.store)
    assert "not sealed" in caplog.text
    bare.put(NS, "old", {**VALUE, "n": 1})
    writing.put(NS, "new", {**VALUE, "n": 2})
    writing.delete(NS, "none")
    assert counting.cipher.stats().unbound == 1  # type: ignore[attr-defined]
    assert bare.get(NS, "new").value == writing.get(NS, "new").value == {**VALUE, "n": 2}
    both = bare.sealed(serde=counting, unbound="allow", **FORMS["fields"])
    both.put(NS, "bound", {**VALUE, "n": 3})
    assert "likes tea" not in str(bare.get(NS, "bound").value)
    for wanted in ({"user": "u1"}, {"lang": "en"}, {"n": {"$gt": 0}}, None):
        found = both.search(NS, filter=wanted)
        assert {each.key for each in found} == {"old", "new", "bound"}
    with pytest.raises(PlaintextError):
        bare.sealed(serde=counting).get(NS, "old")
    with pytest.raises(PlaintextError):
        bare.sealed(unbound="allow").get(NS, "old")
    with pytest.raises(PlaintextError):
        bare.sealed(unbound="allow", allow_write_plain=True)
    with pytest.raises(ConfigError):
        writing.put(NS, "forged", {"__sealpoint__": {"type": "x", "value": ""}})


# --- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AsyncSqliteStore", "AsyncPostgresStore", "AsyncPostgresStore, pool"])
def test_two_hundred_at_once_on_one_connection(name: str, place: Any) -> None:
    with opened(name, place(STORES[name].kind)) as (store,):
        sealed = store.sealed(**FORMS["all options"])

        async def one(n: int) -> Any:
            await sealed.store.aput(("users", f"u{n % 7}"), f"k{n}", {"user": f"u{n % 7}", "n": n})
            return await sealed.store.aget(("users", f"u{n % 7}"), f"k{n}")

        async def all_() -> Any:
            return await asyncio.gather(*map(one, range(200)))

        found = sealed.runner.run(all_())
        assert [each.value["n"] for each in found] == [*range(200)]
        assert len(sealed.search(("users",), filter={"user": "u3"}, limit=100)) == 29


def test_threads_use_an_async_store(place: Any) -> None:
    with opened("AsyncSqliteStore", place("sqlite")) as (store,):
        sealed = store.sealed().store

        async def both() -> Any:
            async with sealed as entered:
                await asyncio.to_thread(entered.put, NS, "k", VALUE)
                with pytest.raises(asyncio.InvalidStateError):
                    entered.get(NS, "k")
                return await asyncio.to_thread(entered.get, NS, "k")

        assert store.runner.run(both()).value == VALUE


class NotingCipher(RingCipher):
    """Notes on which threads it opens values."""

    def open(self, *arguments: Any, **options: Any) -> Any:
        self.threads = {*getattr(self, "threads", ()), threading.get_ident()}
        return super().open(*arguments, **options)


@pytest.mark.parametrize(("text", "count"), [("small", 1), ("x" * LARGE_BYTES, 1), ("x" * 4096, 20)])
def test_large_values_do_not_block_the_event_loop(text: str, count: int) -> None:
    cipher = NotingCipher(RING)

    async def read() -> None:
        store = SealedStore(InMemoryStore(), serde=EncryptedSerializer(cipher))
        for n in range(count):
            await store.aput(NS, f"k{n}", {"text": text})
        assert len(await store.asearch(NS, limit=100)) == count
        if count == 1:
            assert (await store.aget(NS, "k0")).value == {"text": text}  # type: ignore[union-attr]

    asyncio.run(read())
    assert (threading.get_ident() in cipher.threads) is (text == "small")


def test_a_store_that_was_made_before_a_fork_is_refused(sqlite: Any) -> None:
    store, _ = sqlite
    sealed = store.sealed()
    sealed.put(NS, "k", VALUE)
    assert in_child(lambda: sealed.get(NS, "k")).startswith(ForkedError.__name__)
    assert sealed.get(NS, "k").value == VALUE
    memory = SealedStore(InMemoryStore(), serde=SEALED)
    memory.put(NS, "k", VALUE)
    assert in_child(lambda: memory.get(NS, "k").value) == str(VALUE)  # type: ignore[union-attr]


def test_an_async_store_that_was_made_before_a_fork_is_refused(place: Any) -> None:
    with opened("AsyncSqliteStore", place("sqlite")) as (store,):
        sealed = store.sealed().store
        store.runner.run(sealed.aput(NS, "k", VALUE))

        def read(method: str, *arguments: Any) -> Any:
            return asyncio.new_event_loop().run_until_complete(getattr(sealed, method)(*arguments))

        for call in (("aget", NS, "k"), ("abatch", [GetOp(NS, "k")]), ("aput", NS, "k", VALUE)):
            assert in_child(partial(read, *call)).startswith(ForkedError.__name__)


def test_an_older_langgraph_has_the_names_that_are_imported() -> None:
    """`_task` and `_loop` are set on stores that collect operations: LangGraph must still use them."""
    from langgraph.store.base.batch import AsyncBatchedBaseStore

    assert {"_task", "_loop"} <= {*AsyncBatchedBaseStore.__slots__}


def test_a_connection_without_tables_raises_the_error_of_the_store() -> None:
    store = SealedStore(SqliteStore(sqlite3.connect(":memory:", isolation_level=None)), serde=SEALED)
    store.put(NS, "k", VALUE)  # SqliteStore makes them itself
    store.inner.conn.execute("DROP TABLE store")
    with pytest.raises(sqlite3.OperationalError):
        store.put(NS, "k", VALUE)
    store.inner.conn.close()


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("AsyncSqliteStore", "aput"),  # a batch that is cancelled breaks it, also bare
        ("AsyncPostgresStore", "aput"),
        ("AsyncPostgresStore", "abatch"),
        ("AsyncPostgresStore, pool", "abatch"),
    ],
)
def test_a_store_works_on_after_calls_were_cancelled(name: str, method: str, place: Any) -> None:
    with opened(name, place(STORES[name].kind)) as (store,):
        sealed = store.sealed(**FORMS["fields"]).store

        def call(n: int) -> Any:
            value = {**VALUE, "n": n}
            if method == "aput":
                return sealed.aput(NS, f"k{n}", value)
            return sealed.abatch([PutOp(NS, f"k{n}", value), SearchOp(NS, {"n": n}), GetOp(NS, "k1")])

        async def cancelled() -> list[Any]:
            for n in range(20):
                task = asyncio.ensure_future(call(n))
                for _ in range(n):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            await call(20)
            return list(await sealed.asearch(NS, filter={"user": "u1"}, limit=100))

        found = {each.key: each.value["n"] for each in store.runner.run(cancelled())}
        assert found["k20"] == 20
        assert all(key == f"k{n}" for key, n in found.items())
