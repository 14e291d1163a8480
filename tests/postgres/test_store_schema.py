"""The tables of LangGraph's Store pass as its setup makes them; whatever else is on them is refused."""

from __future__ import annotations

from typing import Final

import psycopg
import pytest

from sealpoint.errors import SchemaError
from sealpoint.guards.pgtables import STORE_NAMES, TABLES, Row, require_tables
from tests.postgres.test_schema import FUNCTION, alter, schema_of
from tests.support.databases.postgres import make_store

DIMS: Final = 3
INDEX: Final = {"dims": DIMS, "embed": lambda texts: [[float(len(text))] * DIMS for text in texts]}
ACT: Final = f"""{FUNCTION}
    CREATE FUNCTION same(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';
    CREATE FUNCTION now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now()';"""
EXPIRY: Final = "DROP INDEX idx_store_expires_at; CREATE INDEX idx_store_expires_at ON store"
PRIMARY: Final = "ALTER TABLE store DROP CONSTRAINT store_pkey"

REFUSED: Final = {
    "'store' has a trigger": "CREATE TRIGGER t BEFORE UPDATE ON store FOR EACH ROW EXECUTE FUNCTION act()",
    "'store' has a rule": "CREATE RULE r AS ON UPDATE TO store DO ALSO NOTIFY x",
    "'store' has tables that inherit from it": "CREATE TABLE c () INHERITS (store)",
    "'store' has a check": "ALTER TABLE store ADD CHECK (same(key) IS NOT NULL)",
    "'store' has a policy 'p'": "CREATE POLICY p ON store USING (same(key) IS NOT NULL)",
    "'store' has a policy": "ALTER TABLE store ENABLE ROW LEVEL SECURITY",
    "over an expression 'other'": "CREATE INDEX other ON store (expires_at) WHERE expires_at IS NOT NULL",
    "an expression 'idx_store_expires_at'": f"{EXPIRY} (expires_at) WHERE expires_at IS NULL",
    "expression 'idx_store_expires_at'": f"{EXPIRY} (expires_at) WHERE same(key) IS NOT NULL",
    "'idx_store_expires_at'": f"{EXPIRY} (same(key)) WHERE expires_at IS NOT NULL",
    "has an index over an expression 'idx_store_expires_at'": (
        f"{EXPIRY} (expires_at DESC) WHERE expires_at IS NOT NULL"
    ),
    "'store_migrations' has an index over an expression": (
        "DROP INDEX idx_store_expires_at; ALTER TABLE store_migrations ADD expires_at timestamptz;"
        " CREATE INDEX idx_store_expires_at ON store_migrations (expires_at) WHERE expires_at IS NOT NULL"
    ),
    "'store' has statistics over an expression": "CREATE STATISTICS s ON (same(key)), prefix FROM store",
    "does not give it, for 'created_at'": "ALTER TABLE store ALTER created_at SET DEFAULT clock_timestamp()",
    "give it, for 'created_at'": "ALTER TABLE store ALTER created_at SET DEFAULT now()",
    "for 'expires_at'": "ALTER TABLE store ALTER expires_at SET DEFAULT CURRENT_TIMESTAMP",
    "for 'key'": "ALTER TABLE store ALTER key SET DEFAULT same('x')",
    "'store' has a generated column 'more'": (
        "ALTER TABLE store ADD more text GENERATED ALWAYS AS (same(key)) STORED"
    ),
    "'store' has a collation on 'prefix'": 'ALTER TABLE store ALTER prefix TYPE text COLLATE "C"',
    "LangGraph gives it: 'value'": "ALTER TABLE store ALTER value TYPE json",
    "gives it: 'key'": (
        "CREATE DOMAIN word AS text CHECK (same(VALUE) IS NOT NULL); ALTER TABLE store ALTER key TYPE word"
    ),
    "gives it: 'expires_at'": f"{EXPIRY} (key); ALTER TABLE store ALTER expires_at TYPE text",
    "gives it: 'embedding'": "ALTER TABLE store ADD embedding bytea",
    "the columns and the primary key": f"{PRIMARY}; ALTER TABLE store ADD PRIMARY KEY (key, prefix)",
    "'store' is not a real table": "ALTER TABLE store RENAME TO s; CREATE VIEW store AS SELECT * FROM s",
    "'store_migrations' does not have the columns": "ALTER TABLE store_migrations ADD more text",
    "'store' has a foreign key": "CREATE TABLE c (prefix text, key text, FOREIGN KEY (prefix, key)"
    " REFERENCES store (prefix, key) ON DELETE CASCADE)",
    "foreign key 'f'": "CREATE TABLE store_vectors (prefix text, key text, CONSTRAINT f"
    " FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE ON UPDATE CASCADE)",
    "a foreign key 'f'": "CREATE TABLE c (ttl_minutes int PRIMARY KEY);"
    " ALTER TABLE store ADD CONSTRAINT f FOREIGN KEY (ttl_minutes) REFERENCES c",
}
ELSEWHERE: Final = (
    "CREATE SCHEMA {0}_threads; CREATE TABLE {0}_threads.store_vectors (prefix text, key text,"
    " CONSTRAINT f FOREIGN KEY (prefix, key) REFERENCES {0}.store (prefix, key) ON DELETE CASCADE)"
)

