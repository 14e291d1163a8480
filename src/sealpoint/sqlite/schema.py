"""The tables, as LangGraph's checkpoint-sqlite lays them out: their check, and the statements of the saver.

A database is refused otherwise: a trigger, a view or a generated column in the place of a table
would run SQL of the file's author with our statements.
"""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sealpoint.base import RunnableConfig
from sealpoint.base.metadata import MAX_DEPTH, MAX_ELEMENTS
from sealpoint.base.place import Place, configurable_of, optional_text, require_place, require_unicode
from sealpoint.errors import ConfigError, ConfigKeyError, DecodeError, OldTablesError, SchemaError, excerpt
from sealpoint.serde.jsontext import are_same, parse
from sealpoint.sqlitefile import guard
from sealpoint.sqlitefile.guard import REQUIRE_CHECK

_TIMES: Final = ("created_at", "updated_at")
_CHECKPOINT: Final = "thread_id TEXT 1, checkpoint_ns TEXT 2, checkpoint_id TEXT 3"
_STAMPS: Final = "created_at TIMESTAMP 0, updated_at TIMESTAMP 0"
# Columns of each table by name, type and place in the primary key; those after a bar are optional.
_COLUMNS_OF: Final = {
    "checkpoints": f"{_CHECKPOINT}, parent_checkpoint_id TEXT 0, type TEXT 0, checkpoint BLOB 0,"
    " metadata BLOB 0",
    "writes": f"{_CHECKPOINT}, task_id TEXT 4, idx INTEGER 5, channel TEXT 0, type TEXT 0, value BLOB 0"
    " | task_path TEXT 0",
    "store": f"prefix TEXT 1, key TEXT 2, value TEXT 0, {_STAMPS}"
    " | expires_at TIMESTAMP 0, ttl_minutes REAL 0",
    "store_vectors": f"prefix TEXT 1, key TEXT 2, field_name TEXT 3, embedding BLOB 0, {_STAMPS}",
    "cache": "ns TEXT 1, key TEXT 2, expiry REAL 0, encoding TEXT 0, val BLOB 0",
    "store_migrations": "v INTEGER 1",
    "vector_migrations": "v INTEGER 1",
}
SAVER: Final = ("checkpoints", "writes")
STORE: Final = ("store", "store_vectors", "store_migrations", "vector_migrations")  # of LangGraph's Store

_MASTER: Final = """
    SELECT typeof(type) = 'text' AND typeof(name) = 'text' AND typeof(tbl_name) = 'text',
        typeof(rootpage) = 'integer', rootpage IS NULL, typeof(sql) = 'text', sql IS NULL,
        CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB), rootpage
    FROM main.sqlite_master"""
_STARTS: Final = {  # what SQLite writes there, whatever the statement was
    "table": ("CREATE TABLE ", "CREATE VIRTUAL TABLE "),
    "index": ("CREATE INDEX ", "CREATE UNIQUE INDEX "),
    "view": ("CREATE VIEW ",),
    "trigger": ("CREATE TRIGGER ",),
}
# No pragma lists the checks of a table: only its statement shows them.
_ACTING: Final = re.compile(r"\b(COLLATE|CHECK|GENERATED|REFERENCES)\b", re.IGNORECASE)
_DEFAULTS: Final = (None, "''", "NULL")
# What LangGraph's Store has of all that is refused elsewhere, besides the defaults of `_TIMES`.
_REFERENCE: Final = "FOREIGN KEY (prefix, key) REFERENCES store(prefix, key) ON DELETE CASCADE )"
_EXPIRY: Final = "CREATE INDEX idx_store_expires_at ON store (expires_at) WHERE expires_at IS NOT NULL"
_SPACES: Final = re.compile(r"\s+", re.ASCII)


class _Object(NamedTuple):
    type: str
    name: str
    table: str
    sql: str | None
    root: int

    @property
    def statement(self) -> str:
        """The statement, with one space in the place of each run of white space."""
        return _SPACES.sub(" ", self.sql or "")


def _columns(text: str) -> dict[str, tuple[str, int]]:
    columns = (column.split() for column in text.split(",") if column)
    return {name: (kind, int(place)) for name, kind, place in columns}


