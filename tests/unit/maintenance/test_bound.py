"""Maintenance of a SQLite file that `SealedSaver` wrote."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.inspect import inventory
from sealpoint.admin.maintenance.status import status
from sealpoint.admin.maintenance.verify import Verification, trial
from sealpoint.admin.results.events import Failure
from sealpoint.serde import EncryptedSerializer
from tests.support.databases.bound import PLAIN, PRIVATE, SECRET, cipher_of, write_file
from tests.support.databases.sealed import failures, write

K2 = cipher_of("k2")
PARENT = "parent_checkpoint_id"


@pytest.fixture(params=[PLAIN, PRIVATE], ids=["plain", "private"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    write_file(path, **request.param)
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.executescript(statement)


def verified(path: Path, cipher: Any = K2) -> tuple[list[Failure], Verification]:
    with closing(SqliteRows(path)) as store:
        run = Verification(store, cipher)
        return failures([*run.events()]), run


def test_all_of_it_verifies(path: Path) -> None:
    found, run = verified(path)
    assert found == []
    with closing(SqliteRows(path)) as store:
        values = sum(share.rows for share in status(store))
        assert all(share.flags == ("row",) for share in status(store))
        types = inventory(store, K2)
        assert failures([*trial(store, EncryptedSerializer(K2))]) == []
    assert (run.opened["k2"], run.bound, run.unbound.rows) == (values, values, 0)
    assert run.orphans.rows == 0
    assert types.failures == 0
    assert ("langgraph.types", "Interrupt") in types.constructors


@pytest.mark.parametrize(
    "statements",
    [
        (f"UPDATE checkpoints SET {PARENT} = NULL",),
        ("UPDATE checkpoints SET metadata = '{}'",),
        (
            "UPDATE writes SET idx = -(idx + 100), task_path = 'x'",
            "UPDATE writes SET idx = idx % 2 * 500 - idx",
        ),
    ],
)
def test_what_reading_does_not_use_is_accepted(path: Path, statements: tuple[str, ...]) -> None:
    """`SealedSaver` reads the sealed places of writes, which a copy has too."""
    before = decrypted(path)[1]
    path.with_name("out.db").unlink()
    change(path, *statements)
    assert verified(path)[0] == []
    assert sorted(decrypted(path)[1]["writes"], key=repr) == sorted(before["writes"], key=repr)


@pytest.mark.parametrize(
    ("numbers", "rows", "deleted", "named"),
    [
        ([77], "1 GROUP BY task_id LIMIT 2", "0", 2),
        ([-9], "1 GROUP BY task_id LIMIT 2", "0", 2),
        ([77, 78], "rowid = 3", "rowid = 3", 1),
    ],
)
def test_a_write_that_is_stored_twice_is_named(
    path: Path, numbers: list[int], rows: str, deleted: str, named: int
) -> None:
    columns = "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value, task_path"
    for idx in numbers:
        copied = columns.replace("idx", str(idx))
        change(path, f"INSERT INTO writes ({columns}) SELECT {copied} FROM writes WHERE {rows}")
    change(path, f"DELETE FROM writes WHERE {deleted}")
    found, _ = verified(path)
    assert [failure.table for failure in found] == ["writes"] * named
    assert "stored twice" in str(found[0].error)


def test_what_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    write(path, "k2", "a")
    _, run = verified(path)
    assert (run.bound, run.unbound.rows, run.unbound.places) == (0, 0, ())  # no row is bound
    with closing(SqliteRows(path, writable=True)) as store:
        column = store.columns[0]
        store.rewrite(column, None, lambda cell: K2.seal("msgpack", b"\x80", row=cell.where.row))
    found, _ = verified(path)
    assert {str(failure.error) for failure in found} == {"a sealed value does not begin with a valid header"}


def decrypted(path: Path) -> tuple[list[Failure], dict[str, list[tuple[Any, ...]]]]:
    """The failures of a run, and the rows of the copy."""
    out = path.with_name("out.db")
    found = failures([*decrypt(path, out, cipher_of("k2"))])
    if not out.exists():
        return found, {}
    with closing(sqlite3.connect(out)) as connection:
        rows = {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("checkpoints", "writes")
        }
    return found, rows


def test_a_copy_has_all_metadata_and_no_parent_that_was_pruned(path: Path) -> None:
    change(path, f"UPDATE checkpoints SET {PARENT} = NULL WHERE rowid = 2")
    with closing(sqlite3.connect(path)) as connection:
        parents = [row[0] for row in connection.execute(f"SELECT {PARENT} FROM checkpoints")]
    found, rows = decrypted(path)
    assert found == []
    assert {row[0] for table in rows.values() for row in table} == {"t"}
    with closing(sqlite3.connect(path.with_name("out.db"))) as connection:
        copied = connection.execute(f"SELECT metadata, {PARENT} FROM checkpoints").fetchall()
    assert all(json.loads(metadata)["user_id"] == f"zoe {SECRET}" for metadata, _ in copied)
    assert [parent for _, parent in copied] == parents