VECTORS: Final = "ALTER TABLE store_vectors ALTER embedding TYPE"
REFUSED_VECTORS: Final = {
    "'store_vectors' has a trigger": (
        "CREATE TRIGGER t BEFORE DELETE ON store_vectors FOR EACH ROW EXECUTE FUNCTION act()"
    ),
    "'store_vectors' has an index over": (
        "CREATE INDEX ON store_vectors (field_name) WHERE same(field_name) IS NOT NULL"
    ),
    "has a foreign key 'f'": (
        "ALTER TABLE store_vectors ADD CONSTRAINT f FOREIGN KEY (prefix, key)"
        " REFERENCES store ON DELETE CASCADE NOT VALID"
    ),
    "has a foreign key 'g'": "CREATE TABLE c (LIKE store_vectors INCLUDING ALL, CONSTRAINT g"
    " FOREIGN KEY (prefix, key, field_name) REFERENCES store_vectors)",
    "for 'embedding'": "ALTER TABLE store_vectors ALTER embedding SET DEFAULT '[1,2,3]'",
    "gives it: 'embedding'": f"{VECTORS} real[] USING NULL",
    "LangGraph gives it: 'embedding'": f"{VECTORS} sparsevec USING NULL",
    "that LangGraph gives it: 'embedding'": (
        "CREATE DOMAIN halfvec AS text CHECK (same(VALUE) IS NOT NULL); ALTER EXTENSION vector ADD DOMAIN"
        f" halfvec; {VECTORS} halfvec USING NULL"
    ),
    "key that LangGraph gives it: 'embedding'": (
        f"CREATE TYPE vector AS (a text); ALTER EXTENSION vector ADD TYPE vector; {VECTORS} vector USING NULL"
    ),
    "gives it: 'field_name'": (
        "ALTER TABLE store_vectors ALTER field_name TYPE public.vector USING '[1]'::public.vector"
    ),
    "gives it: 'value'": "ALTER TABLE store ALTER value TYPE public.vector USING NULL",
}


def tables(url: str) -> set[str]:
    """The names of the tables of a Store, which pass the check."""
    name = schema_of(url)
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        rows = connection.execute(
            f"{TABLES} n.nspname = ANY(%s) AND c.relname = ANY(%s)".encode(), ([name], [*STORE_NAMES])
        ).fetchall()
        return require_tables([Row(*row) for row in rows])


def test_the_tables_of_setup_pass(store_url: str) -> None:
    assert tables(store_url) == {"store", "store_migrations"}


def test_the_tables_of_setup_pass_in_a_schema_of_any_name(store_url: str) -> None:
    name, other = schema_of(store_url), 'sealpoint Select"_threads'
    quoted = '"{}"'.format(other.replace('"', '""'))
    alter(store_url, f"ALTER SCHEMA {name} RENAME TO {quoted}")
    try:
        with psycopg.connect(store_url) as connection:
            rows = connection.execute(f"{TABLES} n.nspname = %s".encode(), (other,)).fetchall()
        assert all(Row(*row).flaws is None for row in rows if row[0] in STORE_NAMES)
    finally:
        alter(store_url, f"ALTER SCHEMA {quoted} RENAME TO {name}")


def test_an_older_table_without_expiry_passes(store_url: str) -> None:
    alter(store_url, "ALTER TABLE store DROP expires_at, DROP ttl_minutes")
    assert tables(store_url) == {"store", "store_migrations"}


@pytest.mark.parametrize("words", REFUSED)
def test_altered_tables_are_refused(store_url: str, words: str) -> None:
    alter(store_url, ACT + REFUSED[words])
    with pytest.raises(SchemaError, match=words):
        tables(store_url)


def test_a_foreign_key_of_another_schema_is_refused(store_url: str) -> None:
    alter(store_url, ELSEWHERE.format(schema_of(store_url)))
    with pytest.raises(SchemaError, match="'store' has a foreign key 'f'"):
        tables(store_url)


@pytest.mark.parametrize("kind", ["hnsw", "ivfflat", "flat"])
@pytest.mark.parametrize("vector_type", ["vector", "halfvec"])
def test_the_tables_of_a_vector_index_pass(vector_url: str, kind: str, vector_type: str) -> None:
    index = {**INDEX, "ann_index_config": {"kind": kind, "vector_type": vector_type}}
    make_store(vector_url, index=index)
    assert tables(vector_url) == {*STORE_NAMES}


@pytest.mark.parametrize("words", REFUSED_VECTORS)
def test_altered_vectors_are_refused(vector_url: str, words: str) -> None:
    make_store(vector_url, index={**INDEX, "ann_index_config": {"kind": "flat"}})
    alter(vector_url, ACT + REFUSED_VECTORS[words])
    with pytest.raises(SchemaError, match=words):
        tables(vector_url)
