"""Checks that the tables of a SQLite file are those of LangGraph's checkpoint-sqlite.

Any other schema is refused: a trigger, a generated column, or a view in place of a table would run SQL of the
file's author within sealpoint's statements.
"""

# ruff: noqa: S608 -- the names of tables in statements are our own

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from sealpoint.errors import OldTablesError, SchemaError, excerpt

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
_STARTS: Final = {  # how SQLite stores the beginning of each statement
    "table": ("CREATE TABLE ", "CREATE VIRTUAL TABLE "),
    "index": ("CREATE INDEX ", "CREATE UNIQUE INDEX "),
    "view": ("CREATE VIEW ",),
    "trigger": ("CREATE TRIGGER ",),
}
# No pragma lists the checks of a table: only its statement shows them.
_ACTING: Final = re.compile(r"\b(COLLATE|CHECK|GENERATED|REFERENCES)\b", re.IGNORECASE)
_DEFAULTS: Final = (None, "''", "NULL")
# Accepted in tables of LangGraph's Store and refused elsewhere, like the defaults of `_TIMES`.
_REFERENCE: Final = "FOREIGN KEY (prefix, key) REFERENCES store(prefix, key) ON DELETE CASCADE )"
EXPIRY: Final = "CREATE INDEX idx_store_expires_at ON store (expires_at) WHERE expires_at IS NOT NULL"
_SPACES: Final = re.compile(r"\s+", re.ASCII)


class _Object(NamedTuple):
    type: str
    name: str
    table: str
    sql: str | None
    root: int

    @property
    def statement(self) -> str:
        """The statement, with each run of white space replaced by one space."""
        return _SPACES.sub(" ", self.sql or "")


def _columns(text: str) -> dict[str, tuple[str, int]]:
    columns = (column.split() for column in text.split(",") if column)
    return {name: (kind, int(place)) for name, kind, place in columns}


def table_names(cursor: sqlite3.Cursor) -> list[str]:
    """Return the names of all tables, including virtual tables."""
    return sorted(each.name for each in _objects(cursor) if each.type == "table")


def require_unhidden(cursor: sqlite3.Cursor, names: Collection[str] = SAVER) -> None:
    """Check that no temporary object of the connection hides one of the tables, or acts on it."""
    for name, table in cursor.execute("SELECT name, tbl_name FROM temp.sqlite_master").fetchall():
        if not {_lower(name), _lower(table)}.isdisjoint(names):
            raise SchemaError(
                f"a temporary table, view or trigger {excerpt(name)} hides or changes table {excerpt(table)}"
            )


def has_task_path(cursor: sqlite3.Cursor) -> bool:
    """Whether ``writes`` has the column ``task_path``, which older databases lack."""
    return "task_path" in columns_of(cursor, "writes")


def columns_of(cursor: sqlite3.Cursor, table: str) -> set[str]:
    """Return the names of the columns of a table; none if there is no such table."""
    return {row[1] for row in cursor.execute(f"PRAGMA main.table_xinfo({table})").fetchall()}


def quoted(name: str) -> str:
    """Return the name of a table or a column in the quotation marks of SQL."""
    return '"{}"'.format(name.replace('"', '""'))


def stored_columns(cursor: sqlite3.Cursor, table: str) -> list[str]:
    """Return the names of the stored columns; reading a virtual column may call functions."""
    rows = cursor.execute(f"PRAGMA main.table_xinfo({quoted(table)})").fetchall()
    return [name for _, name, _, _, _, _, hidden in rows if hidden in (0, 3)]


def store_names(cursor: sqlite3.Cursor) -> tuple[str, ...]:
    """Return the table names of LangGraph's Store; no names if ``store`` is missing or has other columns."""
    found = set(map(_lower, columns_of(cursor, "store")))  # a store would use them in any case of letters
    return STORE if {"prefix", "key", "value"} <= found else ()


def require_age(cursor: sqlite3.Cursor, table: str) -> None:
    """Raise `OldTablesError` for a table of LangGraph before 0.2. The connection may return text as bytes."""
    if not columns_of(cursor, table).isdisjoint({"thread_ts", b"thread_ts"}):
        raise OldTablesError


def require_tables(cursor: sqlite3.Cursor, names: Collection[str] = SAVER) -> set[str]:
    """Check the schema, and that each table of ``names`` that exists has the form that LangGraph creates.

    Tables with other names are not checked. Return the names of the tables that exist.
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
            raise SchemaError(f"the schema refers to table {table!r}, which does not exist")
    return {_lower(each.name) for each in objects}.intersection(names)


def _lower(name: str) -> str:
    """Return a name as SQLite compares it: without regard to the case of ASCII letters."""
    return name.lower() if name.isascii() else name


def _objects(cursor: sqlite3.Cursor) -> list[_Object]:
    """Return the rows of sqlite_master.

    SQLite reads these rows as C strings, from any storage class. A row that SQLite would read
    differently from this function is refused.
    """
    (encoding,) = cursor.execute("PRAGMA main.encoding").fetchone()
    objects = [_object(row, encoding) for row in cursor.execute(_MASTER).fetchall()]
    names = [(each.type == "trigger", _lower(each.name)) for each in objects]
    if len(set(names)) < len(names):
        raise SchemaError("the schema has two objects with the same name")
    roots = [each.root for each in objects if each.root]
    if len(set(roots)) < len(roots):  # an index would yield rows of another table or key
        raise SchemaError("two tables or indexes share the same root page")
    return objects


def _object(row: tuple[Any, ...], encoding: str) -> _Object:
    has_text, has_root, lacks_root, has_sql, lacks_sql, *texts, root = row
    if not (has_text and (has_root or lacks_root) and (has_sql or lacks_sql)):
        raise SchemaError("a row of sqlite_master has other types than text and a page number")
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
            raise SchemaError(f"the schema has no statement for {excerpt(name)}")
    elif not sql.startswith(_STARTS[kind]):
        raise SchemaError(f"the statement of {excerpt(name)} in the schema does not match its type")
    is_stored = kind == "index" or (kind == "table" and not (sql or "").startswith("CREATE VIRTUAL"))
    if (found.root > 0) is not is_stored or found.root < 0:
        raise SchemaError(f"the schema gives no valid root page for {excerpt(name)}")
    return found


def _require_plain(related: Iterable[_Object], table: str) -> None:
    """Check that a table is a real table, without triggers or expressions that would run by themselves."""
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
        # An older release of LangGraph omits a column when it inserts a row: a default would fill it.
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
        raise SchemaError(f"table {table!r} has an optional column of another type")


def _require_row_ids(cursor: sqlite3.Cursor, table: str) -> None:
    try:
        cursor.execute(f"SELECT rowid FROM main.{table} LIMIT 0").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise SchemaError(f"table {table!r} was created WITHOUT ROWID") from None


def _require_indexes(
    cursor: sqlite3.Cursor, table: str, needed: dict[str, tuple[str, int]], related: Iterable[_Object]
) -> None:
    """Check that the primary key has its own index, and that all other indexes are plain and not unique."""
    key = [name for place, name in sorted((place, name) for name, (_, place) in needed.items() if place)]
    expiry = {each.name for each in related if each.statement == EXPIRY}
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
        elif unique:  # a new row would replace another, or be ignored
            raise SchemaError(f"table {table!r} has a unique index {excerpt(name)}")
    is_row_id = [needed[name] for name in key] == [("INTEGER", 1)]  # such a key has no separate index
    if primary != ([] if is_row_id else [(f"sqlite_autoindex_{table}_1", key, False)]):
        raise SchemaError(f"table {table!r} lacks SQLite's own index of its primary key")
