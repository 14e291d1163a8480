"""Storing and reading a checkpoint takes one statement, and none runs on a schema that was not checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint.errors import SchemaError
from sealpoint.sqlite import SqliteSaver, schema
from tests.support.databases.checkpoints import at, dump, make, put_chain
from tests.unit.sqlite.hostile import LOG, TRIGGER, edit, logged

ON_TOP: Final = at(checkpoint_id="1")
CALLS: Final[dict[str, Callable[[SqliteSaver], Any]]] = {
    "put": lambda saver: saver.put(at(), make("9", n=1), {}, {}),
    "put_writes": lambda saver: saver.put_writes(ON_TOP, [("a", 1), ("b", 2)], "task 2"),
    "put_writes that replaces": lambda saver: saver.put_writes(ON_TOP, [("__error__", "x")], "task 2"),
    "get_tuple": lambda saver: saver.get_tuple(ON_TOP),
    "get_tuple of the latest": lambda saver: saver.get_tuple(at()),
}
AUTHORIZERS: Final[dict[str, Callable[[sqlite3.Connection], None]]] = {
    "ours": lambda connection: None,
    "the application's": lambda connection: connection.set_authorizer(lambda *_: sqlite3.SQLITE_OK),
    "none": lambda connection: connection.set_authorizer(None),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


@pytest.fixture
def saver(connection: sqlite3.Connection) -> SqliteSaver:
    """A saver whose statements have been compiled."""
    saver = SqliteSaver(connection)
    put_chain(saver, "1", "2")
    for call in CALLS.values():
        call(saver)
    return saver


def statements(saver: SqliteSaver, call: Callable[[SqliteSaver], Any]) -> int:
    seen: list[str] = []
    saver.conn.set_trace_callback(seen.append)
    call(saver)
    saver.conn.set_trace_callback(None)
    return len(seen)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_one_statement(path: Path, saver: SqliteSaver, name: str) -> None:
    """And one again after a valid change of the schema."""
    assert statements(saver, CALLS[name]) == 1
    assert not saver.conn.in_transaction
    edit(path, "CREATE TABLE mine (a)")
    assert statements(saver, CALLS[name]) > 1
    assert statements(saver, CALLS[name]) == 1


@pytest.mark.parametrize("authorizer", AUTHORIZERS)
@pytest.mark.parametrize("name", CALLS)
def test_no_call_runs_on_a_changed_schema(
    path: Path, connection: sqlite3.Connection, saver: SqliteSaver, name: str, authorizer: str
) -> None:
    """Whatever became of the authorizer that the statements were compiled with."""
    AUTHORIZERS[authorizer](connection)
    CALLS[name](saver)
    stored = dump(connection)
    edit(
        path,
        LOG,
        TRIGGER.format("INSERT", "checkpoints"),
        TRIGGER.replace("spy", "other").format("INSERT", "writes"),
    )
    for _ in range(2):
        with pytest.raises(SchemaError):
            CALLS[name](saver)
    assert dump(connection) == stored
    assert logged(path) == 0


def test_a_statement_that_the_application_compiled_is_not_used(
    path: Path, connection: sqlite3.Connection, saver: SqliteSaver
) -> None:
    """Python keeps compiled statements by their text, for all users of a connection."""
    edit(path, LOG, TRIGGER.format("INSERT", "checkpoints"))
    connection.execute(schema.PUT_CHECKPOINT, ("t", "", "8", None, "null", b"", b"{}"))
    with pytest.raises(SchemaError):
        CALLS["put"](saver)
    assert logged(path) == 1  # by the application's own statement


@pytest.mark.parametrize("rows", [schema.MAX_WRITES_AT_ONCE, schema.MAX_WRITES_AT_ONCE + 1])
@pytest.mark.parametrize("channels", ["abcdefghi", ["__error__"] * 9], ids=["added", "replaced"])
def test_more_writes_than_one_statement_takes_are_stored_as_well(
    saver: SqliteSaver, rows: int, channels: str | list[str]
) -> None:
    writes = [(channel, number) for number, channel in enumerate(channels)][:rows]
    for _ in range(2):
        saver.put_writes(at(checkpoint_id="2"), writes, "many")
    found = saver.get_tuple(at(checkpoint_id="2"))
    assert found is not None
    expected = writes if channels == "abcdefghi" else writes[-1:]
    assert [write[1:] for write in found.pending_writes or () if write[0] == "many"] == expected
