"""The connection: opening, setting up, transactions of one's own, read-only databases, closing."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.schema import MAX_WRITES_AT_ONCE
from sealpoint.threads import SqliteThreadStore
from tests.support.databases.checkpoints import at, dump, ids_in, make, put_chain


def test_from_conn_string_opens_and_closes(tmp_path: Path) -> None:
    """Also after an error."""
    path = str(tmp_path / "x.db")
    with SqliteSaver.from_conn_string(path) as saver:
        put_chain(saver, "1")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        saver.conn.execute("SELECT 1")
    with pytest.raises(KeyError), SqliteSaver.from_conn_string(path) as saver:
        raise KeyError
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        saver.conn.execute("SELECT 1")
    with SqliteSaver.from_conn_string(path) as saver:
        assert ids_in(saver) == ["1"]


@pytest.mark.parametrize(
    "name", ["50% of it?", "a#b", "é", os.fsdecode(b"\xff\xfe"), ":memory: ", "file:x.db?mode=ro"]
)
def test_from_conn_string_takes_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteSaver.from_conn_string(name) as saver:
        put_chain(saver, "1")
    assert [file.name for file in tmp_path.iterdir()] == [name]
    full: Any = os.fsencode(tmp_path / name)  # LangGraph's takes bytes, too
    with SqliteSaver.from_conn_string(full) as saver:
        assert ids_in(saver) == ["1"]


def test_a_database_that_was_read_into_memory(tmp_path: Path) -> None:
    """SQLite gives it the name of a file, which there is none of."""
    with SqliteSaver.from_conn_string(str(tmp_path / "x.db")) as saver:
        put_chain(saver, "1")
        saver.conn.execute("PRAGMA wal_checkpoint").fetchall()
        data = bytearray(saver.conn.serialize())
    data[18:20] = b"\1\1"  # without a log
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data)
        saver = SqliteSaver(connection)
        put_chain(saver, "2")
        assert ids_in(saver) == ["2", "1"]


def test_a_file_that_another_writes_to_is_opened_all_the_same(tmp_path: Path) -> None:
    """SQLite refuses the switch at once then: this saver does without, and the next one makes it."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as writer, SqliteSaver.from_conn_string(str(path)) as saver:
        put_chain(SqliteSaver(writer), "1")
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN IMMEDIATE")
        assert ids_in(saver) == ["1"]
        writer.rollback()
        put_chain(saver, "2")
        assert saver.conn.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        SqliteSaver(writer).setup()
        assert ids_in(saver) == ["2", "1"]
        assert saver.conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_longer_busy_timeout_of_the_caller_stays(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA busy_timeout = 3600000")
    SqliteSaver(connection).setup()
    assert connection.execute("PRAGMA busy_timeout").fetchone() == (3_600_000,)


def break_off(saver: SqliteSaver) -> None:
    """Delete everything in a transaction that ends in an error."""
    with saver.cursor() as cursor:
        cursor.execute("DELETE FROM checkpoints")
        cursor.execute("DELETE FROM writes")
        raise KeyError


def test_a_cursor_without_transaction_commits_nothing(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    for transaction, rows in ((False, 2), (True, 1)):
        with saver.cursor(transaction) as cursor:
            cursor.execute("DELETE FROM writes")
        saver.conn.rollback()
        assert len(dump(saver.conn)) == rows


KINDS: list[dict[str, Any]] = [{}, {"isolation_level": None}, {"isolation_level": "EXCLUSIVE"}]
if sys.version_info >= (3, 12):
    KINDS += [{"autocommit": True}, {"autocommit": False}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_connection_commits_and_rolls_back(tmp_path: Path, kind: dict[str, Any]) -> None:
    """What is put is there for others at once, whatever the connection thinks of transactions."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, **kind)) as connection, closing(sqlite3.connect(path)) as other:
        saver = SqliteSaver(connection)
        put_chain(saver, "1")
        assert len(dump(other)) == 2
        with pytest.raises(KeyError):
            break_off(saver)
        put_chain(saver, "2")
        assert len(dump(other)) == 4


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an ordinary account can enter. Its owner is the one that the tests run as."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
        Path(name).chmod(0o755)


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Root may write anywhere: give that up for the time of a test."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield
    if was_root:
        os.seteuid(0)


def prepare(folder: Path, *, older: bool, mode: str) -> str:
    """A read-only database with one checkpoint and one write."""
    path = folder / "x.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        put_chain(saver, "1")
        if older:
            saver.conn.execute("ALTER TABLE writes DROP COLUMN task_path")
        saver.conn.execute(f"PRAGMA journal_mode = {mode}")
    path.chmod(0o444)
    return f"file:{path}"


def read_only_saver(connection: sqlite3.Connection) -> None:
    """Read what is there; see that nothing can be written."""
    saver = SqliteSaver(connection)
    found = saver.get_tuple(at())
    assert found is not None
    assert found.pending_writes == [("task", "n", 0)]
    assert ids_in(saver, at(), filter={"step": 0}) == ["1"]
    history = saver.get_delta_channel_history(config=at(), channels=["n"])
    assert history == {"n": {"writes": []}}
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        saver.put(at(), make("2"), {}, {})


@pytest.mark.usefixtures("as_nobody")
@pytest.mark.parametrize("older", [False, True], ids=["current", "older"])
@pytest.mark.parametrize(
    ("mode", "query"),
    [("delete", ""), ("delete", "?mode=ro"), ("delete", "?immutable=1"), ("wal", "?immutable=1")],
)
def test_a_read_only_file_in_a_read_only_folder_is_read(
    folder: Path, older: bool, mode: str, query: str
) -> None:
    """Of one with a write-ahead log SQLite needs to be told that nobody writes: it has no index beside it."""
    folder.chmod(0o755)
    path = prepare(folder, older=older, mode=mode)
    folder.chmod(0o555)
    with closing(sqlite3.connect(path + query, uri=True)) as connection:
        read_only_saver(connection)


def test_an_empty_database_that_only_reads_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        saver = SqliteSaver(connection)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            saver.setup()
        assert not saver.is_setup


def ask_one(saver: SqliteSaver, transaction: bool) -> None:
    with saver.cursor(transaction) as cursor:
        cursor.execute("SELECT 1")


class Interrupted(sqlite3.Connection):
    """Where Ctrl-C comes when a transaction has just begun."""

    when = ""

    def cursor(self, *_: Any) -> Any:
        return super().cursor(InterruptedCursor)


class InterruptedCursor(sqlite3.Cursor):
    """A cursor of `Interrupted`."""

    connection: Interrupted

    def execute(self, statement: str, *arguments: Any) -> Any:
        done = super().execute(statement, *arguments)
        if self.connection.when and statement.startswith(self.connection.when):
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("is_open", [False, True], ids=["own transaction", "the caller's"])
def test_ctrl_c_leaves_no_transaction_open(is_open: bool, tmp_path: Path) -> None:
    """Else nobody could write to the file until this connection writes again."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path, factory=Interrupted)) as connection:
        saver = SqliteSaver(connection)
        put_chain(saver, "0")
        if is_open:
            connection.execute("BEGIN")
        connection.when = "SAVEPOINT" if is_open else "BEGIN IMMEDIATE"
        writes = [("n", 1)] * (MAX_WRITES_AT_ONCE + 1)  # fewer are a single statement
        with pytest.raises(KeyboardInterrupt):
            saver.put_writes(at(checkpoint_id="0"), writes, "another task")
        connection.when = ""
        assert connection.in_transaction is is_open
        connection.rollback()
        saver.put(at(), make("2"), {}, {})
        assert ids_in(saver) == ["2", "0"]
        found = saver.get_tuple(at(checkpoint_id="0"))
        assert found is not None
        assert len(found.pending_writes or ()) == 1  # of `put_chain`


class Remembering(sqlite3.Connection):
    """Keeps the cursors that it gives."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: list[sqlite3.Cursor] = []

    def cursor(self, *arguments: Any) -> Any:
        self.given.append(super().cursor(*arguments))
        return self.given[-1]


@pytest.mark.parametrize(
    "act",
    [
        lambda saver: saver.put(at(), make("2"), {}, {}),
        lambda saver: saver.put_writes(at("t", "1"), [("a", 1), ("b", None)], "task"),
        lambda saver: saver.get_tuple(at()),
        lambda saver: list(saver.list(None)),
        lambda saver: saver.get_delta_channel_history(config=at("t", "1"), channels=["a"]),
        lambda saver: ask_one(saver, transaction=True),
        lambda saver: ask_one(saver, transaction=False),
    ],
)
def test_no_statement_outlives_the_lock(act: Callable[[SqliteSaver], object]) -> None:
    """A cursor that is collected later would reset a statement that another thread uses by then."""
    with closing(sqlite3.connect(":memory:", factory=Remembering, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        put_chain(saver, "0", "1")
        act(saver)
        left_open = []
        for cursor in connection.given:
            with suppress(sqlite3.ProgrammingError):  # it is closed
                cursor.fetchone()
                left_open.append(cursor)
        assert len(connection.given) > len(left_open) == 1  # used again, and its last statement was a COMMIT
        assert (left_open[0].description, left_open[0].rowcount) == (None, -1)


# --- what opens a connection and fails closes it ------------------------------------------------


class FailedError(Exception):
    pass


def fail(*_: object, **__: object) -> NoReturn:
    raise FailedError


class Failing(SqliteSaver):
    __init__ = fail


OPENED: dict[str, Callable[[Path], object]] = {
    "SqliteSaver": lambda _: Failing.from_conn_string(":memory:").__enter__(),
    "a database that is created": lambda folder: SqliteThreadStore(folder / "new.db", create=True),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_connection_is_closed_if_it_cannot_be_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 reports those that nobody closes."""
    connect, opened = sqlite3.connect, list[sqlite3.Connection]()

    class Connection(sqlite3.Connection):
        if name == "a database that is created":
            setlimit = fail

    def record(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **{"factory": Connection, **options}))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", record)
    with pytest.raises(FailedError):
        OPENED[name](tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[-1].cursor()
