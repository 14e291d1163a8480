"""PostgresRows: the values of LangGraph's Postgres savers and Store, in the order of their primary keys.

A batch locks its rows while it changes them, and skips rows that other sessions have locked. So any number of
workers can share the rows, and no worker waits for a writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealpoint.admin.databases.cells import EVERYTHING, ITEMS, Cell, Column, InlineValue, Record, Selection
from sealpoint.admin.databases.postgres.columns import (
    SHORT_TAG,
    Access,
    Bound,
    Pass,
    access_to,
    bound_of,
    column_of,
    condition,
    places,
    size_of,
)
from sealpoint.admin.databases.postgres.connection import (
    WAIT_FOR_OTHER,
    connect,
    holding,
    locked,
    name_of,
    translate_errors,
)
from sealpoint.admin.databases.postgres.tables import CHANGE, IS_THEIRS, NAMES, READ, SAVER, CheckedTables
from sealpoint.admin.databases.rows import (
    MAX_TAGS,
    VECTORS,
    Change,
    Need,
    OwnedRow,
    Page,
    Rewritten,
    Table,
    TagCount,
    Vectors,
    tag_counts,
)
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.admin.results.shards import Shard
from sealpoint.errors import (
    DatabaseCorruptError,
    RowError,
    SealedValueError,
    SealpointError,
    TablesMissingError,
)
from sealpoint.guards.limits import oversized
from sealpoint.seal.places import KEY
from sealpoint.seal.rows import SENTINEL

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.newschema import NewSchema, Snapshot

# ruff: noqa: S608 -- statements are built from constants and placeholders only


_METADATA_ROWS: Final = 10
_NAME_ROWS: Final = 10_000
_IS_BOUND: Final = f"jsonb_exists(metadata, '{KEY}')"
_IS_CHECKPOINT: Final = f"""jsonb_typeof(checkpoint) = 'object'
    AND jsonb_typeof(checkpoint -> 'channel_versions') IS NOT DISTINCT FROM 'object'
    AND ({_IS_BOUND} OR jsonb_typeof(checkpoint -> 'versions_seen') IS NOT DISTINCT FROM 'object')"""
_WAS_BOUND: Final = f"coalesce(jsonb_exists(checkpoint -> 'channel_versions', '{SENTINEL}'), false)"
_NAME_CHARS: Final = 2_001  # one more than the limit
_METADATA_CHARS: Final = 16 * 1024 * 1024 + 1  # one more than the limit
_MAX_INLINE: Final = 100_000  # number of channels; agents have few
_NAMED: Final = ("thread_id", "checkpoint_ns", "channel", "task_path", "prefix", "key")
# A bound checkpoint has "" in place of each value, and true in place of a value in a row of its own.
_INLINE: Final = f"""
    SELECT left(inlined.key, 2001), jsonb_typeof(inlined.value), count(*) FROM ONLY {{}}
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(checkpoint -> 'channel_values')
        WHEN 'object' THEN checkpoint -> 'channel_values' ELSE '{{{{}}}}' END) AS inlined
    WHERE NOT ({_IS_BOUND} AND inlined.value IN ('""', 'true'))
    GROUP BY 1, 2 ORDER BY 1, 2 LIMIT {_MAX_INLINE + 1}"""


_VECTORS: Final = """
    SELECT count(*), count(*) FILTER (WHERE item.key IS NULL) FROM ONLY {} AS found
    LEFT JOIN {store} AS item ON item.prefix = found.prefix AND item.key = found.key"""

Result = TypeVar("Result")

_EVERY: Final = f"""
    SELECT n.nspname, c.relname, c.oid, {IS_THEIRS}
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname <> 'information_schema'
    AND n.nspname !~ '^pg_' ORDER BY n.nspname = %s DESC, 1, 2"""
_VERSIONS_CHARS: Final = 100_000  # of a checkpoint's channel versions as text; a page has 1000 of them
# Tables with rows of threads and namespaces, and SQL for their column ``beside``.
_OWNED: Final = {
    "checkpoint_blobs": "NULL",
    "checkpoint_writes": "NULL",
    "checkpoints": f"left((checkpoint -> 'channel_versions')::text, {_VERSIONS_CHARS})",
    VECTORS: "NULL",
    ITEMS.table: "to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')",
}
_OWNED_ROWS: Final = 1000
_TAG_CHARS: Final = 100  # longer than any valid tag
_IN_NAMESPACES: Final = (
    "EXISTS (SELECT FROM unnest(%s::text[]) AS n(name) WHERE starts_with(prefix || '.', n.name || '.'))"
)
_IDENTITY: Final = """
    SELECT current_database(), (SELECT oid FROM pg_database WHERE datname = current_database())"""
# A failover or a restored copy starts another timeline; a replica has none.
_SYSTEM: Final = """SELECT system_identifier::text, CASE WHEN NOT pg_is_in_recovery()
    THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END FROM pg_control_system()"""

_MOST: Final = 1 << 20  # limit of rows per page; smaller only after lost values


class PostgresRows(CheckedTables):
    """A `RowStore` over one schema of a Postgres database. Not thread-safe.

    The store needs a session of its own: with a pooler in transaction mode it would lose its settings and
    its lock.

    Attributes:
        kind: ``postgres``.
        name: The URL without user, password and options.
        columns: The columns with values, in the tables that exist.
        is_superuser: Whether the connection has the rights of a superuser.
    """

    kind = "postgres"

    def __init__(
        self, url: str, *, writable: bool = False, deletes: bool = False, shard: Shard | None = None
    ) -> None:
        """Connect, and check the tables. The database is not changed.

        Args:
            url: URL for libpq, with the schema in ``options=-csearch_path=...`` unless it is the role's
                default schema.
            writable: Whether `rewrite` or `delete` will be called.
            deletes: Whether to also check the table of embeddings, whose rows the server deletes with items.
            shard: Limits `count`, `read`, `records` and `rewrite` to this range of threads.

        Raises:
            DatabaseMissingError: If the connection fails.
            SchemaError: If the tables are missing, or are not LangGraph's.
            MissingExtraError: If psycopg is not installed.
        """
        self.name = name_of(url)
        super().__init__(url, writable=writable, names=(*NAMES, VECTORS) if deletes else NAMES)
        self._pass = Pass()
        self._most = _MOST
        columns = (column_of(layout) for name, layout in self._found.layouts.items() if name != VECTORS)
        self.columns = tuple(sorted(columns, key=lambda column: (column.in_json, column == ITEMS)))
        self._shard, self._of_thread = shard, "true" if shard is None else shard.condition()
        if shard is not None and shard.threads_from is not None:  # items belong to the first range
            self.columns = tuple(column for column in self.columns if column != ITEMS)

    def _access(self, column: Column) -> Access:
        return access_to(column, self._of_thread)

    def _locked(self, column: Column, mode: str) -> AbstractContextManager[None]:
        return self.transaction(column.part, mode)

    @property
    def identity(self) -> dict[str, Any]:
        """Identifiers of the server, the database and the schema, and the names of database and schema.

        The server's system identifier and timeline are ``None`` without the right to read them.
        """
        from psycopg.errors import InsufficientPrivilege

        numbers: tuple[Any, Any] = None, None
        with translate_errors():
            database, oid = self.connection.execute(_IDENTITY).fetchone() or ("", 0)
            # A refused statement does not end an open transaction.
            with suppress(InsufficientPrivilege), self.connection.transaction():
                numbers = self.connection.execute(_SYSTEM).fetchone() or numbers
        return {
            **dict(zip(("system", "timeline"), numbers, strict=True)),
            "database": database,
            "oid": oid,
            "schema": self._found.schema,
            "schema_oid": self._found.schema_oid,
        }

    @property
    def missing_tables(self) -> tuple[str, ...]:
        """Names of missing tables, if the schema has other tables of the same saver or Store."""
        found, others = self._found.layouts.keys(), {table.name for table in self.tables()}
        groups = {"checkpoint_migrations": SAVER, "store_migrations": (ITEMS.table,)}
        wanted = (own for made, own in groups.items() if made in others or found & set(own))
        return tuple(sorted({name for own in wanted for name in own} - found))

    def tables(self) -> list[Table]:
        """Return all tables of the database, the saver's schema first. See `RowStore.tables`."""
        read, own = {row.oid for row in self._found.tables.values()}, self._found.schema
        roots = {row.oid: row.root for row in self._found.tables.values() if row.oid != row.root_oid}
        with translate_errors():
            found = self.connection.execute(_EVERY, (own,)).fetchall()
        return [
            Table(name if schema == own else f"{schema}.{name}", oid in read, is_theirs, roots.get(oid, ""))
            for schema, name, oid, is_theirs in found
        ]

    def parts(self, column: Column) -> list[str]:
        """Return the tables with the values of a column: its table, or all partitions of its table."""
        return self._found.parts(column.table)

    def residue(self) -> None:
        """Return ``None``: remains of old rows in Postgres are not examined."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Read one snapshot of all rows within the context; agents can read and write meanwhile."""
        from sealpoint.admin.databases.postgres.newschema import Snapshot, select_statements

        cursors = {
            f"sealpoint_{cursor}_{self._found.tables[part].oid:d}": (part, statement)
            for table in self._found.layouts
            for part in self._found.parts(table)
            for cursor, statement in select_statements(self._found, table).items()
        }
        with self._declared(cursors):
            yield Snapshot(self.connection, self._found)

    def new_schema(self, name: str) -> NewSchema:
        """Create a schema in this database with empty tables like this schema's, in a separate session.

        Raises:
            SealpointError: If the schema cannot be created.
        """
        from sealpoint.admin.databases.postgres.newschema import NewSchema

        return NewSchema(self._url, name, self._found)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Exclude other runs on this schema by a lock of this session, which workers do not take."""
        own = closing(connect(self._url, writable=False)[0]) if self._shard else nullcontext(self.connection)
        with own as connection, holding(connection, self._found.schema_oid, self.name, self._shard):
            yield

    def count(self, damage: list[SealpointError] | None = None) -> list[TagCount]:
        """Count the values by column and tag. See `RowStore.count`."""
        counts = list[TagCount]()
        for column in self.columns:
            access = self._access(column)
            statement = f"""
                SELECT {SHORT_TAG}, count(*), coalesce(sum(size), 0)::bigint
                FROM (SELECT {access.tag} AS tag, {access.size} AS size FROM ONLY {{}} WHERE {access.holds})
                    AS found
                GROUP BY 1 ORDER BY 1 LIMIT {MAX_TAGS + 1}"""
            found = (row for part in self.parts(column) for row in self.select(part, statement, ()))
            try:
                counts += tag_counts(column.label, found)
            except (DatabaseCorruptError, RowError) as error:
                if damage is None or not column.in_json:
                    raise
                damage.append(error)
        return counts

    def read(
        self, column: Column, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH
    ) -> Page:
        """Return the selected cells after a position. See `RowStore.read`."""
        while True:
            column, key = self._found.place(column, after)
            page = self._page(column, key, selection, batch)
            # The first page is empty only if there are no cells: some callers read no further page.
            if page.cells or (after := page.last) is None:
                return page

    def _page(self, column: Column, after: Any, selection: Selection, batch: Batch) -> Page:
        def cells(bound: Bound) -> list[Cell]:
            if bound.is_oversized:
                return self._unread(column, bound.key, oversized())
            return self._cells(column, after, bound, selection)

        bound, found = self._batch(
            column, READ, after, selection, batch, cells, lambda bound: self._alone(column, bound.key)
        )
        return Page(found or (), self._found.position(column, bound and bound.next))

    def _batch(
        self,
        column: Column,
        mode: str,
        after: Any,
        selection: Selection,
        batch: Batch,
        work: Callable[[Bound], Result],
        alone: Callable[[Bound], Result],
    ) -> tuple[Bound | None, Result | None]:
        """Find the end of a batch, call ``work`` in the same transaction, and return that end and the result.

        A batch with a value whose bytes are lost is halved until one row is left; ``alone`` handles it.
        """
        while True:
            bound = done = None
            try:
                with self._locked(column, mode):
                    bound = self._bound(column, after, selection, batch)
                    if bound is not None:
                        done = work(bound)
            except DatabaseCorruptError:
                if bound is None:
                    raise
                if bound.rows == 1:
                    return bound, alone(bound)
                self._most = bound.rows // 2
            else:
                self._most = min(2 * self._most, _MOST)  # lost values are often adjacent
                return bound, done

    def key_texts(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield the readable texts of key columns. See `RowStore.key_texts`."""
        for table, columns in self._found.columns.items():
            for column in _NAMED:
                if column in columns and only in (None, column):
                    text_of = f"left({column}, {_NAME_CHARS})"
                    for (text,) in self._scan(table, f"DISTINCT {text_of}", text_of, _NAME_ROWS):
                        if text is not None:
                            yield column, text

    def records(self) -> Iterator[Record]:
        """Yield each row of ``checkpoints``, without the checkpoint itself. See `RowStore.records`."""
        layout = self._found.layouts.get("checkpoints")
        if layout is None:
            return
        # A shallow saver keeps one checkpoint per thread, without id and parent.
        has_id = "checkpoint_id" in layout.primary
        key = ", ".join(layout.primary)
        own = "checkpoint ->> 'id' IS NOT DISTINCT FROM checkpoint_id" if has_id else "true"
        parent = f"left(parent_checkpoint_id, {_METADATA_CHARS})" if has_id else "NULL"
        metadata = f"left(metadata::text, {_METADATA_CHARS})"
        columns = f"{key}, {own}, {_IS_CHECKPOINT}, {_WAS_BOUND}, {_IS_BOUND}, {parent}, {metadata}"
        for row in self._scan("checkpoints", columns, key, _METADATA_ROWS, self._of_thread):
            place = dict(zip(layout.primary, row, strict=False))
            is_own, is_one, was_bound, is_bound, parent_id, metadata = row[len(place) :]
            flaws = {
                "the checkpoint lacks its sealed part": was_bound and not is_bound,
                "the row does not contain a checkpoint": not is_one,
                "the row contains the checkpoint of another id": not is_own,
            }
            flaw = next((flaw for flaw, is_so in flaws.items() if is_so), None)
            yield Record("checkpoints", place, parent_id, metadata, flaw, not is_bound)

    def inline(self) -> Iterator[InlineValue]:
        """Yield the channels, types and counts of values that are readable in checkpoints."""
        found = Counter[tuple[str, str]]()
        for part in self._found.parts("checkpoints") if "checkpoints" in self._found.layouts else ():
            for channel, kind, rows in self.select(part, _INLINE, ()):
                found[channel, kind] += rows
            if len(found) > _MAX_INLINE:
                raise RowError(f"the checkpoints have over {_MAX_INLINE} readable channels")
        yield from (InlineValue(*each, rows) for each, rows in found.items())

    def _scan(
        self, table: str, columns: str, key: str, rows: int, which: str = "true", *parameters: Any
    ) -> Iterator[tuple[Any, ...]]:
        """Yield ``columns`` (first those of ``key``) of each row, by partition, in the order of ``key``."""
        for part in self._found.parts(table):
            after: tuple[Any, ...] = ()
            found: list[tuple[Any, ...]] | None = None
            while found is None or len(found) == rows:
                where = f"{which} AND ({key}) > ({places(after)})" if after else which
                statement = f"SELECT {columns} FROM ONLY {{}} WHERE {where} ORDER BY {key} LIMIT {rows:d}"
                found = self.select(part, statement, (*parameters, *after))
                yield from found
                after = found[-1][: key.count(",") + 1] if found else ()

    @property
    def owned_tables(self) -> tuple[str, ...]:
        """The tables with rows of threads and namespaces. See `RowStore.owned_tables`."""
        return tuple(table for table in _OWNED if table in self._found.layouts)

    def owned(self, table: str, names: Sequence[str]) -> Iterator[OwnedRow]:
        """Yield the rows of some threads or namespaces. See `RowStore.owned`."""
        layout = self._found.layouts[table]
        primary = layout.primary
        tag = "NULL" if table == VECTORS else self._access(column_of(layout)).tag
        has_parent = table == "checkpoints" and "checkpoint_id" in primary
        parent = f"left(parent_checkpoint_id, {_TAG_CHARS})" if has_parent else "NULL"
        columns = f"{', '.join(primary)}, left({tag}, {_TAG_CHARS}), {_OWNED[table]}, {parent}"
        which = _IN_NAMESPACES if primary[0] == "prefix" else "thread_id = ANY(%s::text[])"
        for row in self._scan(table, columns, ", ".join(primary), _OWNED_ROWS, which, [*names]):
            yield OwnedRow(row[: len(primary)], *row[len(primary) :])

    def delete(self, table: str, rows: Sequence[OwnedRow]) -> int:
        """Delete rows, except those that other sessions have locked. See `RowStore.delete`."""
        layout = self._found.layouts[table]
        primary = ", ".join(layout.primary)
        kinds = [layout.types.get(name, "text") for name in layout.primary]
        more = [VECTORS] if table == ITEMS.table and VECTORS in self._found.layouts else []
        locking = f"""
            SELECT {primary} FROM ONLY {{}} AS found
            JOIN unnest({", ".join(f"%s::{kind}[]" for kind in kinds)}) AS gone({primary}) USING ({primary})
            FOR UPDATE OF found SKIP LOCKED"""
        deleting = f"""
            DELETE FROM ONLY {{}} AS old
            USING unnest({", ".join(f"%b::{kind}[]" for kind in kinds)}) AS gone({primary})
            WHERE {" AND ".join(f"old.{name} = gone.{name}" for name in layout.primary)}"""
        keys = [*map(list, zip(*(row.key for row in rows), strict=True))]
        deleted = 0
        for part in self._found.parts(table):
            with self.transaction(part, CHANGE, *more):
                if held := self.select(part, locking, keys):
                    deleted += self.execute(part, deleting, held).rowcount
        return deleted

    def cached(self) -> list[TagCount]:
        """Return an empty list: LangGraph has no cache on Postgres."""
        return []

    def vectors(self) -> Vectors | None:
        """Count the embeddings. See `RowStore.vectors`.

        Uses a separate session, while this session locks the table of items.
        """
        if ITEMS not in self.columns:
            return None
        with self.transaction(ITEMS.table, READ):
            self.connection.execute(WAIT_FOR_OTHER)
            try:
                tables = CheckedTables(self._url, writable=False, names=(VECTORS,))
            except TablesMissingError:
                return None
            with closing(tables):
                if tables._found.schema_oid != self._found.schema_oid:
                    return None
                return Vectors(*tables.select(VECTORS, _VECTORS, ())[0])

    def lost(self, needs: Sequence[Need]) -> list[Need]:
        """Return those values that checkpoints need but the database lacks. See `RowStore.lost`."""
        values = [(*need.checkpoint[:2], need.channel, need.version) for need in needs]
        there = self._present("checkpoint_blobs", values, "AND type <> 'empty'")
        lost = [need for need, value in zip(needs, values, strict=True) if value not in there]
        # LangGraph deletes checkpoints first, so values of an existing checkpoint were not deleted with it.
        checkpoints = self._present("checkpoints", [need.checkpoint for need in lost])
        return [need for need in lost if need.checkpoint in checkpoints]

    def _present(self, table: str, keys: Sequence[tuple[str, ...]], more: str = "") -> set[tuple[Any, ...]]:
        if not keys or table not in self._found.layouts:
            return set()
        primary = ", ".join(self._found.layouts[table].primary)
        arrays = ", ".join(["%s::text[]"] * len(keys[0]))
        statement = (
            f"SELECT {primary} FROM ONLY {{}} WHERE ({primary}) IN (SELECT * FROM unnest({arrays})) {more}"
        )
        values = [*map(list, zip(*set(keys), strict=True))]
        return {row for part in self._found.parts(table) for row in self.select(part, statement, values)}

    def _alone(self, column: Column, key: tuple[Any, ...]) -> list[Cell]:
        """Return a list of the cell with this primary key; an exception replaces a lost value."""
        try:
            return self._at(column, key, self._access(column).read)
        except DatabaseCorruptError:
            hint = "restore the row from a backup; the server's log shows the place of the damage"
            what = "the server cannot read the value: its bytes are lost"
            return self._unread(column, key, SealedValueError(what, hint=hint))

    def _unread(self, column: Column, key: tuple[Any, ...], error: SealpointError) -> list[Cell]:
        return [cell._replace(value=error) for cell in self._at(column, key, self._access(column).name)]

    def _at(self, column: Column, key: tuple[Any, ...], columns: str) -> list[Cell]:
        statement = f"""
            SELECT {columns} FROM ONLY {{}}
            WHERE ({self._primary(column)}) = ({places(key)})"""
        return self._fetch(column, statement, key)

    def rewrite(
        self,
        column: Column,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Change a batch of cells, except rows locked by other sessions. See `RowStore.rewrite`.

        Raises:
            LockedError: At the end of a pass over all columns without a change, if other sessions have
                locked the remaining values.
        """
        if after is None and column == self.columns[0]:
            self._pass = Pass()
        if column.in_json and not self.read(column, after, selection, Batch(rows=1)).cells:
            # Without sealed metadata, the right to change metadata is not needed.
            return self._end_pass(column, selection)
        column, key = self._found.place(column, after)
        start = 0.0

        def work(bound: Bound) -> Rewritten:
            nonlocal start
            start = perf_counter()  # rows are locked from here on
            if bound.is_oversized:
                refused = [change(cell) for cell in self._unread(column, bound.key, oversized())]
                return Rewritten(len(refused), last=bound.next)
            return self._change(column, key, bound, change, selection)

        def alone(bound: Bound) -> Rewritten:
            for cell in self._alone(column, bound.key):
                if isinstance(cell.value, SealpointError):
                    change(cell)  # fails to open the cell, and reports it
                    return Rewritten(1, last=bound.next)
            # A writer has replaced the value meanwhile, or another column is unreadable.
            with self._locked(column, CHANGE):
                return work(bound)

        bound, done = self._batch(column, CHANGE, key, selection, batch, work, alone)
        if bound is None or done is None:
            last = self._found.position(column, None)
            return Rewritten(0, last=last) if last else self._end_pass(column, selection)
        self._pass.add(bound.rows, done)
        last = self._found.position(column, bound.key if self._pass.is_stuck else done.last)
        return done._replace(lock_seconds=perf_counter() - start if done.seen else 0.0, last=last)

    def _end_pass(self, column: Column, selection: Selection) -> Rewritten:
        """Return the last result of a column; after the last column, raise if only locked values are left."""
        if self._pass.is_stuck and column == self.columns[-1]:
            left = sum(count.rows for count in self.count() if selection.takes(count.tag)) - self._pass.seen
            if left > 0:
                oids = [row.oid for row in self._found.tables.values()]
                raise locked(self.connection, oids, min(left, self._pass.locked))
        return Rewritten(0)

    def _change(
        self, column: Column, after: Any, bound: Bound, change: Change, selection: Selection
    ) -> Rewritten:
        access = self._access(column)
        cells = self._cells(column, after, bound, selection, "FOR UPDATE SKIP LOCKED")
        updates = [
            access.replacement(cell, *changed) for cell in cells if (changed := change(cell)) is not None
        ]
        changed_rows = 0
        if updates:
            statement = access.update(self._found.layouts[column.table])
            changed_rows = self.execute(column.part, statement, updates).rowcount
        size = sum(len(cell.value) for cell in cells if cell.value is not None)
        return Rewritten(len(cells), changed_rows, len(updates) - changed_rows, size, last=bound.next)

    def _bound(self, column: Column, after: Any, selection: Selection, batch: Batch) -> Bound | None:
        """Find the end of the batch from the sizes of values, without sending values to the client.

        Runs in the open transaction, before `_cells`.
        """
        access, primary = self._access(column), self._primary(column)
        rows = max(1, min(batch.rows, self._most))
        where, parameters = condition(access, primary, after, selection)
        statement = f"""
            SELECT {size_of(access)}, {primary} FROM ONLY {{}}
            WHERE {where} ORDER BY {primary} LIMIT {rows:d}"""
        return bound_of(
            self.select(column.part, statement, parameters, is_last=False), rows, batch.size_bytes
        )

    def _cells(
        self, column: Column, after: Any, bound: Bound, selection: Selection, lock: str = ""
    ) -> list[Cell]:
        access, primary = self._access(column), self._primary(column)
        where, parameters = condition(access, primary, after, selection)
        statement = f"""
            SELECT {access.read} FROM ONLY {{}}
            WHERE {where} AND ({primary}) <= ({places(bound.key)}) ORDER BY {primary} {lock}"""
        return self._fetch(column, statement, (*parameters, *bound.key))

    def _fetch(self, column: Column, statement: str, parameters: Sequence[Any]) -> list[Cell]:
        return list(self._access(column).cells(self.select(column.part, statement, parameters)))

    def _primary(self, column: Column) -> str:
        return ", ".join(self._found.layouts[column.table].primary)
