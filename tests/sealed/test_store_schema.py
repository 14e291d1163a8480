"""What somebody hangs on the tables of a Store is refused, and named, before the Store is used."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from sealpoint.errors import SchemaError
from sealpoint.langgraph import SealedStore
from tests.graphs.savers import SEALED
from tests.postgres.test_store_schema import ACT as THEIRS
from tests.postgres.test_store_schema import REFUSED
from tests.support.databases.schemas import ACCEPTED_STORES, REFUSED_STORES
from tests.support.servers.postgres import schema, server

X: Final = (("a",), "x")
TRIGGER: Final = "CREATE TRIGGER evil BEFORE INSERT ON store BEGIN SELECT RAISE(IGNORE); END"
ACT: Final = THEIRS.replace(
    "CREATE FUNCTION now()", "CREATE FUNCTION later()"
)  # which would be refused itself
ON_POSTGRES: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "PostgresStore": (PostgresStore, {}),
    "PostgresStore, pool": (PostgresStore, {"pool_config": {"min_size": 1, "max_size": 3}}),
    "PostgresStore, pipeline": (PostgresStore, {"pipeline": True}),
    "AsyncPostgresStore": (AsyncPostgresStore, {}),
    "AsyncPostgresStore, pool": (AsyncPostgresStore, {"pool_config": {"min_size": 1, "max_size": 3}}),
    "AsyncPostgresStore, pipeline": (AsyncPostgresStore, {"pipeline": True}),
}
ON_SQLITE: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "SqliteStore": (SqliteStore, {}),
    "AsyncSqliteStore": (AsyncSqliteStore, {}),
}
STORES: Final = ON_POSTGRES | ON_SQLITE


class Sync:
    """A `SealedStore`, whose methods are called without ``await``."""

    def __init__(self, store: Any, runner: asyncio.Runner, **options: Any) -> None:
        async def wrap() -> Any:
            return SealedStore(store, serde=SEALED, **options)

        self.runner, self.store = runner, runner.run(wrap())

    def look(self) -> None:
        """Look at the tables alone."""
        if hasattr(self.store.inner, "loop"):
            self.runner.run(self.store._tables.arequire(self.store.inner))
        else:
            self.store._tables.require(self.store.inner)

    def setup(self) -> None:
        done = self.store.setup()
        if hasattr(self.store.inner, "loop"):
            self.runner.run(done)

    def batch(self, *ops: Any) -> Any:
        if hasattr(self.store.inner, "loop"):
            return self.runner.run(self.store.abatch(ops))
        return self.store.batch(ops)


@contextmanager
def opened(name: str, place: str, **options: Any) -> Iterator[Sync]:
    kind, more = STORES[name]
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        found = kind.from_conn_string(place, **more)
        if isinstance(found, AbstractAsyncContextManager):
            store = runner.run(stack.enter_async_context(found))
        else:
            store = stack.enter_context(found)
        try:
            yield Sync(store, runner, **options)
        finally:
            runner.run(stack.aclose())


def alter(path: str, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def execute(dsn: str, script: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script.encode())


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with a store."""
    place = str(tmp_path / "x.db")
    with SqliteStore.from_conn_string(place) as store:
        SealedStore(store, serde=SEALED).put(*X, {"text": "one"})
    return place


@pytest.fixture
def dsn(pytestconfig: pytest.Config) -> Iterator[str]:
    """A schema with a store."""
    with schema(server(pytestconfig)) as place:
        with PostgresStore.from_conn_string(place) as store:
            sealed: Any = SealedStore(store, serde=SEALED)
            sealed.setup()
            sealed.put(*X, {"text": "one"})
        yield place


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.mark.broad
@pytest.mark.parametrize("name", ON_SQLITE)
@pytest.mark.parametrize("statements", REFUSED_STORES.values(), ids=REFUSED_STORES)
def test_an_altered_schema_is_refused(tmp_path: Path, name: str, statements: list[str]) -> None:
    place = str(tmp_path / "x.db")
    alter(place, ";".join(statements))
    with opened(name, place) as store:
        for _ in range(2):
            with pytest.raises(SchemaError) as caught:
                store.batch(GetOp(*X))
            assert "allow_schema=True" in caught.value.hint


