"""What a database must look like before a saver works on it: nobody else's SQL runs in our name."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.errors import DatabaseCorruptError, SchemaError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump, make, put_chain
from tests.support.databases.schemas import CHECKPOINTS, LOG, OLDER_WRITES, REFUSED, TRIGGER, WRITES


@pytest.mark.claim("f1")
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


FIRST: dict[str, Callable[[SqliteSaver], object]] = {
    "setup": lambda saver: saver.setup(),
    "get_tuple": lambda saver: saver.get_tuple(at()),
    "cursor": lambda saver: saver.cursor(transaction=False).__enter__(),
}


@pytest.mark.parametrize("call", FIRST)
@pytest.mark.parametrize("is_text", [False, True], ids=["no database", "name of a column that is no text"])
def test_a_file_that_is_no_database_is_refused_in_our_words(tmp_path: Path, call: str, is_text: bool) -> None:
    """Whatever a saver is asked first."""
    path = tmp_path / "x.db"
    if is_text:
        with SqliteSaver.from_conn_string(str(path)) as saver:
            saver.setup()
        path.write_bytes(path.read_bytes().replace(b"checkpoint BLOB", b"checkpoin\xff BLOB"))
    else:
        path.write_bytes(b"no database" * 1000)
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        with pytest.raises(SchemaError if is_text else DatabaseCorruptError) as caught:
            FIRST[call](saver)
        assert is_text or "SQLite cannot read the file" in str(caught.value)
        assert not saver.is_setup
