"""The way back out: a private copy that LangGraph's plain saver reads, or none at all."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from sealpoint.databases.cells import Cell
from sealpoint.databases.rows import Progress
from sealpoint.errors import (
    AccessError,
    DatabaseMissingError,
    HeldError,
    OutputExistsError,
    OutputNameError,
    PlaintextError,
    RowError,
    SchemaError,
    SealpointError,
)
from sealpoint.keys.lock import holding
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.partial import find_leftovers
from tests.support.harm import HARM
from tests.support.sealed import (
    SMALL,
    bind,
    checked,
    failures,
    make_cipher,
    moved,
    opened,
    put,
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
    for thread_id, kind in {"b": "k2", "c": "eax", "d": "gcm"}.items():
        write(path, kind, thread_id)
    expected = {
        thread_id: states(path, sealing(kind), thread_id)
        for thread_id, kind in {"a": "k1", "b": "k2", "c": "eax", "d": "gcm"}.items()
    }
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


def test_values_bound_to_rows_come_out_too(path: Path, out: Path) -> None:
    expected = states(path, sealing("k1"), "a")
    bind(path, make_cipher("k1"), "a")
    list(decrypt(path, out, make_cipher("k1")))
    assert states(out, None, "a") == expected


def modes_beside(out: Path) -> list[int]:
    """Modes of the copy, its partial form and its journal, which comes and goes meanwhile."""
    modes = []
    for file in out.parent.glob(f"*{out.name}*"):
        with suppress(FileNotFoundError):
            modes.append(file.stat().st_mode)
    return modes


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_the_copy_is_its_owners_alone_at_every_moment(path: Path, out: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        for _ in decrypt(path, out, make_cipher("k1"), batch=SMALL):
            assert {mode & 0o077 for mode in modes_beside(out)} == {0}
    finally:
        os.umask(old)
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["file", "folder", "link", "broken link"])
def test_what_is_there_already_is_not_touched(path: Path, out: Path, kind: str) -> None:
    if kind == "folder":
        out.mkdir()
    elif kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(path if kind == "link" else path.with_name("missing"))
    with pytest.raises(OutputExistsError):
        list(decrypt(path, out, make_cipher("k1")))
    assert files(path) == {"x.db", "out.db"}
    assert kind != "file" or out.read_text() == "mine"


def test_what_came_there_meanwhile_is_not_touched(path: Path, out: Path) -> None:
    run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
    next(run)
    out.write_text("mine")
    with pytest.raises(OutputExistsError):
        list(run)
    assert out.read_text() == "mine"
    assert files(path) == {"x.db", "out.db"}


@pytest.mark.parametrize("error", [None, errno.EPERM], ids=["links", "no links"])
def test_what_comes_there_at_the_last_moment_is_not_touched(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    """After the last look, and before the copy has its name: also where a file cannot have two names."""
    genuine = os.link

    def link(*names: str, **folders: Any) -> None:
        if error is not None:
            raise OSError(error, os.strerror(error))
        genuine(*names, **folders)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "fsync", lambda _: out.write_text("mine"))
    with pytest.raises(OutputExistsError):
        list(decrypt(path, out, make_cipher("k1")))
    assert out.read_text() == "mine"
    assert files(path) == {"x.db", "out.db"}


def test_a_copy_gets_its_name_where_a_file_cannot_have_two(
    path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: str, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    list(decrypt(path, out, make_cipher("k1")))
    assert opened(out, make_cipher("k1")) == opened(path, make_cipher("k1"))
    assert files(path) == {"x.db", "out.db"}


@pytest.mark.parametrize("name", [".", "/", "n" * 300, "n" * 240, "é" * 120, "n/" * 2100 + "n"])
def test_a_name_that_no_file_can_have_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For good: another run would meet the same. Also if only a file beside it would be named too long."""
    monkeypatch.chdir(path.parent)
    with pytest.raises(OutputExistsError if len(name) == 1 else OutputNameError):
        list(decrypt(path, name, make_cipher("k1")))
    assert files(path) == {"x.db"}


