"""Rotation: what is refused and left, databases of every shape, and others at work on them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sealpoint.admin.databases.cells import Cell, Opener
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.results.events import Progress
from sealpoint.errors import (
    DecodeError,
    LimitError,
    SealedValueError,
    SealpointError,
    TagError,
    UnknownTypeError,
)
from tests.support.databases.harm import flip
from tests.support.databases.sealed import (
    SMALL,
    failures,
    make_cipher,
    moved,
    opened,
    put,
    run,
    tags_of,
    values_of,
    write,
)

# --- what is refused, and what is left ------------------------------------------------------------


@pytest.mark.claim("u1")
@pytest.mark.parametrize("kind", ["plain", "eax", "gcm"])
def test_what_we_did_not_seal_is_left_unless_it_is_asked_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.db"
    write(path, kind, "a")
    before = values_of(path)
    cipher = make_cipher("k1", "langgraph")
    other = {"allow_legacy": True} if kind == "plain" else {"allow_plaintext": True}
    assert moved(run(path, cipher, **other)) == 0
    assert values_of(path) == before
    with closing(SqliteRows(path)) as store:
        assert sum(count.rows for count in outstanding(store, "k1")) == len(before)
    own = {"allow_plaintext": True} if kind == "plain" else {"allow_legacy": True}
    assert moved(run(path, cipher, **own)) == len(before)
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k1") == []


@pytest.mark.claim("u3")
@pytest.mark.parametrize(
    ("tag", "blob", "error"),
    [
        ("pickle", b"cos\nsystem\n", UnknownTypeError),
        ("yaml", b"", UnknownTypeError),
        ("null", b"x", DecodeError),
        ("msgpack", b"\xc1", DecodeError),
        ("msgpack", b"\x91" * 300 + b"\xc0", LimitError),
        ("json", b"[" * 300 + b"]" * 300, DecodeError),
        (None, b"x", TagError),
        ("msgpack", 7, SealedValueError),
        ("msg\0pack", b"x", TagError),
    ],
)
def test_plaintext_that_cannot_be_sealed_is_reported(
    path: Path, tag: Any, blob: Any, error: type[SealpointError]
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, values_of(path)[1], tag, blob)
    (failure,) = failures(run(path, make_cipher("k2", "k1"), allow_plaintext=True))
    assert isinstance(failure.error, error)
    assert failure.place == values_of(path)[1].where.names
    assert (values_of(path)[1].tag, values_of(path)[1].value) == (tag, blob)


# --- shapes of databases --------------------------------------------------------------------------


SHAPES = {
    "no rows": "DELETE FROM checkpoints; DELETE FROM writes",
    "no checkpoints": "DROP TABLE checkpoints",
    "no writes": "DROP TABLE writes",
    "older writes": "ALTER TABLE writes DROP COLUMN task_path",
    "row ids far apart": f"""
        UPDATE checkpoints SET rowid = {-(2**63)} WHERE rowid = 1;
        UPDATE checkpoints SET rowid = 0 WHERE rowid = 2;
        UPDATE checkpoints SET rowid = {2**63 - 1} WHERE rowid = 3
    """,
    **{f"journal {mode}": f"PRAGMA journal_mode = {mode}" for mode in ("delete", "truncate", "persist")},
}


@pytest.mark.parametrize("script", SHAPES.values(), ids=SHAPES)
def test_shapes_of_databases(path: Path, script: str) -> None:
    """All are rotated, row by row, and the journal stays of the kind that it was."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    mode, every = journal_of(path), opened(path, make_cipher("k1"))
    assert moved(run(path, make_cipher("k2", "k1"), batch=Batch(rows=1))) == len(every)
    assert opened(path, make_cipher("k2")) == every
    assert journal_of(path) == mode


