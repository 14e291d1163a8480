"""Schemas that say one thing to a reader of sqlite_master and another to SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.errors import DatabaseCorruptError, SchemaError, SealpointError
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, make
from tests.unit.sqlite.hostile import LOG, TRIGGER, edit, logged, write_file

SPY = (LOG, TRIGGER.format("INSERT", "checkpoints"))
ROW = "UPDATE sqlite_master SET {} WHERE name = '{}'"

EDITS: dict[str, tuple[str, ...]] = {
    "type of a trigger as a BLOB": (*SPY, ROW.format("type = CAST('trigger' AS BLOB)", "spy")),
    "type with a NUL": (*SPY, ROW.format("type = 'trigger' || char(0) || 'x'", "spy")),
    "table with a NUL": (*SPY, ROW.format("tbl_name = 'checkpoints' || char(0) || 'x'", "spy")),
    "SQL as a BLOB": (*SPY, ROW.format("sql = CAST(sql AS BLOB), tbl_name = x'61'", "spy")),
    "a trigger under the type of a table": (*SPY, ROW.format("type = 'table'", "spy")),
    "a page number as a BLOB": (
        LOG, ROW.format("rootpage = (SELECT CAST(CAST(rootpage AS TEXT) AS BLOB) FROM sqlite_master"
                        " WHERE name = 'checkpoints')", "log"),
    ),
    "a negative page": (LOG, ROW.format("rootpage = -2", "log")),
    "a page of its own for a view": ("CREATE VIEW v AS SELECT 1", ROW.format("rootpage = 2", "v")),
    "an unknown type": (LOG, ROW.format("type = 'thing'", "log")),
    "one name twice": (
        LOG, "INSERT INTO sqlite_master SELECT type, 'LOG', tbl_name, 0, sql FROM sqlite_master"
        " WHERE name = 'log'"
    ),
    "a table without a name": (
        ROW.format("tbl_name = ''", "sqlite_autoindex_writes_1"),
        ROW.format("name = '', tbl_name = ''", "writes"),
    ),
    "no name": (ROW.format("name = NULL", "checkpoints"),),
    "a check under the name of another table": (
        LOG,
        ROW.format("name = 'a', tbl_name = 'a'", "log"),
        ROW.format("name = 'log', tbl_name = 'log',"
                   " sql = replace(sql, 'type TEXT', 'type TEXT CHECK (length(type) < 99)')", "checkpoints"),
        ROW.format("name = 'checkpoints', tbl_name = 'checkpoints'", "a"),
    ),
    "an index over an expression": ("CREATE INDEX slow ON checkpoints (length(checkpoint))",),
    "an index over a part": ("CREATE INDEX part ON writes (channel) WHERE idx > 0",),
    "an index with a collation": ("CREATE INDEX folded ON writes (channel COLLATE NOCASE)",),
}  # fmt: skip


@pytest.mark.claim("f1")
@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("factory", [str, bytes], ids=["text", "bytes"])
def test_a_schema_that_hides_something_is_refused(
    tmp_path: Path, edits: tuple[str, ...], factory: type
) -> None:
    """By the saver, whatever the connection makes of text, and by maintenance; and nothing has run."""
    path = write_file(tmp_path / "x.db")
    edit(path, *edits)
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = factory
        saver = SqliteSaver(connection)
        for _ in range(2):
            with pytest.raises((SchemaError, DatabaseCorruptError)):
                saver.put(at(), make("9"), {}, {})
    with pytest.raises((SchemaError, DatabaseCorruptError)):
        SqliteRows(path, writable=True)
    if LOG in edits:
        with suppress(sqlite3.DatabaseError):  # of a schema that SQLite refuses, too
            assert logged(path) == 0


@pytest.mark.parametrize("table", ["checkpoints", "writes"])
def test_a_table_without_row_ids_is_refused_by_the_saver(tmp_path: Path, table: str) -> None:
    path = tmp_path / "x.db"
    write_file(tmp_path / "honest.db")
    with closing(sqlite3.connect(tmp_path / "honest.db")) as source, closing(sqlite3.connect(path)) as target:
        for name, sql in source.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"):
            target.execute(f"{sql} WITHOUT ROWID" if name == table else sql)
        with pytest.raises(SchemaError, match="WITHOUT ROWID"):
            SqliteSaver(target).setup()


LATER: dict[str, tuple[str, ...]] = {
    "hidden trigger": EDITS["type of a trigger as a BLOB"],
    "view": (
        "ALTER TABLE checkpoints RENAME TO old",
        "CREATE VIEW checkpoints AS SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id,"
        " type, checkpoint, CAST('{\"forged\": 1}' AS BLOB) AS metadata FROM old",
    ),
    "check": (
        ROW.format("sql = replace(sql, 'type TEXT', 'type TEXT CHECK (length(type) < 99)')", "checkpoints"),
    ),
}


@pytest.mark.claim("f1")
@pytest.mark.parametrize("edits", LATER.values(), ids=LATER)
def test_a_schema_that_changes_under_an_open_saver_is_refused(tmp_path: Path, edits: tuple[str, ...]) -> None:
    """Reads and writes look at its version in their own transactions."""
    path = write_file(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        assert saver.get_tuple(at("t0")) is not None
        edit(path, *edits)
        for act in (
            lambda: saver.put(at(), make("9"), {}, {}),
            lambda: saver.get_tuple(at("t0")),
            lambda: list(saver.list(None)),
            lambda: saver.delete_thread("t0"),
            lambda: saver.prune(["t0"]),
        ):
            with pytest.raises((SchemaError, DatabaseCorruptError)):
                act()
    if LOG in edits:
        with suppress(sqlite3.DatabaseError):
            assert logged(path) == 0


@pytest.mark.parametrize("edits", LATER.values(), ids=LATER)
def test_a_schema_that_changes_under_an_open_store_is_refused(tmp_path: Path, edits: tuple[str, ...]) -> None:
    path = write_file(tmp_path / "x.db")
    with closing(SqliteRows(path, writable=True)) as store:
        assert store.count()
        edit(path, *edits)
        for act in (
            store.count,
            lambda: store.read(CHECKPOINTS, None),
            lambda: list(store.key_texts()),
            lambda: list(store.records()),
        ):
            with pytest.raises((SchemaError, DatabaseCorruptError)):
                act()
        with pytest.raises(SealpointError):
            store.rewrite(CHECKPOINTS, None, lambda value: ("new", value.value))


def test_an_honest_change_of_the_schema_is_no_obstacle(tmp_path: Path) -> None:
    """Of the application's own tables, with triggers and views of its own on the same connection."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        saver = SqliteSaver(connection)
        saver.put(at(), make("1"), {}, {})
        connection.execute(LOG)
        connection.execute("CREATE TABLE mine (a)")
        connection.execute(TRIGGER.format("INSERT", "mine"))
        connection.execute("CREATE VIEW page AS SELECT what FROM log")
        saver.put(at(), make("2"), {}, {})
        connection.execute("INSERT INTO mine VALUES (1)")
        with saver.cursor() as cursor:
            cursor.execute("INSERT INTO mine VALUES (2)")
        assert connection.execute("SELECT * FROM page").fetchall() == [("ran",), ("ran",)]
        assert [found.checkpoint["id"] for found in saver.list(None)] == ["2", "1"]


@pytest.mark.parametrize("table", ["checkpoints", "writes"])
def test_a_table_that_is_dropped_later_is_missed(tmp_path: Path, table: str) -> None:
    """An attached one of its name does not stand in for it."""
    write_file(tmp_path / "other.db")
    path = write_file(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        found = saver.get_tuple(at("t0"))
        assert found is not None
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
        edit(path, f"DROP TABLE {table}")
        for act in (
            lambda: saver.get_tuple(at("t0")),
            lambda: saver.put(at("t0"), found.checkpoint, {}, {}),
            lambda: saver.put_writes(found.config, [("a", 1)], "task"),
            lambda: saver.get_tuple(at("t0")),
        ):
            with pytest.raises(SchemaError, match="is missing"):
                act()
        assert connection.execute(f"SELECT count(*) FROM other.{table}").fetchone() == (3,)
