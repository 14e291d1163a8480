"""What somebody hangs on the tables of a wrapped saver is refused, and named, before the saver is used."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.errors import ConfigError, SchemaError
from sealpoint.langgraph import SealedSaver
from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SEALED
from tests.sealed.savers import SAVERS, Sync, opened
from tests.sealed.scene import (
    ALICE,
    C1,
    C3,
    PLACES,
    ROOT,
    Place,
    at,
    checkpoint_id,
    document,
    fill,
    metadata,
    put_one,
)
from tests.support.databases.schemas import REFUSED
from tests.support.servers.postgres import schema, server

ON_SQLITE: Final = ("LangGraph SqliteSaver", "LangGraph AsyncSqliteSaver")
ON_POSTGRES: Final = tuple(name for name in SAVERS if "Postgres" in name)
GOLDEN: Final = Path(__file__).parents[1] / "compat" / "golden"
NEXT: Final = Place(ALICE, ROOT, checkpoint_id(9))

CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "put": lambda saver: saver.put(at(ALICE, ROOT, C3), *_put(NEXT)),
    "put_writes": lambda saver: saver.put_writes(at(ALICE, ROOT, C1), [("note", "new")], "task-9"),
    "get_tuple": lambda saver: saver.get_tuple(at(ALICE)),
    "get_tuple of one": lambda saver: saver.get_tuple(at(ALICE, ROOT, C1)),
    "list": lambda saver: list(saver.list(at(ALICE))),
    "list of all": lambda saver: list(saver.list(None)),
    "history": lambda saver: saver.get_delta_channel_history(config=at(ALICE, ROOT, C3), channels=["log"]),
    "delete_thread": lambda saver: saver.delete_thread(ALICE),
    "copy_thread": lambda saver: saver.copy_thread(ALICE, "copy"),
}


def _put(place: Place) -> tuple[Any, Any, Any]:
    checkpoint, new = document(place, 3, "")
    return checkpoint, metadata(place, 3, ""), new


def as_view(select: str) -> str:
    return f"ALTER TABLE checkpoints RENAME TO old; CREATE VIEW checkpoints AS {select}"


def remade(create: str) -> str:
    """The table of checkpoints in another form, with its rows."""
    columns = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    return (
        f"ALTER TABLE checkpoints RENAME TO old; CREATE TABLE checkpoints ({create});"
        f" INSERT INTO checkpoints ({columns}) SELECT {columns} FROM old; DROP TABLE old"
    )


COLUMNS: Final = (
    "thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,"
    " parent_checkpoint_id TEXT, type TEXT {type}, checkpoint BLOB, metadata BLOB {more},"
    " PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)"
)

# What it does on SQLite, and how it is named.
SQLITE: Final = {
    "drops puts": (
        "CREATE TRIGGER evil BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(IGNORE); END",
        "'checkpoints' has a trigger 'evil'",
    ),
    "drops writes": (
        "CREATE TRIGGER evil BEFORE INSERT ON writes BEGIN SELECT RAISE(IGNORE); END",
        "'writes' has a trigger 'evil'",
    ),
    "wipes other threads": (
        "CREATE TRIGGER evil AFTER INSERT ON Writes BEGIN"
        " DELETE FROM checkpoints WHERE thread_id = 'bob'; END",
        "'writes' has a trigger 'evil'",
    ),
    "deletes another table with a row": (
        "CREATE TABLE evil (a, b, c, FOREIGN KEY (a, b, c)"
        " REFERENCES Checkpoints (thread_id, checkpoint_ns, checkpoint_id) ON DELETE CASCADE)",
        "'evil' has a foreign key to 'Checkpoints'",
    ),
    "copies rows": (
        "CREATE TABLE shadow (thread, value); CREATE TRIGGER evil AFTER INSERT ON checkpoints"
        " BEGIN INSERT INTO shadow VALUES (new.thread_id, new.checkpoint); END",
        "'checkpoints' has a trigger 'evil'",
    ),
    "burns the processor": (
        "CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN SELECT count(*) FROM"
        " (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END",
        "'checkpoints' has a trigger 'evil'",
    ),
    "answers with 900 MB": (
        as_view(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type,"
            " zeroblob(900000000) AS checkpoint, metadata FROM old"
        ),
        "'checkpoints' is not a real table",
    ),
    "answers with older rows": (
        as_view("SELECT * FROM old WHERE checkpoint_id < '1f000000-0000-6000-8000-000000000002'"),
        "'checkpoints' is not a real table",
    ),
    "a generated column": (
        "ALTER TABLE checkpoints ADD COLUMN big AS (zeroblob(900000000))",
        "generated",
    ),
    "a column of another": ("ALTER TABLE writes ADD COLUMN mine TEXT", "'writes' .*: 'mine'"),
    "a default": (
        remade(COLUMNS.format(type="DEFAULT (hex(zeroblob(400000000)))", more="")),
        "has a default .*'type'",
    ),
    "a check": (
        remade(COLUMNS.format(type="", more="CHECK (length(hex(zeroblob(400000000))) > 0)")),
        "has a collation, a check",
    ),
    "a collation": (
        remade(
            COLUMNS.format(type="", more="").replace("thread_id TEXT", "thread_id TEXT COLLATE NOCASE", 1)
        ),
        "has a collation, a check",
    ),
    "a foreign key that cascades": (
        "CREATE TABLE mine (a TEXT PRIMARY KEY);"
        + remade(
            COLUMNS.format(type="", more="")
            + ", FOREIGN KEY (type) REFERENCES mine (a) ON DELETE CASCADE ON UPDATE CASCADE"
        ),
        "has a collation, a check, a reference",
    ),
    "an index over an expression": (
        "CREATE INDEX evil ON checkpoints (hex(zeroblob(1000) || thread_id))",
        "index 'evil' over expressions",
    ),
    "a partial index": (
        "CREATE INDEX evil ON writes (idx) WHERE length(hex(zeroblob(1000))) > 0",
        "index 'evil' over expressions",
    ),
    "a unique index": (
        "DELETE FROM writes; CREATE UNIQUE INDEX evil ON writes (thread_id)",
        "has a unique index 'evil'",
    ),
}


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A file with two threads."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        fill(SealedSaver(SqliteSaver(connection), serde=SEALED))
    return str(tmp_path / "x.db")


def alter(path: str, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def rows_of(path: str) -> list[str]:
    """Everything in a file, but what a view answers."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


