"""A thread store that is down, slow, read-only, full, old, or of another database: an error for each cause.

Nothing is half done in the database of the checkpoints; with ``heads="warn"`` all goes on, and is counted.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.conninfo import make_conninfo

from sealpoint.errors import (
    ThreadStoreBehindError,
    ThreadStoreDownError,
    ThreadStoreError,
    ThreadStoreFullError,
    ThreadStoreMissingError,
    ThreadStoreTimeoutError,
    WrongThreadStoreError,
)
from sealpoint.langgraph import SealedSaver
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore, ThreadStore
from tests.faults.headwork import at, document, id_by
from tests.graphs.openers import CONNECTION, on_aiosqlite, on_async_psycopg
from tests.graphs.savers import SEALED
from tests.sealed.savers import Loop
from tests.support.servers.postgres import schema, server

THREAD: Final = "t"
NOBODY: Final = 65534
_numbers = count()

READS: Final[dict[str, Callable[[Any], Any]]] = {
    "get_tuple": lambda saver: saver.get_tuple(at(THREAD)),
    "list": lambda saver: [*saver.list(at(THREAD))],
    "list all": lambda saver: [*saver.list(None)],
}
WRITES: Final[dict[str, Callable[[Any], Any]]] = {
    "put": lambda saver: put(saver, 9),
    "copy_thread": lambda saver: saver.copy_thread(THREAD, "copy"),
    "delete_thread": lambda saver: saver.delete_thread(THREAD),
}
PUTS: Final = 3


def put(saver: Any, number: int) -> None:
    saver.put(at(THREAD), *document(id_by(0), number))


class Place:
    """A database of checkpoints, and a store that trouble is made for."""

    tables: tuple[str, ...]
    seconds: float
    """Time limit of the store."""

    def __init__(self, stack: ExitStack, *, is_async: bool) -> None:
        self.stack, self.is_async = stack, is_async

    def saver(self, threads: ThreadStore, **options: Any) -> Any:
        """A saver beside a store; one that is awaited has a loop of its own."""
        if self.is_async:
            found = Loop(self.opener, self.database, threads, **options)
            self.stack.callback(found.close)
            return found
        return SealedSaver(self.sync(), serde=SEALED, threads=threads, allow_shared_role=True, **options)

    def rows(self) -> list[Any]:
        """All rows of the checkpoints."""
        with closing(self.connect()) as connection:
            return [
                sorted(connection.execute(f"SELECT * FROM {each}").fetchall(), key=repr)
                for each in self.tables
            ]

    opener: Any
    database: str

    def sync(self) -> Any:
        raise NotImplementedError

    def connect(self) -> Any:
        raise NotImplementedError

    def store(self, name: str = "heads") -> ThreadStore:
        raise NotImplementedError


class OnSqlite(Place):
    tables = ("checkpoints", "writes")
    seconds = 0.3
    opener = staticmethod(on_aiosqlite(AsyncSqliteSaver))

    def __init__(self, stack: ExitStack, folder: Path, *, is_async: bool) -> None:
        super().__init__(stack, is_async=is_async)
        self.folder, self.database = folder, str(folder / "x.db")

    def sync(self) -> Any:
        connection = sqlite3.connect(self.database, check_same_thread=False)
        return SqliteSaver(self.stack.enter_context(closing(connection)))

    def connect(self) -> Any:
        return sqlite3.connect(self.database)

    def file(self, name: str = "heads") -> Path:
        return self.folder / f"{name}.db"

    def store(self, name: str = "heads") -> ThreadStore:
        opened = SqliteThreadStore(self.file(name), create=True, timeout=self.seconds)
        return self.stack.enter_context(closing(opened))

    @contextmanager
    def down(self, store: Any) -> Iterator[None]:
        aside = self.file().rename(self.folder / "aside.db")
        yield
        aside.rename(self.file())

    @contextmanager
    def slow(self, store: Any) -> Iterator[None]:
        with closing(sqlite3.connect(self.file(), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def full(self, store: Any) -> Iterator[None]:
        connection = store._file.opened.connection
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        # Heads of 40 kB: the page that has space left is not enough.
        connection.execute(f"PRAGMA max_page_count = {pages}")
        yield
        connection.execute("PRAGMA max_page_count = 1000000")

    def yesterday(self, store: ThreadStore) -> Callable[[], ThreadStore]:
        store.close()
        copy = shutil.copy(self.file(), self.folder / "yesterday.db")

        def restore() -> ThreadStore:
            shutil.copy(copy, self.file())
            return self.store()

        return restore


class OnPostgres(Place):
    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    seconds = 1
    opener = staticmethod(on_async_psycopg(AsyncPostgresSaver))

    def __init__(self, stack: ExitStack, dsn: str, *, is_async: bool) -> None:
        super().__init__(stack, is_async=is_async)
        self.database, self.server = stack.enter_context(schema(dsn)), dsn
        self.heads = f"heads_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {self.heads} STRATEGY file_copy")
        stack.callback(self.run, f"DROP DATABASE {self.heads} WITH (FORCE)")
        with psycopg.connect(self.database, **CONNECTION) as connection:
            PostgresSaver(connection).setup()

    def run(self, statement: str) -> None:
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(statement)

    def sync(self) -> Any:
        return PostgresSaver(self.stack.enter_context(psycopg.connect(self.database, **CONNECTION)))

    def connect(self) -> Any:
        return psycopg.connect(self.database)

    def in_store(self) -> Any:
        return psycopg.connect(make_conninfo(self.server, dbname=self.heads), autocommit=True)

    def store(self, name: str = "heads") -> ThreadStore:
        dsn = make_conninfo(self.server, dbname=self.heads)
        opened = PostgresThreadStore(dsn, schema=name, create=True, timeout=self.seconds)
        return self.stack.enter_context(closing(opened))

    def end_sessions(self) -> None:
        self.run(
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{self.heads}'"
        )

    @contextmanager
    def down(self, store: Any) -> Iterator[None]:
        """As when the server is stopped: sessions end, and none begins."""
        self.run(f"ALTER DATABASE {self.heads} ALLOW_CONNECTIONS false")
        self.end_sessions()
        yield
        self.run(f"ALTER DATABASE {self.heads} ALLOW_CONNECTIONS true")

    @contextmanager
    def slow(self, store: Any) -> Iterator[None]:
        with closing(self.in_store()) as other, other.transaction():
            other.execute("LOCK TABLE heads.heads IN ACCESS EXCLUSIVE MODE")
            yield

    @contextmanager
    def read_only(self, store: Any) -> Iterator[None]:
        self.run(f"ALTER DATABASE {self.heads} SET default_transaction_read_only = on")
        self.end_sessions()
        yield
        self.run(f"ALTER DATABASE {self.heads} RESET default_transaction_read_only")
        self.end_sessions()

    @contextmanager
    def full(self, store: Any) -> Iterator[None]:
        """What the server reports then, from a trigger."""
        with closing(self.in_store()) as other:
            other.execute(
                "CREATE FUNCTION heads.full() RETURNS trigger LANGUAGE plpgsql AS"
                " $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$"
            )
            other.execute("CREATE TRIGGER f BEFORE INSERT ON heads.heads EXECUTE FUNCTION heads.full()")
            yield
            other.execute("DROP FUNCTION heads.full CASCADE")

    def yesterday(self, store: ThreadStore) -> Callable[[], ThreadStore]:
        end = store.end()

        def restore() -> ThreadStore:
            with closing(self.in_store()) as other:
                other.execute("DELETE FROM heads.heads WHERE seq > %s", (end,))
            return self.store()

        return restore


@pytest.fixture(
    params=[
        "sqlite",
        "postgres, async",
        pytest.param("sqlite, async", marks=pytest.mark.soak),
        pytest.param("postgres", marks=pytest.mark.soak),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    database, _, awaited = request.param.partition(", ")
    with ExitStack() as stack:
        if database == "sqlite":
            yield OnSqlite(stack, tmp_path, is_async=bool(awaited))
        else:
            yield OnPostgres(stack, server(request.config), is_async=bool(awaited))


def filled(place: Any) -> tuple[Any, Any]:
    """A saver and its store, with some checkpoints."""
    store = place.store()
    saver = place.saver(store)
    for number in range(PUTS):
        put(saver, number)
    return saver, store


def refused(saver: Any, calls: dict[str, Callable[[Any], Any]], error: type[ThreadStoreError]) -> None:
    for name, call in calls.items():
        with pytest.raises(error) as caught:
            call(saver)
        assert type(caught.value) is error, name
        assert caught.value.hint


def read(saver: Any, length: int = PUTS) -> None:
    """Check that all ways of reading return what there is."""
    assert saver.get_tuple(at(THREAD)) is not None
    assert len([*saver.list(at(THREAD))]) == length


@pytest.mark.claim("h11")
@pytest.mark.parametrize(
    ("trouble", "error", "reads_too"),
    [("down", ThreadStoreDownError, True), ("full", ThreadStoreFullError, False)],
)
def test_a_store_in_trouble(place: Any, trouble: str, error: Any, reads_too: bool) -> None:
    """Afterwards all is as before; a checkpoint that a full store did not record is not lost."""
    saver, store = filled(place)
    lenient = place.saver(store, heads="warn")
    before = place.rows()
    if trouble == "down" and isinstance(place, OnSqlite):  # its file was moved away
        error = ThreadStoreMissingError
    with getattr(place, trouble)(store):
        if trouble == "full":
            fails_only_when_recorded(place, saver, error)
        else:
            refused(saver, WRITES, error)
            assert place.rows() == before
        stored = len(place.rows()[0])
        if reads_too:
            refused(saver, READS, error)
        else:
            read(saver, stored)
        put(lenient, 10)
        read(lenient, stored + 1)
        assert lenient.warnings[error.__name__] >= 1
        assert {*lenient.warnings} == {error.__name__}
    read(saver, stored + 1)
    put(saver, 11)
    read(saver, stored + 2)


@pytest.mark.costly
def test_a_store_that_is_slow(place: Any) -> None:
    """Another connection holds a lock. SQLite's readers need none."""
    saver, store = filled(place)
    lenient = place.saver(store, heads="warn")
    before = place.rows()
    with place.slow(store):
        refused(saver, {"put": WRITES["put"]}, ThreadStoreTimeoutError)
        if isinstance(place, OnSqlite):
            read(saver)
        else:
            refused(saver, {"get_tuple": READS["get_tuple"]}, ThreadStoreTimeoutError)
        assert place.rows() == before
        put(lenient, 10)
        assert lenient.warnings == {"ThreadStoreTimeoutError": 2}
    read(saver, PUTS + 1)
    put(saver, 11)
    read(saver, PUTS + 2)


