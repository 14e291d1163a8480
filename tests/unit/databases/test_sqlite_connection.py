"""Files in folders that may not be written: read as they stand, or refused for a log that cannot be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.keys.files import write_private
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.results.exits import Exit, exit_code
from sealpoint.errors import AccessError, StoppedError
from tests.support.databases.sealed import VALUES, make_cipher, tags_of, values_of, write


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every account can enter, which a folder of pytest is not."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o755)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take away the right to write to a folder and its files: from root by being somebody else meanwhile."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def make(path: Path, mode: str) -> Path:
    """A database with one thread in it, and no log: its last connection was closed."""
    write(path, "k1", "a")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    assert {file.name for file in path.parent.iterdir()} == {path.name}
    return path


def make_with_log(path: Path, scratch: Path, *suffixes: str) -> Path:
    """A database whose second thread stands in its log alone: what a killed process leaves behind."""
    source = make(scratch / "x.db", "wal")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("SELECT * FROM writes").fetchall()  # the log is not emptied while this one is open
        write(source, "k1", "b")
        for suffix in ("", *suffixes):
            shutil.copyfile(f"{source}{suffix}", f"{path}{suffix}")
    return path


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_what_may_not_be_written_is_read(folder: Path, mode: str) -> None:
    """SQLite itself refuses one with a log, for which it would make an index beside it."""
    path = make(folder / "x.db", mode)
    with read_only(folder):
        assert len(values_of(path)) == VALUES
        if mode == "wal":
            with (
                closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
                pytest.raises(sqlite3.OperationalError),
            ):
                connection.execute("SELECT * FROM sqlite_master")


def test_what_may_not_be_written_is_decrypted(folder: Path, tmp_path: Path) -> None:
    """From an image of a disk, say. The copy is made elsewhere."""
    path = make(folder / "x.db", "wal")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        with read_only(folder):
            list(decrypt(path, f"{name}/out.db", make_cipher("k1")))
        assert tags_of(Path(f"{name}/out.db")) == {"msgpack", "bytes", "null"}


def test_a_log_that_cannot_be_read_is_not_passed_over(folder: Path, tmp_path: Path) -> None:
    """Without it the file would look as before the last writes, and `verify` would prove too little."""
    path = make_with_log(folder / "x.db", tmp_path, "-wal")
    (folder / "link.db").symlink_to(path)
    with read_only(folder):
        for name in ("x.db", "link.db"):
            with pytest.raises(StoppedError, match="the file, or its log, ") as caught:
                SqliteRows(folder / name)
            assert "read a copy of the file and its log" in caught.value.hint
    folder.chmod(0o755)
    assert len(values_of(path)) == 2 * VALUES


def test_a_log_with_its_index_is_read(folder: Path, tmp_path: Path) -> None:
    path = make_with_log(folder / "x.db", tmp_path, "-wal", "-shm")
    with read_only(folder):
        assert len(values_of(path)) == 2 * VALUES


def test_a_change_that_was_broken_off_is_not_read_as_done(folder: Path, tmp_path: Path) -> None:
    """A rollback journal says how the file was before; taking it back needs the right to write."""
    source, path = make(tmp_path / "x.db", "delete"), folder / "x.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that changes reach the file before the commit
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE writes SET value = randomblob(100000)")
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{source}{suffix}", f"{path}{suffix}")
    assert path.stat().st_size > 500_000
    with read_only(folder), pytest.raises(StoppedError):
        SqliteRows(path)
    folder.chmod(0o755)
    path.chmod(0o644)
    with pytest.raises(StoppedError, match="an interrupted change must be rolled back") as caught:
        SqliteRows(path)
    command = caught.value.hint.partition(": ")[2].partition(";")[0]
    assert command == "sqlite3 DB .schema"
    with closing(sqlite3.connect(path)) as connection:  # as the command does
        connection.execute("SELECT * FROM sqlite_master").fetchall()
    assert max(len(value.value) for value in values_of(path)) < 10_000


def hold(path: Path) -> None:
    with holding(path):
        pass


@pytest.mark.parametrize("act", [hold, lambda path: write_private(path, b"")])
def test_a_run_that_permissions_ended_is_not_one_to_repeat(
    folder: Path, act: Callable[[Path], object]
) -> None:
    """Exit code 7 would let a script run it for ever."""
    with read_only(folder), pytest.raises(AccessError, match="Permission denied") as caught:
        act(folder / "x")
    assert exit_code(caught.value) is Exit.USAGE
    assert "folder" in caught.value.hint