@pytest.fixture
def open_at() -> Iterator[Callable[..., Sync]]:
    """Opens savers in one of the forms on a place."""
    with ExitStack() as stack:

        def open_at(name: str, place: str) -> Sync:
            saver, runner = stack.enter_context(opened(name, place, "sealed"))
            return Sync(saver, runner, awaited=SAVERS[name].awaited)

        yield open_at


@pytest.mark.claim("s20")
@pytest.mark.costly
@pytest.mark.broad
@pytest.mark.parametrize("name", ON_SQLITE)
@pytest.mark.parametrize("harm", SQLITE)
def test_an_altered_schema_is_refused_by_each_call(
    database: str, open_at: Callable[..., Sync], name: str, harm: str
) -> None:
    """Nothing runs, nothing is stored or deleted."""
    script, words = SQLITE[harm]
    alter(database, script)
    before = rows_of(database)
    saver = open_at(name, database)
    for call in CALLS.values():
        with pytest.raises(SchemaError, match=words) as caught:
            call(saver)
        assert "allow_schema=True" in caught.value.hint
    assert rows_of(database) == before


@pytest.mark.parametrize("statements", REFUSED.values(), ids=REFUSED)
def test_what_sealpoints_own_saver_refuses_is_refused(tmp_path: Path, statements: list[str]) -> None:
    path = str(tmp_path / "x.db")
    alter(path, ";".join(statements))
    before = rows_of(path)
    with closing(sqlite3.connect(path)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED)
        for call in CALLS.values():
            with pytest.raises(SchemaError):
                call(saver)
    assert rows_of(path) == before


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_schema_that_is_altered_later_is_refused_by_the_next_call(
    database: str, open_at: Callable[..., Sync], name: str, call: str
) -> None:
    saver = open_at(name, database)
    assert saver.get_tuple(at(ALICE)) is not None
    alter(database, SQLITE["copies rows"][0])
    before = rows_of(database)
    for _ in range(2):
        with pytest.raises(SchemaError, match="trigger 'evil'"):
            CALLS[call](saver)
    assert rows_of(database) == before
    alter(database, "DROP TRIGGER evil")
    CALLS[call](saver)


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_version_that_is_set_back_hides_no_change(
    database: str, open_at: Callable[..., Sync], name: str
) -> None:
    saver = open_at(name, database)
    assert saver.get_tuple(at(ALICE)) is not None
    with closing(sqlite3.connect(database)) as connection:
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.executescript(SQLITE["drops writes"][0])
        connection.execute(f"PRAGMA schema_version = {version}")
    with pytest.raises(SchemaError, match="trigger 'evil'"):
        saver.get_tuple(at(ALICE))


