"""Tables that are not those of LangGraph, or that have something on them that acts, are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import permutations
from typing import Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import make_conninfo

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.postgres.columns import BLOBS, METADATA, SHALLOW_BLOBS, WRITES
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.errors import MaintenanceError, OldTablesError, SchemaError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.databases.postgres import EMPTY, blobs, contents, put_blobs, reseal, rewrite_all, set_up

FUNCTION: Final = """
    CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE FUNCTION same(bytea) RETURNS bytea IMMUTABLE LANGUAGE sql AS 'SELECT $1';"""

REFUSED: Final = {
    "has a trigger": "CREATE TRIGGER t BEFORE UPDATE ON checkpoint_blobs FOR EACH ROW EXECUTE FUNCTION act()",
    "has a rule": "CREATE RULE r AS ON UPDATE TO checkpoint_writes DO ALSO NOTIFY x",
    "has tables that inherit from it": "CREATE TABLE c () INHERITS (checkpoint_blobs)",
    "has a check": "ALTER TABLE checkpoint_writes ADD CHECK (same(blob) IS NOT NULL)",
    "has an index over an expression": "CREATE INDEX ON checkpoint_writes (same(blob))",
    "'checkpoint_writes' has an index over": "CREATE INDEX ON checkpoint_writes (idx) WHERE idx > 0",
    "has statistics over an expression": (
        "CREATE STATISTICS s ON (same(blob)), channel FROM checkpoint_blobs"
    ),
    "'checkpoints' has a trigger": "CREATE TRIGGER t AFTER UPDATE ON checkpoints EXECUTE FUNCTION act()",
    "has a generated column 'more'": (
        "ALTER TABLE checkpoint_blobs ADD more bytea GENERATED ALWAYS AS (same(blob)) STORED"
    ),
    "has a generated column 'number'": (
        "ALTER TABLE checkpoint_blobs ADD number int GENERATED ALWAYS AS IDENTITY"
    ),
    "has a collation on 'version'": 'ALTER TABLE checkpoint_blobs ALTER version TYPE text COLLATE "C"',
    "has a default that LangGraph does not give it, for 'type'": (
        "ALTER TABLE checkpoint_blobs ALTER type SET DEFAULT convert_from(same('x'), 'utf8')"
    ),
    "the primary key that LangGraph gives it: 'more'": "ALTER TABLE checkpoint_blobs ADD more bytea",
    "'checkpoint_writes' does not have the columns": "ALTER TABLE checkpoint_writes ALTER idx TYPE bigint",
    "'checkpoint_blobs' does not have the columns": (
        "CREATE DOMAIN d AS bytea CHECK (same(VALUE) IS NOT NULL);"
        " ALTER TABLE checkpoint_blobs ALTER blob TYPE d"
    ),
    "the primary key": "ALTER TABLE checkpoint_blobs DROP CONSTRAINT checkpoint_blobs_pkey",
    "and the primary key": (
        "ALTER TABLE checkpoint_blobs DROP CONSTRAINT checkpoint_blobs_pkey,"
        " ADD PRIMARY KEY (thread_id, channel, checkpoint_ns, version)"
    ),
    "'checkpoint_blobs' is not a real table": (
        "ALTER TABLE checkpoint_blobs RENAME TO b; CREATE VIEW checkpoint_blobs AS SELECT * FROM b"
    ),
    "'checkpoint_writes' is not partitioned by hash or range": (
        "DROP TABLE checkpoint_writes; CREATE TABLE checkpoint_writes (a int) PARTITION BY RANGE (a)"
    ),
    "'checkpoint_blobs' is not a real": (
        "CREATE TABLE parent (LIKE checkpoint_blobs) PARTITION BY LIST (same(type::bytea));"
        " ALTER TABLE parent ATTACH PARTITION checkpoint_blobs FOR VALUES IN ('x')"
    ),
    "'checkpoint_writes' has a foreign key": (
        "ALTER TABLE checkpoint_writes ADD UNIQUE (thread_id, type);"
        " CREATE TABLE c (a text, b text, FOREIGN KEY (a, b)"
        " REFERENCES checkpoint_writes (thread_id, type) ON UPDATE CASCADE)"
    ),
    "'checkpoint_blobs' has a foreign key": (
        "CREATE TABLE c (a text PRIMARY KEY);"
        " ALTER TABLE checkpoint_blobs ADD FOREIGN KEY (channel) REFERENCES c"
    ),
    "has none of LangGraph's tables": "DROP TABLE checkpoint_blobs, checkpoint_writes",
}


def alter(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statements.encode())


@pytest.mark.parametrize("words", REFUSED)
def test_altered_tables_are_refused(url: str, words: str) -> None:
    alter(url, FUNCTION + REFUSED[words])
    with pytest.raises(SchemaError, match=words) as caught:
        PostgresRows(url)
    assert "psql" in caught.value.hint


# As the guide of LangGraph 0.1 had them: its packages had no saver for Postgres before 0.2.
OLD: Final = """
    DROP TABLE checkpoints, checkpoint_blobs, checkpoint_writes;
    CREATE TABLE checkpoints (thread_id TEXT NOT NULL, thread_ts TEXT NOT NULL, parent_ts TEXT,
        checkpoint BYTEA NOT NULL, metadata BYTEA NOT NULL, PRIMARY KEY (thread_id, thread_ts))"""


def test_tables_of_langgraph_before_0_2_are_named_as_such(url: str) -> None:
    """By commands, and by SealedSaver, whatever the setup of today's saver has added to them."""
    alter(url, OLD)
    for prepare in ((), (PostgresSaver,)):
        for saver in prepare:
            with suppress(psycopg.Error):
                set_up(saver, url)
        with pytest.raises(OldTablesError, match=r"before 0\.2") as caught:
            PostgresRows(url)
        assert "a new database" in caught.value.hint
        with PostgresSaver.from_conn_string(url) as inner:
            sealed = SealedSaver(inner, serde=EncryptedSerializer.from_key(bytes(32)))
            with pytest.raises(OldTablesError, match=r"before 0\.2") as caught:
                sealed.get_tuple({"configurable": {"thread_id": "1", "checkpoint_ns": ""}})
        assert "a new database" in caught.value.hint


