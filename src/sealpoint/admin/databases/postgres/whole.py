"""PostgresWholeRows: the rows of a Postgres saver with all their columns.

A checkpoint and the sentinel of its thread and namespace (see `Cell.is_sentinel`) are written in one
transaction. Sentinels are written first: a saver also inserts its sentinel before it locks its checkpoint, so
the two cannot deadlock.
"""

# ruff: noqa: S608 -- statements are built from constants and placeholders only

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from sealpoint.admin.databases.cells import ITEMS, Cell, Column, Selection
from sealpoint.admin.databases.postgres.columns import (
    BLOBS,
    CHECKPOINTS,
    METADATA,
    WRITES,
    Access,
    Bound,
    access_to_rows,
    condition,
    places,
)
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.postgres.tables import CHANGE
from sealpoint.admin.databases.rows import Change, Rewritten
from sealpoint.admin.results.shards import Shard, as_literal
from sealpoint.errors import SchemaError
from sealpoint.seal.rows import SENTINEL, SENTINEL_VERSION

_KEY: Final = ", ".join(CHECKPOINTS.key)
_VERSIONS: Final = """jsonb_each_text(CASE jsonb_typeof(checkpoint -> 'channel_versions')
        WHEN 'object' THEN checkpoint -> 'channel_versions' ELSE '{{}}' END) AS each"""
# LIMIT makes Postgres look up each value by key. A plain join reads all values of a thread per checkpoint.
_CHANNELS: Final = f"""
    SELECT thread_id, checkpoint_ns, checkpoint_id, array_agg(bl.channel)
    FROM unnest(%s::text[], %s::text[], %s::text[]) AS wanted(thread_id, checkpoint_ns, checkpoint_id)
    JOIN ONLY {{}} AS found USING (thread_id, checkpoint_ns, checkpoint_id)
    CROSS JOIN LATERAL {_VERSIONS}
    CROSS JOIN LATERAL (
        SELECT channel FROM {{blobs}} AS one
        WHERE one.thread_id = found.thread_id AND one.checkpoint_ns = found.checkpoint_ns
        AND one.channel = each.key AND one.version = each.value AND one.type IS DISTINCT FROM 'empty' LIMIT 1
    ) AS bl
    GROUP BY 1, 2, 3"""
_ADD_SENTINELS: Final = f"""
    INSERT INTO {{}} (thread_id, checkpoint_ns, channel, version, type, blob)
    SELECT thread_id, checkpoint_ns, '{SENTINEL}', '{SENTINEL_VERSION}', type, blob
    FROM unnest(%b::text[], %b::text[], %b::text[], %b::bytea[])
        AS new(thread_id, checkpoint_ns, type, blob)
    ORDER BY 1, 2 ON CONFLICT DO NOTHING RETURNING thread_id, checkpoint_ns"""
_REMOVE_SENTINELS: Final = f"""
    DELETE FROM ONLY {{}} AS old USING unnest(%b::text[], %b::text[]) AS gone(thread_id, checkpoint_ns)
    WHERE old.thread_id = gone.thread_id AND old.checkpoint_ns = gone.checkpoint_ns
    AND old.channel = '{SENTINEL}' AND old.version = '{SENTINEL_VERSION}'"""
_IS_SENTINEL: Final = f"channel = '{SENTINEL}' AND version = '{SENTINEL_VERSION}'"
# The placeholder without a name is for a condition on the thread.
_SOME_SENTINEL: Final = f"SELECT FROM ONLY {{{{}}}} WHERE {{}} AND {_IS_SENTINEL} LIMIT 1"
_REMOVE_UNNAMED: Final = f"""
    DELETE FROM ONLY {{{{}}}} AS old
    WHERE {{}} AND {_IS_SENTINEL} AND NOT EXISTS (
        SELECT FROM {{{{checkpoints}}}} AS c
        WHERE c.thread_id = old.thread_id AND c.checkpoint_ns = old.checkpoint_ns
        AND jsonb_exists(c.checkpoint -> 'channel_versions', '{SENTINEL}'))"""

# Returns tag and bytes of the sentinel for a thread and namespace.
Sentinel = Callable[[str, str], tuple[str, bytes]]