def fails_only_when_recorded(place: Any, saver: Any, error: Any) -> None:
    """The row of a checkpoint is stored by then, and nothing else has changed."""
    before = place.rows()[0]
    with pytest.raises(error) as caught:
        put_until_full(saver)
    assert "make space" in caught.value.hint
    after = place.rows()[0]
    assert all(row in after for row in before)
    with pytest.raises(error):
        saver.delete_thread(THREAD)
    assert place.rows()[0] == after


def put_until_full(saver: Any) -> None:
    """The last page of a file has space for some heads."""
    for number in range(200):
        put(saver, number)


@pytest.mark.parametrize(
    "place", ["postgres, async", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True
)
def test_a_server_that_cannot_be_written_to(place: Any) -> None:
    """The store is read; nothing is stored without it."""
    saver, store = filled(place)
    before = place.rows()
    with place.read_only(store):
        refused(saver, WRITES, ThreadStoreError)
        read(saver)
        assert place.rows() == before
        lenient = place.saver(store, heads="warn")
        put(lenient, 10)
        assert lenient.warnings == {"ThreadStoreError": lenient.warnings["ThreadStoreError"]}
    read(saver, PUTS + 1)
    put(saver, 11)


@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_file_that_cannot_be_written_to(is_async: bool) -> None:
    """Root can write every file, so the calls are made as another user."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sealpoint-")))
        place = OnSqlite(stack, folder, is_async=is_async)
        saver, _ = filled(place)
        read(saver)
        for file in (folder, *folder.iterdir()):
            file.chmod(0o777)
        before = place.rows()
        for file in folder.glob("heads.db*"):  # its log exists: another process has the store open
            file.chmod(0o444)
        with as_another_user():
            store = stack.enter_context(closing(SqliteThreadStore(place.file(), timeout=place.seconds)))
            other = place.saver(store)
            refused(other, WRITES, ThreadStoreError)
            read(other)
        assert place.rows() == before
        put(saver, 11)
        read(saver, PUTS + 1)


@contextmanager
def as_another_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.claim("h13")
def test_a_store_of_yesterday(place: Any) -> None:
    _, store = filled(place)
    restore = place.yesterday(store)
    for number in range(2):  # a process names the clock that its store had when it was opened, at least
        today = place.store()
        saver = place.saver(today)
        read(saver, PUTS + number)
        put(saver, PUTS + number)
        today.close()
    old = restore()
    before = place.rows()
    refused(place.saver(old), READS, ThreadStoreBehindError)
    assert place.rows() == before
    lenient = place.saver(old, heads="warn")
    read(lenient, PUTS + 2)
    assert {*lenient.warnings} == {"ThreadStoreBehindError"}


@pytest.mark.claim("h13")
def test_a_store_of_another_database(place: Any) -> None:
    filled(place)
    other = place.store("other")
    before = place.rows()
    refused(place.saver(other), READS, WrongThreadStoreError)
    assert place.rows() == before
    lenient = place.saver(other, heads="warn")
    read(lenient)
    assert {*lenient.warnings} == {"WrongThreadStoreError"}
