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

from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.decrypt import decrypt
from sealpoint.admin.maintenance.inspect import inspect, inventory
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.admin.maintenance.scrub import scrub
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure
from sealpoint.base import empty_checkpoint
from sealpoint.errors import (
    DecodeError,
    LimitError,
    SchemaError,
    UnknownKeyError,
)
from sealpoint.sqlite import schema
from tests.support.databases.checkpoints import at
from tests.support.databases.sealed import (
    failures,
    langgraph,
    make_cipher,
    make_ring,
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
