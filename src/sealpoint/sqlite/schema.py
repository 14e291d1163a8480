"""The two tables, as LangGraph's checkpoint-sqlite lays them out, and every statement on them."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sealpoint.base.place import Place
from sealpoint.sqlite.guard import REQUIRE_CHECK

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

# No other index is ever read: one of a hostile file may lead to other rows than the table has.
_CHECKPOINTS: Final = "main.checkpoints INDEXED BY sqlite_autoindex_checkpoints_1"
_WRITES: Final = "main.writes INDEXED BY sqlite_autoindex_writes_1"

_COLUMNS: Final = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"

# --- reading --------------------------------------------------------------------------------

SELECT_ONE: Final = f"""
    SELECT {_COLUMNS} FROM {_CHECKPOINTS}
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
SELECT_KEYS: Final = f"SELECT thread_id, checkpoint_ns, checkpoint_id FROM {_CHECKPOINTS}"
# For filters that look into the rows of all threads: in the order of the rows, not of the index.
SELECT_KEYS_OF_ALL: Final = "SELECT thread_id, checkpoint_ns, checkpoint_id FROM main.checkpoints NOT INDEXED"

# A walk over ancestors. The key comes last, so that SQLite takes it from the row and not from the index.
SELECT_PARENT: Final = f"""
    SELECT checkpoint_id, parent_checkpoint_id FROM {_CHECKPOINTS}
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
SELECT_LATEST_PARENT: Final = f"""
    SELECT checkpoint_id, parent_checkpoint_id FROM {_CHECKPOINTS}
    WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"""
SELECT_RANGE: Final = f"""
    SELECT type, checkpoint, thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id
    FROM {_CHECKPOINTS}
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id <= ? ORDER BY checkpoint_id DESC LIMIT ?"""

# The ancestors of a checkpoint, nearest first. UNION (not UNION ALL) ends a cycle; the caller sees it then.
SELECT_ANCESTORS: Final = f"""
    WITH RECURSIVE chain(id, parent) AS (
        SELECT checkpoint_id, parent_checkpoint_id FROM {_CHECKPOINTS}
        WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id = :id
        UNION
        SELECT c.checkpoint_id, c.parent_checkpoint_id FROM chain
        CROSS JOIN main.checkpoints AS c INDEXED BY sqlite_autoindex_checkpoints_1
        WHERE c.thread_id = :thread AND c.checkpoint_ns = :ns AND c.checkpoint_id = chain.parent
    )
    SELECT id, parent FROM chain LIMIT :most"""


_LATEST_ID: Final = f"""(
        SELECT checkpoint_id FROM {_CHECKPOINTS}
        WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1)"""


def _select_tuple(checkpoint_id: str, task_path: str) -> str:
    place = f"thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = {checkpoint_id}"
    return f"""
    SELECT 'checkpoint', {_COLUMNS} FROM {_CHECKPOINTS} WHERE {place} AND {REQUIRE_CHECK}
    UNION ALL
    SELECT 'write', checkpoint_id, {task_path}, task_id, idx, channel, type, value
    FROM {_WRITES} WHERE {place} AND {REQUIRE_CHECK}"""


# One statement, because it needs no transaction around it to see one state of the database.
SELECT_TUPLE: Final = {
    (is_latest, has_task_path): _select_tuple(
        _LATEST_ID if is_latest else "?", "task_path" if has_task_path else "''"
    )
    for is_latest in (False, True)
    for has_task_path in (False, True)
}
"""Selects a checkpoint, and after it the writes on top of it; by whether it is the latest of its thread and
namespace, and whether ``writes`` has the column ``task_path``. Its parameters come from `place_twice`."""


def place_twice(place: Place) -> tuple[str | None, ...]:
    """Return the parameters of a statement of `SELECT_TUPLE`: each of its halves names the place."""
    return place * 2 if place.checkpoint_id else place[:2] * 4


def from_the_end(keys: str) -> str:
    """Return a query of the keys of one thread, read from the end of the index: the latest come first.

    A sort by id that keeps only the first few can then discard almost all others at once. ``LIMIT -1``
    limits nothing; it stops SQLite from dropping the inner order.
    """
    return f"SELECT * FROM ({keys} ORDER BY thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT -1)"


@lru_cache(_CACHED_STATEMENTS)
def select_page(rows: int) -> str:
    """Return the statement that reads ``rows`` checkpoints by their keys, three parameters each."""
    return _select_of_page(_COLUMNS, _CHECKPOINTS, rows)


@lru_cache(_CACHED_STATEMENTS)
def select_writes(rows: int, task_path: str, channels: int = 0) -> str:
    """Return the statement that reads the writes on top of ``rows`` checkpoints, three parameters each.

    Args:
        rows: How many checkpoints.
        task_path: ``task_path``, or ``''`` for a table that lacks the column.
        channels: How many channels to read, one more parameter each; 0 for all.

    Returns:
        A query of the key of the checkpoint, if there are several, and of the columns of a write.
    """
    only = f" AND channel IN ({', '.join('?' * channels)})" if channels else ""
    columns = f"{task_path}, task_id, idx, channel, type, value"
    if rows > 1:
        columns = f"thread_id, checkpoint_ns, checkpoint_id, {columns}"
    return _select_of_page(columns, _WRITES, rows) + only


def _select_of_page(columns: str, table: str, rows: int) -> str:
    if rows == 1:  # without a join it takes half the time
        return f"""
    SELECT {columns} FROM {table} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"""
    return f"""
    WITH page(t, n, i) AS (VALUES {_tuples(rows, 3)})
    SELECT {columns} FROM page CROSS JOIN {table}
    ON thread_id = t AND checkpoint_ns = n AND checkpoint_id = i"""


def _tuples(rows: int, columns: int) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)


SUBQUERIES: Final = frozenset({"page", "chain"})
"""Names of the subqueries in statements that read."""

# --- writing --------------------------------------------------------------------------------

MAX_WRITES_AT_ONCE: Final = 8
"""The most rows of `put_writes`: each number of rows is another statement to compile."""

# Python's sqlite3 begins a transaction before a statement whose first word is INSERT. One that is alone
# needs none: SQLite holds the lock for a fraction of the time, and other threads run meanwhile.
_ALONE: Final = "WITH unused AS (SELECT 1)"

PUT_CHECKPOINT: Final = f"""{_ALONE}
    INSERT OR REPLACE INTO main.checkpoints ({_COLUMNS}) SELECT ?, ?, ?, ?, ?, ?, ? WHERE {REQUIRE_CHECK}"""
_INTO_WRITES: Final = """INTO main.writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)"""
REPLACE_WRITE: Final = f"INSERT OR REPLACE {_INTO_WRITES} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_WRITE: Final = f"INSERT OR IGNORE {_INTO_WRITES} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


@lru_cache(2 * MAX_WRITES_AT_ONCE)
def put_writes(rows: int, *, replace: bool) -> str:
    """Return the statement that adds ``rows`` writes, nine parameters each; or replaces those that exist."""
    row = f"SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE {REQUIRE_CHECK}"
    action = "REPLACE" if replace else "IGNORE"
    return f"{_ALONE} INSERT OR {action} {_INTO_WRITES} {' UNION ALL '.join([row] * rows)}"


DELETE_THREAD: Final = (
    f"DELETE FROM {_CHECKPOINTS} WHERE thread_id = ?",
    f"DELETE FROM {_WRITES} WHERE thread_id = ?",
)
DELETE_ONE: Final = (
    f"DELETE FROM {_CHECKPOINTS} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
    f"DELETE FROM {_WRITES} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
)
SELECT_OF_RUN: Final = f"{SELECT_KEYS_OF_ALL} WHERE json_extract(CAST(metadata AS TEXT), '$.run_id') = ?"
SELECT_OF_THREAD: Final = f"{SELECT_KEYS} WHERE thread_id = ? ORDER BY checkpoint_ns, checkpoint_id DESC"
COPY_THREAD: Final = (
    f"""INSERT OR REPLACE INTO main.checkpoints
    SELECT ?, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
    FROM {_CHECKPOINTS} WHERE thread_id = ?""",
    f"""INSERT OR REPLACE INTO main.writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    SELECT ?, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM {_WRITES} WHERE thread_id = ?""",
)
