"""What a run leaves in the files of SQLite and Postgres, found by a search of their bytes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row

from tests.sealed.canaries import Canaries, changed_since, run, search
from tests.sealed.savers import BARE, wrap
from tests.support.servers.postgres import schema, server

NEVER_STORED: Final = {"run name", "tag"}
"""What LangGraph hands to no saver."""

NOT_ON_POSTGRES: Final = {"writes in metadata"}
"""What PostgresSaver drops."""

Made = Callable[[str, Canaries], list[Path]]
"""Runs the graph in a form, and returns the files that then may hold something of it."""


def call(graph: Any, method: str, *arguments: Any) -> Any:
    return getattr(graph, method)(*arguments)


@contextmanager
def on_sqlite(path: Path) -> Iterator[Made]:
    """The connection stays open, and nothing is taken from the log into the file."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 20")

        def made(form: str, canaries: Canaries) -> list[Path]:
            run(wrap(SqliteSaver(connection), form), canaries, call)
            files = [*path.parent.glob(f"{path.name}*")]
            assert any(file.name.endswith("-wal") for file in files)
            return files

        yield made


@contextmanager
def on_postgres(dsn: str) -> Iterator[Made]:
    with (
        schema(dsn) as place,
        psycopg.connect(place, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection,
    ):
        folder = Path(connection.execute("SHOW data_directory").fetchone()["data_directory"])  # type: ignore[index]

        def made(form: str, canaries: Canaries) -> list[Path]:
            connection.execute("SELECT pg_switch_wal()")
            began = time.time() - 1
            saver = PostgresSaver(connection)
            saver.setup()
            run(wrap(saver, form), canaries, call)
            connection.execute("CHECKPOINT")
            files = changed_since(folder, began)
            assert any(file.parent.name == "pg_wal" for file in files)
            return files

        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    opening = (
        on_sqlite(tmp_path / "x.db") if request.param == "sqlite" else on_postgres(server(request.config))
    )
    with opening as made:
        yield made


@pytest.mark.claim("s1")
def test_the_search_finds_everything_that_a_bare_saver_stores(made: Made, request: Any) -> None:
    canaries = Canaries()
    found = search(made(BARE, canaries), canaries)
    dropped = NOT_ON_POSTGRES if "postgres" in request.node.name else set()
    assert canaries.keys() - found == NEVER_STORED | dropped
    assert len(found) >= 40


NAMES: Final = {"channel name", "node name", "run id"}
"""What is visible with every option: channels, nodes, and keys that statements of the savers use."""


@pytest.mark.claim("s1")
@pytest.mark.broad
@pytest.mark.parametrize(
    ("form", "visible"),
    [
        ("sealed", {"thread id"}),
        ("all options", {"configurable, plain"}),
        pytest.param("plain metadata", {"thread id", "configurable, plain"}, marks=pytest.mark.soak),
        pytest.param("indexed", {"thread id"}, marks=pytest.mark.soak),
        pytest.param("pseudonyms", set(), marks=pytest.mark.soak),
    ],
)
def test_only_names_are_found(made: Made, form: str, visible: set[str]) -> None:
    canaries = Canaries()
    assert search(made(form, canaries), canaries) == NAMES | visible
