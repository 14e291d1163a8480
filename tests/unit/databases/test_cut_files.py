"""Files that are shorter than they were, and their logs: whatever opens one refuses it, or misses nothing."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from fuzz.sqlitefile import honest, oracle, wal
from sealpoint.admin.databases.rows import pages
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.errors import SealpointError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.seal.heads import Head, Kind
from sealpoint.seal.places import Spot
from sealpoint.sqlite import SqliteSaver
from sealpoint.threads.sqlite import SqliteThreadStore
from tests.support.databases.bound import cipher_of, write_file
from tests.support.databases.checkpoints import ids_in, put_chain

PAGE_BYTES: Final = 4096
CUTS: Final = "the file is shorter than its header says: its end is cut off"


def of_saver(path: Path) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return ids_in(SqliteSaver(connection))


def of_sealed(path: Path) -> Any:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        return ids_in(SealedSaver(Theirs(connection), serde=EncryptedSerializer(cipher_of())))  # type: ignore[arg-type]


def of_command(path: Path) -> Any:
    with closing(SqliteRows(path)) as store:
        return Counter(
            (column.table, cell.tag, oracle.digest(cell.value))
            for column in store.columns
            for page in pages(store, column)
            for cell in page.cells
        )


def of_store(path: Path) -> Any:
    with closing(SqliteThreadStore(path)) as store:
        return store.end()


def make_chain(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        put_chain(saver, *(f"{number:06}" for number in range(20)))


def make_store(path: Path) -> None:
    with closing(SqliteThreadStore(path, create=True)) as store:
        store.append([Head(Spot("t", "", f"{number:06}"), Kind.PUT, b"m" * 32) for number in range(200)])


OPENERS: Final[dict[str, tuple[Callable[[Path], object], Callable[[Path], Any]]]] = {
    "saver": (make_chain, of_saver),
    "sealed saver": (write_file, of_sealed),
    "command": (make_chain, of_command),
    "thread store": (make_store, of_store),
}


def lengths(size: int) -> list[int]:
    """In the header, and at, beside and between the boundaries of pages."""
    pages = range(PAGE_BYTES, size + 1, PAGE_BYTES)
    return [2, 15, 16, 24, 50, 99, 100, 101, 512] + [
        end + more for end in pages for more in (-PAGE_BYTES // 2, -1, 0, 1) if end + more < size
    ]


def make(tmp_path: Path, name: str) -> tuple[bytes, Callable[[Path], Any]]:
    """Return a file without a log, and what opens it."""
    fill, read = OPENERS[name]
    whole = tmp_path / "whole.db"
    fill(whole)
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert connection.execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)
    return whole.read_bytes(), read


def stale(data: bytes) -> bytes:
    """Let SQLite take the size of the file for that of the database, whatever the header says."""
    changes = int.from_bytes(data[24:28], "big")
    return data[:92] + (changes + 1).to_bytes(4, "big") + data[96:]


@pytest.mark.parametrize("is_stale", [False, True], ids=["counted", "stale"])
@pytest.mark.parametrize("name", OPENERS)
def test_a_file_that_is_cut_is_refused(tmp_path: Path, name: str, is_stale: bool) -> None:
    """At each length; a file of less than two bytes is a new one to SQLite.

    Where the last page has ended SQLite would read zeros; all shorter files it refuses itself.
    """
    data, read = make(tmp_path, name)
    if is_stale:
        data = stale(data)
    read(tmp_path / "whole.db")
    opened = {}
    for length in lengths(len(data)):
        cut = tmp_path / f"{length}.db"
        cut.write_bytes(data[:length])
        try:
            opened[length] = read(cut)
        except (SealpointError, sqlite3.DatabaseError):  # SQLite's own error, on LangGraph's connection
            continue
    assert opened == {}
    for length in (len(data) - 1, len(data) - PAGE_BYTES // 2, len(data) - PAGE_BYTES + 1):
        cut = tmp_path / f"{length}.db"
        cut.write_bytes(data[:length])
        with pytest.raises(SealpointError, match=None if is_stale else CUTS):
            read(cut)
        assert cut.read_bytes() == data[:length]


@pytest.mark.parametrize("name", ["saver", "command"])
def test_a_log_has_what_the_file_lacks(tmp_path: Path, name: str) -> None:
    """And if it does not have it, SQLite would not compare the two."""
    data, read = make(tmp_path, name)
    whole, cut = tmp_path / "whole.db", tmp_path / "cut.db"
    log = cut.with_name("cut.db-wal")
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        put_chain(SqliteSaver(connection), *(f"{number:06}" for number in range(20, 60)))
        cut.write_bytes(whole.read_bytes())
        log.write_bytes(whole.with_name("whole.db-wal").read_bytes())
        wanted = read(whole)
    logged = log.read_bytes()
    assert cut.stat().st_size == len(data)  # shorter than the database
    assert read(cut) == wanted
    for suffix in ("-wal", "-shm"):
        cut.with_name(f"cut.db{suffix}").unlink(missing_ok=True)
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA user_version = 1")  # a log of one page
        cut.write_bytes(whole.read_bytes()[: -PAGE_BYTES // 2])
        log.write_bytes(whole.with_name("whole.db-wal").read_bytes())
        assert log.stat().st_size < len(logged)
    with pytest.raises(SealpointError, match=CUTS):
        read(cut)


def test_a_log_that_ends_early_is_read_to_its_last_commit(tmp_path: Path) -> None:
    """With a file that is cut, all is read or nothing."""
    path, made = tmp_path / "x.db", honest.make(honest.SHAPES[2])
    frame_bytes = wal.FRAME_BYTES + int.from_bytes(made.log[8:12], "big")
    page_bytes, most = frame_bytes - wal.FRAME_BYTES, len(made.data)
    for number, end in enumerate(range(wal.HEADER_BYTES, len(made.log), frame_bytes)):
        log = made.log[:end]
        whole = oracle.read(made.data, log).multiset()
        for kept in (most, *(range(page_bytes, most, page_bytes) if number % 3 == 0 else ())):
            for file in tmp_path.iterdir():
                file.unlink()
            path.write_bytes(made.data[:kept])
            path.with_name("x.db-wal").write_bytes(log)
            try:
                rows = of_command(path)
            except SealpointError:
                assert kept < most
            else:
                assert rows == whole, f"{kept} bytes, {end} of the log"
