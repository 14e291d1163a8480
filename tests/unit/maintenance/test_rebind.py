"""Rebinding a SQLite file: what is bound, what is refused, and what writers do meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.sqlite.rows import SqliteWholeRows
from sealpoint.admin.maintenance.rebind import Binder
from sealpoint.admin.results.events import Progress
from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealpointError, UnboundValueError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.databases.checkpoints import at
from tests.support.databases.rebinding import rebound, run, visible
from tests.support.databases.sealed import (
    VALUES,
    failures,
    langgraph,
    make_cipher,
    moved,
    opened,
    sealing,
    tags_of,
    write,
)

CIPHER = make_cipher("k1", "langgraph")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where no database is yet."""
    return tmp_path / "rows.db"


def states(path: Path, serde: EncryptedSerializer, **named: Any) -> list[Any]:
    """All that SealedSaver reads."""
    with langgraph(path, None) as saver:
        return [*SealedSaver(saver, serde=serde, **named).list(None)]


def bare(path: Path, serde: Any) -> list[Any]:
    """All that LangGraph's saver alone reads."""
    with langgraph(path, serde) as saver:
        return [*saver.list(None)]


def change(path: Path, statement: str, *parameters: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, parameters).rowcount == 1


SERDE = EncryptedSerializer(CIPHER)


@pytest.mark.parametrize(("kind", "older"), [("k1", False), ("k1", True), ("plain", False), ("gcm", False)])
def test_each_kind_of_rows_is_bound(path: Path, kind: str, older: bool) -> None:
    """Plain ones and those under LANGGRAPH_AES_KEY only if that is allowed; their bytes stay the same."""
    write(path, kind, "a")
    if older:  # writes have no path, and claim an empty one, as LangGraph reads it
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ALTER TABLE writes DROP COLUMN task_path")
    before, values = bare(path, sealing(kind)), opened(path, CIPHER)
    if kind != "k1":
        assert moved(run(path, CIPHER)) == 0
    allowed = {"allow_plaintext": kind == "plain", "allow_legacy": kind == "gcm"}
    *_, last = run(path, CIPHER, **allowed)
    assert isinstance(last, Progress)
    counts = [VALUES, VALUES * (kind == "plain"), VALUES * (kind == "gcm")]
    assert [last.changed, last.plaintext, last.legacy] == counts
    assert states(path, SERDE) == before
    assert all(".row@k1" in tag for tag in tags_of(path))
    bound = opened(path, CIPHER)
    assert all(bound[place][0] == inner for place, (inner, _) in values.items())
    assert all(bound[place][1].endswith(data) for place, (_, data) in values.items())
    assert moved(run(path, CIPHER, allow_plaintext=True, allow_legacy=True)) == 0
    with pytest.raises(SealpointError):
        bare(path, SERDE)
    rebound(path, CIPHER, unbind=True)
    assert bare(path, SERDE) == before
    assert opened(path, CIPHER) == values
    assert not any(".row@" in tag for tag in tags_of(path))


def test_one_thread_alone(path: Path) -> None:
    write(path, "k1", "a é")
    write(path, "k1", "b")
    assert moved(run(path, CIPHER, thread_id="a é")) == VALUES
    assert moved(run(path, CIPHER, thread_id="c")) == 0
    with langgraph(path, None) as saver:
        sealed = SealedSaver(saver, serde=SERDE)
        assert len([*sealed.list(at("a é"))]) == 3
        with pytest.raises(UnboundValueError):
            [*sealed.list(at("b"))]


FORGED = {  # table, what is set in one row of it
    "metadata is not JSON": ("checkpoints", "metadata = 'x'"),
    "metadata has a sealed part": ("checkpoints", "metadata = '{\"__sealpoint__\": 1}'"),
    "no id": ("checkpoints", "checkpoint_id = ''"),
    "id is a BLOB": ("checkpoints", "checkpoint_id = x'00'"),
    "parent is a BLOB": ("checkpoints", "parent_checkpoint_id = x'00'"),
    "value was changed": ("checkpoints", "checkpoint = substr(checkpoint, 2)"),
    "channel of an interrupt": ("writes", "channel = '__interrupt__'"),
    "index of an interrupt": ("writes", "idx = -3"),
    "index beyond 32 bits": ("writes", "idx = 4294967296"),
    "index is text": ("writes", "idx = 'x'"),
    "task_path is a BLOB": ("writes", "task_path = x'00'"),
    "a plain pickle": ("writes", "type = 'pickle'"),
}
ONE = {"checkpoints": "checkpoint_id = '000001'", "writes": "task_id = 'task 1' AND idx = 1"}