def test_tables_in_several_schemas_are_refused(url: str) -> None:
    """A saver would use them side by side; whoever looks on has no way to tell which belong together."""
    other = schema_of(url)
    try:
        alter(url, f"CREATE SCHEMA {other}_2; ALTER TABLE checkpoint_writes SET SCHEMA {other}_2")
        with pytest.raises(SchemaError, match="several schemas"):
            PostgresRows(make_conninfo(url, options=f"-c search_path={other},{other}_2"))
    finally:
        alter(url, f"DROP SCHEMA {other}_2 CASCADE")


IN_THE_MIDDLE: Final = {
    "trigger": REFUSED["has a trigger"],
    "generated column": REFUSED["has a generated column 'more'"],
    "another table": (
        "ALTER TABLE checkpoint_blobs RENAME TO b; CREATE TABLE checkpoint_blobs (LIKE b INCLUDING ALL);"
        " INSERT INTO checkpoint_blobs SELECT * FROM b"
    ),
    "view": REFUSED["'checkpoint_blobs' is not a real table"],
}


@pytest.mark.parametrize("statements", IN_THE_MIDDLE.values(), ids=IN_THE_MIDDLE)
def test_tables_that_are_altered_during_a_run_end_it(url: str, statements: str) -> None:
    """What is put on them later would act in our name as well."""
    put_blobs(url, blobs(4))
    with closing(PostgresRows(url, writable=True)) as store:
        done = store.rewrite(BLOBS, None, reseal, batch=Batch(rows=2))
        alter(url, FUNCTION + statements)
        with pytest.raises(SchemaError):
            store.rewrite(BLOBS, done.last, reseal, batch=Batch(rows=2))


def test_a_table_cannot_be_altered_between_the_check_and_the_change(url: str) -> None:
    put_blobs(url, blobs(2))

    def alter_too(value: Cell) -> tuple[str, bytes] | None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            alter(url, f"SET lock_timeout = 50; {FUNCTION}; {REFUSED['has a trigger']}")
        return reseal(value)

    with closing(PostgresRows(url, writable=True)) as store:
        assert store.rewrite(BLOBS, None, alter_too).changed == 2


@pytest.fixture
def database(url: str) -> Iterator[str]:
    """A database of its own, with the tables in the schema that everybody has."""
    name = f"{schema_of(url)}_own"
    alter(url, f"CREATE DATABASE {name}")
    try:
        own = make_conninfo(url, dbname=name, options="")
        set_up(PostgresSaver, own)
        yield own
    finally:
        alter(url, f"DROP DATABASE {name}")


