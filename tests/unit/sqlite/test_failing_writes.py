"""A write that raises leaves nothing behind, neither now nor with the next one that succeeds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import ConfigError, RowError, UnsupportedTypeError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, dump, ids_in, make, put_chain


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteSaver]:
    """A saver on a file, with one checkpoint and one write."""
    with SqliteSaver.from_conn_string(str(tmp_path / "x.db")) as saver:
        put_chain(saver, "1")
        yield saver


def act_put(saver: SqliteSaver) -> None:
    saver.put(at("t", "1"), make("2", big="x" * 100_000), {}, {})


def act_put_writes(saver: SqliteSaver) -> None:
    saver.put_writes(at("t", "1"), [("a", 1), ("b", "x" * 100_000), ("c", 3)], "task2")


def act_copy_thread(saver: SqliteSaver) -> None:
    saver.copy_thread("t", "copy" * 10_000)


ACTS = [act_put, act_put_writes, act_copy_thread]


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (("c", object()), UnsupportedTypeError),
        (("\ud800", 3), ConfigError),
        (("c", "x" * 100_000), RowError),
    ],
)
def test_a_write_without_a_form(saver: SqliteSaver, write: Any, error: type[Exception]) -> None:
    """The two before it go again, whether the serializer or the database refuses the third."""
    before = dump(saver.conn)
    saver.conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    with pytest.raises(error):
        saver.put_writes(at("t", "1"), [("a", 1), ("b", 2), write], "task2")
    with pytest.raises(UnsupportedTypeError):
        saver.put(at("t", "1"), make("2", x=object()), {}, {})
    assert dump(saver.conn) == before
    put_chain(saver, "2")
    assert len(dump(saver.conn)) == len(before) + 2


@pytest.mark.parametrize("act", ACTS)
def test_a_full_disk(saver: SqliteSaver, act: Any) -> None:
    (pages,) = saver.conn.execute("PRAGMA page_count").fetchone()
    saver.conn.execute(f"PRAGMA max_page_count = {pages}")
    before = dump(saver.conn)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        act(saver)
    assert not saver.conn.in_transaction
    assert dump(saver.conn) == before
    saver.conn.execute("PRAGMA max_page_count = 1000")
    act(saver)
    assert dump(saver.conn) != before


@pytest.mark.parametrize("act", ACTS)
def test_a_commit_that_fails(tmp_path: Path, act: Any) -> None:
    """With a rollback journal a reader can keep a commit waiting: what it held is gone for good."""
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as reader:
        connection.execute("PRAGMA journal_mode = MEMORY")
        saver = SqliteSaver(connection)
        put_chain(saver, "1")
        before = dump(connection)
        connection.execute("PRAGMA busy_timeout = 0")
        reading = reader.execute("SELECT * FROM checkpoints UNION ALL SELECT * FROM checkpoints")
        reading.fetchone()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            act(saver)
        assert not connection.in_transaction
        reading.close()
        put_chain(saver, "9", thread_id="other")
        assert [row for row in dump(connection) if row[0] != "other"] == before


def test_a_transaction_that_the_caller_left_open_is_not_lost(saver: SqliteSaver) -> None:
    """Only our own part is undone; what the caller began is committed with our next write."""
    saver.conn.execute("BEGIN")
    saver.conn.execute("UPDATE writes SET task_id = 'renamed'")
    saver.conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    with pytest.raises(RowError):
        saver.put_writes(at("t", "1"), [("a", 1), ("b", "x" * 100_000)], "task2")
    assert saver.conn.in_transaction
    put_chain(saver, "2")
    assert not saver.conn.in_transaction
    assert ids_in(saver) == ["2", "1"]
    assert [row[3] for row in dump(saver.conn)[2:]] == ["renamed", "task"]


def test_tables_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    """On a disk with room for one of them; when there is more, the same saver makes both."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("PRAGMA max_page_count = 3")
        saver = SqliteSaver(connection)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            saver.setup()
        assert not saver.is_setup
        assert not connection.in_transaction
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
        connection.execute("PRAGMA max_page_count = 1000000")
        put_chain(saver, "1")
        assert ids_in(saver) == ["1"]
