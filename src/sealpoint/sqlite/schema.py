"""The tables in the form that LangGraph's checkpoint-sqlite creates, and the SQL statements of the saver."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

import json
import re
import sqlite3
from functools import lru_cache
from typing import Any, Final

from sealpoint.base import RunnableConfig
from sealpoint.base.metadata import MAX_ELEMENTS
from sealpoint.base.place import configurable_of, optional_text, require_place
from sealpoint.errors import ConfigError, ConfigKeyError, DecodeError, excerpt
from sealpoint.guards import statements
from sealpoint.guards.statements import REQUIRE_CHECK
from sealpoint.guards.tables import EXPIRY
from sealpoint.seal.jsontext import MAX_DEPTH
from sealpoint.seal.places import require_unicode
from sealpoint.serde.jsontext import are_same, parse

_CACHED_STATEMENTS: Final = 128  # as many as a connection keeps

CREATE_CHECKPOINTS: Final = """
    CREATE TABLE IF NOT EXISTS main.checkpoints (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
    )"""
CREATE_WRITES: Final = """
    CREATE TABLE IF NOT EXISTS main.writes (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL,
        channel TEXT NOT NULL, type TEXT, value BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
    )"""
ADD_TASK_PATH: Final = "ALTER TABLE main.writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''"

# As LangGraph's Store has them after its migrations, which are numbered from 0.
CREATE_STORE: Final = (
    """
    CREATE TABLE main.store (
        prefix TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
        created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
        expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key)
    )""",
    "CREATE INDEX main.store_prefix_idx ON store (prefix)",
    EXPIRY,
    "CREATE TABLE main.store_migrations (v INTEGER PRIMARY KEY)",
    "INSERT INTO main.store_migrations VALUES (0), (1), (2), (3), (4)",
)

# No other index is ever read: an index of a hostile file may yield rows that the table does not have.
_CHECKPOINTS: Final = "main.checkpoints INDEXED BY sqlite_autoindex_checkpoints_1"
_WRITES: Final = "main.writes INDEXED BY sqlite_autoindex_writes_1"

_COLUMNS: Final = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"

# --- reading --------------------------------------------------------------------------------

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

# The ancestors of a checkpoint, nearest first. UNION (not UNION ALL) ends a cycle; the caller detects it.
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


# One statement, because it sees one state of the database without a transaction.
# Selects a checkpoint, and after it the writes on top of it; by whether it is the latest of its thread and
# namespace, and whether ``writes`` has the column ``task_path``. Each of its halves names the place; for the
# latest, twice.
SELECT_TUPLE: Final = {
    (is_latest, has_task_path): _select_tuple(
        _LATEST_ID if is_latest else "?", "task_path" if has_task_path else "''"
    )
    for is_latest in (False, True)
    for has_task_path in (False, True)
}


@lru_cache(_CACHED_STATEMENTS)
def select_page(rows: int) -> str:
    """Return the statement that reads ``rows`` checkpoints by their keys, with three parameters for each."""
    return _select_of_page(_COLUMNS, _CHECKPOINTS, rows)


@lru_cache(_CACHED_STATEMENTS)
def select_writes(rows: int, task_path: str, channels: int = 0) -> str:
    """Return the statement that reads the writes to ``rows`` checkpoints, with three parameters for each."""
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
    WITH page(t, n, i) AS (VALUES {", ".join(["(?, ?, ?)"] * rows)})
    SELECT {columns} FROM page CROSS JOIN {table}
    ON thread_id = t AND checkpoint_ns = n AND checkpoint_id = i"""


SUBQUERIES: Final = frozenset({"page", "chain"})  # names of the subqueries in statements that read

# --- writing --------------------------------------------------------------------------------

# The most rows of `put_writes`: each number of rows is another statement to compile
MAX_WRITES_AT_ONCE: Final = 8

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
    """Return the INSERT for ``rows`` writes, nine parameters each; with ``replace`` it replaces writes."""
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
    f"""INSERT OR REPLACE {_INTO_WRITES}
    SELECT ?, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM {_WRITES} WHERE thread_id = ?""",
)

# --- listing: arguments of a caller, checked and converted to parameters -------------------------

SAME_JSON: Final = "sealpoint_same_json"
_FILTER_KEY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _require_integer(name: str, number: float) -> float:
    """Return ``number`` if it fits into 64 bits, as SQLite's integers do."""
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ConfigError(f"{name} has over 64 bits")
    return number