def journal_of(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


@pytest.mark.parametrize("size", [0, 1, 10 * 1024 * 1024])
def test_a_value_may_have_any_size(path: Path, size: int) -> None:
    one, other = values_of(path)[:2]
    with closing(sqlite3.connect(path)) as connection, connection:
        put(connection, one, "bytes", bytes(size))
        put(connection, other, *make_cipher("k1").seal("bytes", bytes(size)))
    run(path, make_cipher("k2", "k1"), allow_plaintext=True)
    for value in values_of(path)[:2]:
        assert value.tag == "bytes+cobblestone256@k2"
        assert Opener(make_cipher("k2")).open(value).typed == ("bytes", bytes(size))


# --- several at once ------------------------------------------------------------------------------


@pytest.mark.claim("u9")
@pytest.mark.parametrize(("one", "other"), [("k2", "k2"), ("k2", "k3")], ids=["one aim", "two aims"])
def test_two_that_hold_nothing_lose_nothing(path: Path, one: str, other: str) -> None:
    """Their batches take turns, each on pages that the other has changed since they were read."""
    write(path, "k1", "b")
    keys = ("k1", "k2", "k3")
    every = opened(path, make_cipher("k1"))
    with (
        closing(SqliteRows(path, writable=True)) as first,
        closing(SqliteRows(path, writable=True)) as second,
    ):
        turns = [
            rotate(store, make_cipher(aim, *(key for key in keys if key != aim)), batch=SMALL)
            for store, aim in ((first, one), (second, other))
        ]
        while turns:
            turns = [turn for turn in turns if next(turn, None) is not None]
    assert opened(path, make_cipher("k1", "k2", "k3")) == every
    assert tags_of(path) <= {f"{inner}+cobblestone256@{key}" for inner in INNERS for key in (one, other)}


INNERS = ("msgpack", "bytes", "null")


def test_a_writer_between_reading_and_writing_wins(path: Path) -> None:
    """Compare-and-swap: the value it wrote stands, is counted as raced, and is moved by the next pass."""
    value = values_of(path)[0]

    def interfere(met: Cell) -> None:
        if met == value:
            with closing(sqlite3.connect(path)) as connection, connection:
                put(connection, value, *make_cipher("k1").seal("bytes", b"late"))

    seen = run(path, make_cipher("k2", "k1"), before_change=interfere)
    assert seen[-1].raced == 1  # type: ignore[union-attr]
    assert opened(path, make_cipher("k2"))["checkpoints", *value.where.key] == ("bytes", b"late")


# --- how it goes ----------------------------------------------------------------------------------


def test_a_value_that_was_mended_meanwhile_is_moved(path: Path) -> None:
    """Its failure in an earlier pass does not hide what is left to do."""
    first = values_of(path)[0]
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, first)

    def mend(met: Cell) -> None:
        if met.where.column != CHECKPOINTS and not mended:
            mended.append(True)
            with closing(sqlite3.connect(path)) as connection, connection:
                put(connection, first, first.tag, first.value)

    mended: list[bool] = []
    run(path, make_cipher("k2", "k1"), before_change=mend)
    with closing(SqliteRows(path)) as store:
        assert outstanding(store, "k2") == []


def test_batches_shrink_when_writers_wait_too_long(path: Path) -> None:
    """Any wait is too long here. The next batch is read by then, and has the old size."""
    for thread_id in "bcd":
        write(path, "k1", thread_id)
    with closing(SqliteRows(path, writable=True)) as store:
        events = rotate(store, make_cipher("k2", "k1"), batch=Batch(rows=4), max_lock_seconds=0.0)
        seen = [event for event in events if isinstance(event, Progress)]
    steps = [after.rows - before.rows for before, after in pairwise(seen)]
    assert [step for step in steps if step][-5:] == [1] * 5
    assert seen[-1].changed == len(values_of(path))


def test_no_lock_is_held_between_events(path: Path) -> None:
    """A writer goes on while whoever consumes the events takes his time."""
    with closing(SqliteRows(path, writable=True)) as store:
        for _ in rotate(store, make_cipher("k2", "k1"), batch=SMALL):
            write(path, "k1", "z")
        assert outstanding(store, "k2") != []
