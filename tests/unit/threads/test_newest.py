"""The newest head, and those of a thread, are found without a walk over what was deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from sealpoint.threads import PostgresThreadStore, SqliteThreadStore, pgstatements
from tests.support.databases.threads import schema_of
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server
from tests.unit.threads.events import deleted, leaving, put

MANY: Final = by_extent(3_000, 20_000)
OPCODES: Final = 500
"""Steps of SQLite's machine that one question may take."""

NAMES: Final = [f"{number:06}" for number in range(MANY)]
HISTORIES: Final[dict[str, Any]] = {
    "the thread": lambda store: store.delete_thread("t"),
    "in one call": lambda store: store.append([*map(deleted, NAMES)]),
    "prune that was interrupted": lambda store: store.append([leaving(name) for name in NAMES]),
    "stored anew and deleted": lambda store: store.append(
        [
            each
            for name in NAMES
            for each in (deleted(name), put(name, "b"), leaving(name, "b"), deleted(name))
        ]
    ),
    "adopted": lambda store: store.adopt([*map(deleted, NAMES)], frozenset(), 0, "test"),
}


def opcodes(connection: sqlite3.Connection, ask: Any) -> int:
    """How many steps a question takes, in hundreds."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 100
        return 0

    connection.set_progress_handler(tick, 100)
    ask()
    connection.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("is_empty", [True, False])
def test_sqlite(tmp_path: Path, connections: list[sqlite3.Connection], history: str, is_empty: bool) -> None:
    with closing(SqliteThreadStore(tmp_path / "db", create=True, timeout=60)) as store:
        store.append([*map(put, NAMES)])
        HISTORIES[history](store)
        if not is_empty:
            store.append([put("000000", "c")])
        found = [] if is_empty else [put("000000", "c")]
        assert [*store.newest("t", "").heads] == found
        assert opcodes(connections[-1], lambda: store.newest("t", "")) <= OPCODES
        if history != "prune that was interrupted":
            assert [*store.between("t", None, None, None).heads] == found
            assert opcodes(connections[-1], lambda: store.between("t", None, None, None)) <= OPCODES


@pytest.fixture
def dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    with schema(server(request.config)) as made:
        yield made


@pytest.mark.parametrize("is_analyzed", [True, False])
@pytest.mark.parametrize("history", ["the thread", "prune that was interrupted"])
def test_postgres(dsn: str, history: str, is_analyzed: bool) -> None:
    """Each question reads few pages, also before the server has counted what the tables hold."""
    name = schema_of(dsn)
    plain = psycopg.conninfo.make_conninfo(dsn, options="")
    with closing(PostgresThreadStore(plain, schema=name, create=True, timeout=60)) as store:
        store.append([*map(put, NAMES)])
        HISTORIES[history](store)
        store.append([put("000000", "c")])
        assert [*store.newest("t", "").heads] == [put("000000", "c")]
        with psycopg.connect(plain, autocommit=True) as connection:
            if is_analyzed:
                connection.execute(f"VACUUM ANALYZE {name}.heads")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            connection.execute("SET enable_seqscan = off")
            for statement in (
                statements_of(pgstatements.NEWEST, name),
                statements_of(pgstatements.BETWEEN, name),
            ):
                values = [b"t", b""][: statement.count("%s")]
                plan = connection.execute(f"EXPLAIN (FORMAT TEXT) {statement}", values).fetchall()
                assert any("heads_live" in line for (line,) in plan), plan


def statements_of(statement: str, name: str) -> str:
    return statement.format(schema=f"{name}.", conditions="")
