"""No room, files that may not be written, locks of others: a run stops, loses nothing, and goes on later."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.errors import StoppedError
from tests.faults.rotations import copy, make, rerun, rotator
from tests.faults.rotator import BATCH, make_cipher
from tests.support.databases.sealed import checked, opened, values_of

CHECKPOINTS = 60
ROWS = 3 * CHECKPOINTS
MODES = ("wal", "delete")


def can_mount() -> bool:
    """Whether a process may have a disk of its own here."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.broad
@pytest.mark.skipif(not can_mount(), reason="this system lets nobody have a disk of his own")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spare", [0, 32 * 1024])
def test_a_full_disk_stops_a_first_encryption(tmp_path: Path, mode: str, spare: int) -> None:
    """With room it goes on where it stopped."""
    path = tmp_path / "x.db"
    make(path, None, mode, CHECKPOINTS)
    every = opened(path, make_cipher("k1"))
    with rotator("unshare", "--user", "--map-root-user", "--mount") as running:
        said = running.run(f"full {path} k1 seal {spare}")
    assert said[0][:2] == ["stopped", "StoppedError"]
    assert spare == 0 or said[0][2:] == ["the", "disk", "is", "full"]  # without any, a log cannot begin
    assert said[-1] == ["done"]
    assert opened(path, make_cipher("k1")) == every
    assert {value.tag.partition("+")[2] for value in values_of(path)} == {"cobblestone256@k1"}
    assert rerun(path, "k1", allow_plaintext=True) == (0, 0)


@pytest.mark.broad(every=2)
@pytest.mark.skipif(not can_mount(), reason="this system lets nobody have a disk of his own")
@pytest.mark.parametrize("spare", [0, 200 * 1024])
def test_a_full_disk_stops_a_decryption(tmp_path: Path, spare: int) -> None:
    """And leaves nothing behind that would fill it further."""
    path = tmp_path / "x.db"
    make(path, "k1", "delete", CHECKPOINTS)
    every = opened(path, make_cipher("k1"))
    with rotator("unshare", "--user", "--map-root-user", "--mount") as running:
        said = running.run(f"full {path} out.db decrypt {spare}")
    assert said[:2] == [["stopped", "StoppedError", "the", "disk", "is", "full"], ["left", "x.db"]]
    assert said[2:] == [["done"]]
    assert opened(path, make_cipher("k1")) == every
    assert all("+" not in value.tag for value in values_of(path))


@pytest.mark.broad
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("act", ["rotate", "seal"])
def test_files_that_may_not_grow_stop_a_run(tmp_path: Path, mode: str, act: str) -> None:
    """Whichever of the files it is, and wherever in them; without the limit it goes on where it stopped."""
    origin, path = tmp_path / "origin.db", tmp_path / "x.db"
    make(origin, None if act == "seal" else "k1", mode, CHECKPOINTS)
    every = opened(origin, make_cipher("k1"))
    size, stopped = origin.stat().st_size, 0
    with rotator() as running:
        for limit in (1, 4096, size // 2, size + 1):
            copy(origin, path, mode)
            said = running.run(f"cramped {path} k2 {act} {limit}")
            stopped += said[-1][:2] == ["stopped", "StoppedError"]
            assert said[-1][0] in ("stopped", "done")
            assert checked(path) == "ok"
            assert opened(path, make_cipher("k1")) == every
            _, failed = rerun(path, "k2", allow_plaintext=act == "seal")
            assert failed == 0
            assert opened(path, make_cipher("k1")) == every
    assert stopped >= 3


@pytest.mark.costly
@pytest.mark.broad
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("forbidden", ["file", "folder"])
def test_what_may_not_be_written_is_not_written(tmp_path: Path, mode: str, forbidden: str) -> None:
    """Root may write everything; so the process gives that right away first."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "x.db"
    make(path, "k1", mode, CHECKPOINTS)
    before = values_of(path)
    for file in folder.iterdir():
        file.chmod(0o400)
    folder.chmod(0o700 if forbidden == "file" else 0o500)
    try:
        with rotator() as running:
            said = running.run(f"stealthy {path} k2 rotate")
    finally:
        folder.chmod(0o700)
    assert [words[:2] for words in said if words[0] == "stopped"] == [["stopped", "AccessError"]]
    for file in folder.iterdir():
        file.chmod(0o600)
    assert values_of(path) == before
    assert rerun(path, "k2", allow_plaintext=False) == (ROWS, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_database_that_stays_locked_stops_a_run(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.db"
    make(path, "k1", mode, CHECKPOINTS)
    before = values_of(path)
    with closing(SqliteRows(path, writable=True)) as store:
        store.connection.execute("PRAGMA busy_timeout = 50")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoppedError, match="another connection kept the database locked"):
                list(rotate(store, make_cipher("k2"), batch=BATCH))
        assert values_of(path) == before
        list(rotate(store, make_cipher("k2"), batch=BATCH))
    assert rerun(path, "k2", allow_plaintext=False) == (0, 0)


def test_a_reader_does_not_hinder_a_run_with_a_log(tmp_path: Path) -> None:
    """And sees all the while what was there when it began."""
    path = tmp_path / "x.db"
    make(path, "k1", "wal", CHECKPOINTS)
    every = opened(path, make_cipher("k1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        tags = reader.execute("SELECT DISTINCT type FROM checkpoints").fetchall()
        assert rerun(path, "k2", allow_plaintext=False) == (ROWS, 0)
        assert reader.execute("SELECT DISTINCT type FROM checkpoints").fetchall() == tags
    assert opened(path, make_cipher("k2")) == every


def test_a_reader_stops_a_run_without_a_log(tmp_path: Path) -> None:
    """A rollback journal lets nobody commit while somebody reads; when he has gone the run goes on."""
    path = tmp_path / "x.db"
    make(path, "k1", "delete", CHECKPOINTS)
    before = values_of(path)
    with closing(SqliteRows(path, writable=True)) as store:
        store.connection.execute("PRAGMA busy_timeout = 50")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM checkpoints").fetchone()
            with pytest.raises(StoppedError, match="another connection kept the database locked"):
                list(rotate(store, make_cipher("k2"), batch=BATCH))
            assert values_of(path) == before
        assert not store.connection.in_transaction
        list(rotate(store, make_cipher("k2"), batch=BATCH))
    assert rerun(path, "k2", allow_plaintext=False) == (0, 0)


def test_what_a_commit_met_is_told_although_nobody_asks_for_more(tmp_path: Path) -> None:
    """The last batch is committed behind the back of the caller, who closes the store."""
    path = tmp_path / "x.db"
    make(path, "k1", "delete")
    store = SqliteRows(path, writable=True)
    store.connection.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM checkpoints").fetchone()
        next(rotate(store, make_cipher("k2"), batch=BATCH))
        with pytest.raises(StoppedError):
            store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.connection.execute("SELECT 1")


def test_a_copy_needs_a_folder_that_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make(path, "k1", "delete")
    with pytest.raises(StoppedError):
        list(decrypt(path, tmp_path / "missing" / "out.db", make_cipher("k1")))
    assert [*tmp_path.iterdir()] == [path]
