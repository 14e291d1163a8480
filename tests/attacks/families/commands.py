"""What a file says about itself, and the commands and the saver that work on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.sqlitefile import honest
from fuzz.sqlitefile.commands import NAMES, WrongAnswerError, opened, read_file, require
from fuzz.sqlitefile.edits import (
    ROOT,
    SQL,
    TABLE_NAME,
    TYPE,
    add_loot,
    add_schema_row,
    make_dag,
    root_of,
    schema,
    write_schema,
)
from fuzz.sqlitefile.format import SqliteFile, Value, encode_record
from fuzz.sqlitefile.oracle import VALUES
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.rotate import rotate
from sealpoint.crypto import RingCipher
from sealpoint.sqlite import SqliteSaver
from tests.attacks.case import Case, Read, Reading, Scene
from tests.attacks.maintenance import COUNTERS, ONE_OLD_KEY, READERS, TWO_KEYS, cases, mark_if_run

SLOW = "hex(zeroblob(60000000))"
"""Takes about 0.3 s and 180 MB."""


# --- triggers that are not told from other rows of the schema -----------------------------------


def _trigger(
    table: str, event: str, act: str, kind: Value, tbl_name: Value, as_blob: bool, file: SqliteFile
) -> None:
    add_loot(file)
    body = f"INSERT INTO loot VALUES ('ran'); {act};"
    sql = f"CREATE TRIGGER evil {event} ON {table} BEGIN {body} END"
    add_schema_row(file, kind, "evil", tbl_name, 0, sql.encode() if as_blob else sql)


def triggers() -> Iterator[Case]:
    """Rows whose type or table is a BLOB or holds a NUL: to SQLite they are triggers all the same."""
    for label, kind, hides_table, as_blob in (
        ("as it is", "trigger", False, False),
        ("BLOB type", b"trigger", False, False),
        ("NUL in its type", "trigger\0", False, False),
        ("type table", "table", False, False),
        ("no type", None, False, False),
        ("BLOB tbl_name", "trigger", True, False),
        ("NUL in tbl_name", "trigger", None, False),
        ("BLOB type and sql", b"trigger", False, True),
    ):
        for table in ("checkpoints", "writes"):
            name: Value = {False: table, True: table.encode(), None: f"{table}\0"}[hides_table]
            for command, event, act in (
                ("put", "AFTER INSERT", "DELETE FROM writes"),
                ("rotate", "AFTER UPDATE", "DELETE FROM writes WHERE rowid > 1"),
                ("decrypt", "BEFORE UPDATE", "UPDATE writes SET channel = 'forged'"),
            ):
                if command == "put" and table == "writes":
                    continue
                tamper = partial(_trigger, table, event, act, kind, name, as_blob)
                yield from cases("hidden", f"a trigger of {table}, {label}", tamper, [command])


# --- roots, clauses and indexes -----------------------------------------------------------------


def _row(name: str, change: Callable[[list[Value]], None], file: SqliteFile) -> None:
    """Change a row of the schema."""
    rows = schema(file)
    for _, row in rows:
        if row[1] == name:
            change(row)
    write_schema(file, rows)


def _as_blob(column: int, row: list[Value]) -> None:
    row[column] = str(row[column]).encode()


def _clause(table: str, before: str, after: str, column: int, file: SqliteFile) -> None:
    """Put a clause into a table whose row of the schema is not told from others."""

    def change(row: list[Value]) -> None:
        row[SQL] = str(row[SQL]).replace(before, after, 1)
        _as_blob(column, row)

    _row(table, change, file)


def _shared_root(file: SqliteFile) -> None:
    """Let the index of one table stand on the page of another's, with a root page that is no number."""
    other = root_of(file, "sqlite_autoindex_writes_1")

    def change(row: list[Value]) -> None:
        row[ROOT] = str(other).encode()

    _row("sqlite_autoindex_checkpoints_1", change, file)