def table_names(cursor: sqlite3.Cursor) -> list[str]:
    """Return the names of all tables, virtual ones too."""
    return sorted(each.name for each in _objects(cursor) if each.type == "table")


def require_unhidden(cursor: sqlite3.Cursor, names: Collection[str] = SAVER) -> None:
    """Check that no temporary object of the connection hides one of the tables, or acts on it."""
    for name, table in cursor.execute("SELECT name, tbl_name FROM temp.sqlite_master").fetchall():
        if not {_lower(name), _lower(table)}.isdisjoint(names):
            raise SchemaError(
                f"a temporary table, view or trigger {excerpt(name)} is in front of {excerpt(table)}"
            )


def has_task_path(cursor: sqlite3.Cursor) -> bool:
    """Whether ``writes`` has the column ``task_path``, which older databases lack."""
    return "task_path" in columns_of(cursor, "writes")


def columns_of(cursor: sqlite3.Cursor, table: str) -> set[str]:
    """Return the names of the columns of a table; none if there is no such table."""
    return {row[1] for row in cursor.execute(f"PRAGMA main.table_xinfo({table})").fetchall()}


def quoted(name: str) -> str:
    """Return the name of a table or a column for a statement."""
    return '"{}"'.format(name.replace('"', '""'))


def stored_columns(cursor: sqlite3.Cursor, table: str) -> list[str]:
    """Return the names of the columns that stand in the file: to read a virtual one may call functions."""
    rows = cursor.execute(f"PRAGMA main.table_xinfo({quoted(table)})").fetchall()
    return [name for _, name, _, _, _, _, hidden in rows if hidden in (0, 3)]


def store_names(cursor: sqlite3.Cursor) -> tuple[str, ...]:
    """Return the tables of LangGraph's Store; none if ``store`` has other columns, or is not there."""
    found = set(map(_lower, columns_of(cursor, "store")))  # a store would use them in any case of letters
    return STORE if {"prefix", "key", "value"} <= found else ()


def require_age(cursor: sqlite3.Cursor, table: str) -> None:
    """Check that a table is none of LangGraph before 0.2. The connection may give text as bytes."""
    if not columns_of(cursor, table).isdisjoint({"thread_ts", b"thread_ts"}):
        raise OldTablesError


def require_tables(cursor: sqlite3.Cursor, names: Collection[str] = SAVER) -> set[str]:
    """Check the schema, and that those of the tables that exist are what LangGraph or this package made.

    Tables without one of the names are not looked at. Return the names of those that exist.
    """
    objects = _objects(cursor)
    for table in names:
        needed, optional = map(_columns, _COLUMNS_OF[table].partition("|")[::2])
        related = [each for each in objects if table in (_lower(each.table), _lower(each.name))]
        if any(_lower(each.name) == table for each in related):
            _require_plain(related, table)
            require_age(cursor, table)
            _require_columns(cursor, table, needed, optional)
            _require_row_ids(cursor, table)
            _require_indexes(cursor, table, needed, related)
        elif related:
            raise SchemaError(f"the schema names a table {table!r} that it does not have")
    return {_lower(each.name) for each in objects}.intersection(names)


def _lower(name: str) -> str:
    """Return a name as SQLite compares it: without regard to the case of ASCII letters."""
    return name.lower() if name.isascii() else name


def _objects(cursor: sqlite3.Cursor) -> list[_Object]:
    """Return the rows of sqlite_master.

    SQLite reads them as C strings, from any storage class. Whatever would look otherwise to it than
    it does here is refused.
    """
    (encoding,) = cursor.execute("PRAGMA main.encoding").fetchone()
    objects = [_object(row, encoding) for row in cursor.execute(_MASTER).fetchall()]
    names = [(each.type == "trigger", _lower(each.name)) for each in objects]
    if len(set(names)) < len(names):
        raise SchemaError("the schema holds two objects of one name")
    roots = [each.root for each in objects if each.root]
    if len(set(roots)) < len(roots):  # then an index leads to the rows of another table, or of another key
        raise SchemaError("two tables or indexes have the same page of the file")
    return objects


