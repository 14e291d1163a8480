"""What the tables of LangGraph's Postgres savers must be.

A trigger, a rule or an expression on them would run with the rights of the account that reads or writes them,
including an expression of an index or of extended statistics: the planner evaluates its constant parts. A
view or a partition could lead to other data. The check reads only the server's catalogs. The shallow savers
store one checkpoint per thread: their keys are shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sealpoint.errors import SchemaError, excerpt

_SCHEMA_HINT: Final = "look at the tables with \\d+ in psql before you trust them"


@dataclass(frozen=True, slots=True)
class Layout:
    """A form in which LangGraph creates a table.

    Attributes:
        name: Of the table.
        primary: Its primary key.
        types: The types of all columns that are not text.
        other: Further columns that are text.
        optional: A column that older tables lack; text.
    """

    name: str
    primary: tuple[str, ...]
    types: dict[str, str]
    other: tuple[str, ...] = ("type",)
    optional: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, str]:
        """The types of all columns, by name."""
        return dict.fromkeys((*self.primary, *self.other, *self.optional), "text") | self.types

    def fits(self, columns: dict[str, str], primary: tuple[str, ...]) -> bool:
        """Whether a table with these columns, types by name, has this form."""
        given = dict.fromkeys(set(self.optional) - columns.keys(), "text") | columns
        return given == self.columns and primary == self.primary


THREAD: Final = ("thread_id", "checkpoint_ns")
CHECKPOINT: Final = (*THREAD, "checkpoint_id")
_JSON: Final = {"checkpoint": "jsonb", "metadata": "jsonb"}
_BLOB: Final = {"blob": "bytea"}

LAYOUTS: Final = (
    Layout("checkpoints", CHECKPOINT, _JSON, ("type", "parent_checkpoint_id")),
    Layout("checkpoints", THREAD, _JSON),
    Layout("checkpoint_blobs", (*THREAD, "channel", "version"), _BLOB),
    Layout("checkpoint_blobs", (*THREAD, "channel"), _BLOB),
    Layout(
        "checkpoint_writes",
        (*CHECKPOINT, "task_id", "idx"),
        {"idx": "integer"} | _BLOB,
        ("type", "channel"),
        ("task_path",),
    ),
    Layout("checkpoint_migrations", ("v",), {"v": "integer"}, ()),
)
NAMES: Final = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))

# Built-in types have an oid below 16384. Before Postgres 14 statistics have no `stxexprs`.
TABLES: Final = """
    SELECT c.relname, n.nspname, n.oid, c.oid, n.xmin::text,
        (SELECT jsonb_agg(jsonb_build_array(what, name)) FROM (
            SELECT 'is not a real table', NULL
                WHERE c.relkind <> 'r' OR c.relpersistence = 't' OR c.relispartition
            UNION ALL SELECT 'has a trigger', tgname FROM pg_trigger
                WHERE tgrelid = c.oid AND NOT tgisinternal
            UNION ALL SELECT 'has a rule', rulename FROM pg_rewrite WHERE ev_class = c.oid
            UNION ALL SELECT 'has tables that inherit from it', NULL
                WHERE EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
            UNION ALL SELECT 'has a check', conname FROM pg_constraint
                WHERE conrelid = c.oid AND contype IN ('c', 'x')
            UNION ALL SELECT 'has a foreign key', conname FROM pg_constraint
                WHERE contype = 'f' AND c.oid IN (conrelid, confrelid)
            UNION ALL SELECT 'has an index over an expression', i.relname
                FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
                WHERE indrelid = c.oid AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
            UNION ALL SELECT 'has statistics over an expression', stxname FROM pg_statistic_ext AS s
                WHERE s.stxrelid = c.oid AND to_jsonb(s) ->> 'stxexprs' IS NOT NULL
            UNION ALL SELECT 'has a default that LangGraph does not give it, for', attname
                FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
                WHERE adrelid = c.oid AND attgenerated = ''
                AND pg_get_expr(adbin, adrelid) NOT IN ('''''::text', '''{}''::jsonb')
        ) AS flaw(what, name)),
        (SELECT jsonb_agg(name) FROM (
            SELECT polname FROM pg_policy WHERE polrelid = c.oid
            UNION ALL SELECT '' WHERE c.relrowsecurity OR c.relforcerowsecurity
        ) AS policy(name)),
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
"""Selects the rows of `Row`; the condition follows. The search path must begin with pg_catalog."""


class Row(NamedTuple):
    """The catalog entries of one table.

    Attributes:
        name: Of the table.
        schema: In which it is.
        schema_oid: The oid of the schema.
        oid: The oid of the table.
        schema_version: Differs after each change of the schema, such as a new name.
        flaws: What it must not have: a sentence, and a name.
        policies: Names of its policies; an empty one if policies are on.
        columns: Name, type if it is a built-in one, whether it is generated, whether it has a collation.
        primary: The columns of its primary key.
    """

    name: str
    schema: str
    schema_oid: int
    oid: int
    schema_version: str
    flaws: list[tuple[str, str | None]] | None
    policies: list[str] | None
    columns: list[tuple[str, str | None, bool, bool]]
    primary: list[str]


def refuse_schema(what: str) -> SchemaError:
    """Return the error for a database with invalid tables."""
    return SchemaError(what, hint=_SCHEMA_HINT)


def require_tables(rows: Sequence[Row]) -> set[str]:
    """Check the tables to which the statements of a saver lead.

    Returns:
        Which of the tables exist.

    Raises:
        SchemaError: If one is not what LangGraph makes, has something that acts by itself or a policy, or if
            they are in several schemas.
    """
    for row in rows:
        require_plain(row)
        require_no_policy(row)
        layout_of(row)
    if len({row.schema for row in rows}) > 1:
        raise refuse_schema("the search path leads to tables in several schemas")
    return {row.name for row in rows}


def require_plain(row: Row) -> None:
    """Check that a table is a real one, and that nothing hangs on it that acts by itself.

    Policies are not looked at: see `require_no_policy`.

    Raises:
        SchemaError: If it is not a table, or has a trigger, a rule, or an expression of another kind.
    """
    for what, name in row.flaws or ():
        raise refuse_schema(f"table {row.name!r} {what}{_named(name)}")


def require_no_policy(row: Row) -> None:
    """Check that no policy hides rows of a table, or refuses new ones.

    Raises:
        SchemaError: If it has one.
    """
    if row.policies is not None:
        raise refuse_schema(f"table {row.name!r} has a policy{_named(max(row.policies))}")


def layout_of(row: Row) -> Layout:
    """Return the form of a table.

    Raises:
        SchemaError: If it has other columns or another primary key than LangGraph gives it.
    """
    for column, _, acts, collated in row.columns:
        if acts or collated:
            flaw = "a generated column" if acts else "a collation on"
            raise refuse_schema(f"table {row.name!r} has {flaw} {excerpt(column)}")
    columns = {column: kind or "" for column, kind, *_ in row.columns}
    forms = [layout for layout in LAYOUTS if layout.name == row.name]
    for layout in forms:
        if layout.fits(columns, tuple(row.primary)):
            return layout
    known = {item for layout in forms for item in layout.columns.items()}
    others = ", ".join(excerpt(name) for name, kind in columns.items() if (name, kind) not in known)
    raise refuse_schema(
        f"table {row.name!r} does not have the columns and the primary key that LangGraph gives it"
        + (f": {others}" if others else "")
    )


def _named(name: str | None) -> str:
    return f" {excerpt(name)}" if name else ""