def test_tables_in_a_schema_that_comes_first_are_not_taken_for_the_real_ones(database: str) -> None:
    """Who may make a schema could call it as the account is called, and have all found to be in order."""
    with closing(PostgresRows(database)):
        pass
    names = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    copies = "; ".join(f"CREATE TABLE postgres.{name} (LIKE public.{name} INCLUDING ALL)" for name in names)
    alter(database, f"CREATE SCHEMA postgres; {copies}")
    with pytest.raises(SchemaError, match="'postgres' and 'public' both have LangGraph's tables") as caught:
        PostgresRows(database)
    assert "search_path" in caught.value.hint
    with closing(PostgresRows(make_conninfo(database, options="-c search_path=public"))) as store:
        assert store.columns == (BLOBS, WRITES, METADATA)


def schema_of(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT current_schema()").fetchone()
    assert row is not None
    return str(row[0])


def test_the_first_schema_of_the_path_that_has_tables_is_taken(url: str, shallow_url: str) -> None:
    schemas = {schema_of(url): BLOBS, schema_of(shallow_url): SHALLOW_BLOBS}
    for one, other in permutations(schemas):
        path = make_conninfo(url, options=f"-c search_path=absent,pg_catalog,{one},{other},public")
        with closing(PostgresRows(path)) as store:
            assert store.columns[:2] == (schemas[one], WRITES)


def test_functions_of_the_schema_are_not_called(url: str) -> None:
    """Not even when the account's search path puts them before those of the server."""
    schema = schema_of(url)
    put_blobs(url, [*blobs(3), EMPTY])
    alter(
        url,
        """CREATE FUNCTION octet_length(bytea) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
        CREATE FUNCTION never(text, text) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END';
        CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = never);
        CREATE OPERATOR > (LEFTARG = text, RIGHTARG = text, FUNCTION = never);
        CREATE OPERATOR ~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = never)""",
    )
    path = make_conninfo(url, options=f"-c search_path={schema},pg_catalog")
    with closing(PostgresRows(path, writable=True)) as store:
        assert [count.rows for count in store.count()] == [3]
        assert rewrite_all(store, reseal) == [3, 0, 3]


def test_rows_that_a_policy_hides_stop_the_run(url: str) -> None:
    """Else they would be left under the old key, and nobody would know."""
    put_blobs(url, blobs(3))
    role = f"{schema_of(url)}_role"
    alter(
        url,
        f"""CREATE ROLE {role}; GRANT USAGE ON SCHEMA {schema_of(url)} TO {role};
        GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA {schema_of(url)} TO {role};
        ALTER TABLE checkpoint_blobs ENABLE ROW LEVEL SECURITY""",
    )
    try:
        path = make_conninfo(url, options=f"-c search_path={schema_of(url)} -c role={role}")
        with closing(PostgresRows(path, writable=True)) as store:
            with pytest.raises(MaintenanceError, match="InsufficientPrivilege") as refused:
                store.count()
            assert "for row policies BYPASSRLS" in str(refused.value.hint)
            with pytest.raises(MaintenanceError, match="42501"):
                store.rewrite(BLOBS, None, reseal)
    finally:
        alter(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_older_table_without_paths_of_tasks_will_do(url: str) -> None:
    alter(url, "ALTER TABLE checkpoint_writes DROP task_path")
    with closing(PostgresRows(url)) as store:
        assert store.columns == (BLOBS, WRITES, METADATA)


@pytest.mark.parametrize(("gone", "left"), [("checkpoint_blobs", WRITES), ("checkpoint_writes", BLOBS)])
def test_one_of_the_tables_will_do(url: str, gone: str, left: object) -> None:
    alter(url, f"DROP TABLE {gone}, checkpoints")
    with closing(PostgresRows(url)) as store:
        assert store.columns == (left,)
        assert not [
            *store.key_texts(),
            *(record.metadata for record in store.records()),
            *store.inline(),
            *store.count(),
        ]


def test_tables_that_go_away_are_told_as_such(url: str) -> None:
    put_blobs(url, blobs(1))
    before = contents(url)
    with closing(PostgresRows(url)) as store:
        alter(url, "ALTER TABLE checkpoint_blobs RENAME TO gone")
        with pytest.raises(SchemaError, match="changed after the database was opened"):
            store.count()
        alter(url, "ALTER TABLE gone RENAME TO checkpoint_blobs")
    assert contents(url) == before
