"""The shell scripts of the pages: how they end on finished, unfinished, held, missing and empty databases."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing, nullcontext
from hashlib import sha256
from pathlib import Path

import pytest

from sealpoint.admin.keys.lock import holding
from tests.cli.conftest import Ended
from tests.support.databases.sealed import write

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def sealpoint_on_path(script_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", script_path)


def run_script(name: str, page: str, folder: Path, *words: object) -> Ended:
    """Run the script that a page has, in a folder."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.search(rf"^```sh\n(# {re.escape(name)}\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block, f"{page} has no {name}"
    done = subprocess.run(
        ["/bin/sh", "-c", block[1], name, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


CHANGES = {
    "no rows": "DELETE FROM checkpoints; DELETE FROM writes;",
    "damaged": "UPDATE writes SET value = randomblob(87) WHERE rowid = 1;",
}


def make(path: Path, database: str) -> None:
    """Make a database in one of the conditions of the tests."""
    if database == "no tables":
        path.touch()
    elif database != "missing":
        write(path, "plain" if database == "plaintext" else "k1", "a")
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(CHANGES.get(database, ""))


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("database", "words", "code", "line"),
    [
        ("good", (), 0, ""),
        ("plaintext", (), 3, "rotate ended with 3"),
        ("held", (), 6, "rotate ended with 6"),
        ("good", (0,), 7, "rotate ended with 7"),
        ("missing", (), 2, "rotate ended with 2"),
        ("no rows", (), 3, "verify ended with 3"),
        ("no tables", (), 2, "rotate ended with 2"),
        ("damaged", (), 4, "rotate ended with 4"),
    ],
)
def test_the_nightly_script_ends_with_0_only_if_all_is_done(
    database: str, words: tuple[int, ...], code: int, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    make(path, database)
    with holding(path) if database == "held" else nullcontext():
        ended = run_script("nightly.sh", "rotation.md", tmp_path, path, *words)
    assert (ended.code, ended.out) == (code, f"{path}: {line}\n" if line else ""), ended.err


def test_the_nightly_script_checks_the_keys_first(keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "good")
    keys.unlink()
    ended = run_script("nightly.sh", "rotation.md", tmp_path, path)
    assert (ended.code, ended.out) == (5, f"{path}: keys ended with 5\n")


@pytest.mark.costly
@pytest.mark.usefixtures("keys")
def test_the_evidence_script_makes_a_folder_for_each_run(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    write(path, "k1", "a")
    runs = set[str]()
    for number in (1, 2):
        ended = run_script("evidence.sh", "audit.md", tmp_path, path, "k2")
        assert ended.code == 0, ended.err
        folders = list(tmp_path.glob("evidence-*"))
        assert len(folders) == number
        folder = tmp_path / ended.out.partition(":")[0]
        sums = (folder / "SHA256SUMS").read_bytes()
        assert sha256(sums).hexdigest() in ended.out
        objects = sorted(folder.glob("*.json"))
        assert [line.split()[0] for line in sums.decode().splitlines()] == [
            sha256(file.read_bytes()).hexdigest() for file in objects
        ]
        runs |= {json.loads(file.read_text())["run"] for file in objects}
        assert len(runs) == 6 * number


@pytest.mark.costly
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("database", "options", "code"),
    [
        ("plaintext", (), 3),
        ("plaintext", ("--allow-plaintext",), 0),
        ("damaged", (), 4),
        ("no rows", (), 3),
        ("missing", (), 2),
    ],
)
def test_the_evidence_script_ends_with_the_first_code(
    database: str, options: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    make(path, database)
    ended = run_script("evidence.sh", "audit.md", tmp_path, path, "k2", *options)
    assert ended.code == code, ended.err
    assert f"exit code {code};" in ended.out
