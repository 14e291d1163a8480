"""Stores of the first version are upgraded where they are, and keep what they know."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.errors import ThreadStoreDownError, ThreadStoreError
from sealpoint.threads import PostgresThreadStore, Special, SqliteThreadStore, ThreadStore
from tests.unit.threads.events import deleted, put, spot

IDENTITY: Final = "41e78e4d30989cfa5c43f481622a341c"
ANSWER: Final = Special(0, "task", -4, b"12345678", 0)

POSTGRES: Final = """
    CREATE SCHEMA {0};
    CREATE TABLE {0}.store (version integer NOT NULL, identity text NOT NULL, raised bigint NOT NULL,
        trimmed bigint NOT NULL);
    CREATE TABLE {0}.identities (identity text PRIMARY KEY);
    CREATE TABLE {0}.adopted (seq bigint NOT NULL, at bigint NOT NULL, reason text NOT NULL);
    CREATE TABLE {0}.heads (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread_id bytea NOT NULL,
        checkpoint_ns bytea NOT NULL, checkpoint_id bytea NOT NULL, kind smallint NOT NULL,
        mac bytea NOT NULL, at bigint NOT NULL);
    CREATE INDEX heads_by_checkpoint ON {0}.heads (thread_id, checkpoint_ns, checkpoint_id, seq);
    INSERT INTO {0}.store VALUES (1, '{1}', 0, 0);
    INSERT INTO {0}.identities VALUES ('{1}');
    INSERT INTO {0}.heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at) VALUES
        ('t', '', '1', 0, 'aaaaaaaaaaaaaaaa', 1), ('t', '', '2', 0, 'bbbbbbbbbbbbbbbb', 1),
        ('t', '', '1', 2, '', 1), ('u', 'n', '1', 0, 'cccccccccccccccc', 1);
    CREATE ROLE {0} LOGIN;
    GRANT USAGE ON SCHEMA {0} TO {0};
    GRANT SELECT ON ALL TABLES IN SCHEMA {0} TO {0};
    GRANT INSERT ON {0}.heads TO {0}
"""


def knows_all(store: ThreadStore) -> None:
    """Check what the store knew before, and that it takes special writes now."""
    assert store.identity == IDENTITY
    assert [(head.spot, head.kind) for head in store.heads()] == [
        (spot("1"), deleted("1").kind),
        (spot("2"), put("2").kind),
        (spot("1", "u", "n"), put("1").kind),
    ]
    assert (store.end(), store.find([]).clock, store.last_special()) == (4, 4, 0)
    store.append_specials(spot("2"), [ANSWER])
    ((_, events),) = store.newest("t", "").specials
    assert [event[1:] for event in events] == [ANSWER[1:]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the first version, in WAL mode as the store leaves it."""
    path = tmp_path / "heads.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(Path(__file__).with_name("version1.sql").read_text(encoding="utf-8"))
        connection.execute("PRAGMA journal_mode = WAL")
    return path


def test_sqlite(path: Path) -> None:
    with closing(SqliteThreadStore(path)) as store:
        knows_all(store)
    with closing(SqliteThreadStore(path)) as again:
        assert again.last_special() == 1


def test_what_was_deleted_or_stored_again_is_known_after_an_upgrade(path: Path) -> None:
    kinds = [("1", 0), ("2", 0), ("1", 2), ("2", 1), ("3", 0), ("1", 0), ("3", 0), ("4", 1)]
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, kind in kinds:
            connection.execute(
                "INSERT INTO heads (thread_id, checkpoint_ns, checkpoint_id, kind, mac, at)"
                " VALUES ('v', '', ?, ?, CAST('aaaaaaaaaaaaaaaa' AS BLOB), 0)",
                (name, kind),
            )
    with closing(SqliteThreadStore(path)) as store:
        live = store.between("v", "", None, None).heads
        found = sorted((head.spot.checkpoint_id, int(head.kind)) for head in live)
        assert found == [("1", 0), ("2", 1), ("3", 0), ("4", 1)]


def test_sqlite_by_two_processes(path: Path) -> None:
    """The second finds that the first has done it."""
    with closing(SqliteThreadStore(path)) as first, closing(SqliteThreadStore(path)) as second:
        knows_all(first)
        assert second.last_special() == 1


def test_sqlite_with_another_table_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE specials (seq INTEGER PRIMARY KEY)")
    with pytest.raises(ThreadStoreDownError, match="tables are not those"):
        SqliteThreadStore(path)


@pytest.fixture
def role(dsn: str, schema: str) -> Iterator[str]:
    """A schema of the first version; the DSN of the role of the agents."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(POSTGRES.format(schema, IDENTITY).encode())
        yield make_conninfo(dsn, user=schema)
        admin.execute(f"DROP OWNED BY {schema}; DROP ROLE {schema}".encode())


def test_postgres(dsn: str, schema: str, role: str) -> None:
    """By the owner; until then the role of the agents is told so. It may append afterwards."""
    with pytest.raises(ThreadStoreError, match="earlier version") as caught:
        PostgresThreadStore(role, schema=schema, timeout=30)
    assert "owner" in str(caught.value.hint)
    with closing(PostgresThreadStore(dsn, schema=schema, timeout=30)) as store:
        knows_all(store)
    with closing(PostgresThreadStore(role, schema=schema, timeout=30)) as agent:
        assert agent.last_special() == 1
        agent.append_specials(spot("2"), [ANSWER])
        assert agent.last_special() == 2


def test_postgres_with_a_trigger_is_refused(dsn: str, schema: str, role: str) -> None:
    """Before anything is changed: the trigger would run in the session of the owner."""
    trigger: Any = (
        "CREATE FUNCTION {0}.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        "CREATE TRIGGER x BEFORE UPDATE ON {0}.store FOR EACH ROW EXECUTE FUNCTION {0}.f()"
    )
    assert role
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(trigger.format(schema).encode())
        with pytest.raises(ThreadStoreDownError, match="tables are not those"):
            PostgresThreadStore(dsn, schema=schema, timeout=30)
        assert admin.execute(f"SELECT version FROM {schema}.store".encode()).fetchone() == (1,)
