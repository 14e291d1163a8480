"""Metadata of a damaged SQLite file: it holds no value, and commands that need it name the damage."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from tests.cli.conftest import Run
from tests.support.databases.harm import damage_metadata

pytestmark = pytest.mark.usefixtures("keys")


@pytest.fixture(autouse=True)
def damaged(path: Path) -> None:
    damage_metadata(path, 2)


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
