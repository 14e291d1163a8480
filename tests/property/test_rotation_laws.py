"""Laws of rotation: what is taken, what is read, what is left alone, and that it comes to an end."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.admin.databases.cells import Cell, Opener, Selection
from sealpoint.admin.databases.rows import Batch, pages
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.verify import verify
from sealpoint.admin.results.events import Failure, Progress
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealpointError
from sealpoint.sqlite import schema

KEYS = ("k1", "k2", "k.row")
Values = list[tuple[str, tuple[Any, Any]]]  # table, and tag and value

# Tags as they are written, as somebody may write them, and what tells them from each other in pieces.
pieces = st.sampled_from(
    [
        "msgpack",
        "+",
        "aes",
        ":",
        "@",
        "k1",
        "k2",
        "@k1",
        "+aes",
        "+cobblestone256",
        ".row",
        "\0",
        "*",
        "?",
        "[",
        "é",
    ]
)
texts = st.lists(pieces, max_size=5).map("".join)
raw = st.one_of(st.binary(max_size=4), texts.map(str.encode), texts.map(lambda text: text.encode() + b"\xff"))
as_text = raw.map(lambda each: ("text", each))
tags = st.one_of(texts, st.text(max_size=4), st.none(), st.integers(-9, 99), raw, as_text)
selections = st.builds(
    Selection,
    without_key=st.none() | st.sampled_from(KEYS),
    plaintext=st.booleans(),
    legacy=st.booleans(),
)
batches = st.builds(Batch, rows=st.integers(1, 9), size_bytes=st.integers(0, 40))
blobs = st.one_of(st.binary(max_size=30), st.none(), st.integers(0, 9), st.text(max_size=3))
tables = st.sampled_from(["checkpoints", "writes"])


def make_cipher(active: str) -> RingCipher:
    states = {True: KeyState.ACTIVE, False: KeyState.DECRYPT_ONLY}
    return RingCipher(KeyRing(Key(key, key.encode().ljust(32), states[key == active]) for key in KEYS))


@st.composite
def sealed(draw: st.DrawFn) -> tuple[Any, Any]:
    """A tag and a value that opens, or that is not sealed."""
    inner, data = draw(st.sampled_from(["msgpack", "bytes", "null"])), draw(st.binary(max_size=30))
    key = draw(st.sampled_from([*KEYS, None]))
    return (inner, data) if key is None else make_cipher(key).seal(inner, data)


rows = st.lists(st.tuples(tables, st.one_of(sealed(), st.tuples(tags, blobs))), max_size=12)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def fill(folder: Path, values: Values) -> Path:
    """Put values into a database with both tables, past every saver; a row id may be anything."""
    path = folder / "x.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute(schema.CREATE_CHECKPOINTS)
        connection.execute(schema.CREATE_WRITES)
        for number, (table, (tag, blob)) in enumerate(values):
            cast = "CAST(? AS TEXT)" if isinstance(tag, tuple) else "?"
            columns, marks = ("task_id, idx, channel, type, value", f"'', 0, '', {cast}, ?")
            if table == "checkpoints":
                columns, marks = "type, checkpoint", f"{cast}, ?"
            connection.execute(
                f"INSERT INTO {table} (rowid, thread_id, checkpoint_ns, checkpoint_id, {columns})"
                f" VALUES (?, 't', '', ?, {marks})",
                (
                    (number * 7919) % 101 - 50,
                    f"{number}",
                    tag[1] if isinstance(tag, tuple) else tag,
                    blob,
                ),
            )
        connection.commit()
    return path


def everything(store: SqliteRows, batch: Batch = Batch()) -> list[Cell]:  # noqa: B008
    return [
        value for table in store.columns for page in pages(store, table, batch=batch) for value in page.cells
    ]


def selected(store: SqliteRows, selection: Selection) -> list[Cell]:
    found: list[Cell] = []
    for table in store.columns:
        page = store.read(table, None, selection)
        found += page.cells
        assert page.last is None
    return found


@given(values=rows, selection=selections)
def test_what_is_read_is_what_the_selection_takes(folder: Path, values: Values, selection: Selection) -> None:
    """The condition in SQL and the one in Python are the same, whatever somebody put into the column."""
    with closing(SqliteRows(fill(folder, values))) as store:
        expected = [value for value in everything(store) if selection.takes(value.tag)]
        assert selected(store, selection) == expected
        counted = sum(count.rows for count in store.count() if selection.takes(count.tag))
        assert counted == len(expected)


@given(values=rows, batch=batches, selection=selections)
def test_pages_hold_every_value_once(
    folder: Path, values: Values, batch: Batch, selection: Selection
) -> None:
    with closing(SqliteRows(fill(folder, values))) as store:
        assert everything(store, batch) == everything(store)
        assert len(everything(store)) == len(values)
        for table in store.columns:
            after, found = None, list[Cell]()
            while True:
                page = store.read(table, after, selection, batch)
                assert 1 <= len(page.cells) <= batch.rows or page.last is None
                found += page.cells
                if (after := page.last) is None:
                    break
            assert found == [value for value in selected(store, selection) if value.where.column == table]


@given(values=rows, batch=batches, spared=st.sets(st.integers(0, 30)))
def test_what_a_change_leaves_is_not_touched(
    folder: Path, values: Values, batch: Batch, spared: set[int]
) -> None:
    with closing(SqliteRows(fill(folder, values), writable=True)) as store:
        store.connection.execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        before = everything(store)
        wanted = [
            value
            if int(value.where.key[2]) in spared or isinstance(value.tag, bytes)
            else value._replace(tag="new", value=b"new")
            for value in before
        ]

        def change(value: Cell) -> tuple[str, bytes] | None:
            return ("new", b"new") if wanted[before.index(value)].value == b"new" else None

        moved = 0
        for table in store.columns:
            after = None
            while True:
                done = store.rewrite(table, after, change, batch=batch)
                moved += done.changed
                assert done.raced == 0
                if (after := done.last) is None:
                    break
        store.settle()
        assert everything(store) == wanted
        assert moved == sum(value.value == b"new" for value in wanted)


@given(values=rows, key=st.sampled_from(KEYS), batch=batches, plaintext=st.booleans())
def test_rotation_is_a_fixed_point(
    folder: Path, values: Values, key: str, batch: Batch, plaintext: bool
) -> None:
    """The second run moves nothing; what is moved opens to the same; what fails is left and reported."""
    cipher = make_cipher(key)
    with closing(SqliteRows(fill(folder, values), writable=True)) as store:
        store.connection.execute("PRAGMA synchronous = OFF")  # no power cut is tested here
        before = everything(store)
        first = list(rotate(store, cipher, allow_plaintext=plaintext, batch=batch))
        store.settle()
        middle = everything(store)
        second = list(rotate(store, cipher, allow_plaintext=plaintext, batch=batch))
        store.settle()
        assert everything(store) == middle
        assert all(event.changed == 0 for event in second if isinstance(event, Progress))
        failed = [(each.table, *each.place.values()) for each in first if isinstance(each, Failure)]
        assert len(failed) == len(set(failed))
        selection = Selection(without_key=key, plaintext=plaintext, legacy=False)
        for old, new in zip(before, middle, strict=True):
            if selection.takes(old.tag) and (old.where.column.table, *old.where.key) not in failed:
                assert str(new.tag).endswith(f"@{key}")
                assert Opener(cipher).open(new).typed == Opener(cipher, allow_plaintext=True).open(old).typed
            else:
                assert new == old
        left = [value for value in middle if Selection(without_key=key).takes(value.tag)]
        assert sum(count.rows for count in outstanding(store, key)) == len(left)


@given(values=rows, every=st.integers(1, 4), batch=batches)
def test_verification_reports_what_does_not_open(
    folder: Path, values: Values, every: int, batch: Batch
) -> None:
    """And nothing else; one of so many is opened, and all are read."""
    path = fill(folder, values)
    stands = path.read_bytes()
    cipher = make_cipher("k1")
    with closing(SqliteRows(path)) as store:
        seen = list(verify(store, cipher, every=every, batch=batch))
        reported = {(each.table, *each.place.values()) for each in seen if isinstance(each, Failure)}
        looked_at = everything(store)[::every]
        assert reported == {
            (value.where.column.table, *value.where.key) for value in looked_at if not opens(cipher, value)
        }
        progress = [each for each in seen if isinstance(each, Progress)]
        assert progress[-1].rows == len(values) == progress[-1].total
    assert path.read_bytes() == stands


def opens(cipher: RingCipher, value: Cell) -> bool:
    """Whether a value is sealed and opens: said by the cipher alone, and not by what is tested here."""
    try:
        cipher.open(value.tag, value.value)
    except SealpointError:
        return False
    return True