def test_a_long_name_serves(path: Path) -> None:
    out = path.with_name("n" * 239)
    list(decrypt(path, out, make_cipher("k1")))
    assert tags_of(out) >= {"msgpack"}


def test_the_source_is_not_the_place(path: Path) -> None:
    before = values_of(path)
    with pytest.raises(OutputExistsError):
        list(decrypt(path, path, make_cipher("k1")))
    assert values_of(path) == before


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_a_value_that_does_not_open_leaves_no_copy(
    path: Path, out: Path, harm: Callable[[sqlite3.Connection, Cell], None]
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        harm(connection, values_of(path)[1])
    (failure,) = failures(list(decrypt(path, out, make_cipher("k1"))))
    assert failure.place == values_of(path)[1].where.names
    assert files(path) == {"x.db"}


@pytest.mark.parametrize("tag", ["msgpack", "pickle", "json"])
def test_a_value_that_nobody_sealed_leaves_no_copy(path: Path, out: Path, tag: str) -> None:
    """In the copy it would pass for one that a holder of the key wrote."""
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, values_of(path)[1], tag, b"\x80")
    (failure,) = failures(list(decrypt(path, out, make_cipher("k1"))))
    assert isinstance(failure.error, PlaintextError)
    assert files(path) == {"x.db"}


def test_a_key_that_is_missing_leaves_no_copy(path: Path, out: Path) -> None:
    assert len(failures(list(decrypt(path, out, make_cipher("k2"))))) == len(values_of(path))
    assert files(path) == {"x.db"}


def test_a_run_that_nobody_finishes_leaves_no_copy(path: Path, out: Path) -> None:
    run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
    assert isinstance(next(run), Progress)
    assert "out.db" not in files(path)
    run.close()
    assert files(path) == {"x.db"}


def test_the_copy_is_of_one_moment(path: Path, out: Path) -> None:
    """What agents write meanwhile is not in it."""
    before = opened(path, make_cipher("k1"))
    for _ in decrypt(path, out, make_cipher("k1"), batch=SMALL):
        write(path, "k1", "b")
    assert opened(out, make_cipher("k1")) == before


def test_two_runs_do_not_write_to_one_place(path: Path, out: Path) -> None:
    with holding(out), pytest.raises(HeldError):
        list(decrypt(path, out, make_cipher("k1")))
    assert files(path) == {"x.db"}


def leave_partials(out: Path) -> set[str]:
    """What a killed run leaves beside ``out``, of this version and of earlier ones."""
    folder = out.with_name(f".{out.name}.partial-0123ab")
    folder.mkdir(mode=0o700)
    (folder / "copy.db").write_bytes(b"opened")
    file = out.with_name(f".{out.name}.partial")
    for suffix in ("", "-journal", "-wal"):
        Path(f"{file}{suffix}").write_bytes(b"SQLite format 3\0")
    return {folder.name, file.name}


def test_what_a_killed_run_left_is_taken_away(path: Path, out: Path) -> None:
    leave_partials(out)
    others = leave_partials(path.with_name("other.db"))
    list(decrypt(path, out, make_cipher("k1")))
    assert {name for name in files(path) if "-journal" not in name} == {"x.db", "out.db", *others}


def test_what_a_killed_run_left_is_found(path: Path, out: Path) -> None:
    """Not what a run works in, a download of another program, or a link."""
    left = leave_partials(out)
    leave_partials(path.with_name("held.db"))
    path.with_name(".film.mkv.partial").write_bytes(b"half of it")
    path.with_name(".link.partial").symlink_to(path)
    path.with_name(".link.partial-0123ab").symlink_to(path.parent)
    with holding(path.with_name("held.db")):
        assert {file.name for file in find_leftovers(path.parent)} == left


def test_a_run_at_work_is_not_taken_for_what_was_left(path: Path, out: Path) -> None:
    run = decrypt(path, out, make_cipher("k1"), batch=SMALL)
    next(run)
    assert any(".partial" in name for name in files(path))
    assert find_leftovers(path.parent) == []
    run.close()


