"""Values that the server cannot read are named, and everything else goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from sealpoint.admin.databases.cells import Cell, Column, Selection
from sealpoint.admin.databases.postgres.columns import Bound
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.tables import CheckedTables
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Event, Events, Failure, Progress
from sealpoint.errors import DatabaseCorruptError, SealedValueError
from tests.postgres.harm import OUT_OF_ROW, lose_values
from tests.support.databases.postgres import K2, blobs, put_blobs, put_writes, reseal, rewrite_all

ROWS = 30
LOST = ("00000004", "00000005", "00000029")
BATCHES = [Batch(), Batch(rows=7), Batch(rows=1), Batch(size_bytes=1), Batch(size_bytes=3 * OUT_OF_ROW)]


@pytest.fixture
def damaged(url: str) -> str:
    """A database that has lost some values."""
    put_blobs(url, blobs(ROWS, size=OUT_OF_ROW))
    put_writes(url, [("task", number, "n", *K2.seal("msgpack", b"x")) for number in range(3)])
    lose_values(url, f"version IN {LOST}")
    return url


def failures_of(events: list[Event]) -> list[Failure]:
    return [event for event in events if isinstance(event, Failure)]


def require_named(events: list[Event]) -> None:
    """Each value that is lost is told once, with its coordinates, and nothing else is."""
    failures = failures_of(events)
    numbers = [int(version) for version in LOST]
    wanted = [
        {
            "thread_id": f"thread {number % 3}",
            "checkpoint_ns": "",
            "channel": f"channel {number % 2}",
            "version": f"{number:08}",
        }
        for number in numbers
    ]
    assert sorted((failed.place for failed in failures), key=lambda place: str(place["version"])) == wanted
    assert {failed.tag for failed in failures} == {"msgpack+cobblestone256@k1"}
    for failed in failures:
        assert isinstance(failed.error, SealedValueError)
        assert "its bytes are lost" in str(failed.error)
        assert "restore the row from a backup" in failed.error.hint


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_verify_names_each_value_that_is_lost(damaged: str, batch: Batch) -> None:
    with closing(PostgresRows(damaged)) as store:
        events = [*verify(store, K2, batch=batch)]
    require_named(events)
    last = events[-1]
    assert isinstance(last, Progress)
    assert (last.rows, last.total) == (ROWS + 3, ROWS + 3)


@pytest.mark.parametrize("batch", BATCHES, ids=str)
def test_rotate_names_each_value_that_is_lost_and_moves_the_others(damaged: str, batch: Batch) -> None:
    with closing(PostgresRows(damaged, writable=True)) as store:
        events = [*rotate(store, K2, batch=batch)]
        require_named(events)
        assert sum(count.rows for count in outstanding(store, "k2")) == len(LOST)
        require_named([*verify(store, K2)])
    last = events[-1]
    assert isinstance(last, Progress)
    assert (last.changed, last.raced) == (ROWS - len(LOST), 0)


def test_nothing_is_stored_over_a_value_that_is_lost(damaged: str) -> None:
    """Whatever is to be done with it: a better disk may have the bytes still."""
    with closing(PostgresRows(damaged, writable=True)) as store:
        moved, raced, seen = rewrite_all(store, lambda value: ("bytes", b"x"))
    assert (moved, raced, seen) == (ROWS + 3 - len(LOST), 0, ROWS + 3)


def test_what_change_raises_is_not_taken_for_damage(url: str) -> None:
    put_blobs(url, blobs(4))

    def change(value: object) -> tuple[str, bytes]:
        raise DatabaseCorruptError("another file")

    with (
        closing(PostgresRows(url, writable=True)) as store,
        pytest.raises(DatabaseCorruptError, match="another file"),
    ):
        store.rewrite(store.columns[0], None, change)


def test_rows_that_cannot_be_named_end_the_run(url: str) -> None:
    """What tells which rows to take is lost itself. The hint speaks of the server, not of a file."""
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE checkpoint_blobs ALTER type SET STORAGE EXTERNAL")
    put_blobs(url, [*blobs(3), ("t", "", "n", "lost", "x" * OUT_OF_ROW, b"x")])
    lose_values(url, "version = 'lost'", "convert_to(type, 'UTF8')")
    with closing(PostgresRows(url, writable=True)) as store:
        for read in (store.read, partial(store.rewrite, change=reseal)):
            with pytest.raises(DatabaseCorruptError) as caught:
                read(store.columns[0], None, selection=Selection("k2"))
            assert "log" in caught.value.hint
            assert "sqlite" not in caught.value.hint


@pytest.mark.parametrize("run", [verify, rotate])
def test_a_row_that_comes_meanwhile_is_not_taken_for_the_lost_one(
    url: str, run: Callable[..., Events], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for where a page ends and the page there is time for a writer."""
    early, lost, late = blobs(3, size=OUT_OF_ROW)
    put_blobs(url, [early, lost, late])
    lose_values(url, "version = '00000001'")
    fetch = PostgresRows._cells

    def values(store: PostgresRows, table: Column, after: Any, bound: Bound, *more: Any) -> Any:
        if bound.key[-1] == "00000001" and bound.rows == 1:
            put_blobs(url, [(*lost[:3], "00000000.5", *lost[4:])])
        return fetch(store, table, after, bound, *more)

    with closing(PostgresRows(url, writable=True)) as store:
        monkeypatch.setattr(PostgresRows, "_cells", once(values, fetch))
        events = [*run(store, K2, batch=Batch(rows=1))]
        (failed,) = failures_of(events)
        assert failed.place["version"] == "00000001"
        if run is rotate:
            assert sum(count.rows for count in outstanding(store, "k2")) == 1


