"""Values that the server cannot read are named, and everything else goes on."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import psycopg
import pytest

from sealpoint.errors import BlobError, DamagedFileError
from sealpoint.maintenance.postgres_rows import PostgresRows
from sealpoint.maintenance.rotate import outstanding, rotate
from sealpoint.maintenance.rows import Batch, Event, Failure, Progress, Selection
from sealpoint.maintenance.verify import verify
from tests.postgres.databases import K2, blobs, put_blobs, put_writes, reseal, rewrite_all
from tests.postgres.harm import OUT_OF_ROW, lose_values

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
    assert {failed.tag for failed in failures} == {"msgpack+cobblestone256:k1"}
    for failed in failures:
        assert isinstance(failed.error, BlobError)
        assert "sealed value is Unreadable" in str(failed.error)
        assert "restore it from backup" in failed.error.hint


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
    assert (last.moved, last.raced) == (ROWS - len(LOST), 0)


def test_nothing_is_stored_over_a_value_that_is_lost(damaged: str) -> None:
    """Whatever is to be done with it: a better disk may have the bytes still."""
    with closing(PostgresRows(damaged, writable=True)) as store:
        moved, raced, seen = rewrite_all(store, lambda value: ("bytes", b"x"))
    assert (moved, raced, seen) == (ROWS + 3 - len(LOST), 0, ROWS + 3)


def test_what_change_raises_is_not_taken_for_damage(url: str) -> None:
    put_blobs(url, blobs(4))

    def change(value: object) -> tuple[str, bytes]:
        raise DamagedFileError("another file")

    with (
        closing(PostgresRows(url, writable=True)) as store,
        pytest.raises(DamagedFileError, match="another file"),
    ):
        store.rewrite(store.tables[0], None, change)


def test_rows_that_cannot_be_named_end_the_run(url: str) -> None:
    """What tells which rows to take is lost itself. The hint speaks of the server, not of a file."""
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE checkpoint_blobs ALTER type SET STORAGE EXTERNAL")
    put_blobs(url, [*blobs(3), ("t", "", "n", "lost", "x" * OUT_OF_ROW, b"x")])
    lose_values(url, "version = 'lost'", "convert_to(type, 'UTF8')")
    with closing(PostgresRows(url, writable=True)) as store:
        for read in (store.read, partial(store.rewrite, change=reseal)):
            with pytest.raises(DamagedFileError) as caught:
                read(store.tables[0], None, selection=Selection("k2"))
            assert "log" in caught.value.hint
            assert "sqlite" not in caught.value.hint
