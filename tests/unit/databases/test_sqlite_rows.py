"""The values of a SQLite file: what is opened, what is refused, and what a batch does to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell, Column, Selection
from sealpoint.admin.databases.rows import Batch, TagCount
from sealpoint.admin.databases.sqlite import checked
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS, WRITES
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.status import status
from sealpoint.errors import DatabaseCorruptError, DatabaseMissingError, SchemaError, StoppedError
from tests.support.databases.schemas import CHECKPOINTS as MAKE_CHECKPOINTS
from tests.support.databases.sealed import values_of, write


@pytest.fixture
def store(path: Path) -> Iterator[SqliteRows]:
    with closing(SqliteRows(path, writable=True)) as store:
        yield store


def to_new(value: Cell) -> tuple[str, bytes]:
    return "new", value.value


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path of a database is empty"),
        ("folder", "folder is a directory, not a file"),
        (os.devnull, f"{os.devnull} is not a regular file"),
        ("missing", "no file at missing"),
        ("dangling", "no file at dangling"),
    ],
)
def test_what_is_no_file_is_named_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("dangling").symlink_to("missing")
    for writable in (False, True):
        with pytest.raises(DatabaseMissingError) as caught:
            SqliteRows(path, writable=writable)
        assert str(caught.value) == message
        assert ("variable" in caught.value.hint) is (path == "")
    assert {file.name for file in tmp_path.iterdir()} == {"folder", "dangling"}


def test_another_file_is_refused(tmp_path: Path) -> None:
    """tests/unit/sqlite has all other schemas that are refused."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(SchemaError, match="none of the tables"):
        SqliteRows(path)
    path.write_bytes(b"text" * 1000)
    with pytest.raises(DatabaseCorruptError):
        SqliteRows(path)


def test_a_store_for_reading_changes_nothing(path: Path) -> None:
    before = values_of(path)
    with (
        closing(SqliteRows(path)) as store,
        pytest.raises(StoppedError, match="is read-only for this account"),
    ):
        store.rewrite(CHECKPOINTS, None, to_new)
    assert values_of(path) == before


# --- counting and reading -------------------------------------------------------------------------


def test_counts_are_by_table_and_tag(path: Path, store: SqliteRows) -> None:
    write(path, "plain", "b")
    sizes: dict[tuple[str, Any], list[int]] = {}
    for value in values_of(path):
        sizes.setdefault((value.where.column.table, value.tag), []).append(len(value.value))
    assert sorted(store.count()) == sorted(
        TagCount(*place, len(found), sum(found)) for place, found in sizes.items()
    )


def test_a_thread_may_be_read_alone(path: Path, store: SqliteRows) -> None:
    write(path, "k1", "b")
    for table in (CHECKPOINTS, WRITES):
        values = store.read(table, None, Selection(thread_id="b")).cells
        assert {value.where.key[0] for value in values} == {"b"}
        assert len(values) == len(store.read(table, None, Selection(thread_id="a")).cells)


@pytest.mark.parametrize("column", ["thread_id", "type", "channel"])
def test_text_that_is_not_utf8_comes_as_bytes_among_others(path: Path, column: str) -> None:
    """Of the page that holds it nothing is lost, in whatever row of it; other text stays text."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE writes SET {column} = CAST(X'61ff' AS TEXT) WHERE rowid = 5")
        count = connection.execute("SELECT count(*) FROM writes").fetchone()[0]
    for batch in (Batch(), Batch(rows=5), Batch(rows=1)):
        with closing(SqliteRows(path)) as store:
            found, after = list[Cell](), None
            while True:
                page = store.read(WRITES, after, batch=batch)
                found += page.cells
                if (after := page.last) is None:
                    break
            assert len(found) == count
            assert [value.where.locator for value in found if b"a\xff" in (*value.where.key, value.tag)] == [
                5
            ]
            assert sum(each.rows for each in store.count()) == len(values_of(path))


def test_a_name_that_is_not_utf8_does_not_end_the_listing_of_names(path: Path, store: SqliteRows) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET channel = CAST(X'61ff' AS TEXT) WHERE rowid = 5")
    names = set(store.key_texts())
    assert {("thread_id", "a"), ("channel", "b"), ("channel", "c")} <= names
    assert all(isinstance(text, str) for _, text in names)


def test_a_page_that_begins_before_its_beginning_is_refused(tmp_path: Path) -> None:
    """The first row of a leaf of the tree was set back; the search for a deleted row comes upon it."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute(MAKE_CHECKPOINTS)
        statement = "INSERT INTO checkpoints (rowid, thread_id, checkpoint_id, type, checkpoint, metadata)"
        rows = [(row_id, f"{row_id:05}") for row_id in range(200, 400)]
        connection.executemany(f"{statement} VALUES (?, ?, '1', 'null', x'', x'7b7d')", rows)
    data = bytearray(path.read_bytes())
    leaf = [page for page in range(512, len(data), 512) if data[page] == 0x0D][1]
    cell = leaf + int.from_bytes(
        data[leaf + 8 : leaf + 10], "big"
    )  # its length, then its row id in two bytes
    row_id = (data[cell + 1] & 0x7F) << 7 | data[cell + 2]
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("DELETE FROM checkpoints WHERE rowid = ?", (row_id - 1,)).rowcount == 1
    data = bytearray(path.read_bytes())
    data[cell + 1 : cell + 3] = bytes([0x80 | 199 >> 7, 199 & 0x7F])
    path.write_bytes(data)
    with closing(SqliteRows(path)) as store, pytest.raises(DatabaseCorruptError):
        store.read(CHECKPOINTS, row_id - 2, batch=Batch(rows=1))


