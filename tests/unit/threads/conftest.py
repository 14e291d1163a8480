"""Every kind of thread store, empty."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from sealpoint.threads import MemoryThreadStore, PostgresThreadStore, SqliteThreadStore, ThreadStore
from tests.support.servers.postgres import server

Make = Callable[[], ThreadStore]
_numbers = count()


@pytest.fixture
def schema(pytestconfig: pytest.Config) -> Iterator[str]:
    """The name of a schema that does not exist, and is dropped afterwards."""
    name = f"threads_{next(_numbers)}"
    yield name
    with psycopg.connect(server(pytestconfig), autocommit=True) as connection:
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))


@pytest.fixture
def dsn(pytestconfig: pytest.Config) -> str:
    return server(pytestconfig)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that are opened from now on."""
    opened, connect = list[sqlite3.Connection](), sqlite3.connect

    def note(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", note)
    return opened


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreadStore]:
    """An empty store of each kind."""
    with ExitStack() as stack:
        if request.param == "memory":
            made: ThreadStore = MemoryThreadStore()
        elif request.param == "sqlite":
            made = SqliteThreadStore(tmp_path / "heads.db", create=True)
        else:
            dsn, schema = request.getfixturevalue("dsn"), request.getfixturevalue("schema")
            made = PostgresThreadStore(dsn, schema=schema, create=True, timeout=30)
        stack.enter_context(closing(made))
        yield made
