"""Many on one database: workers share the rows, writers win, and one run holds it at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any

import psycopg
import pytest

from sealpoint.admin.databases.cells import Cell, Selection
from sealpoint.admin.databases.postgres.columns import BLOBS
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.results.events import Event, Failure, Progress
from sealpoint.errors import HeldError, LockedError, StoppedError
from tests.support.databases.postgres import (
    K1,
    K2,
    blobs,
    contents,
    end_session,
    opened,
    put_blobs,
    put_writes,
    reseal,
    rewrite_all,
)

Open = Callable[[], PostgresRows]
ONE_THREAD = [("t", "", "n", f"{place}", *K1.seal("msgpack", b"x")) for place in range(9)]
UPSERT = """
    INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (thread_id, checkpoint_ns, channel, version)
    DO UPDATE SET type = excluded.type, blob = excluded.blob"""


def pid_of(store: PostgresRows) -> int:
    """The process of the server that serves a store."""
    return store.connection.info.backend_pid


def versions(values: list[Cell]) -> list[str]:
    return [value.where.key[3] for value in values]


def test_what_another_has_locked_is_left_out(open_store: Open, url: str) -> None:
    """One store is in the middle of its batch while the other does all the rest, without waiting."""
    put_blobs(url, ONE_THREAD)
    first, second, seen = open_store(), open_store(), list[Cell]()

    def other(value: Cell) -> tuple[str, bytes]:
        seen.append(value)
        return reseal(value)

    def change(value: Cell) -> tuple[str, bytes]:
        if value.where.key[3] == "1":
            done = second.rewrite(BLOBS, None, other, Selection("k2"), Batch(rows=6))
            assert (done.seen, done.changed, done.raced) == (3, 3, 0)
            assert done.last == (BLOBS.table, ("t", "", "n", "5"))
        return reseal(value)

    assert first.rewrite(BLOBS, None, change, Selection("k2"), Batch(rows=3)).changed == 3
    assert versions(seen) == ["3", "4", "5"]
    rest = first.rewrite(BLOBS, None, reseal, Selection("k2"))
    assert (rest.seen, rest.changed, rest.last) == (3, 3, None)


def test_a_batch_that_is_all_locked_is_passed_over(open_store: Open, url: str) -> None:
    put_blobs(url, ONE_THREAD)
    first, second = open_store(), open_store()

    def change(value: Cell) -> tuple[str, bytes]:
        done = second.rewrite(BLOBS, None, reseal, batch=Batch(rows=3))
        assert done == (0, 0, 0, 0, 0.0, (BLOBS.table, ("t", "", "n", "2")))
        return reseal(value)

    assert first.rewrite(BLOBS, None, change, batch=Batch(rows=3)).changed == 3


def test_stores_in_threads_never_take_the_same_row(open_store: Open, url: str) -> None:
    put_blobs(url, blobs(300))
    values = opened(url)
    begin = threading.Barrier(3)

    def run(store: PostgresRows) -> list[tuple[object, ...]]:
        places: list[tuple[object, ...]] = []

        def change(value: Cell) -> tuple[str, bytes]:
            places.append(value.where.key)
            return reseal(value)

        begin.wait()
        while sum(count.rows for count in store.count() if Selection("k2").takes(count.tag)):
            assert rewrite_all(store, change, Selection("k2"), Batch(rows=7))[1] == 0
        return places

    with ThreadPoolExecutor(3) as threads:
        taken = [place for places in threads.map(run, [open_store() for _ in range(3)]) for place in places]
    assert len(taken) == len({*taken}) == 300
    assert opened(url) == values


def test_a_row_that_a_writer_has_locked_is_left_to_the_next_pass(store: PostgresRows, url: str) -> None:
    put_blobs(url, ONE_THREAD)
    written = K1.seal("msgpack", b"written")
    with psycopg.connect(url) as writer:
        writer.execute(UPSERT, (*ONE_THREAD[4][:4], *written))
        assert rewrite_all(store, reseal, Selection("k2")) == [8, 0, 8]
    assert contents(url)["checkpoint_blobs", *ONE_THREAD[4][:4]] == written
    assert rewrite_all(store, reseal, Selection("k2")) == [1, 0, 1]
    assert opened(url)["checkpoint_blobs", *ONE_THREAD[4][:4]] == ("msgpack", b"written")


def test_rows_that_stay_locked_are_told_as_such(store: PostgresRows, url: str) -> None:
    """Not as rows that failed: the run has moved all others, and can be repeated."""
    put_blobs(url, ONE_THREAD)
    with psycopg.connect(url, application_name="agent") as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version IN ('3', '8') FOR UPDATE")
        with pytest.raises(LockedError, match=r"^2 rows are locked by other sessions \(") as caught:
            [*rotate(store, K2, batch=Batch(rows=3))]
        assert f"session {writer.info.backend_pid} of 'agent'" in str(caught.value)
        assert "run the same command again" in caught.value.hint
    assert [count.rows for count in outstanding(store, "k2")] == [2]
    [*rotate(store, K2)]
    assert outstanding(store, "k2") == []


@pytest.mark.parametrize("batch", [Batch(), Batch(rows=1)])
def test_what_fails_is_told_before_what_is_locked(store: PostgresRows, url: str, batch: Batch) -> None:
    """In a pass that moves nothing at all, too; and it does not count as locked."""
    put_writes(url, [("task", place, "n", "msgpack+cobblestone256@k1", b"x") for place in range(5)])
    events = list[Event]()
    with psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_writes WHERE idx = 4 FOR UPDATE")
        with pytest.raises(LockedError, match=r"^1 rows"):
            events.extend(rotate(store, K2, batch=batch))
    assert [event.place["idx"] for event in events if isinstance(event, Failure)] == [0, 1, 2, 3]


def test_rows_that_are_let_go_are_moved_by_the_next_pass(store: PostgresRows, url: str) -> None:
    put_blobs(url, ONE_THREAD)
    with psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version > '0' FOR UPDATE")
        events = rotate(store, K2)
        assert [event for event in islice(events, 1) if isinstance(event, Progress) and event.changed == 1]
    *_, last = events
    assert isinstance(last, Progress)
    assert last.changed == len(ONE_THREAD)


def test_a_row_that_is_gone_was_not_locked(
    store: PostgresRows, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may be deleted between the two looks of a batch; then there is nothing to come back for."""
    put_blobs(url, [("t", "", "n", f"{place}", "msgpack+cobblestone256@k1", b"x") for place in range(3)])
    select = store.select

    def delete_then_select(table: str, statement: str, *rest: Any, **more: Any) -> Any:
        if "FOR UPDATE" in statement:
            with psycopg.connect(url) as writer:
                writer.execute("DELETE FROM checkpoint_blobs WHERE version = '1'")
        return select(table, statement, *rest, **more)

    monkeypatch.setattr(store, "select", delete_then_select)
    events = [*rotate(store, K2)]
    assert len([event for event in events if isinstance(event, Failure)]) == 2


