"""Checks that tables on Postgres are those of LangGraph's savers and Store.

A trigger, a rule or an expression on the tables would run with the rights of the account that reads or writes
them, including an expression of an index or of extended statistics: the planner evaluates its constant parts.
A view or a partition of another table could lead to other data. The check reads only the server's catalogs.
The shallow savers store one checkpoint per thread, so the primary keys of their tables are shorter.

A saver's table may be partitioned by thread or checkpoint. Every partition is checked like the table, and has
the table's schema and owner. The operators and collations that assign rows to partitions must be built in.

The Store's tables may have a default, a partial index and a foreign key whose definitions, as the server
prints them, are exactly LangGraph's. The type of its vectors must be one that only a superuser can create.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sealpoint.errors import OldTablesError, SchemaError, excerpt

_SCHEMA_HINT: Final = "look at the tables with \\d+ in psql before you trust them"


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns and primary key of a table as a release of LangGraph creates it."""

    name: str
    primary: tuple[str, ...]
    types: dict[str, str]  # types of the columns that are not text
    other: tuple[str, ...] = ("type",)  # further columns that are text
    optional: tuple[str, ...] = ()  # further columns, missing in older tables

    @property
    def columns(self) -> dict[str, str]:
        """The Postgres type of each column, by name of the column."""
        return dict.fromkeys((*self.primary, *self.other, *self.optional), "text") | self.types


THREAD: Final = ("thread_id", "checkpoint_ns")
CHECKPOINT: Final = (*THREAD, "checkpoint_id")
_JSON: Final = {"checkpoint": "jsonb", "metadata": "jsonb"}
_BLOB: Final = {"blob": "bytea"}

