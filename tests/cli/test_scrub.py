"""`sealpoint scrub`: the estimate, what it clears, and when it is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance import scrub as module
from sealpoint.admin.results.exits import Exit
from tests.cli.conftest import Run
from tests.support.databases.sealed import VALUES, tags_of, values_of
from tests.support.keys.rings import states_text

OLD = b"+cobblestone256@k1"


def content(path: Path) -> bytes:
    """All bytes of a database and its log."""
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


@pytest.fixture
def rotated(run: Run, keys: Path, path: Path) -> Path:
    """A database whose values were resealed under k2, and are in its free pages under k1. k1 is disabled."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE other AS SELECT type, checkpoint FROM checkpoints")
        connection.commit()
        connection.execute("DROP TABLE other")
    assert run("rotate", path, "--apply").code == Exit.DONE
    keys.write_text(states_text(k2="active", k1="disabled"))
    assert OLD in content(path)
    return path


def test_plan_estimates_and_changes_nothing(run: Run, rotated: Path) -> None:
    before = rotated.read_bytes()
    ended = run("scrub", rotated, "--json")
    found = ended.document
    assert (ended.code, found["applied"], found["scrubbed"]) == (Exit.DONE, False, None)
    assert (found["ok"], found["reasons"]) == (None, ["not-applied"])
    assert found["estimate"]["size_bytes"] >= 2 * len(before)
    assert found["estimate"]["free_bytes"] > 0
    assert (found["estimate"]["lock_seconds"], found["estimate"]["processes"]) == (1, [])
    assert rotated.read_bytes() == before
    text = run("scrub", rotated)
    assert text.out.splitlines()[-1] == "not proven: this is a plan: nothing was changed"
    assert text.err == "--apply carries it out\n"


def test_apply_clears_the_file(run: Run, rotated: Path) -> None:
    """Tags of the disabled key are gone, the values are as they were; old values it cannot search for."""
    before = values_of(rotated)
    ended = run("scrub", rotated, "--apply", "--json")
    found = ended.document
    assert (ended.code, found["applied"]) == (Exit.DONE, True)
    assert (found["ok"], found["reasons"]) == (None, ["old-values-not-searched"])
    assert (found["scrubbed"]["found"], found["scrubbed"]["fragments"]) == ([], 0)
    assert found["scrubbed"]["searched_bytes"] >= rotated.stat().st_size
    assert OLD not in content(rotated)
    assert (values_of(rotated), len(tags_of(rotated))) == (before, 3)
    text = run("scrub", rotated, "--apply").out
    assert "only for old tags" in text
    assert text.endswith("not proven: the file was searched for old tags, but not for old values\n")


def test_old_content_that_is_found_is_a_finding(run: Run, rotated: Path) -> None:
    """A tag in a table that is not a saver's: no scrub clears it."""
    with closing(sqlite3.connect(rotated)) as connection, connection:
        connection.execute(
            "CREATE TABLE copies AS SELECT 'msgpack+cobblestone256@k1' AS type, x'07' AS value"
        )
    ended = run("scrub", rotated, "--apply", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.FOUND, False)
    assert ended.document["reasons"][0] == "old-content-found"
    assert ended.document["scrubbed"]["found"]


def test_another_run_holds_the_database(run: Run, rotated: Path) -> None:
    before = rotated.read_bytes()
    with holding(rotated):
        ended = run("scrub", rotated, "--apply")
        assert (ended.code, ended.out, rotated.read_bytes()) == (Exit.HELD, "", before)
        assert "another run holds x.db" in ended.err
        assert run("scrub", rotated).code == Exit.DONE  # a plan needs nothing of it


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("words", [[], ["--apply"], ["--apply", "--json"]], ids=str)
def test_a_server_is_refused(run: Run, words: list[str]) -> None:
    ended = run("scrub", "postgresql://db.example/agents", *words)
    assert (ended.code, ended.has_no_result) == (Exit.USAGE, True)
    assert "tables, WAL and replicas: VACUUM FULL" in " ".join(ended.err.split())


@pytest.mark.usefixtures("keys")
def test_a_password_is_refused_and_not_repeated(run: Run) -> None:
    ended = run("scrub", "postgresql://me:hunter2@db.example/agents", "--apply")
    assert (ended.code, ended.out, "hunter2" in ended.err) == (Exit.USAGE, "", False)


def test_the_estimate_is_of_the_size(run: Run, rotated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", rotated.stat().st_size / 30)
    assert 30 <= run("scrub", rotated, "--json").document["estimate"]["lock_seconds"] <= 90


def test_values_are_counted_only_to_see_whether_there_are_any(run: Run, rotated: Path) -> None:
    assert len(values_of(rotated)) == VALUES
    with closing(sqlite3.connect(rotated)) as connection, connection:
        connection.execute("DELETE FROM checkpoints")
        connection.execute("DELETE FROM writes")
    reasons = run("scrub", rotated, "--apply", "--json").document["reasons"]
    assert reasons == ["no-rows", "old-values-not-searched"]
