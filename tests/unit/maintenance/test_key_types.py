"""A row whose key is not of the types that a saver writes is a failure, and is not written again.

SQLite converts each column of a row that it writes to the type of the column: such a row would have
another key after a rotation.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Event
from sealpoint.databases.sqlite.columns import CHECKPOINTS, WRITES
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import RowError
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.inspect import inspect
from sealpoint.maintenance.inventory import inventory
from sealpoint.maintenance.verify import verify
from tests.support.harm import store_raw
from tests.support.sealed import VALUES, failures, make_cipher, moved, run

K2 = make_cipher("k2", "k1")
FORGED = [
    (column.table, name, value)
    for column in (CHECKPOINTS, WRITES)
    for name in column.key
    for value in (7, 1.5, b"7", "7" if name == "idx" else b"\xff")
    if name != "idx" or value != 7
]


@pytest.fixture(params=FORGED, ids=str)
def forged(request: pytest.FixtureRequest, path: Path) -> tuple[str, str, Any]:
    """One of the tables with a row whose key has a column of another type."""
    table, name, value = request.param
    store_raw(path, table, name, value, "rowid = 2")
    return table, name, value


def contents(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table} WHERE rowid = 2").fetchall()


def require_refused(found: list[Failure], forged: tuple[str, str, Any]) -> None:
    (failed,) = found
    assert (failed.table, failed.place[forged[1]], type(failed.error)) == (forged[0], forged[2], RowError)
    assert repr(forged[1]) in str(failed.error)


def test_verification_names_it(path: Path, forged: tuple[str, str, Any]) -> None:
    with closing(SqliteRows(path)) as store:
        require_refused(failures(list(verify(store, K2))), forged)


def test_rotation_names_it_and_leaves_it(path: Path, forged: tuple[str, str, Any]) -> None:
    before = contents(path, forged[0])
    events = run(path, K2)
    require_refused(failures(events), forged)
    assert moved(events) == VALUES - 1
    assert contents(path, forged[0]) == before


def test_it_leaves_no_copy(path: Path, tmp_path: Path, forged: tuple[str, str, Any]) -> None:
    out = tmp_path / "out.db"
    require_refused(failures(list(decrypt(path, out, K2))), forged)
    assert not out.exists()


def test_its_types_are_not_counted(path: Path, forged: tuple[str, str, Any]) -> None:
    with closing(SqliteRows(path)) as store:
        events: list[Event] = []
        assert inventory(store, K2, report=events.append).failures == 1
        require_refused(failures(events), forged)


def test_it_is_not_shown(path: Path) -> None:
    store_raw(path, "checkpoints", "checkpoint_ns", 7, "rowid = 2")
    with closing(SqliteRows(path)) as store:
        (failed,) = (found for found in inspect(store, K2, "a") if isinstance(found, Failure))
    assert (failed.place["checkpoint_ns"], type(failed.error)) == (7, RowError)
