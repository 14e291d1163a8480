"""Metadata of a damaged SQLite file: it holds no value, and commands that need it name the damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("keys")


@pytest.fixture(autouse=True)
def damaged(path: Path) -> None:
    """Let the pages that hold the metadata of the second checkpoint lead to a page that the file lacks."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        text = b"damaged " * page_bytes
        connection.execute("UPDATE checkpoints SET metadata = ? WHERE rowid = 2", (text,))
        connection.execute("PRAGMA journal_mode = DELETE")
    data = bytearray(path.read_bytes())
    page = data.index(text[: page_bytes // 2], data.index(text[: page_bytes // 2]) + page_bytes) // page_bytes
    data[page * page_bytes : page * page_bytes + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)


def test_status_counts_all_values(run: Run, path: Path) -> None:
    ended = run("status", path, "--json")
    shares = ended.document["databases"][0]["shares"]
    assert {share["table"]: share["rows"] for share in shares} == {"checkpoints": 3, "writes": 9}
    assert ended.code == Exit.DONE


@pytest.mark.parametrize("command", ["verify", "audit", "trial"])
def test_the_damage_is_named(run: Run, path: Path, command: str) -> None:
    ended = run(command, path)
    assert ended.code == Exit.UNOPENED
    assert "SQLite cannot read the file" in ended.err


def test_rotation_does_the_values_before_the_damage_and_names_it(run: Run, path: Path) -> None:
    """To write a row SQLite reads all of it."""
    ended = run("rotate", path, "--apply", "--batch", "1")
    assert ended.code == Exit.UNOPENED
    assert "SQLite cannot read the file" in ended.err
    with closing(SqliteRows(path)) as store:
        assert ["@k2" in cell.tag for cell in store.read(CHECKPOINTS, None).cells] == [True, False, False]