def schemas() -> Iterator[Case]:
    """Root pages, checks and collations that a comparison of texts and numbers does not see."""
    for name in ("checkpoints", "writes", "sqlite_autoindex_checkpoints_1"):
        yield from cases("hidden", f"BLOB rootpage of {name}", partial(_row, name, partial(_as_blob, ROOT)))
    yield from cases("hidden", "BLOB rootpage on another's page", _shared_root)
    for label, column in (("BLOB type", TYPE), ("BLOB tbl_name", TABLE_NAME)):
        for clause, before, after in (
            ("a slow CHECK", "metadata BLOB", f"metadata BLOB, CHECK ({SLOW} <> type)"),
            ("COLLATE NOCASE", "checkpoint_id TEXT", "checkpoint_id TEXT COLLATE NOCASE"),
        ):
            tamper = partial(_clause, "checkpoints", before, after, column)
            yield from cases(
                "hidden", f"{clause} in a table of {label}", tamper, ["put", "rotate", "decrypt"]
            )


def _index(table: str, columns: str, rows: list[list[Value]], file: SqliteFile) -> None:
    root = file.append()
    file.write_tree(root, [(0, encode_record(row)) for row in rows], is_table=False)
    add_schema_row(file, "index", "evil", table, root, f"CREATE INDEX evil ON {table} ({columns})")


def _both(columns: str, rows: list[list[Value]], file: SqliteFile) -> None:
    """Add an index to both tables; ``VALUE`` stands for the column of their values."""
    for table, value in VALUES.items():
        root = file.append()
        file.write_tree(root, [(0, encode_record(row)) for row in rows], is_table=False)
        sql = f"CREATE INDEX evil_{table} ON {table} ({columns.replace('VALUE', value)})"
        add_schema_row(file, "index", f"evil_{table}", table, root, sql)


def _key_index(change: Callable[[list[Any]], list[Any]], file: SqliteFile) -> None:
    for table in ("checkpoints", "writes"):
        root = root_of(file, f"sqlite_autoindex_{table}_1")
        file.write_tree(root, change(file.entries(root)), is_table=False)


def indexes() -> Iterator[Case]:
    """Indexes that disagree with their table."""
    done: list[list[Value]] = [["msgpack+cobblestone256@k1", b"x", number] for number in range(1, 4)]
    for label, rows in (("empty", list[list[Value]]()), ("of other tags", done)):
        commands = [*COUNTERS, "status", "verify", "types"]
        tamper = partial(_both, "type, VALUE", rows)
        yield from cases("indexes", f"a second index, {label}", tamper, commands)
        tamper = partial(_both, "type, VALUE", rows)
        yield from cases("indexes", f"a second index of one key, {label}", tamper, COUNTERS, ONE_OLD_KEY)
    yield from cases("indexes", "a second index over tag and thread", partial(_both, "type, thread_id", []))
    tamper = partial(_index, "checkpoints", "metadata", [])
    yield from cases("indexes", "an index of metadata", tamper, ["audit"])
    for label, change in (
        ("emptied", lambda entries: []),
        ("halved", lambda entries: entries[::2]),
        ("reversed", lambda entries: entries[::-1]),
        ("doubled", lambda entries: [*entries, *entries]),
    ):
        commands = [*READERS, "rotate", "decrypt"]
        yield from cases("indexes", f"a primary key's index, {label}", partial(_key_index, change), commands)
    yield Case("indexes", "an index over a slow expression [20 puts]", _slow_index, shared=False)


# --- trees and pages ----------------------------------------------------------------------------


def _dag(name: str, file: SqliteFile) -> None:
    make_dag(file, root_of(file, name), 40, 7)


def _cut(pages: int, is_stale: bool, file: SqliteFile) -> None:
    del file.pages[-pages:]
    if is_stale:  # SQLite then believes the size of the file, and not what the header says
        file.set_field("version valid for", file.get_field("change counter") + 1)


def trees() -> Iterator[Case]:
    """A tree whose pages share their children, and files that lack pages."""
    for name in ("checkpoints", "writes", "sqlite_autoindex_checkpoints_1", "sqlite_autoindex_writes_1"):
        yield from cases("trees", f"a DAG as {name}", partial(_dag, name))
        yield Case("trees", f"a DAG as {name} [rotate --max-seconds 1]", _timed(name), shared=False)
    for name in ("checkpoints", "sqlite_autoindex_checkpoints_1"):
        for label, options in (
            ("all", {}),
            ("limit", {"limit": 1}),
            ("filter", {"filter": {"step": 1}}),
            ("namespace", {"config": honest.at("thread of k1")}),
        ):
            case = _listed(name, options)
            yield Case("trees", f"a DAG as {name} [list, {label}]", case, shared=False)
    for pages in (1, 2, 4):
        for is_stale in (False, True):
            label = f"cut by {pages} pages{', with stale counters' if is_stale else ''}"
            yield from cases("trees", label, partial(_cut, pages, is_stale))