def _object(row: tuple[Any, ...], encoding: str) -> _Object:
    has_text, has_root, lacks_root, has_sql, lacks_sql, *texts, root = row
    if not (has_text and (has_root or lacks_root) and (has_sql or lacks_sql)):
        raise SchemaError("a row of sqlite_master is not made of text and a page number")
    try:
        kind, name, table = (text.decode(encoding) for text in texts[:3])
        sql: str | None = None if lacks_sql else texts[3].decode(encoding)
    except UnicodeDecodeError:
        raise SchemaError("the schema holds text that is not Unicode") from None
    found = _Object(kind, name, table, sql, root or 0)
    if any("\0" in text for text in found[:4] if text):
        raise SchemaError(f"the schema holds a NUL in the text of {excerpt(name)}")
    if kind not in _STARTS:
        raise SchemaError(f"the schema holds {excerpt(name)} of the unknown type {excerpt(kind)}")
    if sql is None:
        if kind != "index" or not name.startswith("sqlite_autoindex_"):
            raise SchemaError(f"the schema holds no statement for {excerpt(name)}")
    elif not sql.startswith(_STARTS[kind]):
        raise SchemaError(f"the schema holds another statement for {excerpt(name)} than for its type")
    is_stored = kind == "index" or (kind == "table" and not (sql or "").startswith("CREATE VIRTUAL"))
    if (found.root > 0) is not is_stored or found.root < 0:
        raise SchemaError(f"the schema names no proper page for {excerpt(name)}")
    return found


def _require_plain(related: Iterable[_Object], table: str) -> None:
    """Check that a table is a real one, and that nothing hangs on it that acts by itself."""
    for each in related:
        if each.type == "trigger":
            raise SchemaError(f"table {table!r} has a trigger {excerpt(each.name)}")
        if _lower(each.name) != table:
            continue
        if each.type != "table" or each.root == 0 or _lower(each.table) != table:
            raise SchemaError(f"{table!r} is not a real table")
        sql = each.statement
        if table == "store_vectors":
            sql = sql.removesuffix(_REFERENCE)
        if _ACTING.search(sql):
            raise SchemaError(f"table {table!r} has a collation, a check, a reference or a generated column")


def _require_columns(
    cursor: sqlite3.Cursor,
    table: str,
    needed: dict[str, tuple[str, int]],
    optional: dict[str, tuple[str, int]],
) -> None:
    columns = {}
    rows = cursor.execute(f"PRAGMA main.table_xinfo({table})").fetchall()
    for _, name, kind, _, default, place, hidden in rows:
        if hidden:
            raise SchemaError(f"table {table!r} has a generated or hidden column {excerpt(name)}")
        # An older release of LangGraph leaves a column out.
        if default not in _DEFAULTS and not (name in _TIMES and default == "CURRENT_TIMESTAMP"):
            raise SchemaError(
                f"table {table!r} has a default that LangGraph does not give it, for {excerpt(name)}"
            )
        columns[name] = (str(kind).upper(), place)
    if {name: column for name, column in columns.items() if name not in optional} != needed:
        others = ", ".join(
            excerpt(name) for name, column in columns.items() if column != (needed | optional).get(name)
        )
        raise SchemaError(
            f"table {table!r} does not have the columns and the primary key that LangGraph gives it"
            + (f": {others}" if others else "")
        )
    if any(columns[name] != column for name, column in optional.items() if name in columns):
        raise SchemaError(f"table {table!r} has its optional columns in another form")


def _require_row_ids(cursor: sqlite3.Cursor, table: str) -> None:
    try:
        cursor.execute(f"SELECT rowid FROM main.{table} LIMIT 0").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise SchemaError(f"table {table!r} is made WITHOUT ROWID") from None


