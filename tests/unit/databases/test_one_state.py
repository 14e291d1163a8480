"""`RowStore.one_state` on SQLite: all that is read within it is of one moment."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.audit import audit
from sealpoint.admin.maintenance.status import status
from sealpoint.errors import StoppedError
from tests.support.databases.sealed import write


def rows(store: SqliteRows) -> tuple[int, ...]:
    """How many values and checkpoints each way of reading finds."""
    counted = sum(count.rows for count in store.count())
    read = sum(len(store.read(column, None).cells) for column in store.columns)
    shares = sum(share.rows for share in status(store))
    return counted, read, shares, audit(store).rows, len(list(store.cleartext.records()))


def test_a_writer_is_not_seen_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    write(path, "k2", "a")
    with closing(SqliteRows(path)) as store:
        with store.one_state():
            before = rows(store)
            write(path, "k2", "b")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE store (value TEXT)")
            assert rows(store) == before
            assert [table.name for table in store.tables()] == ["checkpoints", "writes"]
        assert rows(store) == tuple(2 * number for number in before)
        assert "store" in [table.name for table in store.tables()]


def test_a_state_that_was_not_kept_is_an_error(tmp_path: Path) -> None:
    """SQLite may end a transaction after an error; each later read would have its own state."""
    path = tmp_path / "live.db"
    write(path, "k2", "a")
    with closing(SqliteRows(path)) as store:
        with pytest.raises(StoppedError, match="ended the transaction"), store.one_state():
            store.connection.execute("ROLLBACK")
        with store.one_state():
            assert rows(store)