def _write(scene: Scene, tamper: Callable[[SqliteFile], None] | None = None) -> Path:
    file = SqliteFile(honest.make(TWO_KEYS).data)
    if tamper:
        tamper(file)
    folder = scene.directory / "place"
    folder.mkdir()
    path = folder / "checkpoints.db"
    path.write_bytes(file.to_bytes())
    return path


def _timed(name: str) -> Callable[[Scene], Read]:
    """A run that is given a second, and ends after it; the walk over a table comes to no end."""

    def forge(scene: Scene) -> Read:
        path = _write(scene, partial(_dag, name))

        def read() -> Reading:
            from sealpoint.admin.cli import app

            ring = path.with_name("keys.toml")
            ring.write_text(_RING, encoding="ascii")
            ring.chmod(0o600)
            code = app.run(["rotate", str(path), "--apply", "--max-seconds", "1", "--keys", str(ring)])
            return Reading(code, whole=code != 0 or name.startswith("sqlite_autoindex"))

        return read

    return forge


_RING = "\n".join(
    [
        "version = 1",
        "active = 'k1'",
        *(
            f"[[key]]\nid = '{key_id}'\nstate = '{'active' if key_id == 'k1' else 'decrypt-only'}'\n"
            f"source = {{ inline = '{honest.material(key_id).hex()}' }}"
            for key_id in honest.KEYS
        ),
        "",
    ]
)


def _listed(name: str, options: dict[str, Any]) -> Callable[[Scene], Read]:
    def forge(scene: Scene) -> Read:
        path = _write(scene, partial(_dag, name))

        def read() -> Reading:
            with closing(sqlite3.connect(path)) as connection:
                saver = SqliteSaver(connection, serde=honest.serde())
                found = list(saver.list(**{"config": None, **options}))
            names = [tuple(each.config["configurable"].values()) for each in found]
            return Reading(names, len(names) == len(set(names)))

        return read

    return forge


def _slow_index(scene: Scene) -> Read:
    path = _write(scene, partial(_index, "checkpoints", f"length({SLOW})", []))

    def read() -> Reading:
        with closing(sqlite3.connect(path)) as connection:
            saver = SqliteSaver(connection, serde=honest.serde())
            for number in range(20):
                saver.put(honest.at("new"), honest.checkpoint(number), {}, {})
        return Reading(None, whole=True)

    return read


# --- what changes after the check ---------------------------------------------------------------


_EVIL = {
    "a trigger": "CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN"
    " INSERT INTO loot VALUES ('ran'); DELETE FROM writes; END",
    "a view": "ALTER TABLE checkpoints RENAME TO old; CREATE VIEW checkpoints AS SELECT thread_id,"
    " checkpoint_ns, checkpoint_id, 'c0000' AS parent_checkpoint_id, type, checkpoint,"
    " '{\"step\": 77}' AS metadata FROM old",
    "a trigger on updates": "CREATE TRIGGER evil AFTER UPDATE ON checkpoints BEGIN"
    " INSERT INTO loot VALUES ('ran'); DELETE FROM writes; END",
}


