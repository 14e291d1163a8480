"""The values of a SQLite file: what is opened, what is refused, and what a batch does to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.errors import DamagedFileError, DatabaseMissingError, SchemaError, StoppedError
from sealpoint.maintenance.rows import Batch, Selection, StoredValue, TagCount
from sealpoint.maintenance.sqlite_rows import CHECKPOINTS, WRITES, SqliteRows
from tests.unit.maintenance.sealed import put, values_of, write
from tests.unit.sqlite.test_schema import CHECKPOINTS as MAKE_CHECKPOINTS
from tests.unit.sqlite.test_schema import REFUSED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SqliteRows]:
    with closing(SqliteRows(path, writable=True)) as store:
        yield store


def to_new(value: StoredValue) -> tuple[str, bytes]:
    return "new", value.blob


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize("writable", [False, True])
def test_nothing_is_made(tmp_path: Path, writable: bool) -> None:
    with pytest.raises(DatabaseMissingError):
        SqliteRows(tmp_path / "missing.db", writable=writable)
    with pytest.raises(DatabaseMissingError):
        SqliteRows(tmp_path, writable=writable)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("writable", [False, True])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, writable: bool) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"text" * 1000)
    with pytest.raises(DamagedFileError):
        SqliteRows(path, writable=writable)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(SchemaError, match="neither of the tables"):
        SqliteRows(path)


@pytest.mark.parametrize("statements", REFUSED.values(), ids=REFUSED)
def test_what_the_saver_refuses_is_refused(tmp_path: Path, statements: list[str]) -> None:
    """Also a trigger, which an update would set off."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    with pytest.raises(SchemaError):
        SqliteRows(path, writable=True)


def test_a_table_without_row_ids_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"{MAKE_CHECKPOINTS} WITHOUT ROWID")
    with pytest.raises(SchemaError):
        SqliteRows(path)


def test_a_name_may_have_every_character_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "a b?c=d#e%20é.db"
    write(path, "k1", "a")
    with closing(SqliteRows(path)) as store:
        assert sum(count.rows for count in store.count()) > 0
        assert store.name == str(path)


def test_a_store_for_reading_changes_nothing(path: Path) -> None:
    before = values_of(path)
    with (
        closing(SqliteRows(path)) as store,
        pytest.raises(StoppedError, match="may not be written"),
    ):
        store.rewrite(CHECKPOINTS, None, to_new)
    assert values_of(path) == before


# --- counting and reading -------------------------------------------------------------------------


def test_counts_are_by_table_and_tag(path: Path, store: SqliteRows) -> None:
    write(path, "plain", "b")
    sizes: dict[tuple[str, Any], list[int]] = {}
    for value in values_of(path):
        sizes.setdefault((value.table.name, value.tag), []).append(len(value.blob))
    assert sorted(store.count()) == sorted(
        TagCount(*place, len(found), sum(found)) for place, found in sizes.items()
    )


def test_a_thread_may_be_read_alone(path: Path, store: SqliteRows) -> None:
    write(path, "k1", "b")
    for table in (CHECKPOINTS, WRITES):
        values = store.read(table, None, Selection(thread_id="b")).values
        assert {value.key[0] for value in values} == {"b"}
        assert len(values) == len(store.read(table, None, Selection(thread_id="a")).values)


def test_a_value_larger_than_a_batch_is_a_page_of_its_own(path: Path, store: SqliteRows) -> None:
    page = store.read(CHECKPOINTS, None, batch=Batch(size_bytes=1))
    assert len(page.values) == 1
    assert page.last is not None


