"""Tables that are not those of LangGraph, or that have something on them that acts, are refused."""

from __future__ import annotations

from contextlib import closing
from itertools import permutations
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from sealpoint.errors import SchemaError, ServerError
from sealpoint.maintenance.postgres_rows import PostgresRows
from sealpoint.maintenance.postgres_schema import BLOBS, SHALLOW_BLOBS, WRITES
from tests.postgres.databases import EMPTY, blobs, contents, put_blobs, reseal, rewrite_all

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
    "'checkpoints' has a trigger": "CREATE TRIGGER t AFTER UPDATE ON checkpoints EXECUTE FUNCTION act()",
    "has a generated column 'more'": (
        "ALTER TABLE checkpoint_blobs ADD more bytea GENERATED ALWAYS AS (same(blob)) STORED"
    ),
    "has a generated column 'number'": (
        "ALTER TABLE checkpoint_blobs ADD number int GENERATED ALWAYS AS IDENTITY"
    ),
    "has a collation on 'version'": 'ALTER TABLE checkpoint_blobs ALTER version TYPE text COLLATE "C"',
    "does not have the columns": "ALTER TABLE checkpoint_blobs ADD more bytea",
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
    "'checkpoint_writes' is not a real table": (
        "DROP TABLE checkpoint_writes; CREATE TABLE checkpoint_writes (a int) PARTITION BY RANGE (a)"
    ),
    "has neither of the tables": "DROP TABLE checkpoint_blobs, checkpoint_writes",
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


def test_tables_in_several_schemas_are_refused(url: str) -> None:
    """A saver would use them side by side; whoever looks on has no way to tell which belong together."""
    other = schema_of(url)
    try:
        alter(url, f"CREATE SCHEMA {other}_2; ALTER TABLE checkpoint_writes SET SCHEMA {other}_2")
        with pytest.raises(SchemaError, match="several schemas"):
            PostgresRows(make_conninfo(url, options=f"-c search_path={other},{other}_2"))
    finally:
        alter(url, f"DROP SCHEMA {other}_2 CASCADE")


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
            assert store.tables == (schemas[one], WRITES)


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
            with pytest.raises(ServerError, match="InsufficientPrivilege"):
                store.count()
            with pytest.raises(ServerError, match="42501"):
                store.rewrite(BLOBS, None, reseal)
    finally:
        alter(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_an_older_table_without_paths_of_tasks_will_do(url: str) -> None:
    alter(url, "ALTER TABLE checkpoint_writes DROP task_path")
    with closing(PostgresRows(url)) as store:
        assert store.tables == (BLOBS, WRITES)


@pytest.mark.parametrize(("gone", "left"), [("checkpoint_blobs", WRITES), ("checkpoint_writes", BLOBS)])
def test_one_of_the_tables_will_do(url: str, gone: str, left: object) -> None:
    alter(url, f"DROP TABLE {gone}, checkpoints")
    with closing(PostgresRows(url)) as store:
        assert store.tables == (left,)
        assert not [*store.names(), *store.metadata(), *store.inline(), *store.count()]


def test_tables_that_go_away_are_told_as_such(url: str) -> None:
    put_blobs(url, blobs(1))
    before = contents(url)
    with closing(PostgresRows(url)) as store:
        alter(url, "ALTER TABLE checkpoint_blobs RENAME TO gone")
        with pytest.raises(SchemaError, match="not what they were"):
            store.count()
        alter(url, "ALTER TABLE gone RENAME TO checkpoint_blobs")
    assert contents(url) == before