@pytest.mark.broad
@pytest.mark.parametrize("name", ON_SQLITE)
@pytest.mark.parametrize("statements", ACCEPTED_STORES.values(), ids=ACCEPTED_STORES)
def test_what_langgraph_makes_is_accepted(tmp_path: Path, name: str, statements: list[str]) -> None:
    """Connections in autocommit mode, which the stores want, are no reason to refuse."""
    place = str(tmp_path / "x.db")
    alter(place, ";".join(statements))
    with opened(name, place) as store:
        store.look()


@pytest.mark.parametrize("name", ON_SQLITE)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE evil (p, k, FOREIGN KEY (p, k) REFERENCES Store (prefix, key) ON DELETE CASCADE)",
        "CREATE TABLE evil (p REFERENCES store_migrations (v) ON DELETE CASCADE)",
    ],
)
def test_another_table_that_acts_with_it_is_refused(path: str, name: str, statement: str) -> None:
    alter(path, statement)
    with opened(name, path) as store, pytest.raises(SchemaError, match="table 'evil' has a foreign key to"):
        store.batch(GetOp(*X))


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_schema_that_is_altered_later_is_refused_by_the_next_call(path: str, name: str) -> None:
    with opened(name, path) as store:
        store.setup()
        store.batch(GetOp(*X))
        store.batch(PutOp(("a",), "y", {"text": "two"}))
        alter(path, TRIGGER)
        for _ in range(2):
            with pytest.raises(SchemaError, match="'store' has a trigger 'evil'"):
                store.batch(GetOp(*X))
        alter(path, "DROP TRIGGER evil")
        store.batch(GetOp(*X))
        found = store.batch(SearchOp(("a",)))
        assert {item.value["text"] for item in found[0]} == {"one", "two"}


@pytest.mark.parametrize("name", ON_SQLITE)
def test_the_tables_of_a_saver_are_not_looked_at(path: str, name: str) -> None:
    alter(path, "CREATE TABLE checkpoints (mine)")
    with opened(name, path) as store:
        store.batch(GetOp(*X))


def test_what_the_connection_has_in_front_of_the_tables_is_refused(path: str) -> None:
    with opened("SqliteStore", path) as store:
        store.store.conn.execute("CREATE TEMP VIEW store AS SELECT * FROM main.store")
        with pytest.raises(SchemaError, match="a temporary table, view or trigger"):
            store.batch(GetOp(*X))


def test_a_store_in_memory_has_no_tables() -> None:
    SealedStore(InMemoryStore(), serde=SEALED).put(*X, {})


@pytest.mark.parametrize("name", ON_SQLITE)
def test_setup_is_checked_too(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / "x.db")
    alter(place, "CREATE VIEW store AS SELECT 1")
    with opened(name, place) as store, pytest.raises(SchemaError, match="not a real table"):
        store.setup()


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_trigger_of_ones_own_is_allowed(path: str, name: str) -> None:
    alter(
        path,
        "CREATE TABLE log (p); CREATE TRIGGER mine AFTER INSERT ON store"
        " BEGIN INSERT INTO log VALUES (new.prefix); END",
    )
    with opened(name, path, allow_schema=True) as store:
        store.batch(PutOp(("a",), "y", {}))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT p FROM log").fetchall() == [("a",)]


def test_a_subclass_is_known() -> None:
    class Mine(SqliteStore):
        pass

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIEW store AS SELECT 1")
        with pytest.raises(SchemaError, match="not a real table"):
            SealedStore(Mine(connection), serde=SEALED).get(*X)


