"""What SealedStore leaves in the files of SQLite and Postgres, found by a search of their bytes."""

from __future__ import annotations

import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from sealpoint.langgraph import SealedStore
from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SEALED
from tests.sealed.canaries import Canaries, changed_since, contents, letters, search
from tests.support.databases.vectors import vector_connections
from tests.support.servers.postgres import schema, server, vector_schema

DIMS: Final = 8
NAMES: Final = {"label", "another label", "key"}
TEXTS: Final = {"text", "nested", "key of a dict", "indexed", "in a list", "text in TOAST", "name of a field"}
FORMS: Final[dict[str, tuple[dict[str, Any], set[str]]]] = {
    "names": ({}, NAMES),
    "plain and indexed": ({"plain_fields": ["plain"], "indexed_fields": ["user"]}, NAMES | {"plain"}),
    "pseudonyms": ({"pseudonyms": True, "indexed_fields": ["user"]}, set()),
}

Made = Callable[..., list[Path]]
"""Stores items in a form, and returns the files that then may hold something of them."""


def fill(store: Any, mark: Canaries) -> None:
    """Put an item twice, read it, search for it in each way, list its namespace, and delete another."""
    namespace = (mark.text("label"), mark.text("another label"))
    value = {
        "plain": mark.text("plain"),
        "user": mark.text("indexed"),
        "text": mark.text("text"),
        "more": {mark.text("key of a dict"): [{"a": mark.text("nested")}], "list": [mark.text("in a list")]},
        mark.text("name of a field"): mark.number("number"),
        "ratio": mark.ratio("ratio"),
        "long": letters(20_000) + mark.text("text in TOAST") + letters(20_000),
    }
    for _ in range(2):
        store.put(namespace, mark.text("key"), value)
    assert store.get(namespace, mark.text("key")).value == value
    for field in ("plain", "user", "text"):
        (found,) = store.search(namespace[:1], filter={field: value[field]})
        assert found.value == value
    assert store.list_namespaces(prefix=namespace[:1]) == [namespace]
    store.put(namespace, "other", value)
    store.delete(namespace, "other")


@pytest.fixture(params=["sqlite", "postgres"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield _on_sqlite(stack, tmp_path / "x.db")
        else:
            yield _on_postgres(stack, request.config)


def _on_sqlite(stack: ExitStack, path: Path) -> Made:
    """The connection stays open, and nothing is taken from the log into the file."""

    def made(canaries: Canaries, form: dict[str, Any] | None, index: Any = None) -> list[Path]:
        connection = stack.enter_context(
            closing(
                sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False, factory=vector_connections()
                )
            )
        )
        connection.execute("PRAGMA journal_mode = WAL")
        store: Any = SqliteStore(connection, index=index)
        store.setup()
        fill(store if form is None else SealedStore(store, serde=SEALED, **form), canaries)
        files = [*path.parent.glob(f"{path.name}*")]
        assert any(file.name.endswith("-wal") for file in files)
        return files

    return made


def _on_postgres(stack: ExitStack, config: pytest.Config) -> Made:
    def made(canaries: Canaries, form: dict[str, Any] | None, index: Any = None) -> list[Path]:
        place = stack.enter_context(schema(server(config)) if index is None else vector_schema(config))
        connected = stack.enter_context(psycopg.connect(place, **CONNECTION))
        folder = Path(connected.execute("SHOW data_directory").fetchone()["data_directory"])  # type: ignore[index]
        connected.execute("SELECT pg_switch_wal()")
        began = time.time() - 1
        store: Any = PostgresStore(connected, index=index)
        store.setup()
        fill(store if form is None else SealedStore(store, serde=SEALED, **form), canaries)
        connected.execute("CHECKPOINT")
        files = changed_since(folder, began)
        assert any(file.parent.name == "pg_wal" for file in files)
        return files

    return made


def test_the_search_finds_everything_that_a_bare_store_stores(made: Made) -> None:
    canaries = Canaries()
    assert search(made(canaries, None), canaries) == canaries.keys()
    assert canaries.keys() == NAMES | TEXTS | {"plain", "number", "ratio"}


@pytest.mark.broad
@pytest.mark.parametrize("form", FORMS)
def test_only_names_are_found(made: Made, form: str) -> None:
    """With pseudonyms nothing, without them the labels of the namespace, and the key."""
    options, visible = FORMS[form]
    canaries = Canaries()
    assert search(made(canaries, options), canaries) == visible


@pytest.mark.parametrize("fields", [["$"], ["text", "more.list[*]"]], ids=str)
def test_embeddings_are_found_and_texts_are_not(made: Made, fields: list[str]) -> None:
    """That is what ``vectors="open"`` means. The vectors here name the text that they were made of."""
    canaries, embedded = Canaries(), list[bytes]()

    def embed(texts: Sequence[str]) -> list[list[float]]:
        vectors = [[float(byte) + 0.5 for byte in text.encode()[-DIMS:].rjust(DIMS)] for text in texts]
        embedded.extend(struct.pack(form, *vector) for vector in vectors for form in (f"<{DIMS}f",))
        return vectors

    index: Any = {"dims": DIMS, "embed": embed, "fields": fields, "text_fields": fields}
    options = {**FORMS["pseudonyms"][0], "vectors": "open"}
    files = made(canaries, options, index)
    assert search(files, canaries) == set()
    data = [*contents(files)]
    assert embedded
    assert all(any(each in one for one in data) for each in embedded)
