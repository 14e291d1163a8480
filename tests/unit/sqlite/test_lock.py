"""The lock: every statement runs under it, and another thread waits wherever the first one is."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from sealpoint.sqlite import SqliteSaver, database
from tests.support.databases.checkpoints import at, ids_in, make, put_chain
from tests.support.runs.interleave import Second, WatchedLock, call_with_a_break

Call = Callable[[SqliteSaver], Any]


def watched(
    connection: sqlite3.Connection, lock: WatchedLock, monkeypatch: pytest.MonkeyPatch
) -> tuple[SqliteSaver, WatchedLock]:
    """A saver whose lock is the test's."""
    with monkeypatch.context() as patch:
        patch.setattr(threading, "RLock", lambda: lock)
        saver = SqliteSaver(connection)
    return saver, lock


def use_cursor(saver: SqliteSaver, *, transaction: bool) -> None:
    with saver.cursor(transaction=transaction) as cursor:
        cursor.execute("SELECT 1")


OPERATIONS: dict[str, Call] = {
    "setup": lambda saver: saver.setup(),
    "cursor": lambda saver: use_cursor(saver, transaction=True),
    "cursor without transaction": lambda saver: use_cursor(saver, transaction=False),
    "get_tuple": lambda saver: saver.get_tuple(at()),
    "list": lambda saver: ids_in(saver, at()),
    "list with a filter": lambda saver: ids_in(saver, None, filter={"step": 1}, limit=1),
    "put": lambda saver: saver.put(at(), make("9", n=1), {}, {}),
    "put_writes": lambda saver: saver.put_writes(at(checkpoint_id="2"), [("a", 1)], "task 2"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["run"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "prune": lambda saver: saver.prune(["t"]),
    "history": lambda saver: saver.get_delta_channel_history(config=at(checkpoint_id="2"), channels=["n"]),
}


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_statement_runs_under_the_lock(
    name: str, is_new: bool, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's transactions belong to the connection: a statement of another thread would be part of ours."""
    put_chain(SqliteSaver(connection), "1", "2")
    saver, lock = watched(connection, WatchedLock(), monkeypatch)
    if not is_new:
        saver.setup()
    seen: list[tuple[str, bool]] = []
    connection.set_trace_callback(lambda statement: seen.append((statement, lock.is_mine)))
    OPERATIONS[name](saver)
    connection.set_trace_callback(None)
    assert bool(seen) is (is_new or name != "setup")
    assert [statement for statement, is_mine in seen if not is_mine] == []
    assert not lock.is_mine


@pytest.mark.parametrize("transaction", [False, True])
def test_a_cursor_holds_the_lock(
    transaction: bool, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, lock = watched(connection, WatchedLock(), monkeypatch)
    with saver.cursor(transaction):
        assert lock.is_mine
    assert not lock.is_mine


def test_two_threads_set_up_once_wherever_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one begins between any two steps of the first."""
    waited = 0
    for step in itertools.count():
        seen: list[str] = []
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
            other = Second(lambda: OPERATIONS["setup"](saver))  # noqa: B023
            saver, _ = watched(connection, other.lock, monkeypatch)
            connection.set_trace_callback(seen.append)
            call_with_a_break(saver.setup, database.__file__, step, other.start)
            if not other.has_started:
                break
            other.join()
        assert len([statement for statement in seen if "trusted_schema" in statement]) == 1
        waited += other.waited
    assert step > waited > 0