@pytest.mark.parametrize(("table", "what"), FORGED.values(), ids=FORGED)
def test_a_row_that_no_saver_writes_is_left(path: Path, table: str, what: str) -> None:
    write(path, "k1", "a")
    change(path, f"UPDATE {table} SET {what} WHERE {ONE[table]}")
    with closing(sqlite3.connect(path)) as connection:
        rows = set(connection.execute(f"SELECT * FROM {table}"))
    events = run(path, CIPHER, allow_plaintext=True)
    (failed,) = failures(events)
    assert (failed.table, moved(events)) == (table, VALUES - 1)
    assert isinstance(failed.error, SealpointError)
    with closing(sqlite3.connect(path)) as connection:
        left = rows & set(connection.execute(f"SELECT * FROM {table}"))
    assert len(left) == 1


MOVED = {
    "idx": "UPDATE writes SET idx = 7 WHERE task_id = 'task 1' AND idx = 1",
    "task_path": "UPDATE writes SET task_path = 'x' WHERE task_id = 'task 1' AND idx = 1",
    "task": "UPDATE writes SET task_id = 'x' WHERE task_id = 'task 1' AND idx = 1",
    "checkpoint": "UPDATE checkpoints SET checkpoint_id = '000009' WHERE checkpoint_id = '000001'",
    "metadata": "UPDATE checkpoints SET metadata = '{\"step\": 9}' WHERE checkpoint_id = '000001'",
}


@pytest.mark.parametrize("statement", MOVED.values(), ids=MOVED)
def test_what_was_moved_is_not_unbound(path: Path, statement: str) -> None:
    """Else a column that had no effect until then would have one."""
    write(path, "k1", "a")
    rebound(path, CIPHER)
    change(path, statement)
    events = run(path, CIPHER, unbind=True)
    assert (len(failures(events)), moved(events)) == (1, VALUES - 1)


def test_a_thread_with_a_pseudonym_is_not_unbound(path: Path) -> None:
    """Its id in the database is all that a bare saver would find."""
    cipher = with_index()
    with langgraph(path, None) as saver:
        sealed = SealedSaver(saver, serde=EncryptedSerializer(cipher), pseudonyms=True)
        config = sealed.put(at("a"), empty_checkpoint(), {}, {})
        sealed.put_writes(config, [("c", 1)], "task")
    events = run(path, cipher, unbind=True)
    assert (len(failures(events)), moved(events)) == (2, 0)


def with_index() -> RingCipher:
    keys = [Key("k1", b"1" * 32, KeyState.ACTIVE)]
    return RingCipher(KeyRing(keys, index=b"i" * 32))


# --- readable metadata ----------------------------------------------------------------------------


def put_with_metadata(path: Path, cipher: RingCipher) -> None:
    with langgraph(path, EncryptedSerializer(cipher)) as saver:
        for number in range(3):
            metadata: Any = {"step": number, "user_id": f"u{number % 2}", "tenant": "t", "note": "n"}
            checkpoint = {**empty_checkpoint(), "id": f"{number:06}"}
            saver.put(at("a"), checkpoint, metadata, {})  # type: ignore[arg-type]


def test_forged_readable_metadata_is_not_completed(path: Path) -> None:
    cipher = with_index()
    put_with_metadata(path, cipher)
    rebound(path, cipher)
    change(path, "UPDATE checkpoints SET metadata = '{\"step\": 9}' WHERE checkpoint_id = '000001'")
    events = run(path, cipher, visible=visible("tenant"))
    assert (len(failures(events)), moved(events)) == (1, 2)


# --- writers meanwhile ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ("checkpoints", "checkpoint = x'00'"),
        ("checkpoints", "type = 'x'"),
        ("checkpoints", "metadata = '{}'"),
        ("checkpoints", "parent_checkpoint_id = 'x'"),
        ("checkpoints", "thread_id = thread_id || 'x'"),
        ("writes", "value = x'00'"),
        ("writes", "type = 'x'"),
        ("writes", "task_path = 'x'"),
        ("writes", "idx = idx + 10"),
    ],
)
def test_a_row_that_was_changed_meanwhile_is_left(path: Path, table: str, what: str) -> None:
    """Whichever of its columns it was: all of them are in the sealed value."""
    write(path, "k1", "a")
    binder, changed = Binder(CIPHER), list[Any]()

    def rows() -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(f"SELECT * FROM {table}").fetchall()

    def bind(cell: Cell) -> Any:
        if not changed:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(f"UPDATE {table} SET {what}")
            changed.append(rows())
        return binder.bind(cell)

    with closing(SqliteWholeRows(path, writable=True)) as store:
        (column,) = (column for column in store.columns if column.table == table)
        done = store.rewrite(column, None, bind)
    assert (done.changed, done.raced) == (0, len(changed[0]))
    assert rows() == changed[0]