@pytest.mark.parametrize("column", ["thread_id", "type", "channel"])
def test_text_that_is_not_utf8_comes_as_bytes_among_others(path: Path, column: str) -> None:
    """Of the page that holds it nothing is lost, in whatever row of it; other text stays text."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE writes SET {column} = CAST(X'61ff' AS TEXT) WHERE rowid = 5")
        count = connection.execute("SELECT count(*) FROM writes").fetchone()[0]
    for batch in (Batch(), Batch(rows=5), Batch(rows=1)):
        with closing(SqliteRows(path)) as store:
            found, after = list[StoredValue](), None
            while True:
                page = store.read(WRITES, after, batch=batch)
                found += page.values
                if (after := page.last) is None:
                    break
            assert len(found) == count
            assert [value.locator for value in found if b"a\xff" in (*value.key, value.tag)] == [5]
            assert sum(each.rows for each in store.count()) == len(values_of(path))


def test_a_name_that_is_not_utf8_does_not_end_the_listing_of_names(path: Path, store: SqliteRows) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET channel = CAST(X'61ff' AS TEXT) WHERE rowid = 5")
    names = set(store.names())
    assert {("thread_id", "a"), ("channel", "b"), ("channel", "c")} <= names
    assert all(isinstance(text, str) for _, text in names)


def test_metadata_comes_row_by_row(path: Path, store: SqliteRows) -> None:
    with closing(sqlite3.connect(path)) as connection:
        expected = [metadata for (metadata,) in connection.execute("SELECT metadata FROM checkpoints")]
    assert [*store.metadata()] == expected
    assert [*store.inline()] == []


# --- changing -------------------------------------------------------------------------------------


def test_what_a_change_raises_leaves_the_batch_as_it_was(path: Path, store: SqliteRows) -> None:
    before = values_of(path)

    def fail(value: StoredValue) -> tuple[str, bytes]:
        if value == before[2]:
            raise KeyError("stop")
        return to_new(value)

    with pytest.raises(KeyError):
        store.rewrite(CHECKPOINTS, None, fail)
    store.settle()
    assert values_of(path) == before
    assert not store.connection.in_transaction


def test_a_batch_is_stored_when_the_store_is_closed(path: Path) -> None:
    with closing(SqliteRows(path, writable=True)) as store:
        done = store.rewrite(CHECKPOINTS, None, to_new)
    assert (done.seen, done.moved, done.raced, done.last) == (3, 3, 0, None)
    assert {value.tag for value in values_of(path) if value.table == CHECKPOINTS} == {"new"}


def test_a_batch_is_one_transaction(path: Path, store: SqliteRows) -> None:
    """Another connection sees none of it or all of it."""
    with closing(sqlite3.connect(path)) as other:
        seen = set()
        for _ in range(2):
            store.rewrite(CHECKPOINTS, None, lambda value: (value.tag + "x", value.blob))
            store.settle()
            seen.add(other.execute("SELECT count(DISTINCT type) FROM checkpoints").fetchone())
        assert seen == {(1,)}


@pytest.mark.parametrize(
    ("tag", "blob"), [("other", None), (None, b"other"), ("other", b"other")], ids=["tag", "value", "both"]
)
def test_a_value_that_changed_meanwhile_is_left(
    path: Path, store: SqliteRows, tag: str | None, blob: bytes | None
) -> None:
    first = values_of(path)[0]
    theirs = (tag or first.tag, blob or first.blob)

    def interfere(value: StoredValue) -> tuple[str, bytes]:
        if value == first:
            with closing(sqlite3.connect(path)) as connection, connection:
                put(connection, first, *theirs)
        return to_new(value)

    done = store.rewrite(CHECKPOINTS, None, interfere)
    store.settle()
    assert (done.moved, done.raced) == (2, 1)
    assert (values_of(path)[0].tag, values_of(path)[0].blob) == theirs


def test_a_row_that_was_deleted_meanwhile_stays_deleted(path: Path, store: SqliteRows) -> None:
    first = values_of(path)[0]

    def delete(value: StoredValue) -> tuple[str, bytes]:
        if value == first:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM checkpoints WHERE rowid = ?", (first.locator,))
        return to_new(value)

    assert store.rewrite(CHECKPOINTS, None, delete).raced == 1
    store.settle()
    assert first.key not in [value.key for value in values_of(path)]


@pytest.mark.parametrize(
    "column", ["thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel"]
)
def test_a_row_that_became_another_is_left(path: Path, store: SqliteRows, column: str) -> None:
    """Its row id, tag and bytes are those of the row that was read; its name is not."""
    first = next(value for value in values_of(path) if value.table == WRITES)

    def rename(value: StoredValue) -> tuple[str, bytes]:
        if value == first:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f"UPDATE writes SET {column} = 77 WHERE rowid = ?", (first.locator,))
        return to_new(value)

    assert store.rewrite(WRITES, None, rename).raced == 1
    store.settle()
    (left,) = [each for each in values_of(path) if each.table == WRITES and each.locator == first.locator]
    assert (left.tag, left.blob) == (first.tag, first.blob)


def test_the_metadata_and_all_other_columns_stay_as_they_are(path: Path, store: SqliteRows) -> None:
    statements = (
        "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata FROM checkpoints",
        "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel FROM writes",
    )
    with closing(sqlite3.connect(path)) as connection:
        before = [connection.execute(statement).fetchall() for statement in statements]
        for table in store.tables:
            store.rewrite(table, None, to_new)
        store.settle()
        assert [connection.execute(statement).fetchall() for statement in statements] == before
