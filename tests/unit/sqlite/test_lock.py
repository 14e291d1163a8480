"""The lock: every statement runs under it, and another thread waits wherever the first one is."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from sealpoint.sqlite import SqliteSaver, database
from tests.support.checkpoints import at, ids_in, make, put_chain
from tests.support.interleave import Second, WatchedLock, call_with_a_break

Call = Callable[[SqliteSaver], Any]


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


class Connection(sqlite3.Connection):
    """One whose closing is seen."""

    on_close: Callable[[], None] = staticmethod(lambda: None)

    def close(self) -> None:
        self.on_close()
        super().close()


@pytest.fixture
def connection() -> Iterator[Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False, factory=Connection)) as connection:
        yield connection


def watch(saver: SqliteSaver, lock: WatchedLock) -> SqliteSaver:
    """Give a saver a lock of the test's."""
    saver._database.lock = lock  # type: ignore[assignment]
    return saver


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_statement_runs_under_the_lock(name: str, is_new: bool, connection: Connection) -> None:
    """SQLite's transactions belong to the connection: a statement of another thread would be part of ours."""
    put_chain(SqliteSaver(connection), "1", "2")
    lock = WatchedLock()
    saver = watch(SqliteSaver(connection), lock)
    if not is_new:
        saver.setup()
    seen: list[tuple[str, bool]] = []
    connection.set_trace_callback(lambda statement: seen.append((statement, lock.is_mine)))
    OPERATIONS[name](saver)
    connection.set_trace_callback(None)
    assert bool(seen) is (is_new or name != "setup")
    assert [statement for statement, is_mine in seen if not is_mine] == []
    assert not lock.is_mine


def test_a_connection_is_closed_under_the_lock(connection: Connection) -> None:
    lock, seen = WatchedLock(), list[bool]()
    saver = watch(SqliteSaver(connection), lock)
    saver.setup()
    connection.on_close = lambda: seen.append(lock.is_mine)
    saver._database.close()
    assert seen == [True]


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "setup"])
def test_a_cursor_keeps_other_threads_waiting(name: str, transaction: bool, connection: Connection) -> None:
    put_chain(SqliteSaver(connection), "1", "2")
    other = Second(lambda: OPERATIONS[name](saver))
    saver = watch(SqliteSaver(connection), other.lock)
    saver.setup()
    with saver.cursor(transaction=transaction):
        other.start()
        assert other.waited
    other.join()


def test_two_threads_set_up_once_wherever_they_meet() -> None:
    """The second one begins between any two steps of the first."""
    waited = 0
    for step in itertools.count():
        seen: list[str] = []
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
            saver = SqliteSaver(connection)
            other = Second(saver.setup)
            watch(saver, other.lock)
            connection.set_trace_callback(seen.append)
            call_with_a_break(saver.setup, database.__file__, step, other.start)
            if not other.has_started:
                break
            other.join()
        assert len([statement for statement in seen if "trusted_schema" in statement]) == 1
        waited += other.waited
    assert step > waited > 0
