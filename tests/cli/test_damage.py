"""Metadata that cannot be read: all else is counted, and the damage is named."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.cli.exits import Exit
from sealpoint.databases.sqlite.columns import CHECKPOINTS
from sealpoint.databases.sqlite.rows import SqliteRows
from tests.cli.conftest import Run
from tests.support.harm import damage_metadata
from tests.support.rings import states_text

pytestmark = pytest.mark.usefixtures("keys")


@pytest.fixture(autouse=True)
def damaged(path: Path) -> None:
    damage_metadata(path, 2)


def test_status_counts_the_values_and_names_the_damage(run: Run, path: Path) -> None:
    ended = run("status", path, "--json")
    shares = ended.document["databases"][0]["shares"]
    assert {share["table"]: share["rows"] for share in shares} == {"checkpoints": 3, "writes": 9}
    assert ended.code == Exit.UNOPENED
    assert "sealed metadata is not counted" in ended.err


def test_values_under_the_key_do_not_hide_the_damage(run: Run, path: Path) -> None:
    ended = run("status", path, "--only", "k1", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.UNOPENED, False)


def test_the_plan_names_the_damage(run: Run, path: Path) -> None:
    ended = run("rotate", path)
    assert ended.code == Exit.UNOPENED
    assert "to reseal" in ended.out
    assert "sealed metadata is not counted" in ended.err


def test_rotation_does_the_values_before_the_damage_and_names_it(run: Run, path: Path) -> None:
    """To write a row SQLite reads all of it."""
    ended = run("rotate", path, "--apply", "--batch", "1")
    assert ended.code == Exit.UNOPENED
    assert "SQLite cannot read the file" in ended.err
    with closing(SqliteRows(path)) as store:
        assert ["@k2" in cell.tag for cell in store.read(CHECKPOINTS, None).cells] == [True, False, False]


def test_damage_is_named_although_all_values_are_rotated(run: Run, path: Path, keys: Path) -> None:
    keys.write_text(states_text(k1="active"))
    ended = run("rotate", path, "--apply")
    assert ended.code == Exit.UNOPENED
    assert "SQLite cannot read the file" in ended.err


def test_types_names_the_damage(run: Run, path: Path) -> None:
    assert run("types", path).code == Exit.UNOPENED


def test_no_key_is_destroyed(run: Run, path: Path, keys: Path) -> None:
    keys.write_text(states_text(k1="active", k2="disabled"))
    ended = run("keys", "destroy", "k2", "--db", path, "--yes")
    assert ended.code == Exit.UNOPENED
    assert "destroyed" not in keys.read_text()
