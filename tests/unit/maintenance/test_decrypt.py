"""The way back out: a private copy that LangGraph's plain saver reads, or none at all."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.leftovers import find_leftovers
from sealpoint.crypto import RingCipher
from sealpoint.errors import (
    AccessError,
    HeldError,
    OutputError,
    RowError,
)
from tests.support.databases.bound import PRIVATE, sealed_file
from tests.support.databases.checkpoints import at, make
from tests.support.databases.sealed import (
    SMALL,
    bind,
    checked,
    failures,
    make_cipher,
    make_ring,
    moved,
    opened,
    sealing,
    states,
    tags_of,
    values_of,
    write,
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def files(path: Path) -> set[str]:
    """What is in a folder, but for the log of a database that is open or was left so."""
    return {file.name for file in path.parent.iterdir() if not file.name.endswith(("-wal", "-shm"))}


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_langgraphs_plain_saver_reads_the_copy(path: Path, out: Path, mode: str) -> None:
    kinds = {"a": "k1", "b": "k2", "c": "eax", "d": "gcm", "e": "k1"}
    for thread_id in "bcde":
        write(path, kinds[thread_id], thread_id)
    expected = {thread_id: states(path, sealing(kind), thread_id) for thread_id, kind in kinds.items()}
    bind(path, make_cipher("k1"), "e")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    before = values_of(path)
    events = list(decrypt(path, out, make_cipher("k1", "k2", "langgraph"), batch=SMALL))
    assert moved(events) == len(before)
    assert {thread_id: states(out, None, thread_id) for thread_id in expected} == expected
    assert tags_of(out) <= {"msgpack", "bytes", "null"}
    assert checked(out) == "ok"
    assert values_of(path) == before
    assert files(path) == {"x.db", "out.db"}


def modes_beside(out: Path) -> list[int]:
    """Modes of the copy, its partial form and its journal, which comes and goes meanwhile."""
    modes = []
    for file in out.parent.glob(f"*{out.name}*"):
        with suppress(FileNotFoundError):
            modes.append(file.stat().st_mode)
    return modes


@pytest.mark.claim("u14")
@pytest.mark.parametrize("mask", [0, 0o077])
def test_the_copy_is_its_owners_alone_at_every_moment(path: Path, out: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        for _ in decrypt(path, out, make_cipher("k1"), batch=SMALL):
            assert {mode & 0o077 for mode in modes_beside(out)} == {0}
    finally:
        os.umask(old)
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("moment", ["run", "last"])
@pytest.mark.parametrize("links", [True, False])
def test_what_comes_there_meanwhile_is_not_touched(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, moment: str, links: bool
) -> None:
    """Also after the last look, before the copy has its name, and where a file cannot have two names."""
    if not links:
        monkeypatch.setattr(os, "link", refuse_link)
    run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
    next(run)
    if moment == "run":
        out.write_text("mine")
    else:
        monkeypatch.setattr(os, "fsync", lambda _: out.write_text("mine"))
    with pytest.raises(OutputError):
        list(run)
    assert out.read_text() == "mine"
    assert files(path) == {"x.db", "out.db"}


def refuse_link(*_: str, **__: Any) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("name", [".", "/", "n" * 300, "n" * 240, "é" * 120, "n/" * 2100 + "n"])
def test_a_name_that_no_file_can_have_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For good: another run would meet the same. Also if only a file beside it would be named too long."""
    monkeypatch.chdir(path.parent)
    with pytest.raises(OutputError):
        list(decrypt(path, name, make_cipher("k1")))
    assert files(path) == {"x.db"}


def test_the_copy_is_of_one_moment(path: Path, out: Path) -> None:
    """What agents write meanwhile is not in it, and it has no name before its end."""
    before = opened(path, make_cipher("k1"))
    for _ in decrypt(path, out, make_cipher("k1"), batch=SMALL):
        write(path, "k1", "b")
        assert "out.db" not in files(path)
    assert opened(out, make_cipher("k1")) == before


def leave_partials(out: Path) -> set[str]:
    """What a killed run leaves beside ``out``, of this version and of earlier ones."""
    folder = out.with_name(f".{out.name}.partial-0123ab")
    folder.mkdir(mode=0o700)
    (folder / "copy.db").write_bytes(b"opened")
    file = out.with_name(f".{out.name}.partial")
    for suffix in ("", "-journal", "-wal"):
        Path(f"{file}{suffix}").write_bytes(b"SQLite format 3\0")
    return {folder.name, file.name}


def test_what_a_killed_run_left_is_found_and_taken_away(path: Path, out: Path) -> None:
    """Not what a run works in or what others leave, a download of another program, or a link."""
    left = leave_partials(out)
    held = leave_partials(path.with_name("held.db"))
    path.with_name(".film.mkv.partial").write_bytes(b"half of it")
    path.with_name(".link.partial").symlink_to(path)
    path.with_name(".link.partial-0123ab").symlink_to(path.parent)
    theirs = path.with_name(".out.db.partial-abcdef") / "copy.db"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    theirs.parent.chmod(0o755)
    with holding(path.with_name("held.db")):
        with pytest.raises(HeldError):
            list(decrypt(path, path.with_name("held.db"), make_cipher("k1")))
        assert {file.name for file in find_leftovers(path.parent)} == left
        others = {name for name in files(path) if ".out.db" not in name}
        run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
        next(run)
        assert find_leftovers(path.parent) == []  # but a run at work
        run.close()
        assert {name for name in files(path) if "-journal" not in name} >= held
        assert {name for name in files(path) if ".out.db" not in name} == others
        assert [name for name in files(path) if ".out.db" in name] == [theirs.parent.name]
        assert theirs.read_text() == "theirs"


