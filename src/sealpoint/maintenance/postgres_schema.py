"""The tables of LangGraph's Postgres savers, and the check that they are nothing else.

A trigger, a rule or an expression on them would run in our name, and a view or a partition could
lead elsewhere. The shallow savers keep one checkpoint for each thread: their keys are shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sealpoint.errors import SchemaError, excerpt
from sealpoint.maintenance.postgres_connection import SearchPath, own_words, refuse_schema
from sealpoint.maintenance.rows import Table

if TYPE_CHECKING:
    from psycopg import Connection

_THREAD: Final = ("thread_id", "checkpoint_ns")
_CHECKPOINT: Final = (*_THREAD, "checkpoint_id")

BLOBS: Final = Table(
    name="checkpoint_blobs",
    value="blob",
    key=(*_THREAD, "channel", "version"),
    logical=(("table", "values"),),
    coordinates=(*_THREAD, "channel", "version"),
)
SHALLOW_BLOBS: Final = Table(
    name="checkpoint_blobs",
    value="blob",
    key=(*_THREAD, "channel"),
    logical=(("table", "values"),),
    coordinates=(*_THREAD, "channel"),
)
WRITES: Final = Table(
    name="checkpoint_writes",
    value="blob",
    key=(*_CHECKPOINT, "task_id", "idx", "channel"),
    logical=(("table", "writes"),),
    coordinates=(*_CHECKPOINT, "task_id", "channel"),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """A form in which LangGraph makes a table.

    Attributes:
        name: Of the table.
        primary: Its primary key.
        types: The types of all columns that are not text.
        other: Further columns that are text.
        optional: A column that older tables lack; text.
        table: What upkeep sees of it; ``None`` for `checkpoints`, where no sealed value stands.
    """

    name: str
    primary: tuple[str, ...]
    types: dict[str, str]
    other: tuple[str, ...] = ("type",)
    optional: tuple[str, ...] = ()
    table: Table | None = None

    def fits(self, columns: dict[str, str], primary: tuple[str, ...]) -> bool:
        """Whether a table with these columns, by name with their types, is of this form."""
        wanted = dict.fromkeys((*self.primary, *self.other, *self.optional), "text") | self.types
        given = dict.fromkeys(set(self.optional) - columns.keys(), "text") | columns
        return given == wanted and primary == self.primary


_JSON: Final = {"checkpoint": "jsonb", "metadata": "jsonb"}
_BLOB: Final = {"blob": "bytea"}

LAYOUTS: Final = (
    Layout("checkpoints", _CHECKPOINT, _JSON, ("type", "parent_checkpoint_id")),
    Layout("checkpoints", _THREAD, _JSON),
    Layout("checkpoint_blobs", BLOBS.key, _BLOB, table=BLOBS),
    Layout("checkpoint_blobs", SHALLOW_BLOBS.key, _BLOB, table=SHALLOW_BLOBS),
    Layout(
        "checkpoint_writes",
        (*_CHECKPOINT, "task_id", "idx"),
        {"idx": "integer"} | _BLOB,
        ("type", "channel"),
        ("task_path",),
        WRITES,
    ),
)
NAMES: Final = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))

_TABLES: Final = """
    SELECT c.relname, n.nspname, n.oid, c.oid,
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
        END
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY(%s) AND c.relname = ANY(%s)"""
_ELSEWHERE: Final = """
    SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ANY(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
    AND n.nspname <> %s ORDER BY 1 LIMIT 1"""
_COLUMNS: Final = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod),
        a.attgenerated <> '' OR a.attidentity <> '', a.attcollation NOT IN (0, 100)
    FROM pg_attribute AS a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped"""
_PRIMARY: Final = """
    SELECT a.attname FROM pg_index AS i
    CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s AND i.indisprimary AND i.indisvalid ORDER BY k.place"""


@dataclass(frozen=True, slots=True)
class Found:
    """The tables of one saver.

    Attributes:
        schema: In which they are.
        schema_oid: The schema's number, which is its own among all of the database.
        oids: The number of each table, by name.
        layouts: The form of each table, by name.
        columns: Those of each table, by name.
    """

    schema: str
    schema_oid: int
    oids: dict[str, int]
    layouts: dict[str, Layout]
    columns: dict[str, tuple[str, ...]]


def find_tables(connection: Connection[Any], path: SearchPath) -> Found:
    """Find the tables in the first schema of the path that has them, and check them.

    Raises:
        SchemaError: If there are none, if they are in several schemas, or if one is not a real table
            with the columns and the primary key that LangGraph gives it, and nothing on it that acts.
            Also if another schema has tables of these names, and the path does not say which is meant:
            who may make a schema could else keep the real tables from sight.
    """
    with own_words():
        first = _first(connection, path.schemas)
        if not first.keys() - {"checkpoints"}:
            raise refuse_schema(
                "the database has neither of the tables 'checkpoint_blobs' and 'checkpoint_writes'"
            )
        places = {(schema, oid) for schema, oid, _ in first.values()}
        if len(places) > 1:
            raise refuse_schema("the search path leads to tables in several schemas")
        if not path.is_own:
            _require_alone(connection, next(iter(places))[0])
        columns = {name: _columns(connection, name, oid) for name, (_, _, oid) in first.items()}
        layouts = {name: _layout(connection, name, first[name][2], columns[name]) for name in columns}
    oids = {name: oid for name, (_, _, oid) in first.items()}
    return Found(*places.pop(), oids, layouts, {name: tuple(found) for name, found in columns.items()})


def _require_alone(connection: Connection[Any], schema: str) -> None:
    other = connection.execute(_ELSEWHERE, (list(NAMES), schema)).fetchone()
    if other is not None:
        raise SchemaError(
            f"the schemas {excerpt(schema)} and {excerpt(other[0])} both have tables of these names",
            hint="say in the URL which is meant: ?options=-csearch_path%3DNAME",
        )


def _first(connection: Connection[Any], schemas: Sequence[str]) -> dict[str, tuple[str, int, int]]:
    """Return schema, its number and the table's, of the table that each name leads to."""
    found = connection.execute(_TABLES, (list(schemas), list(NAMES))).fetchall()
    found.sort(key=lambda row: (NAMES.index(row[0]), schemas.index(row[1])))
    first: dict[str, tuple[str, int, int]] = {}
    for name, schema, schema_oid, oid, flaw in found:
        if name not in first and flaw is not None:
            raise refuse_schema(f"table {name!r} {flaw}")
        first.setdefault(name, (schema, schema_oid, oid))
    return first


def _columns(connection: Connection[Any], name: str, oid: int) -> dict[str, str]:
    columns = {}
    for column, kind, acts, collated in connection.execute(_COLUMNS, (oid,)):
        if acts or collated:
            flaw = "a generated column" if acts else "a collation on"
            raise refuse_schema(f"table {name!r} has {flaw} {excerpt(column)}")
        columns[column] = kind
    return columns


def _layout(connection: Connection[Any], name: str, oid: int, columns: dict[str, str]) -> Layout:
    primary = tuple(column for (column,) in connection.execute(_PRIMARY, (oid,)))
    for layout in LAYOUTS:
        if layout.name == name and layout.fits(columns, primary):
            return layout
    raise refuse_schema(
        f"table {name!r} does not have the columns and the primary key that LangGraph gives it"
    )
