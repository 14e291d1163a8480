"""Many at once, threads on one saver and processes on one file: no row is lost, nobody is locked out."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.sqlite import SqliteSaver
from tests.faults.rounds import rounds
from tests.faults.writer import CROWD_STEPS, WRITES, at, step
from tests.support.databases.schemas import CHECKPOINTS, OLDER_WRITES

THREADS = 8
STEPS = 25


def work(saver: SqliteSaver, name: str) -> int:
    """Put, write and read in a thread of one's own, and write on a checkpoint of everybody's."""
    listed = 0
    for number in range(STEPS):
        config = step(saver, name, number)
        saver.put_writes(config, WRITES, "task")
        saver.put_writes(at("shared", "0"), [("n", number)], f"{name} {number}")
        found = saver.get_tuple(at(name))
        assert found is not None
        assert found.checkpoint["channel_values"]["n"] == number
        assert len(found.pending_writes or ()) == len(WRITES)
        listed += sum(1 for _ in saver.list(at(name), limit=5))
    return listed


@pytest.mark.parametrize("where", ["file", ":memory:"])
def test_one_saver_serves_many_threads(tmp_path: Path, where: str) -> None:
    """The first use, which makes the tables, is everybody's at once too."""
    path = where if where == ":memory:" else str(tmp_path / "x.db")
    with SqliteSaver.from_conn_string(path) as saver, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda number: work(saver, f"thread {number}"), range(THREADS)))
        for number in range(THREADS):
            found = [*saver.list(at(f"thread {number}"))]
            assert [each.checkpoint["channel_values"]["n"] for each in found] == [*range(STEPS)][::-1]
        written = saver.conn.execute("SELECT count(*) FROM writes WHERE thread_id = 'shared'").fetchone()
        assert written == (THREADS * STEPS,)


def test_one_file_serves_many_processes(tmp_path: Path) -> None:
    path, names = tmp_path / "x.db", ["a", "b", "c", "d"]
    with rounds("crowd") as running:
        running.run(path, *names)
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for name in names:
            found = [*saver.list(at(name))]
            assert [each.checkpoint["channel_values"]["n"] for each in found] == [*range(CROWD_STEPS)][::-1]
        written = saver.conn.execute("SELECT count(*) FROM writes WHERE thread_id = 'shared'").fetchone()
        assert written == (len(names) * CROWD_STEPS,)


@pytest.mark.broad(every=2)
@pytest.mark.parametrize("older", [False, True], ids=["new", "older"])
def test_a_database_may_be_opened_first_by_many(tmp_path: Path, older: bool) -> None:
    """Each may be the one that switches the log on, makes the tables or adds the column."""
    names = [f"process{number}" for number in range(8)]
    with rounds("once") as running:
        for number in range(10):
            path = tmp_path / f"{number}.db"
            with closing(sqlite3.connect(path)) as connection:
                for statement in (CHECKPOINTS, OLDER_WRITES) if older else ():
                    connection.execute(statement)
            running.run(path, *names)
            with SqliteSaver.from_conn_string(str(path)) as saver:
                assert (
                    sorted(found.config["configurable"]["thread_id"] for found in saver.list(None)) == names
                )
                assert all(len(found.pending_writes or ()) == len(WRITES) for found in saver.list(None))