def swap(folder: Path, other: Path) -> None:
    """Put a link to another folder in the place of one, as an account can that may write above it."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(other, target_is_directory=True)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The folder of another account, with a file of each name that may be written."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("copy.db", "copy.db-journal", "copy.db-wal"):
        (theirs / name).touch()
    return theirs


@pytest.mark.claim("f4")
def test_a_folder_that_is_replaced_meanwhile_gets_nothing(path: Path, out: Path, theirs: Path) -> None:
    run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
    next(run)
    (folder,) = [path.with_name(name) for name in files(path) if ".partial-" in name]
    swap(folder, theirs)
    with pytest.raises(AccessError, match="another process has replaced"):
        list(run)
    assert not out.exists()
    assert {file.name: file.stat().st_size for file in theirs.iterdir()} == dict.fromkeys(
        ("copy.db", "copy.db-journal", "copy.db-wal"), 0
    )
    assert list(path.with_name("moved").iterdir()) == []


def test_no_folder_of_this_account_is_emptied(
    path: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another account gave it the name of what a killed run has left, or put it in the place of a new one."""
    left = path.with_name(f".{out.name}.partial-0123ab")
    mine = tmp_path / "mine"
    for folder in (left, mine):
        folder.mkdir(0o700)
        (folder / "letter").touch()
    list(decrypt(path, out, make_cipher("k1")))
    assert (left / "letter").exists()
    out.unlink()
    mkdir = os.mkdir

    def make(name: str, *arguments: Any, **options: Any) -> None:
        mkdir(name, *arguments, **options)
        path.with_name(name).rmdir()
        mine.rename(path.with_name(name))

    monkeypatch.setattr(os, "mkdir", make)
    with pytest.raises(AccessError, match="another process has replaced"):
        list(decrypt(path, out, make_cipher("k1")))
    assert len([*path.parent.glob("*/letter")]) == 2


@pytest.mark.parametrize("moment", ["mkdir", "connect"])
def test_a_folder_that_is_replaced_before_its_file_is_opened(
    path: Path, out: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    mkdir, connect = os.mkdir, sqlite3.connect

    def make(name: str, *arguments: Any, **options: Any) -> None:
        mkdir(name, *arguments, **options)
        if moment == "mkdir" and ".partial-" in name:
            swap(path.with_name(name), theirs)

    def open_copy(name: str, **options: Any) -> sqlite3.Connection:
        if moment == "connect" and "copy.db" in name:
            (folder,) = [path.with_name(name) for name in files(path) if ".partial-" in name]
            swap(folder, theirs)
        return connect(name, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(os, "mkdir", make)
    monkeypatch.setattr(sqlite3, "connect", open_copy)
    with pytest.raises(AccessError):
        list(decrypt(path, out, make_cipher("k1")))
    assert not out.exists()
    assert all(file.stat().st_size == 0 for file in theirs.iterdir())
    assert list(path.with_name("moved").iterdir()) == []


def test_nothing_of_the_source_but_its_rows_reaches_the_copy(path: Path, out: Path) -> None:
    """No index, other table, pragma, deleted row or row id."""
    deleted = b"deleted before, and still in a free page"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE INDEX beside ON checkpoints (type)")
        connection.execute("CREATE TABLE other AS SELECT 'of another program' AS text")
        connection.execute("CREATE TABLE gone AS SELECT zeroblob(100000) AS x, ? AS text", (deleted,))
        connection.execute("DROP TABLE gone")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert deleted in path.read_bytes()
    list(decrypt(path, out, make_cipher("k1")))
    assert deleted not in out.read_bytes()
    assert b"of another program" not in out.read_bytes()
    with closing(sqlite3.connect(out)) as connection:
        names = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql IS NOT NULL")
        }
        assert names == {"checkpoints", "writes"}
        assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    assert opened(out, make_cipher("k1")) == opened(path, make_cipher("k1"))


def store(saver: Any, checkpoint_id: str) -> None:
    saver.put(at("w"), make(checkpoint_id, text=checkpoint_id), {"step": 1}, {"text": 1})


@pytest.mark.parametrize("is_id_first", [True, False])
def test_two_histories_are_not_merged(tmp_path: Path, is_id_first: bool) -> None:
    """A process without pseudonyms does not find the thread, and begins another one under its id."""
    path, out = tmp_path / "a.db", tmp_path / "copy.db"
    with sealed_file(path, **PRIVATE) as hidden, sealed_file(path) as clear:
        store(hidden, "1")
        store(clear, "2")
        if is_id_first:
            hidden.conn.execute("UPDATE checkpoints SET rowid = 10 WHERE checkpoint_id = '1'")
            hidden.conn.commit()
    failed = failures([*decrypt(path, out, RingCipher(make_ring("k2")))])
    assert {type(failure.error) for failure in failed} == {RowError}
    assert "two histories" in str(failed[0].error)
    assert not out.exists()