def test_what_is_remembered_of_a_schema_is_what_was_checked(database: str) -> None:
    """A trigger that is gone while the tables are looked at, and back afterwards."""
    alter(database, "PRAGMA journal_mode = WAL")
    evil, asked = SQLITE["drops writes"][0], list[str]()
    with closing(sqlite3.connect(database)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED)
        saver.get_tuple(at(ALICE))
        alter(database, evil)

        def between(statement: str) -> None:
            asked.append(statement)
            if statement == "BEGIN":  # of the check
                alter(database, "DROP TRIGGER evil")
            elif "checkpoint_id" in statement:  # the saver's own
                connection.set_trace_callback(None)
                alter(database, evil)

        connection.set_trace_callback(between)
        assert saver.get_tuple(at(ALICE)) is not None
        assert "BEGIN" in asked
        with pytest.raises(SchemaError, match="trigger 'evil'"):
            saver.get_tuple(at(ALICE))


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_schema_that_is_altered_between_two_pages_of_a_listing_ends_it(
    database: str, open_at: Callable[..., Sync], name: str
) -> None:
    saver = open_at(name, database)
    for step in range(4, 120):
        put_one(saver, Place(ALICE, ROOT, checkpoint_id(step)), step)
    if saver.awaited:

        async def walk() -> None:
            found = saver.saver.alist(at(ALICE))
            await anext(found)
            alter(database, SQLITE["copies rows"][0])
            async for _ in found:
                pass

        with pytest.raises(SchemaError):
            saver.runner.run(walk())
        return
    listing = saver.list(at(ALICE))
    next(listing)
    alter(database, SQLITE["copies rows"][0])
    with pytest.raises(SchemaError):
        list(listing)


@pytest.mark.parametrize("name", ON_SQLITE)
def test_a_view_in_an_empty_file_is_refused_before_the_tables_are_made(
    tmp_path: Path, open_at: Callable[..., Sync], name: str
) -> None:
    path = str(tmp_path / "x.db")
    alter(path, "CREATE TABLE old (a); CREATE VIEW checkpoints AS SELECT * FROM old")
    saver = open_at(name, path)
    with pytest.raises(SchemaError, match="not a real table"):
        CALLS["put"](saver)
    setup = saver.saver.setup
    with pytest.raises(SchemaError, match="not a real table"):
        saver.runner.run(setup()) if saver.awaited else setup()
    assert len(rows_of(path)) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TEMP TABLE checkpoints (a)",
        "CREATE TEMP VIEW Writes AS SELECT 1",
        "CREATE TEMP TRIGGER evil AFTER INSERT ON main.checkpoints BEGIN SELECT 1; END",
    ],
)
def test_what_the_connection_has_in_front_of_the_tables_is_refused(database: str, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement)
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED)
        with pytest.raises(SchemaError, match="a temporary table, view or trigger"):
            saver.get_tuple(at(ALICE))


