"""Commands on a SQLite file that `SealedSaver` wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.admin.results.exits import Exit
from sealpoint.errors import RowError
from tests.cli.conftest import Run
from tests.support.databases.bound import PRIVATE, SECRET, sealed_file, write_file
from tests.support.databases.checkpoints import at
from tests.support.databases.sealed import write
from tests.support.keys.rings import states_text
from tests.support.keys.rings import write as write_text


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ring = write_text(tmp_path / "keys.toml", states_text(k2="active", k1="disabled", k0="decrypt-only"))
    monkeypatch.setenv("SEALPOINT_KEYS", str(ring))
    write_file(tmp_path / "app.db", **PRIVATE)
    return tmp_path / "app.db"


@pytest.mark.parametrize("words", ["verify", "rotate --apply", "trial", "status --only k2", "audit"])
def test_what_is_asked_is_so(run: Run, path: Path, words: str) -> None:
    command, *options = words.split()
    ended = run(command, path, *options, "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True), ended


def test_unbound_rows_are_not_proven(run: Run, path: Path) -> None:
    write(path, "k2", "late")
    ended = run("verify", path, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.FOUND, ["unbound"])
    assert ended.document["unbound_places"][0]["thread_id"] == "late"
    shown = run("verify", path)
    assert "not bound to their rows: 12\nthe first is thread_id='late'" in shown.out
    assert run("verify", path, "--allow-unproven").code == Exit.DONE


def test_rows_that_must_be_bound(run: Run, path: Path, tmp_path: Path) -> None:
    """With --bound a row that is not bound is a finding, also where none is; and there it is not without."""
    ended = run("verify", path, "--bound", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)
    write(path, "k2", "late")
    serializer = tmp_path / "serializer.db"
    write(serializer, "k2", "a")
    for file in (path, serializer):
        ended = run("verify", file, "--bound", "--allow-unproven", "--json")
        document = ended.document
        assert (ended.code, document["ok"], document["reasons"]) == (Exit.FOUND, False, ["not-bound"])
        assert (document["unbound"], document["failed"]) == (12, 0)
        shown = run("verify", file, "--bound")
        assert "not bound to their rows: 12\nthe first is thread_id=" in shown.out
        assert shown.out.splitlines()[-1] == "not ok: some rows are not bound to their places"
        assert f"`sealpoint rebind {file}` binds rows" in shown.err
    assert run("verify", serializer).code == Exit.DONE


def test_audit_says_that_nothing_else_is_readable(run: Run, path: Path) -> None:
    ended = run("audit", path)
    assert "only ids, names and known metadata keys are readable" in ended.out
    assert SECRET not in ended.out


def test_a_key_that_seals_bound_rows_is_not_destroyed(run: Run, path: Path) -> None:
    write_file(path, "u", "k1")
    ended = run("keys", "destroy", "k1", "--db", path, "--yes")
    assert ended.code == Exit.FOUND
    assert "rows under 'k1'" in ended.err


def test_inspect_shows_what_is_sealed_with_a_value(run: Run, path: Path) -> None:
    (thread,) = run("inspect", path, "--json").document["threads"]
    values = run("inspect", path, "--thread", thread, "--json").document["values"]
    assert values[0]["sealed_with"]["thread"] == "t"
    assert "sealed with it: " in run("inspect", path, "--thread", thread).out


def test_a_scrub_finds_no_old_value(run: Run, path: Path) -> None:
    write_file(path, "u", "k0")
    ended = run("rotate", path, "--apply", "--scrub", "--json")
    assert (ended.code, ended.document["ok"]) == (Exit.DONE, True)


@pytest.mark.parametrize("value", ['"mallory"', "null", '["alice"]'])
def test_a_readable_key_that_is_edited_is_refused_by_all(
    run: Run, path: Path, tmp_path: Path, value: str
) -> None:
    """What the saver refuses, every command refuses."""
    database = tmp_path / "plain.db"
    write_file(database, plain_metadata=["owner"])
    with sealed_file(database, plain_metadata=["owner"]) as saver:
        metadata: Any = {"owner": "alice"}
        config = saver.put(at("v"), empty_checkpoint(), metadata, {})
        assert saver.get_tuple(config) is not None
    with closing(sqlite3.connect(database)) as connection, connection:
        edited = connection.execute(
            'UPDATE checkpoints SET metadata = replace(metadata, \'"owner": "alice"\', \'"owner": \' || ?)'
            " WHERE thread_id = 'v'",
            (value,),
        )
        assert edited.rowcount == 1
    for plain in ((), ("owner",)):
        with (
            sealed_file(database, plain_metadata=plain) as saver,
            pytest.raises(RowError, match="not what was sealed"),
        ):
            saver.get_tuple(config)
    for words in (
        "verify",
        "verify --bound",
        "rebind --apply --plain-metadata owner",
        "rebind --apply --unbind",
        f"decrypt --out {tmp_path}/out.db",
    ):
        command, *more = words.split()
        ended = run(command, database, *more, "--json")
        assert (ended.code, ended.document["ok"]) == (Exit.UNOPENED, False), (words, ended)
        assert "'owner' is not what was sealed" in ended.document["failures"][0]["message"]
    assert not (tmp_path / "out.db").exists()