def test_nothing_is_written_beside_the_private_folder(path: Path, out: Path) -> None:
    """No journal or log of the copy: what stands beside the output may be another account's."""
    for _ in decrypt(path, out, make_cipher("k1"), batch=SMALL):
        (folder,) = [path.with_name(name) for name in files(path) if ".partial-" in name]
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.name for file in folder.iterdir()} == {"copy.db"}
        assert files(path) == {"x.db", folder.name, "out.db.sealpoint-lock"}


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


def forge_counts(path: Path) -> None:
    """Give each table an index that covers its tags and values, and that is empty."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("CREATE TABLE blank (x)")
        connection.execute("CREATE INDEX checkpoints_full ON checkpoints (type, checkpoint)")
        connection.execute("CREATE INDEX writes_full ON writes (type, value)")
        for table in ("checkpoints", "writes"):
            connection.execute(f"CREATE INDEX {table}_empty ON blank (x)")
        connection.execute("PRAGMA writable_schema = ON")
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
        for table in ("checkpoints", "writes"):
            full, empty = f"{table}_full", f"{table}_empty"
            for name, root in ((full, roots[empty]), (empty, roots[full])):
                connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (root, name))


def test_an_index_that_disagrees_hides_no_row(path: Path, out: Path) -> None:
    """The copy has every row of the tables, or there is none."""
    forge_counts(path)
    with suppress(SealpointError):
        list(decrypt(path, out, make_cipher("k1")))
    assert not out.exists() or len(values_of(out)) == 12
    assert not out.exists() or not any("+" in tag for tag in tags_of(out))


FOREIGN = {
    "writes: a number as idx": "UPDATE writes SET idx = 'first' WHERE rowid = 1",
    "writes: bytes as channel": "UPDATE writes SET channel = X'00' WHERE rowid = 1",
    "checkpoints: bytes as parent": "UPDATE checkpoints SET parent_checkpoint_id = X'00' WHERE rowid = 1",
    "checkpoints: a number as metadata": "UPDATE checkpoints SET metadata = 1 WHERE rowid = 1",
    "checkpoints: bytes as thread": "UPDATE checkpoints SET thread_id = X'00' WHERE rowid = 1",
    "checkpoints: no UTF-8": "UPDATE checkpoints SET thread_id = CAST(X'FF' AS TEXT) WHERE rowid = 1",
}


@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN)
def test_a_column_of_another_type_leaves_no_copy(path: Path, out: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    (failed,) = failures(list(decrypt(path, out, make_cipher("k1"))))
    assert isinstance(failed.error, RowError)
    assert files(path) == {"x.db"}


@pytest.mark.parametrize("name", [".out.db.partial", ".out.db.partial-0123ab"])
def test_a_folder_of_another_in_the_way_is_no_hindrance(path: Path, out: Path, name: str) -> None:
    folder = out.with_name(name)
    folder.mkdir()
    (folder / "mine").write_text("mine")
    folder.chmod(0o755)
    list(decrypt(path, out, make_cipher("k1")))
    assert (folder / "mine").read_text() == "mine"


def test_a_link_in_the_place_of_the_partial_copy_is_not_followed(path: Path, out: Path) -> None:
    victim = path.with_name("victim")
    victim.write_text("mine")
    (out.parent / ".out.db.partial").symlink_to(victim)
    list(decrypt(path, out, make_cipher("k1")))
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("content", [None, b"", b"text" * 999])
def test_a_source_that_is_none_leaves_nothing(tmp_path: Path, out: Path, content: bytes | None) -> None:
    source = tmp_path / "x.db"
    if content is not None:
        source.write_bytes(content)
    error: Any = DatabaseMissingError if content is None else (SchemaError, OSError)
    with pytest.raises(error):
        list(decrypt(source, out, make_cipher("k1")))
    assert files(source) <= {"x.db"}