def _require_indexes(
    cursor: sqlite3.Cursor, table: str, needed: dict[str, tuple[str, int]], related: Iterable[_Object]
) -> None:
    """Check that the primary key has its index, and that all others are plain ones, which nothing reads."""
    key = [name for place, name in sorted((place, name) for name, (_, place) in needed.items() if place)]
    expiry = {each.name for each in related if each.statement == _EXPIRY}
    primary = []
    for _, name, unique, origin, partial in cursor.execute(f"PRAGMA main.index_list({table})").fetchall():
        columns = cursor.execute(f"PRAGMA main.index_xinfo({quoted(name)})").fetchall()
        # In PRAGMA index_xinfo the column number of an expression is -2, and that of the row id -1.
        names = [column for _, place, column, *_, is_key in columns if is_key and place >= 0]
        if (partial and name not in expiry) or any(place == -2 for _, place, *_ in columns):
            raise SchemaError(f"table {table!r} has an index {excerpt(name)} over expressions")
        if any(collation not in (None, "BINARY") for *_, collation, _ in columns):
            raise SchemaError(f"table {table!r} has an index {excerpt(name)} with a collation")
        if origin == "pk":
            primary.append((_lower(name), names, any(descending for *_, descending, _, _ in columns)))
        elif unique:  # rows would displace each other, or be left out
            raise SchemaError(f"table {table!r} has a unique index {excerpt(name)}")
    is_row_id = [needed[name] for name in key] == [("INTEGER", 1)]  # which has no index of its own
    if primary != ([] if is_row_id else [(f"sqlite_autoindex_{table}_1", key, False)]):
        raise SchemaError(f"table {table!r} has no proper index of its primary key")


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
    _EXPIRY,
    "CREATE TABLE main.store_migrations (v INTEGER PRIMARY KEY)",
    "INSERT INTO main.store_migrations VALUES (0), (1), (2), (3), (4)",
)

# No other index is ever read: one of a hostile file may lead to other rows than the table has.
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
# Selects a checkpoint, and after it the writes on top of it; by whether it is the latest of its thread and
# namespace, and whether ``writes`` has the column ``task_path``. Its parameters come from `place_twice`.
SELECT_TUPLE: Final = {
    (is_latest, has_task_path): _select_tuple(
        _LATEST_ID if is_latest else "?", "task_path" if has_task_path else "''"
    )
    for is_latest in (False, True)
    for has_task_path in (False, True)
}


def place_twice(place: Place) -> tuple[str | None, ...]:
    """Return the parameters of a statement of `SELECT_TUPLE`: each of its halves names the place."""
    return place * 2 if place.checkpoint_id else place[:2] * 4


@lru_cache(_CACHED_STATEMENTS)
def select_page(rows: int) -> str:
    """Return the statement that reads ``rows`` checkpoints by their keys, three parameters each."""
    return _select_of_page(_COLUMNS, _CHECKPOINTS, rows)


@lru_cache(_CACHED_STATEMENTS)
def select_writes(rows: int, task_path: str, channels: int = 0) -> str:
    """Return the statement that reads the writes on top of ``rows`` checkpoints, three parameters each."""
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
    f"""INSERT OR REPLACE {_INTO_WRITES}
    SELECT ?, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
    FROM {_WRITES} WHERE thread_id = ?""",
)

# --- listing: what a caller asks for, checked and turned into parameters ------------------------

SAME_JSON: Final = "sealpoint_same_json"
_FILTER_KEY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _require_integer(name: str, number: float) -> float:
    """Return ``number``, if SQLite can hold it: integers have 64 bits there."""
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

    Keys first, rows later: SQLite would carry whole values through its sort.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ConfigError(f"limit is {excerpt(str(limit))}; it is a whole number, 0 or more")
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
            raise ConfigError(f"filter key {excerpt(key)} is not made of letters, digits, '_', '-' and '.'")
        conditions.append(_filter_condition(key, value))
    if before is not None:
        checkpoint_id = optional_text(configurable_of(before), "checkpoint_id")
        if checkpoint_id is None:
            raise ConfigKeyError("'before' names no 'checkpoint_id', so it is before nothing")
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
        raise ConfigError(f"filter value of {key!r} is {type(value).__name__}, which JSON does not have")
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
        raise ConfigError(f"filter value of {key!r} has no form in JSON") from None
    return text


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the function that filters use. No schema may use it: none is trusted."""
    connection.create_function(SAME_JSON, 1, guard.keeping_cause(_is_same_json), deterministic=True)


def _is_same_json(pair: str) -> bool:
    """Whether both elements of a JSON array are the same JSON value, whatever the order of keys."""
    try:
        stored, wanted = parse(pair.encode(), MAX_DEPTH + 1, 2 * (MAX_ELEMENTS + 1))
    except DecodeError:  # what is stored is not strict JSON: it is no value
        return False
    return are_same(stored, wanted)
