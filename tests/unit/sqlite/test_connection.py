"""The connection: opening, setting up, transactions of one's own, read-only databases."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint import EncryptedSerializer, JsonPlusSerializer
from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.schema import MAX_WRITES_AT_ONCE
from tests.support.checkpoints import at, dump, ids_in, make, put_chain


def test_from_conn_string_opens_and_closes(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    with SqliteSaver.from_conn_string(path) as saver:
        put_chain(saver, "1")
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


def test_from_conn_string_closes_after_an_error() -> None:
    with pytest.raises(KeyError), SqliteSaver.from_conn_string(":memory:") as saver:
        raise KeyError
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        saver.conn.execute("SELECT 1")


def test_from_conn_string_takes_a_serializer(tmp_path: Path) -> None:
    serde = EncryptedSerializer.from_key(bytes(range(32)))
    with SqliteSaver.from_conn_string(str(tmp_path / "x.db"), serde=serde) as saver:
        put_chain(saver, "1")
        assert saver.serde is serde
        assert {row[-3] for row in dump(saver.conn)[:1]} == {"msgpack+cobblestone256@k1"}
        assert ids_in(saver) == ["1"]


def test_a_subclass_is_opened_as_itself() -> None:
    class Own(SqliteSaver): ...

    with Own.from_conn_string(":memory:") as saver:
        assert type(saver) is Own


def test_setup_happens_once_and_at_need(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection)
    assert not saver.is_setup
    assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
    assert saver.get_tuple(at()) is None
    assert saver.is_setup
    put_chain(saver, "1")
    before = dump(connection)
    saver.setup()
    SqliteSaver(connection).setup()
    assert dump(connection) == before


def test_a_file_is_switched_to_a_write_ahead_log(tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "x.db")) as saver:
        saver.setup()
        assert saver.conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


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


def test_a_cursor_commits_at_the_end(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    with saver.cursor() as cursor:
        cursor.execute("DELETE FROM writes")
    saver.conn.rollback()
    assert len(dump(saver.conn)) == 1


def break_off(saver: SqliteSaver) -> None:
    """Delete everything in a transaction that ends in an error."""
    with saver.cursor() as cursor:
        cursor.execute("DELETE FROM checkpoints")
        cursor.execute("DELETE FROM writes")
        raise KeyError


def test_a_cursor_rolls_back_on_an_error(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    before = dump(saver.conn)
    with pytest.raises(KeyError):
        break_off(saver)
    assert dump(saver.conn) == before


def test_a_cursor_without_transaction_commits_nothing(saver: SqliteSaver) -> None:
    put_chain(saver, "1")
    with saver.cursor(transaction=False) as cursor:
        cursor.execute("DELETE FROM writes")
    saver.conn.rollback()
    assert len(dump(saver.conn)) == 2


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


def test_a_row_factory_of_the_caller_stays_out_of_the_way(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    saver = SqliteSaver(connection)
    put_chain(saver, "1", "2")
    saver.prune(["t"])
    assert ids_in(saver) == ["2"]


def test_with_allowlist_gives_a_saver_on_the_same_connection(connection: sqlite3.Connection) -> None:
    saver = SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    wider = saver.with_allowlist([("some.module", "Type")])
    assert isinstance(wider, SqliteSaver)
    assert isinstance(wider.serde, JsonPlusSerializer)
    assert ("some.module", "Type") in wider.serde.allowlist.types
    assert isinstance(saver.serde, JsonPlusSerializer)
    assert ("some.module", "Type") not in saver.serde.allowlist.types
    put_chain(wider, "1")
    assert ids_in(saver) == ["1"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an ordinary account can enter. Its owner is the one that the tests run as."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


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
    """A database with one checkpoint and one write, in a folder that nobody may write to."""
    path = folder / "x.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        put_chain(saver, "1")
        if older:
            saver.conn.execute("ALTER TABLE writes DROP COLUMN task_path")
        saver.conn.execute(f"PRAGMA journal_mode = {mode}")
    path.chmod(0o444)
    folder.chmod(0o555)
    return f"file:{path}"


@pytest.fixture(params=[False, True], ids=["current", "older"])
def read_only(request: pytest.FixtureRequest, folder: Path) -> str:
    return prepare(folder, older=request.param, mode="delete")


@pytest.fixture(params=[False, True], ids=["current", "older"])
def read_only_wal(request: pytest.FixtureRequest, folder: Path) -> str:
    return prepare(folder, older=request.param, mode="wal")


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
    assert ids_in(saver) == ["1"]


@pytest.mark.usefixtures("as_nobody")
@pytest.mark.parametrize("query", ["", "?mode=ro", "?immutable=1"])
def test_a_read_only_file_in_a_read_only_folder_is_read(read_only: str, query: str) -> None:
    with closing(sqlite3.connect(read_only + query, uri=True)) as connection:
        read_only_saver(connection)


@pytest.mark.usefixtures("as_nobody")
def test_one_with_a_write_ahead_log_is_read_as_immutable(read_only_wal: str) -> None:
    """SQLite needs a log and its index beside such a file, unless it is told that nobody writes."""
    with closing(sqlite3.connect(f"{read_only_wal}?immutable=1", uri=True)) as connection:
        read_only_saver(connection)


def test_a_connection_that_only_reads_is_enough(read_only_wal: str, folder: Path) -> None:
    folder.chmod(0o755)
    with closing(sqlite3.connect(f"{read_only_wal}?mode=ro", uri=True)) as connection:
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
        assert len(connection.given) > 1
        left_open = [cursor for cursor in connection.given if not is_closed(cursor)]
        assert len(left_open) == 1  # is used again, and its last statement was a COMMIT
        assert (left_open[0].description, left_open[0].rowcount) == (None, -1)


def is_closed(cursor: sqlite3.Cursor) -> bool:
    try:
        cursor.fetchone()
    except sqlite3.ProgrammingError:
        return True
    return False
