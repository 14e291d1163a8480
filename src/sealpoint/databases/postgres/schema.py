"""The tables of LangGraph's Postgres savers, and their check.

A trigger, a rule or an expression on them would run with the rights of the reading account, including an
expression of an index or of extended statistics: the planner evaluates its constant parts. A view or a
partition could lead to other data. The check reads only the server's catalogs. The shallow savers store one
checkpoint per thread: their keys are shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealpoint.databases.cells import Column
from sealpoint.databases.postgres.columns import BLOBS, METADATA, SHALLOW_BLOBS, SHALLOW_METADATA, WRITES
from sealpoint.databases.postgres.connection import SearchPath, refuse_schema, translate_errors
from sealpoint.databases.rows import Table
from sealpoint.errors import SchemaError, excerpt

if TYPE_CHECKING:
    from psycopg import Connection


@dataclass(frozen=True, slots=True)
class Layout:
    """A form in which LangGraph creates a table.

    Attributes:
        name: Of the table.
        primary: Its primary key.
        types: The types of all columns that are not text.
        other: Further columns that are text.
        optional: A column that older tables lack; text.
        column: The column with values.
    """

    name: str
    primary: tuple[str, ...]
    types: dict[str, str]
    column: Column
    other: tuple[str, ...] = ("type",)
    optional: tuple[str, ...] = ()

    def fits(self, columns: dict[str, str], primary: tuple[str, ...]) -> bool:
        """Whether a table with these columns, types by name, has this form."""
        wanted = dict.fromkeys((*self.primary, *self.other, *self.optional), "text") | self.types
        given = dict.fromkeys(set(self.optional) - columns.keys(), "text") | columns
        return given == wanted and primary == self.primary


_JSON: Final = {"checkpoint": "jsonb", "metadata": "jsonb"}
_BLOB: Final = {"blob": "bytea"}

LAYOUTS: Final = (
    Layout("checkpoints", METADATA.key, _JSON, METADATA, ("type", "parent_checkpoint_id")),
    Layout("checkpoints", SHALLOW_METADATA.key, _JSON, SHALLOW_METADATA),
    Layout("checkpoint_blobs", BLOBS.key, _BLOB, BLOBS),
    Layout("checkpoint_blobs", SHALLOW_BLOBS.key, _BLOB, SHALLOW_BLOBS),
    Layout(
        "checkpoint_writes",
        tuple(name for name in WRITES.key if name != "channel"),
        {"idx": "integer"} | _BLOB,
        WRITES,
        ("type", "channel"),
        ("task_path",),
    ),
)
NAMES: Final = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))

# Built-in types have an oid below 16384. Before Postgres 14 statistics have no `stxexprs`.
_TABLES: Final = """
    SELECT c.relname, n.nspname, n.oid, c.oid, n.xmin::text,
        CASE WHEN c.relkind <> 'r' OR c.relpersistence = 't' OR c.relispartition THEN 'is not a real table'
            WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal)
                THEN 'has a trigger'
            WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'has a rule'
            WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
                THEN 'has tables that inherit from it'
            WHEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype IN ('c', 'x'))
                THEN 'has a check'
            WHEN EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND c.oid IN (conrelid, confrelid))
                THEN 'has a foreign key'
            WHEN EXISTS (SELECT FROM pg_index
                WHERE indrelid = c.oid AND (indexprs IS NOT NULL OR indpred IS NOT NULL))
                THEN 'has an index over an expression'
            WHEN EXISTS (SELECT FROM pg_statistic_ext AS s
                WHERE s.stxrelid = c.oid AND to_jsonb(s) ->> 'stxexprs' IS NOT NULL)
                THEN 'has statistics over an expression'
        END,
        (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attname,
                CASE WHEN a.atttypid < 16384 THEN format_type(a.atttypid, a.atttypmod) END,
                a.attgenerated <> '' OR a.attidentity <> '', a.attcollation NOT IN (0, 100))
                ORDER BY a.attnum), '[]')
            FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        ARRAY(SELECT a.attname::text FROM pg_index AS i
            CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
            JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid ORDER BY k.place)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE """
_ALL: Final = f"{_TABLES} n.nspname = ANY(%s) AND c.relname = ANY(%s)"
_ONE: Final = f"{_TABLES} n.nspname = %s AND c.relname = %s"
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


class _Row(NamedTuple):
    """The catalog entries of one table; see `_TABLES`."""

    name: str
    schema: str
    schema_oid: int
    oid: int
    schema_version: str
    flaw: str | None
    columns: list[tuple[str, str | None, bool, bool]]
    primary: list[str]


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
        {name: _layout(row) for name, row in first.items()},
        {name: tuple(column for column, *_ in row.columns) for name, row in first.items()},
    )


def check_table(connection: Connection[Any], found: Found, name: str) -> str:
    """Check a table again after this session has locked it by name.

    Returns:
        The version of its schema, which differs after each change of the schema, such as a new name.

    Raises:
        SchemaError: If it is not the table that was found, or has been changed.
    """
    for row in map(_Row._make, connection.execute(_ONE, (found.schema, name))):
        if row.flaw is not None:
            raise refuse_schema(f"table {name!r} {row.flaw}")
        same = (row.schema_oid, row.oid, _layout(row)) == (
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


def _first(connection: Connection[Any], schemas: Sequence[str]) -> dict[str, _Row]:
    """Return the catalog entries of the table that each name leads to."""
    found = [_Row(*row) for row in connection.execute(_ALL, (list(schemas), list(NAMES)))]
    found.sort(key=lambda row: (NAMES.index(row.name), schemas.index(row.schema)))
    first: dict[str, _Row] = {}
    for row in found:
        if row.name not in first and row.flaw is not None:
            raise refuse_schema(f"table {row.name!r} {row.flaw}")
        first.setdefault(row.name, row)
    return first


def _layout(row: _Row) -> Layout:
    for column, _, acts, collated in row.columns:
        if acts or collated:
            flaw = "a generated column" if acts else "a collation on"
            raise refuse_schema(f"table {row.name!r} has {flaw} {excerpt(column)}")
    columns = {column: kind or "" for column, kind, *_ in row.columns}
    for layout in LAYOUTS:
        if layout.name == row.name and layout.fits(columns, tuple(row.primary)):
            return layout
    raise refuse_schema(
        f"table {row.name!r} does not have the columns and the primary key that LangGraph gives it"
    )