def test_factories_of_the_application_are_kept(database: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory, connection.text_factory = sqlite3.Row, bytes
        saver: Any = SealedSaver(SqliteSaver(connection), serde=SEALED)
        saver._tables.require(saver.inner)
        assert connection.row_factory is sqlite3.Row
        assert connection.text_factory is bytes


def test_a_trigger_of_ones_own_is_allowed(database: str) -> None:
    alter(database, SQLITE["copies rows"][0])
    with closing(sqlite3.connect(database)) as connection:
        saver = SealedSaver(SqliteSaver(connection), serde=SEALED, allow_schema=True)
        CALLS["put"](saver)
        assert connection.execute("SELECT thread FROM shadow").fetchall() == [(ALICE,)]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.db")), ids=lambda path: path.stem)
def test_databases_of_every_release_pass(path: Path, tmp_path: Path) -> None:
    """Also with an index and a table of the application's own."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    alter(str(copy), "CREATE TABLE mine (a); CREATE INDEX mine_too ON checkpoints (parent_checkpoint_id)")
    with closing(sqlite3.connect(copy)) as connection:
        saver: Any = SealedSaver(SqliteSaver(connection), serde=SEALED)
        saver.setup()  # which adds a column to older ones
        saver._tables.require(saver.inner)


def test_a_saver_without_a_connection_is_refused() -> None:
    class Elsewhere(SqliteSaver):
        """Opens a connection for each call."""

        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.conn = None  # type: ignore[assignment]

    with pytest.raises(ConfigError, match="Elsewhere has no connection") as caught:
        SealedSaver(Elsewhere(), serde=SEALED).get_tuple(at(ALICE))
    assert "allow_schema=True" in caught.value.hint


def test_a_connection_that_is_not_yet_open_is_opened(database: str) -> None:
    async def read() -> list[Any]:
        connection = aiosqlite.connect(database)
        saver = SealedSaver(AsyncSqliteSaver(connection), serde=SEALED)
        try:
            return [*await asyncio.gather(*[saver.aget_tuple(at(ALICE)) for _ in range(3)])]
        finally:
            await connection.close()

    assert all(asyncio.run(read()))


# --- Postgres ---------------------------------------------------------------------------------

FUNCTIONS: Final = """
    CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE FUNCTION same(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';"""
TRIGGER: Final = "CREATE TRIGGER mine BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION evil()"

POSTGRES: Final = {
    "'checkpoints' has a trigger 'mine'": TRIGGER.format("checkpoints"),
    "'checkpoint_blobs' has a trigger 'mine'": TRIGGER.format("checkpoint_blobs"),
    "'checkpoint_writes' has a trigger 'mine'": TRIGGER.format("checkpoint_writes"),
    "'checkpoint_migrations' has a trigger 'mine'": TRIGGER.format("checkpoint_migrations"),
    "a function 'convert_to' that is not the server's": (
        "CREATE FUNCTION convert_to(text, text) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea'"
    ),
    "a function 'array_agg' that is not the server's": (
        "CREATE AGGREGATE array_agg(bytea[]) (SFUNC = array_cat, STYPE = bytea[])"
    ),
    "'checkpoint_writes' has a rule 'mine'": (
        "CREATE RULE mine AS ON INSERT TO checkpoint_writes DO INSTEAD NOTHING"
    ),
    "'checkpoints' is not a real table": (
        "ALTER TABLE checkpoints RENAME TO old; CREATE VIEW checkpoints AS SELECT * FROM old"
    ),
    "'checkpoints' has a policy 'mine'": (
        "CREATE POLICY mine ON checkpoints USING (true); ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY"
    ),
    "'checkpoint_blobs' has a policy 'mine'": "CREATE POLICY mine ON checkpoint_blobs USING (true)",
    "'checkpoint_writes' has a policy\nhint": "ALTER TABLE checkpoint_writes FORCE ROW LEVEL SECURITY",
    "'checkpoints' .* gives it: 'mine'": "ALTER TABLE checkpoints ADD mine text",
    "'checkpoints' has a generated column 'mine'": (
        "ALTER TABLE checkpoints ADD mine text GENERATED ALWAYS AS (same(type)) STORED"
    ),
    "'checkpoints' has a default .*, for 'type'": (
        "ALTER TABLE checkpoints ALTER type SET DEFAULT same('x')"
    ),
    "'checkpoints' has a check 'mine'": (
        "ALTER TABLE checkpoints ADD CONSTRAINT mine CHECK (same(type) IS NULL)"
    ),
    "'checkpoints' has an index over an expression 'mine'": "CREATE INDEX mine ON checkpoints (same(type))",
    "'checkpoint_blobs' has an index over an expression 'mine'": (
        "CREATE INDEX mine ON checkpoint_blobs (type) WHERE same(type) > ''"
    ),
    "'checkpoints' has statistics over an expression 'mine'": (
        "CREATE STATISTICS mine ON (same(type)), thread_id FROM checkpoints"
    ),
    "'checkpoints' has a foreign key 'mine'": (
        "CREATE TABLE other (a text PRIMARY KEY); ALTER TABLE checkpoints ADD CONSTRAINT mine"
        " FOREIGN KEY (type) REFERENCES other ON DELETE CASCADE"
    ),
    "'checkpoint_writes' has tables that inherit": "CREATE TABLE child () INHERITS (checkpoint_writes)",
    "'checkpoints' has a collation on 'type'": 'ALTER TABLE checkpoints ALTER type TYPE text COLLATE "C"',
}


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    """A database of `PostgresSaver` with one checkpoint, and functions of another."""
    with schema(server(pytestconfig)) as dsn:
        with psycopg.connect(dsn, **CONNECTION) as connection:
            inner: Any = PostgresSaver(connection)
            inner.setup()
            put_one(SealedSaver(inner, serde=SEALED), PLACES[0], 1)
        execute(dsn, FUNCTIONS)
        yield dsn


def execute(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


def stored(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT t::text FROM checkpoints AS t ORDER BY 1").fetchall()


@pytest.mark.claim("s20")
@pytest.mark.parametrize("words", POSTGRES)
def test_altered_tables_are_refused(url: str, open_at: Callable[..., Sync], words: str) -> None:
    execute(url, POSTGRES[words])
    before = stored(url)
    with psycopg.connect(url, **CONNECTION) as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        for call in CALLS.values():
            with pytest.raises(SchemaError, match=words) as caught:
                call(saver)
            assert "allow_schema=True" in caught.value.hint
    assert stored(url) == before


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_every_saver_on_postgres_refuses_them(url: str, open_at: Callable[..., Sync], name: str) -> None:
    """Pools and pipelines too; and goes on when they are as they were."""
    execute(url, POSTGRES["'checkpoints' has a trigger 'mine'"])
    saver = open_at(name, url)
    for call in (CALLS["put"], CALLS["get_tuple"]):
        with pytest.raises(SchemaError, match="trigger 'mine'"):
            call(saver)
    execute(url, "DROP TRIGGER mine ON checkpoints")
    for again in ("put", "get_tuple", "list", "put_writes"):
        CALLS[again](saver)


def test_an_async_saver_is_checked_by_calls_from_another_thread(url: str, database: str) -> None:
    execute(url, POSTGRES["'checkpoints' has a trigger 'mine'"])
    alter(database, SQLITE["copies rows"][0])
    for name, place in (("LangGraph AsyncPostgresSaver", url), ("LangGraph AsyncSqliteSaver", database)):
        with opened(name, place, "sealed") as (saver, runner):

            async def elsewhere(saver: Any = saver) -> None:
                await asyncio.to_thread(saver.get_tuple, at(ALICE))

            with pytest.raises(SchemaError, match="trigger"):
                runner.run(elsewhere())


def test_temporary_tables_and_other_schemas_are_refused(url: str) -> None:
    with psycopg.connect(url, **CONNECTION) as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        connection.execute("CREATE TEMP TABLE checkpoints (LIKE checkpoints INCLUDING ALL)")
        with pytest.raises(SchemaError, match="'checkpoints' is not a real table"):
            saver.get_tuple(at(ALICE))
        connection.execute("DROP TABLE pg_temp.checkpoints")
        connection.execute("CREATE SCHEMA other_of_sealed")
        try:
            connection.execute("ALTER TABLE checkpoint_writes SET SCHEMA other_of_sealed")
            path = connection.execute("SHOW search_path").fetchone()
            assert path is not None
            connection.execute(f"SET search_path = {path['search_path']}, other_of_sealed")
            with pytest.raises(SchemaError, match="several schemas"):
                saver.get_tuple(at(ALICE))
        finally:
            connection.execute("DROP SCHEMA other_of_sealed CASCADE")


def test_a_search_path_with_a_schema_before_the_servers_is_refused(url: str) -> None:
    """Its functions and operators would run in place of the server's, in our statements too."""
    with psycopg.connect(url, **CONNECTION) as connection:
        execute(
            url,
            "CREATE FUNCTION never(oid, integer) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''ran''; END';"
            "CREATE OPERATOR < (LEFTARG = oid, RIGHTARG = integer, FUNCTION = never)",
        )
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        with pytest.raises(
            SchemaError, match="an operator '<' that is not"
        ):  # it fits better, and is not called
            saver.get_tuple(at(ALICE))
        connection.execute("SELECT set_config('search_path', current_schema || ', pg_catalog', false)")
        with pytest.raises(SchemaError, match="before pg_catalog"):
            SealedSaver(PostgresSaver(connection), serde=SEALED).get_tuple(at(ALICE))


def test_the_session_is_left_as_it_was(url: str) -> None:
    """The search path is set within a transaction that is rolled back, also within one of the caller's."""
    with psycopg.connect(url, row_factory=CONNECTION["row_factory"]) as connection:
        path = connection.execute("SHOW search_path").fetchone()
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        assert saver.get_tuple(at(ALICE)) is not None
        assert connection.execute("SHOW search_path").fetchone() == path
        locks = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
        assert locks == {"count": 0}


def test_tables_are_made_by_setup_after_the_check(pytestconfig: pytest.Config) -> None:
    with schema(server(pytestconfig)) as dsn, psycopg.connect(dsn, **CONNECTION) as connection:
        saver: Any = SealedSaver(PostgresSaver(connection), serde=SEALED)
        saver.setup()
        execute(dsn, FUNCTIONS + TRIGGER.format("checkpoints"))
        with pytest.raises(SchemaError, match="trigger 'mine'"):
            saver.get_tuple(at(ALICE))
        execute(dsn, f"DROP TRIGGER mine ON checkpoints; {TRIGGER.format('checkpoint_migrations')}")
        with pytest.raises(SchemaError, match="'checkpoint_migrations' has a trigger"):
            saver.setup()


def test_an_audit_trigger_and_row_level_security_are_allowed(url: str) -> None:
    execute(url, POSTGRES["'checkpoints' has a policy 'mine'"])
    execute(url, "CREATE TABLE audit (thread text)")
    execute(
        url,
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO audit VALUES (new.thread_id); RETURN new; END';"
        " CREATE TRIGGER note AFTER INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION note()",
    )
    with psycopg.connect(url, **CONNECTION) as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED, allow_schema=True)
        CALLS["put"](saver)
        assert connection.execute("SELECT thread FROM audit").fetchall() == [{"thread": ALICE}]


def test_the_schema_is_looked_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards nothing is asked: a query at each call would take a round trip."""
    with psycopg.connect(url, **CONNECTION) as connection:
        saver = SealedSaver(PostgresSaver(connection), serde=SEALED)
        saver.get_tuple(at(ALICE))
        monkeypatch.setattr("sealpoint.sealed.pgtables.require_tables", None)
        saver.get_tuple(at(ALICE))
