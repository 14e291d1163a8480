"""What the tables of LangGraph's Store must be, and who looks at them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.base import VECTOR_MIGRATIONS

from sealpoint.errors import SchemaError
from sealpoint.guards import tables
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import put_chain
from tests.support.databases.schemas import ACCEPTED_STORES, REFUSED_STORES
from tests.unit.sqlite.hostile import edit


def found(connection: sqlite3.Connection, *statements: str) -> set[str]:
    for statement in statements:
        connection.execute(statement)
    with closing(connection.cursor()) as cursor:
        return tables.require_tables(cursor, tables.STORE)


@pytest.mark.parametrize("statements", REFUSED_STORES.values(), ids=REFUSED_STORES)
def test_an_altered_table_is_refused(connection: sqlite3.Connection, statements: list[str]) -> None:
    with pytest.raises(SchemaError):
        found(connection, *statements)


@pytest.mark.parametrize("statements", ACCEPTED_STORES.values(), ids=ACCEPTED_STORES)
def test_a_table_as_it_should_be_is_accepted(connection: sqlite3.Connection, statements: list[str]) -> None:
    names = {
        name
        for name in tables.STORE
        if any(f"TABLE {name} " in each.lower().replace("table", "TABLE") for each in statements)
    }
    assert found(connection, *statements) == names


def test_the_tables_of_the_real_store_are_accepted(connection: sqlite3.Connection) -> None:
    """With vectors, whose migrations it runs only where extensions can be loaded."""
    SqliteStore(connection).setup()
    connection.execute("CREATE TABLE vector_migrations (v INTEGER PRIMARY KEY)")
    for statement in VECTOR_MIGRATIONS:
        connection.executescript(statement)
    assert found(connection) == set(tables.STORE)


@pytest.mark.parametrize("statements", REFUSED_STORES.values(), ids=REFUSED_STORES)
def test_a_saver_does_not_look_at_the_store(connection: sqlite3.Connection, statements: list[str]) -> None:
    for statement in statements:
        connection.execute(statement)
    saver = SqliteSaver(connection)
    put_chain(saver, "1", "2")
    assert len(list(saver.list(None))) == 2


def test_a_condition_behind_the_name_of_the_index_is_refused(tmp_path: Path) -> None:
    """A row of sqlite_master with the words of LangGraph, and one with its name and other words."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        SqliteStore(connection).setup()
    edit(
        path,
        "CREATE INDEX evil ON store (expires_at) WHERE expires_at > 'x'",
        "UPDATE sqlite_master SET sql = replace(sql, 'evil', 'idx_store_expires_at') WHERE name = 'evil'",
    )
    with closing(sqlite3.connect(path)) as connection, pytest.raises((SchemaError, sqlite3.DatabaseError)):
        found(connection)


def test_a_temporary_table_in_front_of_the_store_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TEMP TABLE store (value TEXT)")
    with closing(connection.cursor()) as cursor:
        tables.require_unhidden(cursor)
        with pytest.raises(SchemaError, match="hides or changes"):
            tables.require_unhidden(cursor, tables.STORE)
