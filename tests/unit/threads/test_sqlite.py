"""SqliteThreadStore: its file, other processes, and what goes wrong."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest

from sealpoint.errors import (
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreMissingError,
    ThreadStoreTimeoutError,
)
from sealpoint.threads import Kind, MemoryThreadStore, SqliteThreadStore, open_thread_store
from sealpoint.threads.sqlite import CHECKPOINT_EVENTS
from tests.support.runs.forks import in_child
from tests.unit.threads.events import FAR, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "heads.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteThreadStore]:
    with closing(SqliteThreadStore(path, create=True, timeout=5)) as made:
        yield made


def edit(path: Path, *statements: str) -> None:
    """What another program does to a file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement).fetchall()


def copied(path: Path, to: Path) -> Path:
    """A backup of a file."""
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(to)) as other:
        connection.backup(other)
        other.execute("PRAGMA journal_mode = WAL").fetchall()
    return to


# --- creating and opening ----------------------------------------------------------------------


def test_missing_file_is_not_created(path: Path) -> None:
    with pytest.raises(ThreadStoreMissingError, match="there is no such file") as caught:
        open_thread_store(str(path))
    assert str(path) in str(caught.value)
    assert "create=True or `sealpoint heads adopt DB --create --reason TEXT --threads " in caught.value.hint
    assert [*path.parent.iterdir()] == []


def test_created_file_is_private(path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(open_thread_store(str(path), create=True)) as store:
            assert isinstance(store, SqliteThreadStore)
            store.append([put("1")])
            names = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert names == dict.fromkeys(["heads.db", "heads.db-wal", "heads.db-shm"], 0o600)


def test_many_create_one_store(path: Path) -> None:
    begin = threading.Barrier(8)

    def create(_: int) -> str:
        begin.wait()
        with closing(SqliteThreadStore(path, create=True)) as store:
            return store.identity

    with ThreadPoolExecutor(8) as threads:
        assert len({*threads.map(create, range(8))}) == 1
    assert [file.name for file in path.parent.iterdir()] == ["heads.db"]


def test_folder_that_is_missing(path: Path) -> None:
    for create in (False, True):
        with pytest.raises(ThreadStoreDownError, match="no such folder"):
            SqliteThreadStore(path.parent / "x" / "heads.db", create=create)


@pytest.mark.parametrize("content", [b"", b"x", b"text " * 1000, None])
def test_file_that_is_no_store(path: Path, content: bytes | None) -> None:
    error = ThreadStoreDownError
    if content is None:
        error = ThreadStoreMissingError
        edit(path, "CREATE TABLE checkpoints (thread_id TEXT)")
        content = path.read_bytes()
    path.write_bytes(content)
    for create in (False, True):
        with pytest.raises(error, match=r"not a thread store|not a database"):
            SqliteThreadStore(path, create=create)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TRIGGER x AFTER INSERT ON heads BEGIN DELETE FROM heads; END", "tables are not those"),
        ("ALTER TABLE heads RENAME TO others", "tables are not those"),
        ("CREATE TABLE more (x)", "tables are not those"),
        ("DROP INDEX heads_by_checkpoint", "tables are not those"),
        ("DELETE FROM store", "no version"),
        ("UPDATE store SET version = 3", "its version is 3, and this sealpoint reads 2"),
    ],
)
def test_altered_tables_are_refused(
    path: Path, store: SqliteThreadStore, statement: str, message: str
) -> None:
    store.close()
    edit(path, statement)
    with pytest.raises(ThreadStoreDownError, match=message):
        SqliteThreadStore(path)


def test_trigger_does_not_run(path: Path, store: SqliteThreadStore) -> None:
    store.append([put("1")])
    edit(path, "CREATE TRIGGER x AFTER INSERT ON heads BEGIN DELETE FROM heads; END")
    with pytest.raises(ThreadStoreDownError, match="a trigger or a view would have run"):
        store.append([put("2")])
    edit(path, "DROP TRIGGER x")
    assert [*store.heads()] == [put("1")]


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    ["kind = 7", "thread_id = CAST(x'ff' AS TEXT)"],
)
def test_rows_that_no_store_writes(path: Path, store: SqliteThreadStore, change: str) -> None:
    store.append([put("1")])
    edit(path, f"UPDATE heads SET {change}")
    with pytest.raises(
        ThreadStoreDownError, match=r"row (has values|has an unknown kind|contains text)"
    ) as caught:
        [*store.heads()]
    assert "1" not in str(caught.value).removeprefix(f"thread store {path}")


def test_damaged_file(path: Path, store: SqliteThreadStore) -> None:
    store.append([put(f"{number:04}") for number in range(1000)])
    store.close()
    with path.open("r+b") as file:
        file.seek(4096 * 6)
        file.write(b"\xff" * 4096 * 20)
    with pytest.raises(ThreadStoreDownError, match="damaged"):
        [*store.heads(), *store.events(FAR)]


# --- a file that is replaced -------------------------------------------------------------------


def test_restored_file_is_opened_again(path: Path, store: SqliteThreadStore) -> None:
    store.append([put("1")])
    backup = copied(path, path.with_name("backup"))
    store.append([put(f"{number:04}") for number in range(CHECKPOINT_EVENTS)])
    late = store.newest("t", "").clock
    store.append([put("x")])
    assert store.claim >= 1
    path.with_name("heads.db-wal").unlink()
    path.with_name("heads.db-shm").unlink()
    backup.rename(path)
    answer = store.newest("t", "")
    assert ([*answer.heads], answer.clock) == ([put("1")], 1)
    assert answer.clock < late
    assert store.claim <= answer.clock
    store.append([put("2")])
    assert [*store.heads()] == [put("1"), put("2")]


