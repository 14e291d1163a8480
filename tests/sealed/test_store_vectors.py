"""A store with an index: it finds by meaning, and its database holds embeddings, but no text.

Also on each release of LangGraph: how a store looks for the texts of a value is not promised.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, Final

import psycopg
import pytest
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from psycopg.rows import dict_row

from sealpoint.errors import ConfigError
from sealpoint.langgraph import SealedStore
from tests.graphs.savers import SEALED
from tests.sealed.stores import FORMS
from tests.support.databases.vectors import vector_connections
from tests.support.servers.postgres import vector_schema

NS: Final = ("users", "u1")
# With a space, which is in no sealed value
WORDS: Final = tuple(
    f"hot {word}" for word in ("tea", "coffee", "juice", "water", "wine", "milk", "beer", "rum")
)


def embed(texts: Any) -> list[list[float]]:
    """How often each word occurs: never nothing, whose distance is undefined."""
    return [[text.count(word) + 0.01 for word in WORDS] for text in texts]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Any]:
    """Makes stores with an index, each with what reads all of its database."""
    with ExitStack() as stack:

        def on_memory(index: Any) -> tuple[Any, Any]:
            store = InMemoryStore(index=index)
            return store, lambda: f"{store._data} {store._vectors}"

        def on_sqlite(index: Any) -> tuple[Any, Any]:
            connection = sqlite3.connect(
                ":memory:", isolation_level=None, check_same_thread=False, factory=vector_connections()
            )
            own: Any = {**index, "text_fields": index["fields"]}
            store = SqliteStore(stack.enter_context(closing(connection)), index=own)
            store.setup()
            return store, lambda: [
                connection.execute(f"SELECT {columns}").fetchall()
                for columns in ("*, CAST(value AS TEXT) FROM store", "* FROM store_vectors")
            ]

        def on_postgres(index: Any) -> tuple[Any, Any]:
            connected = psycopg.connect(
                stack.enter_context(vector_schema(pytestconfig)),
                autocommit=True,
                prepare_threshold=0,
                row_factory=dict_row,
            )
            store = PostgresStore(stack.enter_context(connected), index=index)
            store.setup()
            return store, lambda: [
                connected.execute(f"SELECT * FROM {table}").fetchall() for table in ("store", "store_vectors")
            ]

        yield {"memory": on_memory, "sqlite": on_sqlite, "postgres": on_postgres}[request.param]


ITEMS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "both": (
        {"text": "hot tea hot tea", "more": {"notes": ["hot coffee", "hot juice"]}, "lang": "en", "n": 1},
        None,
    ),
    "text": ({"text": "hot coffee and hot tea", "user": "u1", "n": 2}, None),
    "named": ({"text": "hot wine", "other": "hot tea", "lang": "en", "n": 3}, ["other"]),
    "paths": (
        {"list": [{"a": "hot milk"}, {"a": "hot rum hot tea"}], "n": 4},
        ["list[*].a", "list[0]", "list[-1]"],
    ),
    "never": ({"text": "hot tea hot tea hot tea", "n": 5}, False),
    "nothing": ({"n": 6}, ["text"]),
}
FIELDS: Final = (["$"], ["text"], ["text", "more.notes[*]"], ["more.notes[1]", "{text,lang}"])


def found(items: Any) -> Any:
    return [(each.key, each.value, each.score and round(each.score, 5)) for each in items]


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_the_index_finds_what_it_found_and_holds_no_text(make: Any, form: str, fields: Any) -> None:
    index = {"dims": len(WORDS), "embed": embed, "fields": fields}
    (bare, read_bare), (inner, read) = make(index), make(index)
    sealed = SealedStore(inner, serde=SEALED, vectors="open", **FORMS[form])
    for store in (bare, sealed):
        for key, (value, paths) in ITEMS.items():
            store.put(NS, key, {"text": "hot beer"}, index=paths)
            store.put(NS, key, value, index=paths)
    for query in ("hot tea", "hot coffee hot juice", "hot rum"):
        expected = found(bare.search(NS, query=query, limit=100))
        by_key = {
            key: (key, value, score) for key, value, score in found(sealed.search(NS, query=query, limit=100))
        }
        assert [by_key[key] for key, *_ in expected] == expected
        assert len(by_key) == len(expected)
        scores = [score for *_, score in by_key.values() if score is not None]
        assert scores == sorted(scores, reverse=True)
        few = found(sealed.search(NS, query=query, filter={"n": {"$lte": 3}}, limit=2))
        assert [key for key, *_ in few] == [key for key, value, _ in by_key.values() if value["n"] <= 3][:2]
    readable, text = str(read()), str(read_bare())
    assert "hot coffee" in text
    assert not [word for word in WORDS if word in readable]


def test_a_query_with_a_filter_finds_what_comes_after_many_others(make: Any) -> None:
    inner, _ = make({"dims": len(WORDS), "embed": embed, "fields": ["text"]})
    store = SealedStore(inner, serde=SEALED, vectors="open")
    for n in range(150):
        store.put(NS, f"k{n}", {"text": "hot tea" if n < 140 else "hot tea hot milk", "n": n})
    items = store.search(NS, query="hot tea", filter={"n": {"$gte": 140}}, limit=4, offset=3)
    every = store.search(NS, query="hot tea", filter={"n": {"$gte": 140}}, limit=100)
    assert [each.key for each in items] == [each.key for each in every][3:7]
    assert {each.key for each in every} == {f"k{n}" for n in range(140, 150)}


def test_an_index_is_refused_unless_it_is_asked_for(make: Any) -> None:
    inner, _ = make({"dims": len(WORDS), "embed": embed, "fields": ["text"]})
    with pytest.raises(ConfigError, match="embeddings"):
        SealedStore(inner, serde=SEALED)