def _open_saver(label: str, act: str, setting: str = "") -> Callable[[Scene], Read]:
    """A saver that has checked the schema, and another connection that changes it then."""

    def forge(scene: Scene) -> Read:
        path = _write(scene, add_loot)
        before = read_file(path)

        def read() -> Reading:
            with closing(sqlite3.connect(path)) as connection:
                saver = SqliteSaver(connection, serde=honest.serde())
                if setting:  # then the check itself comes late
                    _SETTINGS[setting](connection)
                else:
                    saver.get_tuple(honest.at("thread of k1"))
                with closing(sqlite3.connect(path)) as other:
                    other.executescript(_EVIL[label])
                try:
                    if act == "put":
                        saver.put(honest.at("new"), honest.checkpoint(7), {"step": 7}, {})
                        found = None
                    else:
                        found = saver.get_tuple(honest.at("thread of k1"))
                finally:
                    connection.rollback()
            mark_if_run(scene, path.parent)
            right = found is None or found.metadata.get("step") != 77
            with closing(sqlite3.connect(path)) as other:  # empties the log
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if right and label != "a view":
                rest = [row for row in read_file(path).rows if row.columns["thread_id"] != "new"]
                right = opened(rest) == opened(before.rows)
            return Reading(found, right)

        return read

    return forge


def _bytes_factory(connection: sqlite3.Connection) -> None:
    connection.text_factory = bytes


def _dict_factory(connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }


def _row_factory(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row


_SETTINGS: dict[str, Callable[[sqlite3.Connection], None]] = {
    "text_factory = bytes": _bytes_factory,
    "row_factory = dicts": _dict_factory,
    "row_factory = sqlite3.Row": _row_factory,
}


def _between_batches(scene: Scene) -> Read:
    """A rotation, and another connection that makes a trigger after the first batch."""
    path = _write(scene, add_loot)
    before = read_file(path)

    def read() -> Reading:
        try:
            with closing(SqliteRows(path, writable=True)) as store:
                run = rotate(store, RingCipher(honest.ring("k3")), batch=Batch(rows=4))
                next(run)
                store.settle()
                with closing(sqlite3.connect(path)) as other:
                    other.executescript(_EVIL["a trigger on updates"])
                for _ in run:
                    pass
        finally:
            mark_if_run(scene, path.parent)
        try:
            require(opened(read_file(path).rows) == opened(before.rows), "rotated to other values")
        except WrongAnswerError as error:
            return Reading(str(error), whole=False)
        return Reading(None, whole=True)

    return read


def _attached(scene: Scene) -> Read:
    """A file without ``writes``, on a connection that has attached one with it."""
    path = _write(scene, partial(_drop, "writes"))
    other = path.with_name("other.db")
    other.write_bytes(honest.make(TWO_KEYS).data)

    def read() -> Reading:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ATTACH ? AS other", (str(other),))
            saver = SqliteSaver(connection, serde=honest.serde())
            found = list(saver.list(None))
            connection.execute("DETACH other")
        return Reading(found, not any(each.pending_writes for each in found))

    return read


def _attached_read_only(scene: Scene) -> Read:
    """The same where nothing may be made in the file."""
    path = _write(scene, partial(_drop, "writes"))
    other = path.with_name("other.db")
    other.write_bytes(honest.make(TWO_KEYS).data)

    def read() -> Reading:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("ATTACH ? AS other", (str(other),))
            saver = SqliteSaver(connection, serde=honest.serde())
            found = list(saver.list(None))
        return Reading(found, not any(each.pending_writes for each in found))

    return read


def _drop(table: str, file: SqliteFile) -> None:
    write_schema(file, [(number, row) for number, row in schema(file) if row[TABLE_NAME] != table])


def changes() -> Iterator[Case]:
    """Schemas that change after the check, and connections with settings of their own."""
    for label, act in (("a trigger", "put"), ("a view", "get_tuple")):
        name = f"{label} that comes after the check [{act}]"
        yield Case("changes", name, _open_saver(label, act), shared=False)
        for setting in _SETTINGS:
            name = f"{label} on a connection with {setting} [{act}]"
            yield Case("changes", name, _open_saver(label, act, setting), shared=False)
    yield Case("changes", "a trigger between two batches [rotate]", _between_batches, shared=False)
    yield Case("changes", "no writes, and an attached file that has them [list]", _attached, shared=False)
    name = "no writes, read only, and an attached file that has them [list]"
    yield Case("changes", name, _attached_read_only, shared=False)


def families() -> Iterator[Case]:
    """All cases of this module."""
    for shape in (TWO_KEYS, ONE_OLD_KEY, *honest.SHAPES):
        honest.make(shape)  # here, so that not each process makes them
    for family in (triggers, schemas, indexes, trees, changes):
        yield from family()


__all__ = ["NAMES", "families"]
