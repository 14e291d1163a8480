"""What an intruder put into a file, or beside a ring, does not pass for ours, and nothing of it is kept."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import ormsgpack
import pytest

from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS, WRITES
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.inspect import inspect, inventory
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.scrub import scrub
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Event, Failure
from sealpoint.base import empty_checkpoint
from sealpoint.errors import (
    DatabaseCorruptError,
    DecodeError,
    LimitError,
    RowError,
    SchemaError,
    UnknownKeyError,
)
from sealpoint.sqlite import schema
from tests.support.databases.checkpoints import at
from tests.support.databases.harm import store_raw
from tests.support.databases.sealed import (
    VALUES,
    failures,
    langgraph,
    make_cipher,
    make_ring,
    moved,
    put,
    run,
    sealing,
    tags_of,
    values_of,
)


@pytest.fixture
def relabelled(tmp_path: Path) -> Path:
    """Bytes that a user chose, under LANGGRAPH_AES_KEY, which somebody calls msgpack: no key covers that."""
    path = tmp_path / "legacy.db"
    data = ormsgpack.packb(None)
    for _ in range(300):  # a decoder without a bound runs out of stack
        data = ormsgpack.packb(ormsgpack.Ext(7, data))
    with langgraph(path, sealing("eax")) as saver:
        config = saver.put(at("a"), empty_checkpoint(), {}, {})
        saver.put_writes(config, [("upload", data)], "task")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE writes SET type = 'msgpack+aes' WHERE type = 'bytes+aes'")
    return path


def test_a_relabelled_value_that_would_end_a_reader_is_not_made_authentic(relabelled: Path) -> None:
    """Nor is it copied."""
    out, cipher = relabelled.with_name("out.db"), make_cipher("k2", "langgraph")
    for events in ([*decrypt(relabelled, out, cipher)], run(relabelled, cipher, allow_legacy=True)):
        (failed,) = failures(events)
        assert (failed.table, type(failed.error)) == ("writes", LimitError)
    assert not out.exists()
    assert tags_of(relabelled) == {"msgpack+cobblestone256@k2", "msgpack+aes"}


def test_a_trigger_that_comes_during_a_run_ends_it(path: Path) -> None:
    """And each further run on the same store."""
    with closing(SqliteRows(path, writable=True)) as store:
        with closing(sqlite3.connect(path)) as connection, connection:
            body = "BEGIN UPDATE writes SET channel = 'x'; END"
            connection.execute(f"CREATE TRIGGER t AFTER UPDATE ON checkpoints {body}")
        for _ in range(2):
            with pytest.raises(SchemaError):
                list(rotate(store, make_cipher("k2", "k1")))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TRIGGER t")
    assert not any(value.where.names.get("channel") == "x" for value in values_of(path))


def test_an_index_that_comes_during_a_run_does_not_end_it(path: Path) -> None:
    with closing(SqliteRows(path, writable=True)) as store:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE INDEX i ON writes (channel)")
        list(rotate(store, make_cipher("k2", "k1")))
    assert {str(tag).rpartition("@")[2] for tag in tags_of(path)} == {"k2"}


def test_an_index_that_disagrees_is_named_and_can_be_built_again(path: Path) -> None:
    """Its table is complete: a backup is not needed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE INDEX i ON writes (type)")
        connection.execute("CREATE TABLE other AS SELECT * FROM writes LIMIT 0")
        connection.execute("CREATE INDEX empty ON other (type)")
        connection.execute("PRAGMA writable_schema = ON")
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'empty'"
        connection.execute(f"UPDATE sqlite_master SET rootpage = ({root}) WHERE name = 'i'")
        connection.execute("DELETE FROM sqlite_master WHERE name IN ('other', 'empty')")
    cipher, number = make_cipher("k2", "k1"), len(values_of(path))
    with (
        closing(SqliteRows(path, writable=True)) as store,
        pytest.raises(DatabaseCorruptError, match="an index of the file disagrees") as caught,
    ):
        list(rotate(store, cipher))
    assert "REINDEX" in caught.value.hint
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("REINDEX")
    with closing(SqliteRows(path, writable=True)) as store:
        list(rotate(store, cipher))
    assert len(values_of(path)) == number
    assert {str(tag).rpartition("@")[2] for tag in tags_of(path)} == {"k2"}


