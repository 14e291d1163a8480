"""What holds while a statement of ours runs, and what the application keeps on its own connection."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.errors import DatabaseCorruptError, EndlessTreeError, HaltedError, SchemaError, TextError
from sealpoint.guards import statements
from sealpoint.sqlite import SqliteSaver, schema
from sealpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.databases.checkpoints import at, ids_in, make, put_chain
from tests.support.runs.extent import by_extent
from tests.unit.sqlite.hostile import LOG, TRIGGER, edit, share_pages, write_file

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{}) SELECT count(*) FROM n"
PK = "sqlite_autoindex_checkpoints_1"

# --- trees ------------------------------------------------------------------------------------

LISTINGS: dict[str, Callable[[SqliteSaver], object]] = {
    "all": lambda saver: list(saver.list(None)),
    "thread": lambda saver: list(saver.list(at("t0"))),
    "no namespace": lambda saver: list(saver.list({"configurable": {"thread_id": "t0"}})),
    "filter": lambda saver: list(saver.list(None, filter={"step": 77})),
    "limit": lambda saver: list(saver.list(None, limit=1)),
    "before": lambda saver: list(saver.list(None, before=at("t0", "2"))),
    "runs": lambda saver: saver.delete_for_runs(["none"]),
    "delete": lambda saver: saver.delete_thread("t0"),
    "copy": lambda saver: saver.copy_thread("t0", "t1"),
    "prune": lambda saver: saver.prune(["t0"]),
}


@pytest.mark.claim("f5")
@pytest.mark.parametrize("name", LISTINGS)
def test_a_tree_whose_pages_are_shared_ends_a_saver(tmp_path: Path, name: str) -> None:
    """40 to the power of 8 leaves in a few kilobytes."""
    path = write_file(tmp_path / "x.db")
    share_pages(path, "checkpoints" if name in ("filter", "runs") else PK)
    # What is deleted through a shared page SQLite itself finds to be damaged.
    expected = DatabaseCorruptError if name == "delete" else EndlessTreeError
    with closing(sqlite3.connect(path)) as connection, pytest.raises(expected):
        LISTINGS[name](SqliteSaver(connection))


def test_the_smallest_rows_stay_far_within_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of it is enough for each query on rows as small as they come."""
    path, rows = tmp_path / "x.db", 20_000
    with closing(sqlite3.connect(path)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        numbers = [(str(number),) for number in range(rows)]
        connection.executemany("INSERT INTO checkpoints VALUES ('', '', ?, NULL, '', '', '{}')", numbers)
        connection.executemany("INSERT INTO writes VALUES ('', '', ?, '', '', 0, '', NULL, '')", numbers)
        connection.commit()
        monkeypatch.setattr(statements, "OPCODES_PER_BYTE", statements.OPCODES_PER_BYTE // 4)
        monkeypatch.setattr(statements, "LEAST_OPCODES", 0)
        assert list(saver.list(None, limit=0)) == []
        assert list(saver.list(None, filter={"a": 1, "b": None, "c": [1]})) == []
        saver.delete_for_runs(["none"])
        saver.copy_thread("", "copy")
        saver.delete_thread("copy")
    with closing(SqliteRows(path)) as store:
        assert sum(count.rows for count in store.count()) == 2 * rows
        assert len(list(store.records())) == rows
        assert len(list(store.key_texts())) >= 1


class Clock:
    """A clock of the thread that goes on by the same time whenever it is read."""

    def __init__(self, seconds: float) -> None:
        self._now, self._seconds = 0.0, seconds

    def thread_time(self) -> float:
        self._now += self._seconds
        return self._now


@pytest.mark.parametrize(("seconds", "ends"), [(0.001, False), (20.0, True)])
def test_a_statement_computes_no_longer_than_the_file_has_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, ends: bool
) -> None:
    """Each step may read the same pages: their number says nothing of the time."""
    path = write_file(tmp_path / "app.db", threads=50)
    with closing(SqliteRows(path)) as store:
        monkeypatch.setattr(statements, "STEP_OPCODES", 100)
        monkeypatch.setattr(statements, "time", Clock(seconds))
        if ends:
            with pytest.raises(EndlessTreeError, match="more bytes"):
                store.count()
        else:
            assert sum(count.rows for count in store.count()) >= 50


def test_a_file_that_grows_gets_a_larger_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as other:
        saver = SqliteSaver(connection)
        put_chain(saver, "1")
        monkeypatch.setattr(statements, "LEAST_OPCODES", statements.STEP_OPCODES)
        rows = [(str(number),) for number in range(30_000)]
        other.executemany("INSERT INTO checkpoints VALUES ('x', '', ?, NULL, '', '', '{}')", rows)
        other.commit()
        assert list(saver.list(None, filter={"a": 1})) == []


# --- indexes ----------------------------------------------------------------------------------


@pytest.mark.claim("f6")
@pytest.mark.parametrize("name", ["more", PK])
def test_a_forged_index_hides_no_row_from_maintenance(tmp_path: Path, name: str) -> None:
    """An index is emptied: a count that is answered from it says 0."""
    path = write_file(tmp_path / "x.db")
    if name == "more":
        edit(path, "CREATE INDEX more ON checkpoints (type, checkpoint, thread_id, metadata)")
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    data = bytearray(path.read_bytes())
    data[(root - 1) * 512 : root * 512] = bytes([0x0A, 0, 0, 0, 0, 2, 0, 0]).ljust(512, b"\0")
    path.write_bytes(data)
    with closing(SqliteRows(path, writable=True)) as store:
        assert sum(count.rows for count in store.count() if count.table == "checkpoints") == 3
        assert {text for column, text in store.key_texts() if column == "thread_id"} == {"t0"}
        assert len(list(store.records())) == 3
        if name == "more":  # whose entries would have to change with the rows: SQLite misses them
            with pytest.raises(DatabaseCorruptError):
                store.rewrite(CHECKPOINTS, None, lambda value: ("new", value.value))
        else:
            done = store.rewrite(CHECKPOINTS, None, lambda value: ("new", value.value))
            assert (done.seen, done.changed) == (3, 3)


# --- the application's connection --------------------------------------------------------------


def test_a_temporary_trigger_on_a_table_of_ours_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        saver = SqliteSaver(connection)
        put_chain(saver, "1")
        connection.execute(LOG)
        connection.execute(TRIGGER.format("INSERT", "main.checkpoints").replace("TRIGGER", "TEMP TRIGGER"))
        with pytest.raises(SchemaError):
            saver.put(at(), make("2"), {}, {})
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (0,)


def test_an_authorizer_that_is_set_after_setup_stays(tmp_path: Path) -> None:
    asked: list[Any] = []

    def authorize(*arguments: Any) -> int:
        asked.append(arguments)
        return sqlite3.SQLITE_OK

    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        connection.set_authorizer(authorize)
        put_chain(saver, "1")
        assert asked


@pytest.mark.parametrize("row_factory", [sqlite3.Row, lambda _cursor, _row: 7, lambda *_: 1 / 0])
@pytest.mark.parametrize("text_factory", [bytes, bytearray, lambda text: text.decode()[::-1]])
def test_factories_of_the_application_and_ours_are_apart(
    tmp_path: Path, row_factory: Any, text_factory: Any
) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 'abc' AS a")
        connection.row_factory, connection.text_factory = row_factory, text_factory
        saver = SqliteSaver(connection)
        put_chain(saver, "1", "2")
        saver.prune(["t"])
        assert ids_in(saver, filter={"step": 1}) == ["2"]
        assert connection.row_factory is row_factory
        cursor = connection.cursor()
        cursor.row_factory = None
        assert cursor.execute("SELECT a FROM mine").fetchone() == (text_factory(b"abc"),)


def test_text_that_is_not_utf8_is_refused_under_another_factory_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.text_factory = bytes
        saver = SqliteSaver(connection)
        put_chain(saver, "1")
        connection.execute("UPDATE checkpoints SET type = CAST(x'ff' AS TEXT)")
        with pytest.raises(TextError):
            saver.get_tuple(at())


# --- an end from outside -----------------------------------------------------------------------


def guarded(connection: sqlite3.Connection, statement: str) -> None:
    """Run a statement as ours are run, with a large budget."""
    with statements.guarding(connection):
        statements.allow(2**40, 0, {"n"})
        connection.execute(statement).fetchall()


def through_ctrl_c(connection: sqlite3.Connection, run: Callable[[], object]) -> None:
    """It is raised, and the connection is of use again."""
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run()
    timer.join()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_ctrl_c_ends_a_statement_of_ours() -> None:
    """Also one that calls Python: its exception comes as soon as Python's own code runs."""
    called = f"{schema.SAME_JSON}('[[' || i || '],[0]]')"
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.add_functions(connection)
        for selected in ("*", called):
            statement = ENDLESS.format("").replace("*", selected)
            through_ctrl_c(connection, lambda: guarded(connection, statement))  # noqa: B023
        assert connection.execute(f"SELECT {called} FROM (SELECT 1 AS i)").fetchone() == (0,)


def test_ctrl_c_at_any_moment_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loop of the progress handler begins again: it is never an error of the database.

    A finalizer that it meets may drop it, as in any program; the statement comes to its end then.
    """
    moments = random.Random(17)
    monkeypatch.setattr(statements, "STEP_OPCODES", 50)
    before = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            for _ in range(by_extent(100, 400)):
                with suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_VIRTUAL, moments.uniform(0.0005, 0.002))
                    guarded(connection, ENDLESS.format(" WHERE i < 3000000"))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_an_error_of_a_function_for_sql_ends_its_statement_only() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("inverse", 1, statements.keeping_cause(lambda number: 1 / number))
        with pytest.raises(ZeroDivisionError), statements.guarding(connection):
            connection.execute("SELECT inverse(0)")
        with statements.guarding(connection):
            assert connection.execute("SELECT inverse(4)").fetchone() == (0.25,)


def test_a_run_that_is_over_ends_inside_of_a_statement(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as connection:
        rows = [(str(number),) for number in range(10_000)]
        connection.executemany("INSERT INTO checkpoints VALUES ('x', '', ?, NULL, '', '', '{}')", rows)
        connection.commit()
    with closing(SqliteRows(path)) as store:
        store.is_over = lambda: True
        with pytest.raises(HaltedError):
            store.count()
        store.is_over = None
        assert store.count()


def test_a_connection_of_aiosqlite_is_guarded_too(tmp_path: Path) -> None:
    path = write_file(tmp_path / "x.db")

    async def work() -> None:
        async with aiosqlite.connect(path) as connection:
            saver = AsyncSqliteSaver(connection)
            assert await saver.aget_tuple(at("t0")) is not None
            edit(path, LOG, TRIGGER.format("INSERT", "checkpoints"))
            with pytest.raises(SchemaError):
                await saver.aput(at(), make("2"), {}, {})

    asyncio.run(work())
    share_pages(path, PK)

    async def walk() -> None:
        async with aiosqlite.connect(path) as connection:
            await connection.execute("DROP TRIGGER spy")
            with pytest.raises(EndlessTreeError):
                [found async for found in AsyncSqliteSaver(connection).alist(None)]

    asyncio.run(walk())
