"""A sealed value inside the JSON of a SQLite metadata column is a value like any other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.maintenance.rotate import outstanding
from tests.unit.databases.frames import seal_metadata
from tests.unit.maintenance.sealed import make_cipher, write

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")
LABEL = "checkpoints.metadata"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Values under k2, and plain metadata."""
    path = tmp_path / "app.db"
    write(path, "k2", "a")
    return path


def metadata_of(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            metadata for (metadata,) in connection.execute("SELECT metadata FROM checkpoints ORDER BY rowid")
        ]


def test_a_key_that_only_seals_metadata_is_in_use(path: Path) -> None:
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []
    seal_metadata(path, K1, "checkpoint_id = '000001'")
    with closing(SqliteRows(path)) as store:
        (left,) = outstanding(store, "k2")
    assert (left.table, left.tag, left.rows) == (LABEL, "msgpack+cobblestone256.row@k1", 1)