def test_scrub_tells_a_key_from_one_whose_id_goes_on(path: Path) -> None:
    """Rows of k1 that somebody keeps in a table of their own are found beside live rows of k10."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE kept AS SELECT type, value FROM writes")
    with closing(SqliteRows(path, writable=True)) as store:
        list(rotate(store, make_cipher("k10", "k1")))
    assert scrub(path, make_ring("k10", "k1")).found
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE kept")
    assert not scrub(path, make_ring("k10", "k1")).found


def test_long_tags_are_counted_by_how_they_begin(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for value in values_of(path)[:2]:
            put(connection, value, "x" * 100_000 + str(value.where.locator), value.value)
    with closing(SqliteRows(path)) as store:
        assert max(len(str(count.tag)) for count in store.count()) == 100


K2 = make_cipher("k2", "k1")
FORGED = [
    (column.table, name, value)
    for column in (CHECKPOINTS, WRITES)
    for name in column.key
    for value in (7, 1.5, b"7", "7" if name == "idx" else b"\xff")
    if name != "idx" or value != 7
]


@pytest.mark.parametrize(("table", "name", "value"), FORGED)
def test_the_row_is_named_and_left(path: Path, tmp_path: Path, table: str, name: str, value: Any) -> None:
    store_raw(path, table, name, value, "rowid = 2")

    def contents() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(f"SELECT * FROM {table} WHERE rowid = 2").fetchall()

    before, out, counted = contents(), tmp_path / "out.db", list[Event]()
    runs = {"decrypt": [*decrypt(path, out, K2)], "inventory": counted}
    with closing(SqliteRows(path)) as store:
        runs["verify"] = [*verify(store, K2)]
        assert inventory(store, K2, report=counted.append).failures == 1
        shown = [found for found in inspect(store, K2, "a") if isinstance(found, Failure)]
    runs["rotate"] = run(path, K2)
    for events in runs.values():
        (failed,) = failures(events)
        assert (failed.table, failed.place[name], type(failed.error)) == (table, value, RowError)
        assert repr(name) in str(failed.error)
    assert [failed.place[name] for failed in shown] == [value] * (name != "thread_id")
    assert not out.exists()
    assert moved(runs["rotate"]) == VALUES - 1
    assert contents() == before


PLANTED = b"a decrypted value that nothing may keep"
TORN = b"\xdc\x00\xff\xd9" + bytes((len(PLANTED),)) + PLANTED  # ends in the middle: one error meets another
SHARED = (ModuleType, type, FunctionType, BuiltinFunctionType, CodeType)  # of the program, not of a value


def reachable(start: object) -> list[object]:
    """All objects that one keeps alive, but for those of the program."""
    found: dict[int, object] = {}
    ahead = [start]
    while ahead:
        item = ahead.pop()
        if id(item) not in found and not isinstance(item, SHARED):
            found[id(item)] = item
            ahead += gc.get_referents(item)
    return [*found.values()]


def keeps(start: object, planted: bytes) -> bool:
    """Whether an object keeps a frame alive, or bytes, also as a part or as text."""
    for item in reachable(start):
        if isinstance(item, FrameType | TracebackType):
            return True
        if isinstance(item, bytes | bytearray | memoryview) and planted in bytes(item):
            return True
        if isinstance(item, str) and planted.decode("latin-1") in item:
            return True
    return False


@pytest.mark.parametrize("command", ["inspect", "inventory", "rotate", "decrypt", "verify"])
def test_a_value_that_does_not_open_is_not_kept(tmp_path: Path, command: str) -> None:
    """A torn one that is decoded, also under LANGGRAPH_AES_KEY before it moves; or one without its key."""
    path, cipher = tmp_path / "x.db", make_cipher("k2", "langgraph")
    if command in ("rotate", "decrypt"):
        tag, blob = "msgpack+aes", sealing("eax").cipher.encrypt(TORN)[1]
    else:
        tag, blob = make_cipher("k1" if command == "verify" else "k2").seal("msgpack", TORN)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(schema.CREATE_CHECKPOINTS)
        connection.execute(schema.CREATE_WRITES)
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, type, checkpoint, metadata) "
            "VALUES ('t', '1', ?, ?, x'7b7d')",
            (tag, blob),
        )
    events: list[Any] = []
    with closing(SqliteRows(path, writable=True)) as rows:
        match command:
            case "inspect":
                events += inspect(rows, cipher, "t")
            case "inventory":
                inventory(rows, cipher, report=events.append)
            case "rotate":
                events += rotate(rows, cipher, allow_legacy=True)
            case "decrypt":
                events += decrypt(path, path.with_name("out.db"), cipher)
            case "verify":
                events += verify(rows, cipher)
    (failed,) = (event for event in events if isinstance(event, Failure))
    assert type(failed.error) is (UnknownKeyError if command == "verify" else DecodeError)
    assert not keeps(failed, blob if command == "verify" else PLANTED)
