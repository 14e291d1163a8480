"""Values with a secret in their key, which no release stores yet: each is refused, alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.cells import Opener
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.verify import verify
from sealpoint.errors import ContextMissingError
from tests.support.databases.sealed import VALUES, failures, make_cipher, moved, put, run, values_of, write

K1 = make_cipher("k1")
K2 = make_cipher("k2", "k1")


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_value_with_a_secret_is_a_failure_of_its_value_alone(tmp_path: Path, is_bound: bool) -> None:
    path, out = tmp_path / "app.db", tmp_path / "out.db"
    write(path, "k1", "a")
    write(path, "k1", "b")
    with closing(sqlite3.connect(path)) as connection, connection:
        for cell in values_of(path):
            if cell.where.key[0] == "a":
                row = cell.where.row if is_bound else None
                put(connection, cell, *K1.seal(*Opener(K1).open(cell).typed, row=row, secret=bytes(32)))
    before = values_of(path)
    events = run(path, K2)
    assert moved(events) == VALUES
    with closing(SqliteRows(path)) as store:
        for failed in (failures(events), failures([*verify(store, K2)]), failures([*decrypt(path, out, K2)])):
            assert [type(each.error) for each in failed] == [ContextMissingError] * VALUES
            assert {each.place["thread_id"] for each in failed} == {"a"}
    assert [cell for cell in values_of(path) if cell.where.key[0] == "a"] == [
        cell for cell in before if cell.where.key[0] == "a"
    ]
    assert not out.exists()
