"""A ring with other keys of the same ids: commands that read say so, and do not take it for damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.cli import verify
from sealpoint.admin.results.exits import Exit
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from tests.cli.conftest import Run
from tests.support.databases.harm import flip
from tests.support.databases.sealed import make_cipher, put, values_of, write
from tests.support.keys.rings import material_of

pytestmark = pytest.mark.usefixtures("keys")

READING = (
    ("verify",),
    ("trial",),
    ("types",),
    ("decrypt", "--out", "plain.db"),
    ("inspect", "--thread", "a"),
    ("inspect", "--thread", "a", "--last"),
)


@pytest.fixture
def foreign(keys: Path) -> None:
    """Give k1 other material, as in another environment."""
    keys.write_text(keys.read_text().replace(material_of("k1").hex(), bytes(range(32)).hex()))


def damage(path: Path, *, but: int = 0) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path)[but:]:
            flip(connection, value)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_another_key_of_the_id_is_no_damage(
    run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(command[0], path, *command[1:], "--json")
    assert (ended.code, ended.document["reasons"][0]) == (Exit.KEYS, "none-opens")


@pytest.mark.usefixtures("foreign")
def test_verify_counts_them_and_names_the_way_out(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each of thousands of rows, in which the cause would be lost."""
    monkeypatch.setattr(verify, "MAX_SHOWN", 3)
    ended = run("verify", path)
    assert ended.code == Exit.KEYS
    assert ended.out.count("IntegrityError") == 3
    assert "none of the values under 'k1' opens" in ended.err
    assert "name the ring of this database by --keys FILE" in ended.err
    assert "12 values:" in ended.err
    assert len(run("verify", path, "--json").document["failures"]) == 12


def test_all_values_were_damaged(run: Run, path: Path) -> None:
    """No reader can tell this from another key: both causes are named, and neither is claimed."""
    damage(path)
    ended = run("verify", path)
    assert ended.code == Exit.KEYS
    said = "no value under a key of the ring opens: the ring has another key, or all values were changed"
    assert said in ended.out


@pytest.mark.parametrize("command", READING[:4], ids=" ".join)
def test_one_that_opens_shows_that_the_others_were_damaged(
    run: Run, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    damage(path, but=1)
    ended = run(command[0], path, *command[1:], "--json")
    assert (ended.code, ended.document["reasons"][0]) == (Exit.UNOPENED, "values-failed")


def test_all_shown_values_are_damaged_and_others_open(run: Run, path: Path) -> None:
    damage(path)
    write(path, "k1", "b")
    assert run("inspect", path, "--thread", "a", "--json").document["reasons"][0] == "values-failed"


@pytest.mark.parametrize(("forged", "code"), [(3, Exit.UNOPENED), (4, Exit.KEYS)])
def test_the_active_key_of_a_ring_that_opens_others(run: Run, path: Path, forged: int, code: Exit) -> None:
    """As `rotate` takes it: few may be forged, many are a key that another host made as well."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path)[:forged]:
            put(connection, value, str(value.tag).replace("k1", "k2"), value.value)
    assert run("verify", path).code == code


@pytest.mark.usefixtures("foreign")
def test_what_no_ring_explains_is_damage(run: Run, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, values_of(path)[0], "msgpack+rot13@k1", b"x")
    ended = run("verify", path, "--json")
    assert (ended.code, ended.document["reasons"]) == (Exit.UNOPENED, ["values-failed", "none-opens"])


@pytest.mark.usefixtures("foreign")
def test_report_names_it_of_each_database(run: Run, path: Path, tmp_path: Path) -> None:
    """Of several, what opens in one says nothing of another."""
    other = tmp_path / "own.db"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(other)) as copy:
        source.backup(copy)
    with closing(sqlite3.connect(other)) as connection, connection:
        cipher = RingCipher(KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)]))
        for value in values_of(other):
            inner = str(value.tag).partition("+")[0]
            put(connection, value, *cipher.seal(inner, make_cipher("k1").open(value.tag, value.value).data))
    for databases in ([path], [other, path], [path, other]):
        ended = run("report", *databases, "--json")
        assert ended.code == Exit.KEYS
        assert "none-opens" in ended.out
        assert "values-failed" not in ended.out
