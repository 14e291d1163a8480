"""Tables that are not what they should be."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.attacks.case import Case
from tests.attacks.stores import apply, cases

CHECKPOINTS: Final = (
    "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
)
TYPES: Final = """thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB"""
KEY: Final = "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)"
_FORGED: Final = "replace(CAST(metadata AS TEXT), '2', '7')"
ENDLESS: Final = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def as_table(definition: str) -> str:
    """Replace the table by what ``definition`` makes, with the same rows where it has columns for them."""
    return f"""ALTER TABLE checkpoints RENAME TO old; CREATE TABLE checkpoints ({definition});
        INSERT INTO checkpoints ({CHECKPOINTS}) SELECT {CHECKPOINTS} FROM old; DROP TABLE old"""


def as_view(body: str, table: str = "checkpoints") -> str:
    return f"ALTER TABLE {table} RENAME TO old; CREATE VIEW {table} AS {body}"


def _master(change: str) -> str:
    return f"PRAGMA writable_schema = ON; {change}; PRAGMA writable_schema = OFF"


def views() -> Iterator[Case]:
    """Views, virtual tables and computed columns that make values up while they are read."""
    forged = (
        f"SELECT thread_id, checkpoint_ns, checkpoint_id, 'c1' AS parent_checkpoint_id, type, "
        f"checkpoint, {_FORGED} AS metadata FROM old"
    )
    for label, script in (
        ("a view", as_view(forged)),
        ("a view in capitals", as_view(forged).replace("VIEW checkpoints", "VIEW CHECKPOINTS")),
        (
            "a view of writes",
            as_view(
                "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, 'forged' "
                "AS channel, type, value FROM old",
                "writes",
            ),
        ),
        ("a view that never ends", as_view(f"SELECT *, ({ENDLESS}) AS more FROM old")),
        (
            "a view that never ends, of writes",
            as_view(f"SELECT o.* FROM old AS o WHERE ({ENDLESS}) > 0", "writes"),
        ),
        (
            "a view that takes all memory",
            as_view(
                "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, "
                "zeroblob(900000000) AS checkpoint, metadata FROM old"
            ),
        ),
        (
            "a view of many rows",
            as_view(
                "SELECT o.* FROM old AS o, (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n WHERE i < 3000000) SELECT i FROM n)"
            ),
        ),
        ("a generated column", as_table(f"{TYPES}, forged TEXT AS (type || 'x'), {KEY}")),
        (
            "generated metadata",
            f"""ALTER TABLE checkpoints RENAME TO old; CREATE TABLE checkpoints (
            {TYPES.replace("metadata BLOB", "metadata BLOB AS ('{}')")}, {KEY});
            INSERT INTO checkpoints SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,
            type, checkpoint FROM old""",
        ),
        ("a full-text table", _full_text),
        (
            "a virtual table that is not there",
            f"ALTER TABLE writes RENAME TO old; {_master(_virtual('writes'))}",
        ),
    ):
        yield from cases("schemas", label, script)


def _full_text(path: Path) -> None:
    """Make a full-text table with the same rows; one that cannot be read where SQLite has no such tables."""
    real = (
        f"CREATE VIRTUAL TABLE checkpoints USING fts4({CHECKPOINTS}); INSERT INTO checkpoints "
        f"SELECT * FROM old"
    )
    apply("ALTER TABLE checkpoints RENAME TO old", path)
    try:
        apply(real, path)
    except sqlite3.OperationalError:
        apply(_master(_virtual("checkpoints")), path)


def _virtual(table: str) -> str:
    return (
        f"INSERT INTO sqlite_master VALUES ('table', '{table}', '{table}', 0, 'CREATE VIRTUAL "
        f"TABLE {table} USING evil(a)')"
    )


def tables() -> Iterator[Case]:
    """Tables with other columns, keys, collations and checks."""
    for label, script in (
        (
            "NOCASE threads",
            as_table(TYPES.replace("thread_id TEXT", "thread_id TEXT COLLATE NOCASE") + ", " + KEY),
        ),
        (
            "RTRIM ids",
            as_table(TYPES.replace("checkpoint_id TEXT", "checkpoint_id TEXT COLLATE RTRIM", 1) + ", " + KEY),
        ),
        (
            "an unknown collation",
            _master(
                "UPDATE sqlite_master SET sql = replace(sql, 'thread_id TEXT', 'thread_id TEXT "
                "COLLATE evil') WHERE name = 'checkpoints'"
            ),
        ),
        ("a check", as_table(f"{TYPES}, CHECK (length(type) > 0), {KEY}")),
        (
            "a check in a comment",
            as_table(f"{TYPES} /* x */, CONSTRAINT c CHECK/**/(length(type) > 0), {KEY}"),
        ),
        (
            "a reference",
            as_table(
                f"{TYPES}, FOREIGN KEY (thread_id) REFERENCES writes (thread_id) ON DELETE CASCADE, {KEY}"
            ),
        ),
        ("no rowid", as_table(f"{TYPES}, {KEY}) WITHOUT ROWID; --")),
        ("no primary key", as_table(TYPES)),
        ("another primary key", as_table(f"{TYPES}, PRIMARY KEY (checkpoint_id, thread_id, checkpoint_ns)")),
        ("a key of one column", as_table(f"{TYPES}, PRIMARY KEY (checkpoint_id)")),
        ("a key that replaces", as_table(f"{TYPES}, {KEY} ON CONFLICT IGNORE")),
        ("a column more", "ALTER TABLE checkpoints ADD COLUMN evil TEXT DEFAULT 'x'"),
        ("a column less", "ALTER TABLE checkpoints DROP COLUMN metadata"),
        ("no type of the value", "ALTER TABLE writes DROP COLUMN type"),
        ("a unique index", "CREATE UNIQUE INDEX evil ON checkpoints (parent_checkpoint_id)"),
        (
            "a unique index on a part",
            "CREATE UNIQUE INDEX evil ON checkpoints (type) WHERE checkpoint_id = 'c3'",
        ),
        (
            "a text column for blobs",
            as_table(f"{TYPES.replace('checkpoint BLOB', 'checkpoint TEXT')}, {KEY}"),
        ),
        (
            "numbers for ids",
            as_table(f"{TYPES.replace('checkpoint_id TEXT', 'checkpoint_id NUMERIC', 1)}, {KEY}"),
        ),
        ("a strict table", as_table(f"{TYPES}, {KEY}) STRICT; --")),
        ("other columns in quotes", as_table(f'{TYPES}, "type " TEXT, {KEY}')),
        (
            "a task_path that is a blob",
            "ALTER TABLE writes DROP COLUMN task_path; ALTER TABLE writes ADD COLUMN task_path BLOB "
            "DEFAULT x'00'",
        ),
    ):
        yield from cases("schemas", label, script)
    for label, script in (
        (
            "an index on an expression",
            "CREATE INDEX evil ON checkpoints (json_extract(CAST(metadata AS TEXT), '$.step'))",
        ),
        ("an index on a part of writes", "CREATE INDEX evil ON writes (length(value)) WHERE idx > 0"),
        (
            "tables of strangers",
            "CREATE TABLE evil (a); CREATE VIEW evil2 AS SELECT load_extension('x') AS a; CREATE "
            'TABLE "a b" (c)',
        ),
        ("a view that cannot be read", "CREATE VIEW evil AS SELECT * FROM missing"),
        (
            "a table called sqlite_evil",
            _master(
                "INSERT INTO sqlite_master VALUES ('table', 'sqlite_evil', 'sqlite_evil', 0, "
                "'CREATE TABLE sqlite_evil (a)')"
            ),
        ),
        (
            "lies for the planner",
            "ANALYZE; INSERT INTO sqlite_stat1 VALUES ('checkpoints', NULL, '0 x y'), ('writes', "
            "'sqlite_autoindex_writes_1', '999999999999999 1 1')",
        ),
        ("2,000 tables", "".join(f"CREATE TABLE t{n} (a);" for n in range(2000))),
        ("another user version", "PRAGMA user_version = 99; PRAGMA application_id = 77"),
    ):
        yield from cases("schemas", label, script)


def masters() -> Iterator[Case]:
    """A table of tables that lies."""
    where = "WHERE type = 'table' AND name = 'checkpoints'"
    for label, change in (
        ("no SQL", f"UPDATE sqlite_master SET sql = NULL {where}"),
        ("half a statement", f"UPDATE sqlite_master SET sql = 'CREATE TABLE checkpoints (' {where}"),
        ("another statement", f"UPDATE sqlite_master SET sql = 'DROP TABLE writes' {where}"),
        ("a number for SQL", f"UPDATE sqlite_master SET sql = 5 {where}"),
        ("a blob for SQL", f"UPDATE sqlite_master SET sql = CAST(sql AS BLOB) {where}"),
        (
            "10 MB of SQL",
            f"UPDATE sqlite_master SET sql = sql || '/*' || replace(hex(zeroblob(2500000)), '00', "
            f"'abcd') || '*/' {where}",
        ),
        ("another type", f"UPDATE sqlite_master SET type = 'evil' {where}"),
        (
            "the pages of the other",
            f"UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = "
            f"'writes' AND type = 'table') {where}",
        ),
        ("page 1", f"UPDATE sqlite_master SET rootpage = 1 {where}"),
        ("page 0", f"UPDATE sqlite_master SET rootpage = 0 {where}"),
        ("page -5", f"UPDATE sqlite_master SET rootpage = -5 {where}"),
        ("a page far away", f"UPDATE sqlite_master SET rootpage = 4000000000 {where}"),
        ("a table twice", "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = 'checkpoints'"),
        (
            "a name twice",
            "INSERT INTO sqlite_master SELECT 'view', name, name, 0, 'CREATE VIEW checkpoints AS "
            "SELECT 1' FROM sqlite_master WHERE name = 'writes'",
        ),
        ("no index", "DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_checkpoints_1'"),
        (
            "deep default",
            f"UPDATE sqlite_master SET sql = replace(sql, 'type TEXT', 'type TEXT DEFAULT "
            f"({'(' * 500}1{')' * 500})') {where}",
        ),
        ("another name", f"UPDATE sqlite_master SET name = 'CHECKPOINTS', tbl_name = 'evil' {where}"),
    ):
        yield from cases("schemas", f"master: {label}", _master(change))
    shadow = f"""CREATE TABLE shadow ({TYPES}, {KEY});
        INSERT INTO shadow SELECT thread_id, checkpoint_ns, CASE checkpoint_id
        WHEN 'c1' THEN 'c3' WHEN 'c3' THEN 'c1' WHEN 'd1' THEN 'd1' ELSE 'c2' END,
        parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints;"""
    other = (
        "rootpage = (SELECT rootpage FROM sqlite_master WHERE name = "
        "'sqlite_autoindex_shadow_1') WHERE name = 'sqlite_autoindex_checkpoints_1'"
    )
    lies = shadow + _master(f"UPDATE sqlite_master SET {other}")
    yield from cases("schemas", "master: an index of other rows", lies)
    moved = shadow.replace(
        "SELECT thread_id,", "SELECT CASE thread_id WHEN 't' THEN 'u' ELSE 't' END,"
    ) + _master(f"UPDATE sqlite_master SET {other}")
    yield from cases("schemas", "master: an index of other threads", moved)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for family in (views, tables, masters):
        yield from family()
