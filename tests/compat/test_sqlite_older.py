"""Databases from before ``writes`` had its column ``task_path``: both savers read, and carry on, alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.types import Command

from sealpoint.sqlite import SqliteSaver
from tests.compat.agents import QUESTION, THREAD, agent
from tests.support.databases.checkpoints import at
from tests.support.databases.schemas import CHECKPOINTS, OLDER_WRITES

COLUMNS = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A thread at its interrupt, as an older release would have stored it."""
    path = tmp_path / "older.db"
    with Theirs.from_conn_string(":memory:") as saver, closing(sqlite3.connect(path)) as connection:
        agent(saver).invoke(QUESTION, THREAD)
        connection.execute(CHECKPOINTS)
        connection.execute(OLDER_WRITES)
        checkpoints = saver.conn.execute("SELECT * FROM checkpoints").fetchall()
        connection.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", checkpoints)
        writes = saver.conn.execute(f"SELECT {COLUMNS} FROM writes").fetchall()
        connection.executemany("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", writes)
        connection.commit()
    return path


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield connection


def listing(saver: Any) -> list[Any]:
    return [*saver.list(None)]


def test_it_reads_the_same(path: Path, connection: sqlite3.Connection) -> None:
    """Ours first, read-only, so that the table is still the older one; then theirs, which adds the column."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as only_reading:
        mine = listing(SqliteSaver(only_reading))
        assert "task_path" not in columns(only_reading)
    assert mine == listing(Theirs(connection))
    assert "task_path" in columns(connection)


def test_it_goes_on_under_langgraph_after_ours_added_the_column(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection)
    saver.setup()
    assert "task_path" in columns(connection)
    latest = saver.get_tuple(at("agent"))
    assert latest is not None
    saver.put_writes(latest.config, [("audit", "seen")], "auditor", "~path")
    graph = agent(Theirs(connection))
    assert graph.invoke(Command(resume=True), THREAD)["spent"] == 12
    assert listing(saver) == listing(Theirs(connection))


def test_ours_reads_on_after_theirs_added_the_column(connection: sqlite3.Connection) -> None:
    theirs = Theirs(connection)
    theirs.setup()
    agent(theirs).invoke(Command(resume=True), THREAD)
    assert listing(SqliteSaver(connection)) == listing(theirs)


def test_another_process_may_add_the_column_meanwhile(path: Path) -> None:
    """A saver that found the older table, and could not change it, reads the newer one as well."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as only_reading:
        saver = SqliteSaver(only_reading)
        before = listing(saver)
        with SqliteSaver.from_conn_string(str(path)) as other:
            other.setup()
        assert listing(saver) == before


def columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(writes)")}
