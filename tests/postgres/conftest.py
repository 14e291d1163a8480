"""Databases as LangGraph's Postgres savers make them, and the stores over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from psycopg.sql import SQL, Identifier

from sealpoint.admin.databases.postgres.rows import PostgresRows
from tests.postgres.test_schema import schema_of
from tests.support.databases.postgres import make_store, set_up
from tests.support.servers.postgres import schema, server, vector_schema

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


@pytest.fixture
def vector_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """An empty schema, and the types of pgvector."""
    with vector_schema(pytestconfig) as dsn:
        yield dsn


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
