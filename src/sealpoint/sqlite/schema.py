"""The two tables, as LangGraph's checkpoint-sqlite lays them out, and every statement on them.

A database is refused unless the tables are what they should be: a trigger, a view or a
generated column in their place would let whoever wrote the file run SQL in our name.
"""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from typing import Final

from sealpoint.errors import SchemaError, excerpt

_CACHED_STATEMENTS: Final = 128  # as many as a connection keeps

CREATE_CHECKPOINTS: Final = """
    CREATE TABLE IF NOT EXISTS main.checkpoints (
        thread_id TEXT NOT NULL,
        checkpoint_ns TEXT NOT NULL DEFAULT '',
        checkpoint_id TEXT NOT NULL,
        parent_checkpoint_id TEXT,
        type TEXT,
        checkpoint BLOB,
        metadata BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
    )"""
CREATE_WRITES: Final = """
    CREATE TABLE IF NOT EXISTS main.writes (
        thread_id TEXT NOT NULL,
        checkpoint_ns TEXT NOT NULL DEFAULT '',
        checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL,
        task_path TEXT NOT NULL DEFAULT '',
        idx INTEGER NOT NULL,
        channel TEXT NOT NULL,
        type TEXT,
        value BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    )"""
ADD_TASK_PATH: Final = "ALTER TABLE main.writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''"

_CHECKPOINT_COLUMNS: Final = {
    "thread_id": ("TEXT", 1),
    "checkpoint_ns": ("TEXT", 2),
    "checkpoint_id": ("TEXT", 3),
    "parent_checkpoint_id": ("TEXT", 0),
    "type": ("TEXT", 0),
    "checkpoint": ("BLOB", 0),
    "metadata": ("BLOB", 0),
}
_WRITE_COLUMNS: Final = {
    "thread_id": ("TEXT", 1),
    "checkpoint_ns": ("TEXT", 2),
    "checkpoint_id": ("TEXT", 3),
    "task_id": ("TEXT", 4),
    "idx": ("INTEGER", 5),
    "channel": ("TEXT", 0),
    "type": ("TEXT", 0),
    "value": ("BLOB", 0),
}
_TASK_PATH: Final = {"task_path": ("TEXT", 0)}

_COLUMNS: Final = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"

# --- reading --------------------------------------------------------------------------------

SELECT_LATEST: Final = f"""
    SELECT {_COLUMNS} FROM main.checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"""
SELECT_ONE: Final = f"""
    SELECT {_COLUMNS} FROM main.checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
SELECT_KEYS: Final = "SELECT thread_id, checkpoint_ns, checkpoint_id FROM main.checkpoints"

# A walk over ancestors. The key comes last, so that SQLite takes it from the row and not from the index.
SELECT_PARENT: Final = """
    SELECT checkpoint_id, parent_checkpoint_id FROM main.checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
SELECT_LATEST_PARENT: Final = """
    SELECT checkpoint_id, parent_checkpoint_id FROM main.checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"""
SELECT_RANGE: Final = """
    SELECT type, checkpoint, thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id
    FROM main.checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id <= ? ORDER BY checkpoint_id DESC LIMIT ?"""

# The ancestors of a checkpoint, nearest first. UNION (not UNION ALL) ends a cycle; the caller sees it then.
SELECT_ANCESTORS: Final = """
    WITH RECURSIVE chain(id, parent) AS (
        SELECT checkpoint_id, parent_checkpoint_id FROM main.checkpoints
        WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id = :id
        UNION
        SELECT c.checkpoint_id, c.parent_checkpoint_id FROM chain CROSS JOIN main.checkpoints AS c
        WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns AND c.checkpoint_id = chain.parent
    )
    SELECT id, parent FROM chain LIMIT :most"""


def from_the_end(keys: str) -> str:
    """Return a query of the keys of one thread, read from the end of the index: the latest come first.

    Whoever sorts them by their ids to keep a few then throws nearly all others away at once. The limit,
    which is none, keeps SQLite from leaving the order out.
    """
    return f"SELECT * FROM ({keys} ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT -1)"


@lru_cache(_CACHED_STATEMENTS)
def select_page(rows: int) -> str:
    """Return the statement that reads ``rows`` checkpoints by their keys, three parameters each."""
    return _select_of_page(_COLUMNS, "checkpoints", rows)


@lru_cache(_CACHED_STATEMENTS)
def select_writes(rows: int, task_path: str, channels: int = 0) -> str:
    """Return the statement that reads the writes on top of ``rows`` checkpoints, three parameters each.

    Args:
        rows: How many checkpoints.
        task_path: ``task_path``, or ``''`` for a table that lacks the column.
        channels: How many channels to read, one more parameter each; 0 for all.
    """
    only = f" AND channel IN ({', '.join('?' * channels)})" if channels else ""
    columns = f"thread_id, checkpoint_ns, checkpoint_id, {task_path}, task_id, idx, channel, type, value"
    return _select_of_page(columns, "writes", rows) + only