# --- Postgres -------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", REFUSED)
def test_an_altered_schema_on_postgres_is_refused(dsn: str, words: str) -> None:
    execute(dsn, ACT + REFUSED[words])
    with opened("PostgresStore", dsn) as store:
        with pytest.raises(SchemaError) as caught:
            store.batch(GetOp(*X))
        assert "allow_schema=True" in caught.value.hint


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_every_store_on_postgres_refuses_it(dsn: str, name: str) -> None:
    """Pools and pipelines too; and goes on when all is as it was."""
    execute(dsn, ACT + REFUSED["'store' has a trigger"])
    with opened(name, dsn) as store:
        for _ in range(2):
            with pytest.raises(SchemaError, match="'store' has a trigger"):
                store.batch(GetOp(*X))
        execute(dsn, "DROP TRIGGER t ON store")
        store.batch(GetOp(*X))
        store.batch(PutOp(("a",), "y", {"text": "two"}))
        assert [item.value for item in store.batch(GetOp(("a",), "x"), GetOp(("a",), "y"))] == [
            {"text": "one"},
            {"text": "two"},
        ]
    with opened(name, dsn) as store:
        assert store.batch(GetOp(("a",), "y"))[0].value == {"text": "two"}


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_tables_are_made_by_setup_after_the_check(pytestconfig: pytest.Config, name: str) -> None:
    with schema(server(pytestconfig)) as place, opened(name, place) as store:
        store.look()
        if "pipeline" in name:  # in which LangGraph's setup cannot make an index
            with opened("PostgresStore", place) as other:
                other.setup()
        else:
            store.setup()
        execute(place, ACT + REFUSED["'store' has a trigger"])
        with pytest.raises(SchemaError, match="'store' has a trigger"):
            store.batch(GetOp(*X))


MADE: Final = {
    "an operator '<=>'": (
        "CREATE FUNCTION far(text, text) RETURNS float8 LANGUAGE sql AS 'SELECT 1.0::float8';"
        "CREATE OPERATOR <=> (LEFTARG = text, RIGHTARG = text, FUNCTION = far)"
    ),
    "an operator '->'": (
        "CREATE FUNCTION of(jsonb, varchar) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';"
        "CREATE OPERATOR -> (LEFTARG = jsonb, RIGHTARG = varchar, FUNCTION = of)"
    ),
    "a function 'now'": "CREATE FUNCTION now(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
    "a type 'vector'": "CREATE DOMAIN vector AS text CHECK (length(VALUE) > 0)",
    "a type 'halfvec'": "CREATE TYPE halfvec AS ENUM ('a')",
}


@pytest.mark.parametrize("words", MADE)
def test_what_would_run_in_place_of_the_servers_is_refused(dsn: str, words: str) -> None:
    """Also the names that pgvector has, which are not the server's own."""
    execute(dsn, MADE[words])
    with opened("PostgresStore", dsn) as store, pytest.raises(SchemaError, match=words):
        store.batch(GetOp(*X))


def test_a_schema_is_looked_at_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("PostgresStore", dsn) as store:
        store.batch(GetOp(*X))
        monkeypatch.setattr("sealpoint.sealed.pgtables.require_tables", None)
        store.batch(GetOp(*X))


@pytest.mark.parametrize("name", [name for name in ON_POSTGRES if not name.startswith("Async")])
def test_threads_that_begin_at_once_lose_nothing(dsn: str, name: str) -> None:
    """The check is rolled back, and no put of another thread with it."""
    count = 8
    with opened(name, dsn) as store:
        ready = threading.Barrier(count)
        failed = list[BaseException]()

        def work(number: int) -> None:
            try:
                ready.wait()
                store.batch(GetOp(*X))
                if "pipeline" not in name:  # LangGraph's is not for several threads
                    store.batch(PutOp(("t",), str(number), {"n": number}))
            except BaseException as error:  # noqa: BLE001 - the test shows it
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
    if "pipeline" not in name:
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT count(*) FROM store WHERE prefix = 't'").fetchone() == (count,)


@pytest.mark.parametrize("name", [name for name in STORES if name.startswith("Async")])
def test_an_async_store_is_checked_by_calls_from_another_thread(path: str, dsn: str, name: str) -> None:
    place = dsn if name in ON_POSTGRES else path
    if name in ON_POSTGRES:
        execute(dsn, ACT + REFUSED["'store' has a trigger"])
    else:
        alter(path, TRIGGER)
    with opened(name, place) as store:

        async def elsewhere() -> None:
            await asyncio.to_thread(store.store.get, X[0], X[1])

        with pytest.raises(SchemaError, match="'store' has a trigger"):
            store.runner.run(elsewhere())
