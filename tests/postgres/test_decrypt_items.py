"""Items leave the database as plain JSON, under their own names, in a table as LangGraph's Store makes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.results.events import Event
from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import (
    DecodeError,
    IntegrityError,
    PlaintextError,
    RowError,
    SchemaError,
    SealedValueError,
)
from sealpoint.seal.places import KEY, make_frame
from tests.postgres.test_damage import failures_of
from tests.postgres.test_decrypt import copy, leading_to
from tests.postgres.test_schema import alter, schema_of
from tests.postgres.test_store_schema import INDEX, tables
from tests.support.databases.checkpoints import make
from tests.support.databases.items import with_index
from tests.support.databases.postgres import K1, items, make_store, put_items, saver_at, store_at
from tests.support.databases.sealed import make_ring

VALUE: Final[dict[str, Any]] = {
    "text": 'né\\u0000 \\ " 😀',
    "n": [1, -2.5, None, True, {"deep": {}}],
    "user": "ada",
}
SCHEMA: Final = """
    SELECT column_name, ordinal_position, column_default, is_nullable, data_type
        FROM information_schema.columns
        WHERE table_schema = %(schema)s AND table_name IN ('store', 'store_migrations')
    UNION ALL SELECT indexname, 0, replace(indexdef, %(schema)s, ''), NULL, NULL FROM pg_indexes
        WHERE schemaname = %(schema)s AND tablename IN ('store', 'store_migrations')
    ORDER BY 1, 2, 3"""


def description(url: str, schema: str) -> Sequence[Any]:
    """The columns and indexes of the tables of items."""
    with psycopg.connect(url) as connection:
        return connection.execute(SCHEMA.encode(), {"schema": schema}).fetchall()


def exists(url: str, schema: str) -> bool:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    return found is not None


def put(url: str, cipher: RingCipher = K1, **options: Any) -> None:
    with store_at(url, cipher, **options) as store:
        for number in range(3):
            store.put(("a", "é"), f"key {number}", {**VALUE, "number": number})
        store.put(("b",), "lasting", {}, ttl=60)


def refused(events: Sequence[Event]) -> list[tuple[Any, type[BaseException]]]:
    return [(failed.place["key"], type(failed.error)) for failed in failures_of([*events])]


@pytest.fixture
def out(store_url: str) -> Any:
    name = f"{schema_of(store_url)}_out"
    yield name
    alter(store_url, f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.mark.parametrize("pseudonyms", [False, True])
def test_langgraphs_plain_store_reads_the_copy_and_goes_on(
    store_url: str, out: str, pseudonyms: bool
) -> None:
    cipher = with_index()
    put(store_url, cipher, pseudonyms=pseudonyms, indexed_fields=["user"], plain_fields=["number"])
    # Of the one that is not read afterwards: Python has no such times.
    alter(
        store_url, "UPDATE store SET created_at = '-infinity', expires_at = 'infinity' WHERE ttl_minutes = 60"
    )
    before = sorted(str(rest) for _, rest in _times(store_url))
    assert not failures_of(copy(store_url, out, cipher))
    assert sorted(str(rest) for _, rest in _times(leading_to(store_url, out))) == before
    assert description(store_url, out) == description(store_url, schema_of(store_url))
    assert tables(leading_to(store_url, out)) == {"store", "store_migrations"}
    with psycopg.connect(store_url) as connection:
        both = f"SELECT v FROM store_migrations EXCEPT SELECT v FROM {out}.store_migrations"
        assert not connection.execute(both.encode()).fetchall()
    with store_at(leading_to(store_url, out)) as store:
        store.setup()
        assert sorted(store.list_namespaces()) == [("a", "é"), ("b",)]
        for number in range(3):
            assert store.get(("a", "é"), f"key {number}").value == {**VALUE, "number": number}
        (found,) = store.search(("a",), filter={"number": 2})
        assert found.key == "key 2"
        store.put(("a", "é"), "key 1", {"new": 1}, ttl=1)
        assert store.get(("a", "é"), "key 1").value == {"new": 1}
    assert description(store_url, out) == description(store_url, schema_of(store_url))


def _times(url: str) -> list[tuple[int, Any]]:
    found = sorted(items(url).items())
    return [
        (number, {name: part for name, part in rest.items() if name not in ("prefix", "key")})
        for number, (_, (_, rest)) in enumerate(found)
    ]


def test_a_saver_and_a_store_are_copied_as_one(url: str, store_url: str, out: str) -> None:
    make_store(url)
    put(url)
    with saver_at(PostgresSaver, url, K1) as saver:
        saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, make("1"), {}, {})
    assert not failures_of(copy(url, out, K1))
    with store_at(leading_to(url, out)) as store:
        store.setup()
        assert len(store.search(())) == 4
    with saver_at(PostgresSaver, leading_to(url, out)) as saver:
        saver.setup()
        assert saver.get({"configurable": {"thread_id": "t"}})["id"] == "1"


def test_an_older_table_gets_what_later_migrations_add(store_url: str, out: str) -> None:
    wanted = description(store_url, schema_of(store_url))
    alter(store_url, "ALTER TABLE store DROP expires_at, DROP ttl_minutes")
    name = ("a", "1")
    put_items(store_url, [(*name, json.dumps(_seal(name, {"n": 1})))])
    assert not failures_of(copy(store_url, out, K1))
    assert description(store_url, out) == wanted
    assert items(leading_to(store_url, out))[name][0] == {"n": 1}


def _seal(name: tuple[str, str], value: Any) -> Any:
    from sealpoint.seal.items import ItemName
    from tests.support.databases.items import items_of

    return items_of(K1).seal(ItemName(tuple(name[0].split(".")), name[1]), value)


@pytest.mark.parametrize(
    "value",
    [{"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"b": b"x"}, {1: 2}, {"nul": "\0"}, {"nan": float("nan")}],
)
def test_a_value_without_a_form_in_json_is_named_and_leaves_no_copy(
    store_url: str, out: str, value: Any
) -> None:
    put(store_url)
    with store_at(store_url, K1) as store:
        store.put(("a", "é"), "key 1", value)
    (failed,) = failures_of(copy(store_url, out, K1))
    assert failed.place == {"prefix": "a.é", "key": "key 1"}
    assert isinstance(failed.error, RowError)
    assert "cannot be stored as JSON" in str(failed.error)
    assert "SealedStore" in failed.error.hint
    assert not exists(store_url, out)


def test_plain_items_are_copied_if_that_is_allowed(store_url: str, out: str) -> None:
    put_items(store_url, [("p", "1", '{"a": [1, 1.5]}'), ("p", "2", "{}")])
    assert refused(copy(store_url, out, K1)) == [("1", PlaintextError), ("2", PlaintextError)]
    assert not exists(store_url, out)
    assert not failures_of(copy(store_url, out, K1, allow_plaintext=True))
    assert items(leading_to(store_url, out))["p", "1"][0] == {"a": [1, 1.5]}


BROKEN: Final = {
    "[1]": RowError,
    json.dumps({KEY: make_frame("msgpack+cobblestone256@k1", b"x")}): RowError,
    json.dumps({KEY: make_frame("msgpack+cobblestone256.row@k1", b"x")}): SealedValueError,
    json.dumps({KEY: {**make_frame("msgpack+cobblestone256.row@k1", b"x"), "more": 1}}): RowError,
    json.dumps({**_seal(("a.b", "2"), {}), "more": 1}): RowError,
    json.dumps(_seal(("a.c", "2"), {})): IntegrityError,
    '{"n": 1e-400}': DecodeError,
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_item_that_is_not_as_it_was_sealed_leaves_no_copy(store_url: str, out: str, text: str) -> None:
    put_items(store_url, [("a.b", "1", "{}"), ("a.b", "2", text)])
    assert refused(copy(store_url, out, K1, allow_plaintext=True)) == [("2", BROKEN[text])]
    assert not exists(store_url, out)


def test_two_items_of_one_name_end_the_copy(store_url: str, out: str) -> None:
    """One was stored with pseudonyms, and one without."""
    cipher = with_index()
    put(store_url, cipher, pseudonyms=True)
    put(store_url, cipher)
    with pytest.raises(RowError, match="two rows of table 'store' have the same key"):
        copy(store_url, out, cipher)
    assert not exists(store_url, out)


def test_a_name_that_postgres_does_not_store_is_named(store_url: str, out: str) -> None:
    cipher = with_index()
    with store_at(store_url, cipher, pseudonyms=True) as store:
        store.put(("a",), "x\0y", {})
    (failed,) = failures_of(copy(store_url, out, cipher))
    assert "NUL" in str(failed.error)


def test_without_the_index_key_names_are_restored_as_they_were_sealed(store_url: str, out: str) -> None:
    put(store_url, with_index(), pseudonyms=True)
    plain = RingCipher(KeyRing(make_ring("k1").keys))
    assert not failures_of(copy(store_url, out, plain))
    with store_at(leading_to(store_url, out)) as store:
        assert sorted(store.list_namespaces()) == [("a", "é"), ("b",)]


def test_embeddings_are_left_out_and_an_index_can_be_made_again(vector_url: str) -> None:
    make_store(vector_url, index=INDEX)
    put(vector_url, index=INDEX, vectors="open")
    out = f"{schema_of(vector_url)}_out"
    assert not failures_of(copy(vector_url, out, K1))
    with psycopg.connect(vector_url) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace"
            " WHERE nspname = %s AND relkind = 'r' ORDER BY 1",
            (out,),
        ).fetchall()
    assert found == [("store",), ("store_migrations",)]
    path = leading_to(vector_url, f"{out}").replace(f'"{out}"', f'"{out}",public')
    with store_at(path, index=INDEX) as store:
        store.setup()
        store.put(("a", "é"), "key 1", VALUE)
        assert [item.key for item in store.search(("a",), query="x") if item.score is not None] == ["key 1"]
    alter(vector_url, f"DROP SCHEMA {out} CASCADE")


def test_half_a_saver_beside_a_store_is_refused(url: str, out: str) -> None:
    make_store(url)
    alter(url, "DROP TABLE checkpoint_blobs")
    with pytest.raises(SchemaError, match="lacks table 'checkpoint_blobs'"):
        copy(url, out, K1)
