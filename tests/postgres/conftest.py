"""Databases as LangGraph's Postgres savers make them, and the stores over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from sealpoint.admin.databases.postgres.rows import PostgresRows
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.postgres import make_store, set_up
from tests.support.servers.postgres import schema, server

Open = Callable[[], PostgresRows]


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    """An empty database of `PostgresSaver`."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        yield dsn


@pytest.fixture
def shallow_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """An empty database of `ShallowPostgresSaver`."""
    with schema(server(pytestconfig)) as dsn:
        set_up(ShallowPostgresSaver, dsn)
        yield dsn


@pytest.fixture
def store_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """An empty database of `PostgresStore`, without a saver."""
    with schema(server(pytestconfig)) as dsn:
        make_store(dsn)
        yield dsn


@pytest.fixture(scope="module")
def vector_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """DSN of a database with pgvector."""
    dsn = server(pytestconfig)
    with psycopg.connect(dsn, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("the server has no pgvector")
    with schema(dsn) as within:
        name = f"{schema_of(within)}_vectors"
        alter(dsn, f"CREATE DATABASE {name}")
        try:
            own = make_conninfo(dsn, dbname=name)
            yield own
        finally:
            alter(dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def vector_schema(vector_server: str) -> Iterator[str]:
    with schema(vector_server) as dsn:
        # A test that adds to the extension drops it with its schema.
        alter(dsn, "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        yield make_conninfo(dsn, options=f"-c search_path={schema_of(dsn)},public")


@pytest.fixture
def open_store(url: str) -> Iterator[Open]:
    """Opens writable stores over ``url``."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(PostgresRows(url, writable=True)))


@pytest.fixture
def store(open_store: Open) -> PostgresRows:
    return open_store()


@pytest.fixture
def out(url: str) -> Iterator[str]:
    """The name of a schema that does not exist, beside that of ``url``."""
    name = f"{schema_of(url)}_out"
    yield name
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))
