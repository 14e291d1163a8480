"""What a `Failure` keeps alive: its error, and nothing of the value that did not open."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import pytest

from sealpoint.databases.cells import Cell, Where
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.sqlite.columns import CHECKPOINTS
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import DecodeError, SealpointError
from sealpoint.maintenance.decrypt import decrypt
from sealpoint.maintenance.inspect import inspect
from sealpoint.maintenance.inventory import inventory
from sealpoint.maintenance.rotate import rotate
from sealpoint.maintenance.verify import verify
from sealpoint.sqlite import schema
from tests.support.sealed import make_cipher, sealing

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


def keeps_planted(start: object) -> bool:
    """Whether the planted bytes are among what an object keeps alive, also as a part or as text."""
    for item in reachable(start):
        if isinstance(item, bytes | bytearray | memoryview) and PLANTED in bytes(item):
            return True
        if isinstance(item, str) and PLANTED.decode() in item:
            return True
    return False


def keeps_frames(start: object) -> bool:
    return any(isinstance(item, FrameType | TracebackType) for item in reachable(start))


def an_error(levels: int, *, explicit: bool) -> SealpointError:
    """An error that was raised while others were handled, each in a frame that holds the bytes."""

    def fail(level: int, data: bytes) -> None:
        held = bytearray(data)
        if not level:
            raise ValueError(bytes(held))
        try:
            fail(level - 1, data)
        except ValueError as error:
            if level < levels:
                raise ValueError(level) from (error if explicit else None)
            raise DecodeError("torn") from (error if explicit else None)

    try:
        fail(levels, b"<" + PLANTED + b">")
    except SealpointError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_a_failure_keeps_no_error_that_led_to_its_own(levels: int, explicit: bool) -> None:
    error = an_error(levels, explicit=explicit)
    assert keeps_planted(error)
    failed = failure(Cell(PLANTED, "msgpack", Where(CHECKPOINTS, ("t", "", "1"))), error)
    assert failed.error is error
    assert (error.__cause__, error.__context__, error.__traceback__) == (None, None, None)
    assert not keeps_planted(failed)
    assert not keeps_frames(failed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


def store(path: Path, tag: str, blob: bytes) -> None:
    """Make a database of one value."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(schema.CREATE_CHECKPOINTS)
        connection.execute(schema.CREATE_WRITES)
        connection.execute(
            "INSERT INTO checkpoints (thread_id, checkpoint_id, type, checkpoint, metadata) "
            "VALUES ('t', '1', ?, ?, x'7b7d')",
            (tag, blob),
        )


def failures(events: Iterable[object]) -> list[Failure]:
    return [event for event in events if isinstance(event, Failure)]


@pytest.mark.parametrize("command", ["inspect", "inventory"])
def test_a_sealed_value_that_is_torn_is_not_kept(path: Path, command: str) -> None:
    cipher = make_cipher("k1")
    store(path, *cipher.seal("msgpack", TORN))
    events: list[Any] = []
    with closing(SqliteRows(path)) as rows:
        if command == "inspect":
            events += inspect(rows, cipher, "t")
        else:
            inventory(rows, cipher, report=events.append)
    (failed,) = failures(events)
    assert type(failed.error) is DecodeError
    assert not keeps_planted(failed)
    assert not keeps_frames(failed)


@pytest.mark.parametrize("command", ["rotate", "decrypt"])
def test_a_legacy_value_that_is_torn_is_not_kept(path: Path, command: str) -> None:
    """Under LANGGRAPH_AES_KEY nothing authenticates the type, so that values are checked before they move."""
    legacy = make_cipher("k2", "langgraph")
    store(path, "msgpack+aes", sealing("eax").cipher.encrypt(TORN)[1])
    with closing(SqliteRows(path, writable=True)) as rows:
        if command == "rotate":
            (failed,) = failures(list(rotate(rows, legacy, allow_legacy=True)))
        else:
            (failed,) = failures(list(decrypt(path, path.with_name("out.db"), legacy)))
    assert type(failed.error) is DecodeError
    assert not keeps_planted(failed)
    assert not keeps_frames(failed)


def test_a_value_without_its_key_is_not_kept(path: Path) -> None:
    tag, blob = make_cipher("k1").seal("msgpack", TORN)
    store(path, tag, blob)
    with closing(SqliteRows(path)) as rows:
        (failed,) = failures(verify(rows, make_cipher("k9")))
    assert not any(item == blob for item in reachable(failed))
    assert not keeps_frames(failed)
