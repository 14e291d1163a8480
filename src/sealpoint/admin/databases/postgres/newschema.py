"""A new schema with the tables of LangGraph's Postgres savers and Store, filled in one transaction.

Before the commit no other session sees the schema; afterwards only its owner has rights, even if default
privileges grant rights to others. If the session ends before the commit, no schema remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.postgres.columns import access_to, bound_of, column_of, size_of
from sealpoint.admin.databases.postgres.connection import WAIT_FOR_OTHER, connect, translate_errors
from sealpoint.admin.databases.postgres.tables import SAVER, Found
from sealpoint.admin.databases.rows import Need
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.errors import AccessError, HeldError, OutputError, RowError, SchemaError, excerpt
from sealpoint.guards.limits import MAX_VALUE_BYTES, oversized
from sealpoint.guards.pgtables import CHECKPOINT, ITEM, THREAD, Layout
from sealpoint.seal.tokens import PSEUDONYM_START

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed

# ruff: noqa: S608 -- statements are built from constants and checked names only


# A row: columns by name, JSON as text, times as the server sends them: Python has no infinite time.
StoredRow = dict[str, Any]
_TIME: Final = "timestamp with time zone"
_READ: Final = {"jsonb": "{}::text", _TIME: "timestamptz_send({})"}


class Snapshot:
    """One snapshot of the tables, read from cursors that were declared in its transaction."""

    def __init__(self, connection: Connection[Any], found: Found) -> None:
        self._connection, self._found = connection, found

    def count(self) -> int:
        """Return the number of values."""
        parts = (part for table in self._found.layouts for part in self._found.parts(table))
        return sum(rows for part in parts for (rows,) in self._fetch("count", part, 1))

    def pseudonyms(self) -> Iterator[Cell]:
        """Yield one value, as a cell, of each thread whose id looks like a pseudonym."""
        for table, layout in self._found.layouts.items():
            for part in self._found.parts(table):
                while _has_pseudonyms(layout) and (rows := self._fetch("pseudonyms", part, 1)):
                    yield from access_to(column_of(layout)).cells(rows)

    def pages(self, table: str, batch: Batch = BATCH) -> Iterator[list[StoredRow]]:
        """Yield the rows of a table in batches. A batch has at least one row, even if the row is large."""
        columns = self._found.columns[table]
        for part in self._found.parts(table):
            while sizes := self._fetch("sizes", part, batch.rows):
                if max(sizes) > (MAX_VALUE_BYTES,):
                    raise oversized()
                while bound := bound_of(sizes, batch.rows, batch.size_bytes):
                    sizes, rows = sizes[bound.rows :], self._fetch("rows", part, bound.rows)
                    yield [dict(zip(columns, row, strict=True)) for row in rows]

    def _fetch(self, cursor: str, part: str, rows: int) -> list[tuple[Any, ...]]:
        statement = f"FETCH {rows:d} FROM sealpoint_{cursor}_{self._found.tables[part].oid:d}".encode()
        with translate_errors(), self._connection.cursor(binary=True) as fetching:
            return fetching.execute(statement).fetchall()


def select_statements(found: Found, table: str) -> dict[str, str]:
    """Return the SELECT of each cursor by name. ``sizes`` and ``rows`` have the same order of rows."""
    layout = found.layouts[table]
    read = {name: _READ.get(layout.columns[name], "{}").format(name) for name in found.columns[table]}
    sizes = [
        f"coalesce(octet_length({text}), 0)::bigint"
        for name, text in read.items()
        if layout.columns[name] != "integer"
    ]
    access = access_to(column_of(layout))
    statements = {
        "count": f"SELECT count(*) FROM ONLY {{}} WHERE {access.holds}",
        "sizes": f"SELECT {' + '.join(sizes)} FROM ONLY {{}}",
        "rows": f"SELECT {', '.join(read.values())} FROM ONLY {{}}",
    }
    if _has_pseudonyms(layout):
        first = f"SELECT DISTINCT ON (thread_id) {access.read} FROM ONLY {{}} WHERE {access.holds}"
        has_start = f"left(thread_id, {len(PSEUDONYM_START)}) = '{PSEUDONYM_START}'"
        statements["pseudonyms"] = f"{first} AND {has_start} AND {size_of(access)} <= {MAX_VALUE_BYTES}"
    return statements


def _has_pseudonyms(layout: Layout) -> bool:
    return column_of(layout).in_json and "thread_id" in layout.primary


_MAX_NAME_BYTES: Final = 63  # Postgres truncates longer names
_RESERVED: Final = "pg_"
NULLABLE: Final = {  # columns that may be NULL
    "checkpoints": {"type", "parent_checkpoint_id"},
    "checkpoint_blobs": {"blob"},
    "checkpoint_writes": {"type"},
    "store": {"created_at", "updated_at", "expires_at", "ttl_minutes"},
}
# Text of a statement, so braces are doubled.
_DEFAULTS: Final = {
    "checkpoint_ns": "''",
    "metadata": "'{{}}'",
    "task_path": "''",
    **dict.fromkeys(("created_at", "updated_at"), "CURRENT_TIMESTAMP"),
}
_INDEXES: Final = {
    **{table: (f"CREATE INDEX {table}_thread_id_idx ON {{}} (thread_id)",) for table in SAVER},
    "store": (
        "CREATE INDEX store_prefix_idx ON {} (prefix text_pattern_ops)",
        "CREATE INDEX idx_store_expires_at ON {} (expires_at) WHERE expires_at IS NOT NULL",
    ),
}
# Numbers of LangGraph's migrations that lead to these tables and indexes, by kind of first table. They are
# not read from the source, whose tables may be older: the copy has the result of all these migrations.
_MIGRATIONS: Final = {
    CHECKPOINT: ("checkpoint_migrations", 10),
    THREAD: ("checkpoint_migrations", 8),  # shallow savers
    ITEM: ("store_migrations", 4),
}

_GRANTEES: Final = """
    SELECT DISTINCT CASE acl.grantee WHEN 0 THEN NULL ELSE pg_get_userbyid(acl.grantee) END
    FROM pg_namespace AS n
    CROSS JOIN LATERAL (
        SELECT grantee, n.nspowner AS owner FROM aclexplode(n.nspacl)
        UNION ALL SELECT grantee, c.relowner FROM pg_class AS c CROSS JOIN aclexplode(c.relacl)
            WHERE c.relnamespace = n.oid
    ) AS acl
    WHERE n.nspname = %s AND acl.grantee <> acl.owner"""

_PRESENT: Final = """
    SELECT thread_id, checkpoint_ns, channel, version FROM {}
    WHERE (thread_id, checkpoint_ns, channel, version) IN
        (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]))
    AND type <> 'empty'"""

_EXISTS_HINT: Final = "name a schema that does not exist; existing schemas are not changed"
_NAME_HINT: Final = "choose another name for the schema"


class NewSchema:
    """A new schema with tables like the source's, visible after `commit`."""

    def __init__(self, url: str, name: str, found: Found) -> None:
        _require_possible(name)
        for table in SAVER:
            if table not in found.layouts and found.layouts.keys() & set(SAVER):
                raise SchemaError(
                    f"the schema lacks table {table!r}",
                    hint="let LangGraph create it: call setup() of the saver, then run the command again",
                )
        self.name, self._layouts = name, found.layouts
        self._connection, _ = connect(url, writable=True)
        try:
            with translate_errors():
                self._connection.execute("BEGIN")
                self._connection.execute(WAIT_FOR_OTHER)
                self._create_schema()
                for table, layout in found.layouts.items():
                    self._execute(_create_table(layout, found.columns[table]), table)
                    if layout.primary in _MIGRATIONS:  # so that LangGraph's `setup` repeats no migration
                        listing, made = _MIGRATIONS[layout.primary]
                        self._execute("CREATE TABLE {} (v integer PRIMARY KEY)", listing)
                        self._execute(f"INSERT INTO {{}} SELECT generate_series(0, {made - 1:d})", listing)
                self._revoke_rights()
        except BaseException:
            self.close()
            raise

    def insert(self, table: str, rows: Sequence[StoredRow]) -> None:
        """Insert rows of one table; all have the same columns."""
        from psycopg.errors import IntegrityError
        from psycopg.types.json import Jsonb

        if not rows:
            return
        columns = [*rows[0]]
        kinds = (self._layouts[table].types.get(name, "text") for name in columns)
        types = ["bytea" if kind == _TIME else kind for kind in kinds]
        statement = f"COPY {{}} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with translate_errors(), self._connection.cursor() as cursor:
            try:
                with cursor.copy(self._named(statement, table)) as copy:
                    copy.set_types(types)
                    for row in rows:
                        copy.write_row(
                            [
                                Jsonb(value, dumps=str) if kind == "jsonb" else value
                                for kind, value in zip(types, row.values(), strict=True)
                            ]
                        )
            except IntegrityError:
                raise RowError(f"two rows of table {table!r} have the same key") from None

    def lost(self, needs: Sequence[Need]) -> list[Need]:
        """Return the values that checkpoints need but that were not inserted."""
        if not needs:
            return []
        values = [(*need.checkpoint[:2], need.channel, need.version) for need in needs]
        arrays = [*map(list, zip(*set(values), strict=True))]
        with translate_errors():
            there = set(self._connection.execute(self._named(_PRESENT, "checkpoint_blobs"), arrays))
        return [need for need, value in zip(needs, values, strict=True) if value not in there]

    def commit(self) -> None:
        """Create the indexes, and commit."""
        with translate_errors():
            for table in self._layouts:
                for statement in _INDEXES[table]:
                    self._execute(statement, table)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; without a commit, no schema remains."""
        self._connection.close()

    def _create_schema(self) -> None:
        from psycopg import errors

        shown = excerpt(self.name)
        try:
            self._execute("CREATE SCHEMA {}")
        except (errors.DuplicateSchema, errors.UniqueViolation):
            raise OutputError(f"schema {shown} already exists", hint=_EXISTS_HINT) from None
        except errors.UntranslatableCharacter:
            raise OutputError(
                f"schema name {shown} cannot be stored in the server's encoding", hint=_NAME_HINT
            ) from None
        except errors.LockNotAvailable:
            raise HeldError(f"another session is creating schema {shown}") from None
        except errors.InsufficientPrivilege:
            raise AccessError(
                "the role has no right to create a schema in the database",
                hint="grant the role CREATE on the database, or connect as a role with this right",
            ) from None

    def _revoke_rights(self) -> None:
        from psycopg.sql import SQL, Identifier

        revoking = SQL("REVOKE ALL ON SCHEMA {0} FROM {1}; REVOKE ALL ON ALL TABLES IN SCHEMA {0} FROM {1}")
        for (role,) in self._connection.execute(_GRANTEES, (self.name,)).fetchall():
            grantee = SQL("PUBLIC") if role is None else Identifier(role)
            self._connection.execute(revoking.format(Identifier(self.name), grantee), prepare=False)

    def _execute(self, statement: str, *table: str) -> None:
        self._connection.execute(self._named(statement, *table))

    def _named(self, statement: str, *table: str) -> Composed:
        from psycopg.sql import SQL, Identifier

        return SQL(statement).format(Identifier(self.name, *table))


def _create_table(layout: Layout, columns: Sequence[str]) -> str:
    names = [*columns, *(name for name in layout.optional if name not in columns)]
    parts = [
        f"{name} {layout.types.get(name, 'text')}"
        + ("" if name in NULLABLE[layout.name] else " NOT NULL")
        + (f" DEFAULT {_DEFAULTS[name]}" if name in _DEFAULTS else "")
        for name in names
    ]
    return f"CREATE TABLE {{}} ({', '.join(parts)}, PRIMARY KEY ({', '.join(layout.primary)}))"


def _require_possible(name: str) -> None:
    shown = excerpt(name)
    if not name or "\0" in name:
        what = f"{shown} is not a valid schema name"
    elif len(name.encode()) > _MAX_NAME_BYTES:
        what = f"schema name {shown} is longer than {_MAX_NAME_BYTES} bytes"
    elif name.startswith(_RESERVED):
        what = f"schema names with {_RESERVED!r} are reserved, such as {shown}"
    else:
        return
    raise OutputError(what, hint=_NAME_HINT)
