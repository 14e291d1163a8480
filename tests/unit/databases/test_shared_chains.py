"""Rows that share one chain of overflow pages: a small file that says it holds many large values."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fuzz.sqlitefile import honest
from fuzz.sqlitefile.edits import root_of
from fuzz.sqlitefile.format import TABLE_INTERIOR, TABLE_LEAF, SqliteFile, Value, encode_record, write_varint
from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.inspect import inspect, names
from sealpoint.admin.maintenance.verify import verify
from sealpoint.crypto import RingCipher
from sealpoint.errors import DatabaseCorruptError, EndlessTreeError, SealpointError
from sealpoint.sqlite import SqliteSaver
from tests.support.runs.costs import peak_of

ROWS, CHAIN_BYTES = 300, 100_000
LARGE = b"x" * CHAIN_BYTES
ROW: dict[str, Value] = {
    "thread_id": "t",
    "checkpoint_ns": "",
    "checkpoint_id": "",
    "parent_checkpoint_id": None,
    "type": "msgpack",
    "checkpoint": b"\x80",
    "metadata": b"{}",
}
CONTENT: dict[str, Value] = {
    "thread_id": LARGE.decode(),
    "type": LARGE.decode(),
    "checkpoint": LARGE,
    "metadata": b'{"text": "' + LARGE + b'"}',
}


def file_of(column: str, path: Path) -> Path:
    """A file whose checkpoints share the pages with the content of a column; all else is in order."""
    file = SqliteFile(honest.make(honest.SHAPES[0]).data)
    rows = [
        (ROW | {"checkpoint_id": f"{number:06}", column: CONTENT[column]}) for number in range(1, ROWS + 1)
    ]
    write_rows(file, "checkpoints", [[*row.values()] for row in rows])
    keys = [(0, encode_record(["t", "", f"{number:06}", number])) for number in range(1, ROWS + 1)]
    file.write_tree(root_of(file, "sqlite_autoindex_checkpoints_1"), keys, is_table=False)
    file.set_field("page count", len(file.pages))
    path.write_bytes(file.to_bytes())
    return path


def write_rows(file: SqliteFile, table: str, rows: list[list[Value]]) -> None:
    """Let all rows of a table share the overflow pages of the first one."""
    chain, leaves = b"", list[tuple[int, int]]()
    for number, row in enumerate(rows, 1):
        payload = encode_record(row)
        kept = file.local_bytes(len(payload), is_table=True)
        chain = chain or file.leaf_cell(payload, number)[-4:]
        cell = write_varint(len(payload)) + write_varint(number) + payload[:kept] + chain
        leaves.append((file.append(), number))
        file.write_node(leaves[-1][0], TABLE_LEAF, [cell])
    while len(leaves) > 40:
        leaves = [inner(file, file.append(), leaves[at : at + 40]) for at in range(0, len(leaves), 40)]
    inner(file, root_of(file, table), leaves)


def inner(file: SqliteFile, number: int, children: list[tuple[int, int]]) -> tuple[int, int]:
    """Write an inner page over some others; return its number, and the last row id below it."""
    cells = [page.to_bytes(4, "big") + write_varint(key) for page, key in children[:-1]]
    file.write_node(number, TABLE_INTERIOR, cells, children[-1][0])
    return number, children[-1][1]


ROWS_OF: dict[str, Callable[[SqliteRows], Iterable[object]]] = {
    "count": lambda store: store.count(),
    "verify": lambda store: verify(store, RingCipher(honest.ring()), allow_plaintext=True),
    "threads": lambda store: names(store, "thread_id"),
    "inspect": lambda store: inspect(store, None, "t"),
    "metadata": lambda store: store.records(),
}
LISTS: dict[str, dict[str, object]] = {"list": {}, "list with a filter": {"step": 1, "text": "y"}}


def read(path: Path, command: str) -> None:
    """Read to the end, and keep nothing of it."""
    if command in LISTS:
        with closing(sqlite3.connect(path)) as connection:
            saver = SqliteSaver(connection, serde=honest.serde(honest.PLAINTEXT))
            deque(saver.list(None, filter=LISTS[command]), maxlen=0)
    else:
        with closing(SqliteRows(path)) as store:
            deque(ROWS_OF[command](store), maxlen=0)


@pytest.mark.parametrize("column", CONTENT)
@pytest.mark.parametrize("command", [*ROWS_OF, *LISTS])
def test_memory_is_bounded_by_the_file(command: str, column: str, tmp_path: Path) -> None:
    path = file_of(column, tmp_path / "checkpoints.db")
    assert 100 * path.stat().st_size < ROWS * CHAIN_BYTES

    def attempt() -> None:
        with suppress(SealpointError, sqlite3.DatabaseError):
            read(path, command)

    assert peak_of(attempt) < 16 * path.stat().st_size


def test_more_bytes_than_the_file_are_refused(tmp_path: Path) -> None:
    path = file_of("checkpoint", tmp_path / "checkpoints.db")
    for command in ("count", "verify", "inspect"):
        with pytest.raises(EndlessTreeError):
            read(path, command)


def test_more_bytes_of_items_than_the_file_are_refused(tmp_path: Path) -> None:
    """Also if each query reads fewer bytes than the file has."""
    path = tmp_path / "store.db"
    file = SqliteFile(honest.make(honest.WITH_ITEMS[0]).data)
    row: list[Value] = ["a", "", b'{"text": "' + LARGE + b'"}', None, None, None, None]
    write_rows(file, "store", [[*row[:1], f"{number:06}", *row[2:]] for number in range(1, ROWS + 1)])
    keys = [(0, encode_record(["a", f"{number:06}", number])) for number in range(1, ROWS + 1)]
    file.write_tree(root_of(file, "sqlite_autoindex_store_1"), keys, is_table=False)
    file.pages += [bytearray(file.page_bytes)] * (9_000_000 // file.page_bytes)
    file.set_field("page count", len(file.pages))
    path.write_bytes(file.to_bytes())
    assert 3 * path.stat().st_size < ROWS * CHAIN_BYTES
    with closing(SqliteRows(path)) as store:
        assert store.read(ITEMS, None, batch=Batch(rows=1)).cells[0].tag == "json"
        with pytest.raises(EndlessTreeError):
            store.count()


def test_a_value_larger_than_the_file_is_refused(tmp_path: Path) -> None:
    """Its chain goes in a circle."""
    path = tmp_path / "checkpoints.db"
    file = SqliteFile(honest.make(honest.SHAPES[0]).data)
    root = root_of(file, "checkpoints")
    payload = encode_record((ROW | {"checkpoint": LARGE * 8}).values())
    kept = file.local_bytes(len(payload), is_table=True)
    first, second = file.append(), file.append()
    file.page(first)[:4], file.page(second)[:4] = second.to_bytes(4, "big"), first.to_bytes(4, "big")
    cell = write_varint(len(payload)) + write_varint(1) + payload[:kept] + first.to_bytes(4, "big")
    file.write_node(root, TABLE_LEAF, [cell])
    file.set_field("page count", len(file.pages))
    path.write_bytes(file.to_bytes())
    for command in ("count", "verify", "inspect"):
        with pytest.raises(DatabaseCorruptError):
            read(path, command)