def _select_of_page(columns: str, table: str, rows: int) -> str:
    if rows == 1:  # without a join it takes half the time
        return f"""
    SELECT {columns} FROM main.{table} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
    return f"""
    WITH page(t, n, i) AS (VALUES {_tuples(rows, 3)})
    SELECT {columns} FROM page CROSS JOIN main.{table}
    ON thread_id = t AND checkpoint_ns = n AND checkpoint_id = i"""


def _tuples(rows: int, columns: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


# --- writing --------------------------------------------------------------------------------

PUT_CHECKPOINT: Final = f"INSERT OR REPLACE INTO main.checkpoints ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
PUT_WRITE: Final = """
    INTO main.writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
REPLACE_WRITE: Final = f"INSERT OR REPLACE {PUT_WRITE}"
ADD_WRITE: Final = f"INSERT OR IGNORE {PUT_WRITE}"

DELETE_THREAD: Final = (
    "DELETE FROM main.checkpoints WHERE thread_id = ?",
    "DELETE FROM main.writes WHERE thread_id = ?",
)
DELETE_ONE: Final = (
    "DELETE FROM main.checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
    "DELETE FROM main.writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
)
SELECT_OF_RUN: Final = f"{SELECT_KEYS} WHERE json_extract(CAST(metadata AS TEXT), '$.run_id') = ?"
SELECT_OF_THREAD: Final = f"{SELECT_KEYS} WHERE thread_id = ? ORDER BY checkpoint_ns, checkpoint_id DESC"
COPY_THREAD: Final = (
    """INSERT OR REPLACE INTO main.checkpoints
    SELECT ?, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
    FROM main.checkpoints WHERE thread_id = ?""",
    """INSERT OR REPLACE INTO main.writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    SELECT ?, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM main.writes WHERE thread_id = ?""",
)


# --- what the tables must be ----------------------------------------------------------------


SHARED_PAGES: Final = (
    "SELECT count(rootpage) - count(DISTINCT rootpage) FROM main.sqlite_master WHERE rootpage > 0"
)


def existing_tables(connection: sqlite3.Connection) -> set[str]:
    """Return which of the two names the database has, in any case and whatever stands behind them."""
    found = connection.execute("SELECT lower(name) FROM main.sqlite_master")
    return {name for (name,) in found} & {"checkpoints", "writes"}


def has_task_path(connection: sqlite3.Connection) -> bool:
    """Whether ``writes`` has the column ``task_path``, which older databases lack."""
    return any(row[1] == "task_path" for row in connection.execute("PRAGMA main.table_xinfo(writes)"))


def require_tables(connection: sqlite3.Connection) -> None:
    """Check that those of the tables that exist are what LangGraph or this package made.

    Raises:
        SchemaError: If one is a view or virtual, has other columns, another primary key, a
            trigger, a generated column, a check, a collation or a further unique index.
    """
    (shared,) = connection.execute(SHARED_PAGES).fetchone()
    if shared:  # then an index leads to the rows of another table, or of another key
        raise SchemaError("two tables or indexes stand on the same page of the file")
    existing = existing_tables(connection)
    if "checkpoints" in existing:
        _require_table(connection, "checkpoints", _CHECKPOINT_COLUMNS, {})
    if "writes" in existing:
        _require_table(connection, "writes", _WRITE_COLUMNS, _TASK_PATH)


def _require_table(
    connection: sqlite3.Connection,
    table: str,
    needed: dict[str, tuple[str, int]],
    optional: dict[str, tuple[str, int]],
) -> None:
    _require_plain(connection, table)
    columns = {}
    for _, name, kind, _, _, place, hidden in connection.execute(f"PRAGMA main.table_xinfo({table})"):
        if hidden:
            raise SchemaError(f"table {table!r} has a generated or hidden column {excerpt(name)}")
        columns[name] = (str(kind).upper(), place)
    if {name: column for name, column in columns.items() if name not in optional} != needed:
        raise SchemaError(
            f"table {table!r} does not have the columns and the primary key that LangGraph gives it"
        )
    if any(columns[name] != column for name, column in optional.items() if name in columns):
        raise SchemaError(f"table {table!r} has its optional columns in another form")


def _require_plain(connection: sqlite3.Connection, table: str) -> None:
    """Check that a table is a real one, and that nothing hangs on it that acts by itself."""
    for kind, name, sql in connection.execute(
        "SELECT type, name, sql FROM main.sqlite_master WHERE tbl_name = ? COLLATE NOCASE", (table,)
    ):
        if not isinstance(sql, str | None):
            raise SchemaError(f"the schema of table {table!r} is not text")
        if kind == "trigger":
            raise SchemaError(f"table {table!r} has a trigger {excerpt(name)}")
        if kind == "view" or (kind == "table" and re.match(r"\s*CREATE\s+VIRTUAL", sql or "", re.IGNORECASE)):
            raise SchemaError(f"{table!r} is not a real table")
        if kind == "table" and re.search(
            r"\b(COLLATE|CHECK|GENERATED|REFERENCES)\b", sql or "", re.IGNORECASE
        ):
            raise SchemaError(f"table {table!r} has a collation, a check, a reference or a generated column")
    for _, name, unique, origin, _ in connection.execute(f"PRAGMA main.index_list({table})"):
        if unique and origin != "pk":  # rows would displace each other, or be left out
            raise SchemaError(f"table {table!r} has a unique index {excerpt(name)}")
