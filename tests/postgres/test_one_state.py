"""`RowStore.one_state` on Postgres: all that is read within it is of one moment, errors included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.status import status
from sealpoint.admin.results.result import Result
from sealpoint.errors import MaintenanceError, SchemaError
from tests.postgres.test_schema import alter, schema_of
from tests.support.databases.checkpoints import at, make
from tests.support.databases.postgres import saver_at
from tests.support.databases.sealed import make_cipher


def fill(url: str, thread_id: str) -> None:
    with saver_at(PostgresSaver, url, make_cipher("k2")) as saver:
        checkpoint: Any = make("1f000000-0000-6000-8000-000000000001", text=["x"])
        checkpoint["channel_versions"] = {"text": "0001"}
        config: Any = saver.put(at(thread_id), checkpoint, {}, checkpoint["channel_versions"])
        saver.put_writes(config, [("a", ["x"])], "task")


@dataclass
class Role:
    """A role, and a URL that connects as it."""

    url: str
    is_superuser: bool


@pytest.fixture(params=["superuser", "reader"])
def role(request: pytest.FixtureRequest, url: str) -> Iterator[Role]:
    if request.param == "superuser":
        yield Role(url, is_superuser=True)
        return
    name = f"{schema_of(url)}_reader"
    own = SQL("CREATE ROLE {0} LOGIN; GRANT USAGE ON SCHEMA {1} TO {0};"
              " GRANT SELECT ON ALL TABLES IN SCHEMA {1} TO {0}")  # fmt: skip
    drop = SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(Identifier(name))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(own.format(Identifier(name), Identifier(schema_of(url))))
        yield Role(make_conninfo(url, user=name), is_superuser=False)
        connection.execute(drop)


def rows(store: PostgresRows) -> tuple[int, ...]:
    """How many values and checkpoints each way of reading finds."""
    counted = sum(count.rows for count in store.count())
    read = sum(len(store.read(column, None).cells) for column in store.columns)
    shares = sum(share.rows for share in status(store))
    return counted, read, shares, audit(store).rows, len(list(store.records()))


def test_a_writer_is_not_seen_until_the_end(role: Role, url: str) -> None:
    fill(url, "a")
    with closing(PostgresRows(role.url)) as store:
        assert store.is_superuser is role.is_superuser
        with store.one_state():
            before = rows(store)
            fill(url, "b")
            assert rows(store) == before
            Result("report").looks_at(store)  # the number of the server is not readable for every role
            assert rows(store) == before
        assert rows(store) == tuple(2 * number for number in before)


def test_an_error_does_not_end_the_state(role: Role, url: str) -> None:
    fill(url, "a")
    with closing(PostgresRows(role.url)) as store, store.one_state():
        before = rows(store)
        with pytest.raises(MaintenanceError):
            store.select("checkpoints", "SELECT 1 / 0 FROM ONLY {}", ())
        assert rows(store) == before


def _index(url: str, lock_timeout: str) -> None:
    alter(url, f"SET lock_timeout = '{lock_timeout}'; CREATE INDEX spy ON checkpoints (thread_id)")


def test_a_superuser_excludes_what_would_run_code(url: str) -> None:
    """An expression of an index would run with its rights when a later statement is planned."""
    fill(url, "a")
    with closing(PostgresRows(url)) as store:
        with store.one_state(), pytest.raises(psycopg.errors.LockNotAvailable):
            _index(url, "300ms")
        _index(url, "60s")


@pytest.mark.parametrize("role", ["reader"], indirect=True)
def test_a_schema_that_was_renamed_is_an_error(role: Role, url: str) -> None:
    """Statements name the schema, and locks on its tables do not keep the name."""
    fill(url, "a")
    name = schema_of(url)
    there, back = f"ALTER SCHEMA {name} RENAME TO {name}_x", f"ALTER SCHEMA {name}_x RENAME TO {name}"
    with closing(PostgresRows(role.url)) as store, pytest.raises(SchemaError), store.one_state():
        alter(url, f"{there}; {back}")
