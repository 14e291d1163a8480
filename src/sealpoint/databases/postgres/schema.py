"""The tables of a saver in a database: where they are, and that they are as LangGraph makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sealpoint.databases.postgres.connection import SearchPath, translate_errors
from sealpoint.databases.rows import Table
from sealpoint.errors import SchemaError, excerpt
from sealpoint.postgres.layout import TABLES, Layout, Row, layout_of, refuse_schema, require_plain

if TYPE_CHECKING:
    from psycopg import Connection


NAMES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

_ALL: Final = f"{TABLES} n.nspname = ANY(%s) AND c.relname = ANY(%s)"
_ONE: Final = f"{TABLES} n.nspname = %s AND c.relname = %s"
_ELSEWHERE: Final = """
    SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
    AND n.nspname <> %s ORDER BY 1 LIMIT 1"""

_EVERY: Final = """
    SELECT n.nspname, c.relname, c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname <> 'information_schema'
    AND n.nspname !~ '^pg_' ORDER BY n.nspname = %s DESC, 1, 2"""
_IDENTITY: Final = """
    SELECT current_database(), (SELECT oid FROM pg_database WHERE datname = current_database())"""
_SYSTEM: Final = "SELECT system_identifier FROM pg_control_system()"


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of one saver.

    Attributes:
        schema: In which they are.
        schema_oid: The oid of the schema.
        oids: The oid of each table, by name.
        layouts: The form of each table, by name.
        columns: The columns of each table, by name.
    """

    schema: str
    schema_oid: int
    oids: dict[str, int]
    layouts: dict[str, Layout]
    columns: dict[str, tuple[str, ...]]


def find_tables(connection: Connection[Any], path: SearchPath) -> Found:
    """Find the tables in the first schema of the path that has them, and check them.

    Raises:
        SchemaError: If there are none, if they are in several schemas, or if one is not an ordinary table
            with the columns and the primary key of LangGraph, or has a trigger, a rule or the like. Also if
            another schema has tables of these names, and the path does not choose one: otherwise an account
            that may create a schema could hide the real tables.
    """
    with translate_errors():
        first = _first(connection, path.schemas)
        if not first.keys() - {"checkpoints"}:
            raise refuse_schema(
                "the database has neither of the tables 'checkpoint_blobs' and 'checkpoint_writes'"
            )
        places = {(row.schema, row.schema_oid) for row in first.values()}
        if len(places) > 1:
            raise refuse_schema("the search path leads to tables in several schemas")
        if not path.is_own:
            _require_alone(connection, next(iter(places))[0])
    return Found(
        *places.pop(),
        {name: row.oid for name, row in first.items()},
        {name: layout_of(row) for name, row in first.items()},
        {name: tuple(column for column, *_ in row.columns) for name, row in first.items()},
    )


def check_table(connection: Connection[Any], found: Found, name: str) -> str:
    """Check a table again after this session has locked it by name.

    Returns:
        The version of its schema, which differs after each change of the schema, such as a new name.

    Raises:
        SchemaError: If it is not the table that was found, or has been changed.
    """
    for row in map(Row._make, connection.execute(_ONE, (found.schema, name))):
        require_plain(row)
        same = (row.schema_oid, row.oid, layout_of(row)) == (
            found.schema_oid,
            found.oids[name],
            found.layouts[name],
        )
        if same:
            return row.schema_version
    raise refuse_schema("the tables are not what they were when the database was opened")


def every_table(connection: Connection[Any], found: Found) -> list[Table]:
    """Return all tables of the database, those of the saver's schema first."""
    with translate_errors():
        rows = connection.execute(_EVERY, (found.schema,)).fetchall()
    read = set(found.oids.values())
    own = found.schema
    return [Table(name if schema == own else f"{schema}.{name}", oid in read) for schema, name, oid in rows]


def identity_of(connection: Connection[Any], found: Found) -> dict[str, Any]:
    """Return what tells a saver's tables from those of every other database and server.

    The number of the server is left out if the account has no right to read it.
    """
    from psycopg.errors import InsufficientPrivilege

    with translate_errors():
        database, oid = connection.execute(_IDENTITY).fetchone() or ("", 0)
        try:
            with connection.transaction():  # a refusal does not end an open transaction
                system = connection.execute(_SYSTEM).fetchone()
        except InsufficientPrivilege:
            system = None
    return {
        "system": str(system[0]) if system else None,
        "database": database,
        "oid": oid,
        "schema": found.schema,
        "schema_oid": found.schema_oid,
    }


def _require_alone(connection: Connection[Any], schema: str) -> None:
    other = connection.execute(_ELSEWHERE, (list(NAMES), schema)).fetchone()
    if other is not None:
        raise SchemaError(
            f"the schemas {excerpt(schema)} and {excerpt(other[0])} both have tables of these names",
            hint="say in the URL which is meant: ?options=-csearch_path%3DNAME",
        )


def _first(connection: Connection[Any], schemas: Sequence[str]) -> dict[str, Row]:
    """Return the catalog entries of the table that each name leads to."""
    found = [Row(*row) for row in connection.execute(_ALL, (list(schemas), list(NAMES)))]
    found.sort(key=lambda row: (NAMES.index(row.name), schemas.index(row.schema)))
    first: dict[str, Row] = {}
    for row in found:
        if row.name not in first:
            require_plain(row)
        first.setdefault(row.name, row)
    return first