def select_keys(
    config: RunnableConfig | None,
    metadata: dict[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> tuple[str, list[Any]]:
    """Return the statement that finds the keys of the checkpoints to list, and its parameters.

    The keys are read before the rows, because SQLite would sort whole rows with their values.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ConfigError(f"limit must be a whole number, 0 or more, not {excerpt(str(limit))}")
    conditions = _conditions(config, metadata, before)
    where = f" WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
    parameters = [value for _, values in conditions for value in values]
    found = f"{SELECT_KEYS_OF_ALL if metadata and config is None else SELECT_KEYS}{where}"
    if limit is not None and config is not None and config["configurable"].get("checkpoint_ns") is None:
        # From the end of the index, the latest come first: a sort by id that keeps only the first few can
        # then discard almost all others at once. With a namespace the index has the order. ``LIMIT -1``
        # limits nothing; it stops SQLite from dropping the inner order.
        order = "thread_id DESC, checkpoint_ns DESC, checkpoint_id DESC LIMIT -1"
        found = f"SELECT * FROM ({found} ORDER BY {order})"
    most = -1 if limit is None else _require_integer("limit", limit)
    return f"{found} ORDER BY checkpoint_id DESC LIMIT ?", [*parameters, most]


def _conditions(
    config: RunnableConfig | None, metadata: dict[str, Any] | None, before: RunnableConfig | None
) -> list[tuple[str, list[Any]]]:
    conditions: list[tuple[str, list[Any]]] = []
    if config is not None:
        place = require_place(config)
        conditions.append(("thread_id = ?", [place.thread_id]))
        if config["configurable"].get("checkpoint_ns") is not None:
            conditions.append(("checkpoint_ns = ?", [place.checkpoint_ns]))
        if place.checkpoint_id:
            conditions.append(("checkpoint_id = ?", [place.checkpoint_id]))
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not _FILTER_KEY.fullmatch(key):
            raise ConfigError(f"filter key {excerpt(key)} may only have letters, digits, '_', '-' and '.'")
        conditions.append(_filter_condition(key, value))
    if before is not None:
        checkpoint_id = optional_text(configurable_of(before), "checkpoint_id")
        if checkpoint_id is None:
            raise ConfigKeyError("'before' must name a 'checkpoint_id'")
        conditions.append(("checkpoint_id < ?", [checkpoint_id]))
    return conditions


def _filter_condition(key: str, value: Any) -> tuple[str, list[Any]]:
    # Metadata is a BLOB. Without the CAST, SQLite 3.45 and later may take its bytes for JSONB.
    path, metadata = f"$.{key}", "CAST(metadata AS TEXT)"
    found, kind = f"json_extract({metadata}, ?)", f"json_type({metadata}, ?)"
    if value is None:
        return f"{found} IS NULL", [path]
    if isinstance(value, str):  # an object is extracted as its text, which is no string of the metadata
        text = require_unicode(f"filter value of {key!r}", value)
        return f"({found} = ? AND {kind} = 'text')", [path, text, path]
    if isinstance(value, int | float):
        # SQLite may read the fractions of JSON by the locale of the process; a CAST does not. Of two paths it
        # extracts the text of an array, and a CAST takes the number at the beginning of a text.
        text = f"substr(json_extract({metadata}, ?, ?), 2)"
        number = f"CASE {kind} WHEN 'real' THEN CAST({text} AS REAL) ELSE {found} END"
        return f"{number} = ?", [*[path] * 4, _require_integer(f"filter value of {key!r}", value)]
    if not isinstance(value, dict | list | tuple):
        raise ConfigError(f"filter value of {key!r} is {type(value).__name__}, which JSON lacks")
    wanted = "object" if isinstance(value, dict) else "array"
    same = f"CASE {kind} WHEN '{wanted}' THEN {SAME_JSON}('[' || {found} || ',' || ? || ']') ELSE 0 END"
    return same, [path, path, _filter_text(key, value)]


def _filter_text(key: str, value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        parse(require_unicode(f"filter value of {key!r}", text).encode(), MAX_DEPTH, MAX_ELEMENTS)
    except ConfigError:
        raise
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(f"filter value of {key!r} cannot be written as JSON") from None
    return text


def add_functions(connection: sqlite3.Connection) -> None:
    """Register the SQL function that filters use. Schemas, which are not trusted, cannot use it."""
    connection.create_function(SAME_JSON, 1, statements.keeping_cause(_is_same_json), deterministic=True)


def _is_same_json(pair: str) -> bool:
    """Whether both elements of a JSON array are the same JSON value, whatever the order of keys."""
    try:
        stored, wanted = parse(pair.encode(), MAX_DEPTH + 1, 2 * (MAX_ELEMENTS + 1))
    except DecodeError:  # stored text that is not strict JSON equals no value
        return False
    return are_same(stored, wanted)
