"""`sealpoint decrypt URL --out-schema NAME`: what it prints, and the codes it ends in."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.cli.app import run
from sealpoint.admin.maintenance import schemacopy
from sealpoint.admin.results.exits import Exit
from tests.postgres.harm import OUT_OF_ROW, lose_values
from tests.postgres.test_commands import at
from tests.postgres.test_decrypt import exists
from tests.support.databases.postgres import blobs, put_blobs
from tests.support.keys.rings import states_text, write
from tests.support.runs.results import require_valid


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only")))


def test_the_command(url: str, out: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    put_blobs(url, blobs(9))
    assert run(["decrypt", at(url), "--out-schema", out, "--keys", keys]) == Exit.DONE
    assert capsys.readouterr().out.splitlines() == [
        f"9 values were decrypted into schema '{out}'; its owner can read them",
        "ok",
    ]
    assert run(["decrypt", at(url), "--out-schema", out, "--keys", keys]) == Exit.USAGE
    told = capsys.readouterr().err
    assert f"schema '{out}' already exists" in told
    assert "hint: name a schema that does not exist" in told


def object_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[Exit, Any]:
    code = run([*words, "--json"])
    return Exit(code), require_valid(json.loads(capsys.readouterr().out))


def test_its_object(url: str, out: str, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decrypt", at(url), "--out-schema", out, "--keys", keys]
    put_blobs(url, [*blobs(9), ("t", "", "plain", "1", "msgpack", b"\x01")])
    code, found = object_of(words, capsys)
    assert (code, found["ok"], found["reasons"]) == (Exit.UNOPENED, False, ["values-failed", "ended-early"])
    assert (found["out"], found["rows"], found["failed"]) == (None, 9, 1)
    assert not exists(url, out)
    code, found = object_of([*words, "--allow-plaintext"], capsys)
    assert (code, found["ok"], found["reasons"]) == (Exit.DONE, None, ["plaintext-allowed"])
    assert (found["out"], found["rows"], found["failed"]) == (out, 9, 0)
    assert found["database"]["kind"] == "postgres"
    assert not {name for name in found["scope"]["not_read"] if out in name}


def test_an_empty_database_shows_nothing(
    url: str, out: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = object_of(["decrypt", at(url), "--out-schema", out, "--keys", keys], capsys)
    assert (code, found["ok"], found["reasons"]) == (Exit.DONE, None, ["no-rows"])
    assert exists(url, out)


def test_a_key_that_is_missing_has_its_own_code(
    url: str, out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_blobs(url, blobs(3))
    ring = write(tmp_path / "other.toml", states_text(k2="active"))
    words = ["decrypt", at(url), "--out-schema", out, "--keys", str(ring)]
    code, found = object_of(words, capsys)
    assert (code, found["out"], found["reasons"]) == (Exit.KEYS, None, ["keys-missing", "ended-early"])
    assert not exists(url, out)


def test_a_value_that_is_lost_leaves_no_copy(
    url: str, out: str, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put_blobs(url, blobs(9, size=OUT_OF_ROW))
    lose_values(url, "version = '00000004'")
    assert run(["decrypt", at(url), "--out-schema", out, "--keys", keys]) == Exit.UNOPENED
    assert "damaged" in capsys.readouterr().err
    assert not exists(url, out)


def test_a_signal_leaves_no_copy(
    url: str, out: str, keys: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the last batch, and before the copy appears."""
    put_blobs(url, blobs(9))
    genuine = schemacopy.decrypt_schema

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Any]:
        with closing(genuine(*arguments, **options)) as events:
            for event in events:
                os.kill(os.getpid(), signal.SIGINT)
                yield event

    monkeypatch.setattr(schemacopy, "decrypt_schema", interrupted)
    code, found = object_of(["decrypt", at(url), "--out-schema", out, "--keys", keys], capsys)
    assert (code, found["out"], found["reasons"]) == (Exit.STOPPED, None, ["ended-early"])
    assert not exists(url, out)


def test_a_variable_names_the_database(
    url: str, out: str, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_blobs(url, blobs(3))
    monkeypatch.setenv("DATABASE_URL", at(url))
    assert run(["decrypt", "--db-env", "DATABASE_URL", "--out-schema", out, "--keys", keys]) == Exit.DONE
    assert exists(url, out)


@pytest.mark.parametrize(
    "words",
    [
        ["URL"],
        ["URL", "--out", "new.db"],
        ["URL", "--out", "new.db", "--out-schema", "OUT"],
        ["URL", "--out-schema", ""],
        ["URL", "--out-schema", "pg_new"],
        ["URL", "--out-schema", "\udcff"],
        ["x.db", "--out-schema", "OUT"],
        ["x.db", "--out", "new.db", "--out-schema", "OUT"],
        ["x.db"],
        ["URL", "--db-env", "DATABASE_URL", "--out-schema", "OUT"],
        ["--out-schema", "OUT"],
    ],
)
def test_words_that_do_not_fit(
    url: str,
    out: str,
    keys: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", at(url))
    put_blobs(url, blobs(1))
    (tmp_path / "x.db").touch()
    names = {"URL": at(url), "OUT": out}
    assert run(["decrypt", *(names.get(word, word) for word in words), "--keys", keys]) == Exit.USAGE
    assert capsys.readouterr().err
    assert not exists(url, out)
    assert not (tmp_path / "new.db").exists()