_SAVERS: Final = (
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
ITEM: Final = ("prefix", "key")
_TIME: Final = "timestamp with time zone"
_TIMES: Final = {"created_at": _TIME, "updated_at": _TIME}
_EXPIRY: Final = {"expires_at": _TIME, "ttl_minutes": "integer"}
_STORE: Final = (
    Layout("store", ITEM, {"value": "jsonb", **_TIMES, **_EXPIRY}, (), tuple(_EXPIRY)),
    Layout("store_vectors", (*ITEM, "field_name"), {"embedding": "vector", **_TIMES}, ()),
    Layout("store_migrations", ("v",), {"v": "integer"}, ()),
    Layout("vector_migrations", ("v",), {"v": "integer"}, ()),
)
LAYOUTS: Final = _SAVERS + _STORE
NAMES: Final = tuple(dict.fromkeys(layout.name for layout in _SAVERS))  # of a saver's tables
STORE_NAMES: Final = tuple(layout.name for layout in _STORE)

# Built-in types have an oid below 16384. The owner of an extension may add types to it, but only a superuser
# creates base types. Before Postgres 14 statistics have no `stxexprs`.
# Selects a `Row` for each table or partition ``c``. A condition on ``r`` follows: ``c`` itself or its root.
# The search path must begin with pg_catalog. Before Postgres 14 no partition has `inhdetachpending`.
TABLES: Final = """
    SELECT c.relname, r.relname, n.nspname, n.oid, c.oid, r.oid, n.xmin::text, part.tree, c.relkind = 'p',
        (SELECT jsonb_agg(jsonb_build_array(what, name)) FROM (
            SELECT 'is not a real table', NULL
                WHERE c.relpersistence = 't' OR c.relispartition = (c.oid = r.oid) OR c.relkind <> 'r'
                AND (c.relkind, r.relname) NOT IN
                    (('p', 'checkpoints'), ('p', 'checkpoint_blobs'), ('p', 'checkpoint_writes'))
            UNION ALL SELECT 'is in another schema, or of another owner, than', r.relname
                WHERE c.relnamespace <> r.relnamespace OR c.relowner <> r.relowner
            UNION ALL SELECT 'is being detached from', r.relname FROM pg_inherits AS i
                WHERE inhrelid = c.oid AND to_jsonb(i) ->> 'inhdetachpending' = 'true'
            UNION ALL SELECT 'is not partitioned by hash or range of thread_id or checkpoint_id', NULL
                FROM pg_partitioned_table WHERE partrelid = c.oid AND (partstrat NOT IN ('h', 'r')
                OR 16384 <= ANY (partclass::oid[] || partcollation::oid[]) OR EXISTS (
                    SELECT FROM unnest(partattrs) AS k
                    LEFT JOIN pg_attribute ON attrelid = c.oid AND attnum = k
                    WHERE attname IN ('thread_id', 'checkpoint_id') IS NOT TRUE))
            UNION ALL SELECT 'has a trigger', tgname FROM pg_trigger
                WHERE tgrelid = c.oid AND NOT tgisinternal
            UNION ALL SELECT 'has a rule', rulename FROM pg_rewrite WHERE ev_class = c.oid
            UNION ALL SELECT 'has tables that inherit from it', NULL
                WHERE c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid)
            UNION ALL SELECT 'has a check', conname FROM pg_constraint
                WHERE conrelid = c.oid AND contype IN ('c', 'x')
            UNION ALL SELECT 'has a foreign key', conname
                FROM pg_constraint AS f JOIN pg_class AS v ON v.oid = conrelid
                WHERE contype = 'f' AND c.oid IN (conrelid, confrelid)
                AND (v.relname, v.relnamespace, pg_get_constraintdef(f.oid)) <> ('store_vectors', n.oid,
                    'FOREIGN KEY (prefix, key) REFERENCES ' || quote_ident(n.nspname)
                    || '.store(prefix, key) ON DELETE CASCADE')
            UNION ALL SELECT 'has an index over an expression', i.relname
                FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
                WHERE indrelid = c.oid AND (indexprs IS NOT NULL OR indpred IS NOT NULL)
                AND pg_get_indexdef(indexrelid) <> 'CREATE INDEX idx_store_expires_at ON '
                    || quote_ident(n.nspname)
                    || '.store USING btree (expires_at) WHERE (expires_at IS NOT NULL)'
            UNION ALL SELECT 'has statistics over an expression', stxname FROM pg_statistic_ext AS s
                WHERE s.stxrelid = c.oid AND to_jsonb(s) ->> 'stxexprs' IS NOT NULL
            UNION ALL SELECT 'has a default that LangGraph does not give it, for', attname
                FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
                WHERE adrelid = c.oid AND attgenerated = ''
                AND pg_get_expr(adbin, adrelid) NOT IN ('''''::text', '''{}''::jsonb',
                    CASE WHEN c.relname IN ('store', 'store_vectors')
                    AND attname IN ('created_at', 'updated_at') THEN 'CURRENT_TIMESTAMP' ELSE '' END)
        ) AS flaw(what, name)),
        (SELECT jsonb_agg(name) FROM (
            SELECT polname FROM pg_policy WHERE polrelid = c.oid
            UNION ALL SELECT '' WHERE c.relrowsecurity OR c.relforcerowsecurity
        ) AS policy(name)),
        (SELECT coalesce(jsonb_agg(jsonb_build_array(a.attname,
                CASE WHEN a.atttypid < 16384 THEN format_type(a.atttypid, a.atttypmod)
                ELSE (SELECT extname FROM pg_depend JOIN pg_extension AS e ON e.oid = refobjid
                    JOIN pg_type AS t ON t.oid = objid
                    WHERE objid = a.atttypid AND classid = 'pg_type'::regclass
                    AND refclassid = 'pg_extension'::regclass AND deptype = 'e' AND extname = 'vector'
                    AND typtype = 'b' AND typname IN ('vector', 'halfvec')) END,
                a.attgenerated <> '' OR a.attidentity <> '', a.attcollation NOT IN (0, 100))
                ORDER BY a.attnum), '[]')
            FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        ARRAY(SELECT a.attname::text FROM pg_index AS i
            CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
            JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid ORDER BY k.place)
    FROM pg_class AS r CROSS JOIN LATERAL (
        WITH RECURSIVE found(oid, link) AS (
            SELECT r.oid, ''
            UNION SELECT inhrelid, concat_ws(' ', inhrelid, inhparent, i.xmin)
            FROM found JOIN pg_inherits AS i ON inhparent = found.oid WHERE r.relkind = 'p')
        SELECT oid, (SELECT sha256(string_agg(link, ',' ORDER BY oid)::bytea)::text FROM found) FROM found
    ) AS part(oid, tree)
    JOIN pg_class AS c ON c.oid = part.oid JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE """


class Row(NamedTuple):
    """What the server's catalogs say about one table or partition."""

    name: str
    root: str  # the partitioned table that a saver names, or the table itself
    schema: str
    schema_oid: int
    oid: int
    root_oid: int
    schema_version: str  # differs after each change of the schema, such as a new name
    tree: str  # differs after a partition was attached or detached
    is_partitioned: bool
    flaws: list[tuple[str, str | None]] | None  # forbidden features: a phrase, and the name of an object
    policies: list[str] | None  # an empty name means that row security is on
    # name, type if it is built in or that of vectors, whether it is generated, whether it has a collation
    columns: list[tuple[str, str | None, bool, bool]]
    primary: list[str]


def refuse_schema(what: str) -> SchemaError:
    """Return the error for a database whose tables are not LangGraph's."""
    return SchemaError(what, hint=_SCHEMA_HINT)


def require_tables(rows: Sequence[Row]) -> set[str]:
    """Check the tables that statements of a saver or Store access; return the names of those that exist."""
    for row in rows:
        require_plain(row)
        if row.policies is not None:  # a policy would hide rows, or refuse new rows
            raise refuse_schema(f"table {excerpt(row.name)} has a policy{_named(max(row.policies))}")
        layout_of(row)
    if len({row.schema for row in rows}) > 1:
        raise refuse_schema("the search path leads to tables in several schemas")
    return {row.root for row in rows}


def require_plain(row: Row) -> None:
    """Check that a table is a real table, without triggers, rules or expressions that run by themselves.

    Policies are not checked: maintenance reads with ``row_security`` off.
    """
    for what, name in row.flaws or ():
        raise refuse_schema(f"table {excerpt(row.name)} {what}{_named(name)}")
    if any(name == "thread_ts" for name, *_ in row.columns):
        raise OldTablesError


def layout_of(row: Row) -> Layout:
    """Return the `Layout` of a table; raise if LangGraph creates no table with such columns and key."""
    for column, _, acts, collated in row.columns:
        if acts or collated:
            flaw = "a generated column" if acts else "a collation on"
            raise refuse_schema(f"table {excerpt(row.name)} has {flaw} {excerpt(column)}")
    columns = {column: kind or "" for column, kind, *_ in row.columns}
    forms = [layout for layout in LAYOUTS if layout.name == row.root]
    for layout in forms:
        given = {name: layout.columns[name] for name in layout.optional} | columns
        if given == layout.columns and tuple(row.primary) == layout.primary:
            return layout
    known = {item for layout in forms for item in layout.columns.items()}
    others = ", ".join(excerpt(name) for name, kind in columns.items() if (name, kind) not in known)
    raise refuse_schema(
        f"table {excerpt(row.name)} does not have the columns and the primary key that LangGraph gives it"
        + (f": {others}" if others else "")
    )


def _named(name: str | None) -> str:
    return f" {excerpt(name)}" if name else ""