class PostgresWholeRows(PostgresRows):
    """A store of whole rows over one schema of a Postgres database. Not thread-safe. See `PostgresRows`."""

    def __init__(
        self,
        url: str,
        *,
        writable: bool = False,
        thread_id: str | None = None,
        sentinel: Sentinel | None = None,
        shard: Shard | None = None,
    ) -> None:
        super().__init__(url, writable=writable, shard=shard)
        if not set(self.columns) <= {BLOBS, WRITES, METADATA, ITEMS}:
            self.close()
            raise SchemaError(
                "the tables of a shallow saver have no checkpoint ids, so rows cannot be bound",
                hint="use PostgresSaver or AsyncPostgresSaver",
            )
        items = [ITEMS] if thread_id is None and ITEMS in self.columns else []
        whole = (BLOBS, WRITES, CHECKPOINTS, *items)
        self.columns = tuple(column for column in whole if column.table in self._found.layouts)
        self.sentinel = sentinel
        if thread_id is not None:
            self._of_thread = f"thread_id = {as_literal(thread_id)}"

    def _access(self, column: Column) -> Access:
        has_task_path = "task_path" in self._found.columns[column.table]
        return access_to_rows(column, self._of_thread, has_task_path=has_task_path)

    def _locked(self, column: Column, mode: str) -> AbstractContextManager[None]:
        more = [BLOBS.table] if column == CHECKPOINTS else []
        return self.transaction(column.part, mode, *more)

    def _change(
        self, column: Column, after: Any, bound: Bound, change: Change, selection: Selection
    ) -> Rewritten:
        if column != CHECKPOINTS or self.sentinel is None:
            return super()._change(column, after, bound, change, selection)
        added = self._add_sentinels(self.sentinel, column, after, bound, selection)
        used = set[tuple[Any, ...]]()

        def noting(cell: Cell) -> tuple[Any, ...] | None:
            changed = change(cell)
            if changed is not None:
                used.add(cell.where.key[:2])
            return changed

        done = super()._change(column, after, bound, noting, selection)
        if unused := sorted(added - used):  # the rows were refused, locked or deleted
            for part in self._found.parts(BLOBS.table):
                self.execute(part, _REMOVE_SENTINELS, unused)
        return done

    def _add_sentinels(
        self, sentinel: Sentinel, column: Column, after: Any, bound: Bound, selection: Selection
    ) -> set[tuple[Any, ...]]:
        """Add the sentinels for the rows of a batch; return the threads and namespaces of new sentinels."""
        where, parameters = condition(self._access(column), _KEY, after, selection)
        statement = f"""
            SELECT DISTINCT thread_id, checkpoint_ns FROM ONLY {{}}
            WHERE {where} AND ({_KEY}) <= ({places(bound.key)})"""
        found = self.select(column.part, statement, (*parameters, *bound.key), is_last=False)
        rows = [(*key, *sentinel(*key)) for key in sorted(found)]
        return set(self.execute(BLOBS.table, _ADD_SENTINELS, rows) if rows else ())

    def _fetch(self, column: Column, statement: str, parameters: Sequence[Any]) -> list[Cell]:
        if column != CHECKPOINTS:
            return super()._fetch(column, statement, parameters)
        cells = [*self._access(column).cells(self.select(column.part, statement, parameters, is_last=False))]
        # A separate statement sees all values committed before the rows were locked.
        keys = [list(part) for part in zip(*(cell.where.key for cell in cells), strict=True)] or [[], [], []]
        stored = {tuple(key): names for *key, names in self.select(column.part, _CHANNELS, keys)}
        return [
            cell._replace(where=where._replace(beside={**where.beside, "channels": frozenset(channels)}))
            for cell, where in ((cell, cell.where) for cell in cells)
            for channels in [stored.get(where.key, ())]
        ]

    def remove_sentinels(self) -> int:
        """Remove the sentinels of threads and namespaces whose checkpoints do not name a sentinel."""
        if BLOBS.table not in self._found.layouts:  # only a Store
            return 0
        removed = 0
        for part in self._found.parts(BLOBS.table):
            with self.transaction(part, CHANGE, CHECKPOINTS.table):
                # Without sentinels to delete, the right to delete is not needed.
                if self.select(part, _SOME_SENTINEL.format(self._of_thread), ()):
                    removed += self.execute(part, _REMOVE_UNNAMED.format(self._of_thread)).rowcount
        return removed