# --- one state ------------------------------------------------------------------------------------


def sizes_of(store: SqliteRows) -> tuple[int, ...]:
    """How many values and checkpoints each way of reading finds."""
    counted = sum(count.rows for count in store.count())
    read = sum(len(store.read(column, None).cells) for column in store.columns)
    shares = sum(share.rows for share in status(store))
    return counted, read, shares, audit(store).rows, len(list(store.records()))


def test_a_writer_is_not_seen_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    write(path, "k2", "a")
    with closing(SqliteRows(path)) as store:
        with store.one_state():
            before = sizes_of(store)
            write(path, "k2", "b")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE cache (value TEXT)")
            assert sizes_of(store) == before
            assert [table.name for table in store.tables()] == ["checkpoints", "writes"]
        assert sizes_of(store) == tuple(2 * number for number in before)
        assert "cache" in [table.name for table in store.tables()]


def test_a_state_that_was_not_kept_is_an_error(tmp_path: Path) -> None:
    """SQLite may end a transaction after an error; each later read would have its own state."""
    path = tmp_path / "live.db"
    write(path, "k2", "a")
    with closing(SqliteRows(path)) as store:
        with pytest.raises(StoppedError, match="ended the read transaction"), store.one_state():
            store.connection.execute("ROLLBACK")
        with store.one_state():
            assert sizes_of(store)


# --- changing -------------------------------------------------------------------------------------


def test_what_a_change_raises_leaves_the_batch_as_it_was(path: Path, store: SqliteRows) -> None:
    before = values_of(path)

    def fail(value: Cell) -> tuple[str, bytes]:
        if value == before[2]:
            raise KeyError("stop")
        return to_new(value)

    with pytest.raises(KeyError):
        store.rewrite(CHECKPOINTS, None, fail)
    store.settle()
    assert values_of(path) == before
    assert not store.connection.in_transaction


@pytest.mark.parametrize(
    ("column", "statement"),
    [
        (CHECKPOINTS, "UPDATE {} SET type = 'other'"),
        (CHECKPOINTS, "UPDATE {} SET checkpoint = X'6f74686572'"),
        (CHECKPOINTS, "UPDATE {} SET type = 'other', checkpoint = X'6f74686572'"),
        (CHECKPOINTS, "DELETE FROM {}"),
        # Row id, tag and bytes are those of the row that was read; its name is not.
        *(
            (WRITES, f"UPDATE {{}} SET {name} = 77")
            for name in ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel")
        ),
    ],
)
def test_a_row_that_changed_meanwhile_is_left(
    path: Path, store: SqliteRows, column: Column, statement: str
) -> None:
    values = [value for value in values_of(path) if value.where.column == column]
    left: list[Cell] = []

    def interfere(value: Cell) -> tuple[str, bytes]:
        if value == values[0]:
            with closing(sqlite3.connect(path)) as connection, connection:
                words = f"{statement.format(column.table)} WHERE rowid = ?"
                assert connection.execute(words, (value.where.locator,)).rowcount == 1
            left.extend(each for each in values_of(path) if each not in values)
        return to_new(value)

    done = store.rewrite(column, None, interfere)
    store.settle()
    assert (done.changed, done.raced) == (len(values) - 1, 1)
    after = [value for value in values_of(path) if value.where.column == column]
    assert [value for value in after if value.tag != "new"] == [
        value for value in left if value.where.column == column
    ]


# --- the commit that goes on behind ---------------------------------------------------------------

READS: dict[str, Callable[[SqliteRows], object]] = {
    "read": lambda store: store.read(CHECKPOINTS, None),
    "count": lambda store: store.count(),
    "names": lambda store: list(store.key_texts()),
    "metadata": lambda store: list(store.records()),
}


@pytest.mark.parametrize("name", READS)
def test_nothing_is_read_of_a_batch_before_it_is_stored(path: Path, name: str) -> None:
    """A reader keeps it from being stored here, as one may with a rollback journal: nothing has changed.

    Nothing is asked of the connection meanwhile: SQLite mixes up the answers to two threads.
    """
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = delete")
        before = values_of(path)
        with closing(SqliteRows(path, writable=True)) as store:
            expected = READS[name](store)
            store.connection.execute("PRAGMA busy_timeout = 0")
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM checkpoints").fetchone()
            store.rewrite(CHECKPOINTS, None, to_new, batch=Batch(rows=2))
            with pytest.raises(StoppedError, match="kept the database locked"):
                READS[name](store)
            assert READS[name](store) == expected
    assert values_of(path) == before


def lock_for(*seconds: float) -> Callable[[], float]:
    """A clock by which the first batches hold the lock so long, and all others not at all."""
    moments = chain.from_iterable((0.0, end) for end in chain(seconds, repeat(0.0)))
    return lambda: next(moments)


@pytest.mark.parametrize(("changed", "told"), [(3, [0.0, 5.0, 0.5]), (1, [0.0, 5.0, 0.0])])
def test_each_lock_is_told_once(
    store: SqliteRows, monkeypatch: pytest.MonkeyPatch, changed: int, told: list[float]
) -> None:
    """With the next batch, and the last with its own, the longer of two."""
    monkeypatch.setattr(checked, "perf_counter", lock_for(5.0, 0.25, 0.5))
    seen, after = [], None
    for number in range(3):
        change = to_new if number < changed else lambda value: None
        done = store.rewrite(CHECKPOINTS, after, change, batch=Batch(rows=1))
        seen.append(done.lock_seconds)
        after = done.last
    assert (seen, after) == (told, None)
