"""What somebody may do to a value in a file, past every saver; it must not open afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sealpoint.admin.databases.cells import Cell
from tests.support.databases.sealed import put


def flip(connection: sqlite3.Connection, value: Cell) -> None:
    half = len(value.value) // 2
    flipped = value.value[:half] + bytes([value.value[half] ^ 1]) + value.value[half + 1 :]
    put(connection, value, value.tag, flipped)


def rename(connection: sqlite3.Connection, value: Cell) -> None:
    connection.execute(
        f"UPDATE {value.where.column.table} SET thread_id = CAST(X'ff' AS TEXT) WHERE rowid = ?",
        (value.where.locator,),
    )


def text_tag(connection: sqlite3.Connection, value: Cell) -> None:
    statement = f"UPDATE {value.where.column.table} SET type = CAST(? AS TEXT) WHERE rowid = ?"
    connection.execute(statement, (value.tag.encode() + b"\xff", value.where.locator))


HARM = {
    "flipped bit": flip,
    "number as value": lambda connection, value: put(connection, value, value.tag, 7),
    "text as value": lambda connection, value: put(connection, value, value.tag, "text"),
    "no value": lambda connection, value: put(connection, value, value.tag, None),
    "short value": lambda connection, value: put(connection, value, value.tag, b"x"),
    "relabelled": lambda connection, value: put(
        connection, value, value.tag.replace("msgpack", "bytes"), value.value
    ),
    "other key": lambda connection, value: put(
        connection, value, value.tag.replace("@k1", "@k0"), value.value
    ),
    "long tag": lambda connection, value: put(connection, value, "x" * 40 + value.tag, value.value),
    "unknown suite": lambda connection, value: put(connection, value, "msgpack+rot13@k1", value.value),
    "no tag": lambda connection, value: put(connection, value, None, value.value),
    "bytes as tag": lambda connection, value: put(connection, value, value.tag.encode() + b"\0", value.value),
    "nul in tag": lambda connection, value: put(
        connection, value, value.tag[:3] + "\0" + value.tag[3:], b"x"
    ),
    "tag not in UTF-8": text_tag,
    "name not in UTF-8": rename,
}


def store_raw(path: Path, table: str, column: str, value: Any, rows: str = "1") -> None:
    """Store a value without the conversion that SQLite makes for a column of TEXT or INTEGER."""
    with closing(sqlite3.connect(path)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    _set_sql(path, table, sql.replace(f"{column} TEXT", column).replace(f"{column} INTEGER", column))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {rows}", (value,))
    _set_sql(path, table, sql)


def _set_sql(path: Path, table: str, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))