def test_a_writer_that_had_to_wait_wins(store: PostgresRows, url: str) -> None:
    put_blobs(url, ONE_THREAD)
    written = K1.seal("msgpack", b"written")
    with ThreadPoolExecutor(1) as threads, psycopg.connect(url) as writer:
        waiting: list[Future[None]] = []

        def write() -> None:
            writer.execute(UPSERT, (*ONE_THREAD[0][:4], *written))
            writer.commit()

        def change(value: Cell) -> tuple[str, bytes]:
            if not waiting:
                waiting.append(threads.submit(write))
                with psycopg.connect(url, autocommit=True) as look:
                    pid = writer.info.backend_pid
                    while look.execute("SELECT pg_blocking_pids(%s)", (pid,)).fetchone() != (
                        [pid_of(store)],
                    ):
                        pass
            return reseal(value)

        assert store.rewrite(BLOBS, None, change).changed == 9
        waiting[0].result()
    assert contents(url)["checkpoint_blobs", *ONE_THREAD[0][:4]] == written


def test_a_lost_connection_loses_nothing(open_store: Open, url: str) -> None:
    """The batch is taken back; what was done before stands, and another run does the rest."""
    put_blobs(url, ONE_THREAD)
    store, values = open_store(), opened(url)
    after = store.rewrite(BLOBS, None, reseal, batch=Batch(rows=2)).last
    seen = []

    def change(value: Cell) -> tuple[str, bytes]:
        seen.append(value)
        if len(seen) == 2:
            end_session(url, pid_of(store))
        return reseal(value)

    with pytest.raises(StoppedError) as caught:
        store.rewrite(BLOBS, after, change)
    assert "run the same command again" in caught.value.hint
    assert caught.value.__suppress_context__
    assert sum(str(tag).endswith("@k2") for tag, _ in contents(url).values()) == 2
    with pytest.raises(StoppedError):
        store.count()
    assert rewrite_all(open_store(), reseal, Selection("k2")) == [7, 0, 7]
    assert opened(url) == values


# --- holding --------------------------------------------------------------------------------------


def test_one_run_holds_a_database_at_a_time(open_store: Open) -> None:
    first, second = open_store(), open_store()
    with first.hold(), pytest.raises(HeldError, match="postgresql://"), second.hold():
        pass
    with second.hold():
        pass


def test_who_holds_a_database_is_named(open_store: Open) -> None:
    first, second = open_store(), open_store()
    with first.hold(), pytest.raises(HeldError) as caught, second.hold():
        pass
    assert str(caught.value).endswith(f": session {pid_of(first)} of 'sealpoint'")
    assert f"pg_stat_activity shows where pid {pid_of(first)} runs" in caught.value.hint


def test_schemas_are_held_one_by_one(store: PostgresRows, shallow_url: str) -> None:
    with closing(PostgresRows(shallow_url)) as other, store.hold(), other.hold():
        pass


def test_a_hold_ends_with_its_session(open_store: Open, url: str) -> None:
    first, second = open_store(), open_store()
    with first.hold():
        end_session(url, pid_of(first))
        with second.hold():
            pass


def test_a_hold_ends_with_an_error(open_store: Open) -> None:
    first, second = open_store(), open_store()
    with pytest.raises(ZeroDivisionError), first.hold():
        raise ZeroDivisionError
    with second.hold():
        pass


def test_workers_of_a_run_do_not_hold(open_store: Open, url: str) -> None:
    put_blobs(url, ONE_THREAD)
    with open_store().hold():
        assert rewrite_all(open_store(), reseal) == [9, 0, 9]