def test_other_store_in_its_place(path: Path, store: SqliteThreadStore) -> None:
    with closing(SqliteThreadStore(path.with_name("other"), create=True)) as other:
        other.append([put("9")])
    store.close()
    path.with_name("other").rename(path)
    with pytest.raises(ThreadStoreDownError, match="replaced by another thread store"):
        store.newest("t", "")


# --- what a power failure leaves ---------------------------------------------------------------


def test_claim_is_what_the_file_has_without_its_log(path: Path, store: SqliteThreadStore) -> None:
    """The log may be lost in a power failure; the file is flushed by a checkpoint."""
    for number in range(CHECKPOINT_EVENTS + 20):
        store.append([put(f"{number:04}")])
    assert 0 < store.claim < store.newest("t", "").clock
    bare = shutil.copy(path, path.with_name("bare"))
    with closing(SqliteThreadStore(bare)) as left:
        assert left.newest("t", "").clock >= store.claim


def test_claim_is_known_after_the_first_change(path: Path, store: SqliteThreadStore) -> None:
    store.append([put("1")])
    with closing(SqliteThreadStore(path)) as other:
        assert other.claim == 0
        other.newest("t", "")
        assert other.claim == 0
        other.require_writable()
        assert other.claim == 1


def test_claim_waits_for_readers_of_the_log(path: Path, store: SqliteThreadStore) -> None:
    store.append([put("1")])
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM heads").fetchone()
        claim = store.claim
        store.append([put(f"{number:04}") for number in range(CHECKPOINT_EVENTS)])
        store.append([put(f"{number:04}") for number in range(CHECKPOINT_EVENTS)])
        assert store.claim == claim
    store.append([put(f"{number:04}") for number in range(CHECKPOINT_EVENTS)])
    assert store.claim == 1 + 3 * CHECKPOINT_EVENTS


# --- others ------------------------------------------------------------------------------------


def test_other_threads_that_keep_it_busy(path: Path) -> None:
    with (
        closing(SqliteThreadStore(path, create=True, timeout=0.05)) as store,
        ThreadPoolExecutor(1) as threads,
    ):
        with store._file._lock:
            waiting = threads.submit(store.newest, "t", "")
            assert isinstance(waiting.exception(), ThreadStoreTimeoutError)
        assert [*store.newest("t", "").heads] == []


def test_statement_that_takes_too_long(store: SqliteThreadStore) -> None:
    store.append([put(f"{number:06}") for number in range(20_000)])
    store._file._timeout = 0.001
    with pytest.raises(ThreadStoreTimeoutError, match="longer than the time limit"):
        store.between("t", None, None, None)
    store._file._timeout = 60
    assert len(store.between("t", None, None, None).heads) == 20_000


class Busy:
    """Another thread that uses a store until it is told to stop."""

    def __init__(self, store: SqliteThreadStore) -> None:
        self._store, self._ended, self.errors = store, Event(), list[BaseException]()
        self._thread = Thread(target=self._work)

    def _work(self) -> None:
        try:
            while not self._ended.is_set():
                self._store.append([put("0")])
        except BaseException as error:  # noqa: BLE001 -- the test looks at it
            self.errors.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self.errors == []


@pytest.mark.parametrize("_", range(10))
def test_child_of_a_fork_has_a_copy_of_a_store_in_memory(_: int) -> None:
    with closing(MemoryThreadStore()) as store, Busy(store):

        def work() -> object:
            store.append([put("2")])
            return [*store.find([put("2").spot]).heads] == [put("2")]

        assert in_child(work) == "True"
        assert [*store.find([put("2").spot]).heads] == []


@pytest.mark.parametrize("_", range(10))
def test_child_of_a_fork(_: int, path: Path, store: SqliteThreadStore) -> None:
    """It has connections and locks of its own, while a thread of the parent uses the store."""
    with Busy(store):

        def work() -> None:
            for n in range(1, 11):
                store.append([put(f"{n:02}")])

        assert in_child(work) == "None"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [head.spot.checkpoint_id for head in store.heads()] == ["0", *(f"{n:02}" for n in range(1, 11))]


def test_child_of_a_fork_within_a_call_does_not_open_the_file(path: Path, store: SqliteThreadStore) -> None:
    """SQLite would take no lock there, because the parent has the file open."""
    store.append([put("1")])
    store._file._timeout = 0.01
    with store._file._lock:
        assert in_child(lambda: store.append([put("2")])).startswith("ForkedError: this thread store was")
    store.append([put("3")])
    assert [head.spot.checkpoint_id for head in store.heads()] == ["1", "3"]


def test_names_that_are_not_unicode(store: SqliteThreadStore) -> None:
    for call in (lambda: store.newest("\ud800", ""), lambda: store.append([put("\udfff")])):
        with pytest.raises(ThreadStoreError, match="lone surrogate"):
            call()
    assert store.end() == 0


def test_deletions_are_flushed_before_rows_are_deleted(
    connections: list[sqlite3.Connection], store: SqliteThreadStore
) -> None:
    """After a power failure the database would else lack rows that the store remembers."""
    store.append([put("1"), put("2")])
    seen = list[str]()
    connections[-1].set_trace_callback(seen.append)

    def flushes() -> list[str]:
        found = [text.rpartition(" ")[2] for text in seen if text.startswith("PRAGMA synchronous")]
        seen.clear()
        return found

    store.append([put("3")])
    assert flushes() == []
    store.append([put("1")._replace(kind=Kind.LEAVING)])
    assert flushes() == ["FULL", "NORMAL"]
    store.delete_thread(put("1").spot.thread_id)
    assert flushes() == ["FULL", "NORMAL"]
