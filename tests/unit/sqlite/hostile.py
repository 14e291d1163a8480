"""Hostile SQLite files: a schema edited past SQLite's checks, and pages that lead to one another."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import put_chain

LOG: Final = "CREATE TABLE log (what)"
TRIGGER: Final = "CREATE TRIGGER spy AFTER {} ON {} BEGIN INSERT INTO log VALUES ('ran'); END"
CELLS: Final = 40
"""How many children an inner page of `share_pages` has."""


def write_file(path: Path, threads: int = 1) -> Path:
    """An honest file with pages of 512 bytes, and three checkpoints in each thread."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        for number in range(threads):
            put_chain(SqliteSaver(connection), "1", "2", "3", thread_id=f"t{number}")
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def edit(path: Path, *statements: str) -> None:
    """Run statements that may edit the schema, too."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)
        version = connection.execute("PRAGMA schema_version").fetchone()[0]
        connection.execute(f"PRAGMA schema_version = {version + 1}")


def logged(path: Path) -> int:
    """How often a trigger ran."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (rows,) = connection.execute("SELECT count(*) FROM log WHERE what = 'ran'").fetchone()
    return int(rows)


def share_pages(path: Path, name: str, depth: int = 8) -> None:
    """Put ``depth`` inner pages on top of the leaf of a table or index, each leading to the next 40 times."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    (root,) = row
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    leaf = bytes(data[(root - 1) * size : root * size])
    while leaf[0] not in (0x0D, 0x0A):  # its first child, until it is a leaf
        first = int.from_bytes(leaf[12:14], "big")
        child = int.from_bytes(leaf[first : first + 4], "big")
        leaf = bytes(data[(child - 1) * size : child * size])
    cell = _first_cell(leaf) if leaf[0] == 0x0A else b"\x7f"
    data += leaf
    for _ in range(depth):
        page = _inner(2 if leaf[0] == 0x0A else 5, len(data) // size, cell, size)
        data += page
    data[(root - 1) * size : root * size] = page
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    path.write_bytes(data)


def _first_cell(leaf: bytes) -> bytes:
    """The first cell of a leaf of an index, whose payload is short."""
    start = int.from_bytes(leaf[8:10], "big")
    return leaf[start : start + 1 + leaf[start]]


def _inner(kind: int, child: int, cell: bytes, size: int) -> bytes:
    """An inner page whose children are all the same page."""
    cells = min(CELLS, (size - 12) // (len(cell) + 6))
    body = (child.to_bytes(4, "big") + cell) * cells
    start = size - len(body)
    places = b"".join((start + number * (len(cell) + 4)).to_bytes(2, "big") for number in range(cells))
    head = bytes([kind, 0, 0]) + cells.to_bytes(2, "big") + start.to_bytes(2, "big") + b"\0"
    return (head + child.to_bytes(4, "big") + places).ljust(start, b"\0") + body
