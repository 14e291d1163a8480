"""Databases as LangGraph's Postgres savers make them, and the stores over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver

from sealpoint.databases.postgres.rows import PostgresRows
from tests.support.postgres import set_up
from tests.support.server import schema, server

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
def open_store(url: str) -> Iterator[Open]:
    """Opens writable stores over ``url``."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(PostgresRows(url, writable=True)))


@pytest.fixture
def store(open_store: Open) -> PostgresRows:
    return open_store()