def once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``first`` until it has put its row, which a second time would be there already."""
    done = False

    def call(store: PostgresRows, table: Column, after: Any, bound: Bound, *more: Any) -> Any:
        nonlocal done
        is_it = bound.key[-1] == "00000001" and not done
        done = done or is_it
        return (first if is_it else then)(store, table, after, bound, *more)

    return call


def test_a_lost_value_that_is_replaced_meanwhile_is_moved(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_blobs(url, blobs(2, size=OUT_OF_ROW))
    lose_values(url, "version = '00000001'")
    alone = PostgresRows._alone

    def replaced(store: PostgresRows, table: Column, key: Any) -> list[Cell]:
        with psycopg.connect(url) as connection:
            (*_, tag, blob) = blobs(2)[1]
            connection.execute(
                "UPDATE checkpoint_blobs SET type = %s, blob = %s WHERE version = '00000001'", (tag, blob)
            )
        return alone(store, table, key)

    monkeypatch.setattr(PostgresRows, "_alone", replaced)
    with closing(PostgresRows(url, writable=True)) as store:
        assert not failures_of([*rotate(store, K2)])
        assert outstanding(store, "k2") == []


@pytest.mark.parametrize(
    ("where", "lost"),
    [("version BETWEEN '00000020' AND '00000119'", 100), ("version LIKE '%0'", 30)],
    ids=["together", "scattered"],
)
def test_many_lost_values_cost_few_queries(
    url: str, where: str, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four for each (where it is, the value, the value alone, its row without it), and pages between."""
    put_blobs(url, blobs(300, size=OUT_OF_ROW))
    lose_values(url, where)
    queries = 0
    select = CheckedTables.select

    def counted(*arguments: Any, is_last: bool = True) -> Any:
        nonlocal queries
        queries += is_last
        return select(*arguments, is_last=is_last)

    monkeypatch.setattr(CheckedTables, "select", counted)
    with closing(PostgresRows(url)) as store:
        assert len(failures_of([*verify(store, K2)])) == lost
    assert queries < 600


@pytest.mark.parametrize("allow_plaintext", [False, True])
def test_a_lost_value_that_is_not_sealed_is_told_as_lost(url: str, allow_plaintext: bool) -> None:
    put_blobs(url, [("t", "", "n", "1", "msgpack", os.urandom(OUT_OF_ROW))])
    lose_values(url, "version = '1'")
    with closing(PostgresRows(url)) as store:
        (failed,) = failures_of([*verify(store, K2, allow_plaintext=allow_plaintext)])
    assert "its bytes are lost" in str(failed.error)
