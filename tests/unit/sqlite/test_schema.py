"""What a database must look like before a saver works on it: nobody else's SQL runs in our name."""

from __future__ import annotations

import sqlite3

import pytest

from sealpoint.errors import SchemaError
from sealpoint.sqlite import SqliteSaver
from tests.unit.sqlite.rows import at, dump, make, put_chain

CHECKPOINTS = """
    CREATE TABLE checkpoints (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id))"""
WRITES = """
    CREATE TABLE writes (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL,
        channel TEXT NOT NULL, type TEXT, value BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))"""
OLDER_WRITES = WRITES.replace("task_path TEXT NOT NULL DEFAULT '', ", "")

NAMES = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
HIDDEN = CHECKPOINTS.replace("checkpoints", "hidden")
LOG = "CREATE TABLE log (what)"
TRIGGER = "CREATE TRIGGER spy AFTER INSERT ON {} BEGIN INSERT INTO log VALUES (new.thread_id); END"


def altered(old: str, new: str, table: str = CHECKPOINTS) -> list[str]:
    """Both tables, with one thing changed in one of them."""
    assert table.count(old) == 1
    return [table.replace(old, new), WRITES if table is CHECKPOINTS else CHECKPOINTS]


REFUSED: dict[str, list[str]] = {
    "view": [HIDDEN, f"CREATE VIEW checkpoints AS SELECT {NAMES} FROM hidden", WRITES],
    "view in capitals": [HIDDEN, f"CREATE VIEW CHECKPOINTS AS SELECT {NAMES} FROM hidden", WRITES],
    "virtual table": [f"CREATE VIRTUAL TABLE checkpoints USING fts5({NAMES})", WRITES],
    "trigger": [CHECKPOINTS, WRITES, LOG, TRIGGER.format("checkpoints")],
    "trigger on writes": [CHECKPOINTS, WRITES, LOG, TRIGGER.format("writes")],
    "trigger in capitals": [
        CHECKPOINTS.replace("checkpoints", "Checkpoints"), WRITES, LOG, TRIGGER.format("CHECKPOINTS")
    ],
    "generated column": altered("metadata BLOB,", "metadata BLOB, more TEXT AS (hex(checkpoint)),"),
    "generated in place of one": altered("metadata BLOB", "metadata BLOB GENERATED ALWAYS AS (type) STORED"),
    "generated in place of one, in short": altered("metadata BLOB", "metadata BLOB AS (type)"),
    "extra column": altered("metadata BLOB,", "metadata BLOB, more TEXT,"),
    "missing column": altered("metadata BLOB,", ""),
    "renamed column": altered("metadata BLOB", "meta BLOB"),
    "other type": altered("metadata BLOB", "metadata TEXT"),
    "other primary key": altered("(thread_id, checkpoint_ns, checkpoint_id)", "(thread_id, checkpoint_id)"),
    "primary key in another order": altered(
        "(thread_id, checkpoint_ns, checkpoint_id)", "(checkpoint_id, checkpoint_ns, thread_id)"
    ),
    "a column in place of the primary key": altered(
        "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)", "more TEXT", WRITES
    ),
    "collation": altered("checkpoint_id TEXT NOT NULL", "checkpoint_id TEXT NOT NULL COLLATE NOCASE"),
    "collation in lower case": altered("idx)", "idx collate/**/nocase)", WRITES),
    "check": altered("checkpoint BLOB", "checkpoint BLOB CHECK (length(checkpoint) < 9)"),
    "reference": altered("type TEXT", "type TEXT REFERENCES log (what)"),
    "unique index": [CHECKPOINTS, WRITES, "CREATE UNIQUE INDEX one ON writes (channel)"],
    "unique column": altered("type TEXT", "type TEXT UNIQUE ON CONFLICT REPLACE"),
    "task_path of another type": altered("task_path TEXT", "task_path BLOB", WRITES),
    "task_path in the key": altered("task_id, idx)", "task_id, idx, task_path)", WRITES),
}  # fmt: skip


@pytest.mark.parametrize("statements", REFUSED.values(), ids=REFUSED)
def test_an_altered_table_is_refused(connection: sqlite3.Connection, statements: list[str]) -> None:
    """Before anything is read from it or written to it, and again at the next try."""
    for statement in statements:
        connection.execute(statement)
    saver = SqliteSaver(connection)
    for _ in range(2):
        with pytest.raises(SchemaError):
            saver.setup()
        with pytest.raises(SchemaError):
            saver.put(at(), make("1"), {}, {})
    assert not saver.is_setup


ACCEPTED: dict[str, list[str]] = {
    "nothing": [],
    "both": [CHECKPOINTS, WRITES],
    "in capitals": [CHECKPOINTS.replace("checkpoints", "CHECKPOINTS"), WRITES.replace("writes", "Writes")],
    "older": [CHECKPOINTS, OLDER_WRITES],
    "checkpoints alone": [CHECKPOINTS],
    "writes alone": [WRITES],
    "older writes alone": [OLDER_WRITES],
    "other tables": [CHECKPOINTS, WRITES, LOG, TRIGGER.format("log").replace("thread_id", "what")],
    "a plain index": [CHECKPOINTS, WRITES, "CREATE INDEX quick ON checkpoints (parent_checkpoint_id)"],
}


@pytest.mark.parametrize("statements", ACCEPTED.values(), ids=ACCEPTED)
def test_a_database_as_it_should_be_is_used(connection: sqlite3.Connection, statements: list[str]) -> None:
    for statement in statements:
        connection.execute(statement)
    saver = SqliteSaver(connection)
    put_chain(saver, "1")
    (found,) = saver.list(at())
    assert found.pending_writes == [("task", "n", 0)]


def test_temporary_tables_do_not_stand_in_front_of_ours(connection: sqlite3.Connection) -> None:
    """A name without its schema means the temporary table first; ours always carry theirs."""
    connection.execute("CREATE TEMP TABLE checkpoints (x)")
    connection.execute("CREATE TEMP VIEW writes AS SELECT 1")
    saver = SqliteSaver(connection)
    put_chain(saver, "1", "2")
    saver.copy_thread("t", "copy")
    saver.prune(["t"])
    assert [found.checkpoint["id"] for found in saver.list(None)] == ["2", "2", "1"]
    saver.delete_for_runs(["run"])
    assert dump(connection) == []
    assert connection.execute("SELECT count(*) FROM temp.checkpoints").fetchone() == (0,)


def test_an_older_table_gets_its_column_and_keeps_its_rows(connection: sqlite3.Connection) -> None:
    connection.execute(CHECKPOINTS)
    connection.execute(OLDER_WRITES)
    connection.execute("INSERT INTO writes VALUES ('t', '', '1', 'task', 0, 'x', 'msgpack', x'01')")
    connection.commit()
    saver = SqliteSaver(connection)
    saver.put(at(), make("1"), {}, {})
    saver.put_writes(at("t", "1"), [("x", 2)], "another task", "path")
    (found,) = saver.list(at())
    assert found.pending_writes == [("task", "x", 1), ("another task", "x", 2)]


def test_the_schema_is_not_trusted(saver: SqliteSaver) -> None:
    assert saver.conn.execute("PRAGMA trusted_schema").fetchone() == (0,)
