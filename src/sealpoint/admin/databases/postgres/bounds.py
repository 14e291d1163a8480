"""Bounds of about equal ranges of threads, from a random sample of pages, not from table statistics."""

from __future__ import annotations

from typing import Final

from sealpoint.admin.databases.cells import ITEMS
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.shards import MAX_BOUND_BYTES

_PAGES: Final = 3000  # pages to sample in all tables together
_SIZE: Final = "SELECT pg_relation_size(tableoid) / 8192.0::float8 FROM ONLY {} LIMIT 1"
# A bound is the beginning of a thread id; a character has at most 4 bytes.
_SAMPLE: Final = "SELECT left(thread_id, %s) FROM ONLY {} TABLESAMPLE SYSTEM (%s) WHERE thread_id <> ''"
_AT: Final = "SELECT percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY id) FROM unnest(%s::text[]) AS id"


def find_bounds(store: PostgresRows, ranges: int) -> list[str]:
    """Return texts that divide thread ids into ranges, in the server's order; fewer texts if ids are few."""
    tables = [part for column in store.columns if column != ITEMS for part in store.parts(column)]
    pages = sum(size for table in tables for (size,) in store.select(table, _SIZE, ()))
    sampled = MAX_BOUND_BYTES // 4, min(100.0, 100 * _PAGES / max(pages, 1))
    sample = [row[0] for table in tables for row in store.select(table, _SAMPLE, sampled)]
    if not sample:
        return []
    parts = [(part * len(sample) // ranges + 0.5) / len(sample) for part in range(ranges)]
    ((found,),) = store.select(tables[0], _AT, (parts, sample))
    return [*dict.fromkeys(found)][1:]  # the first range has no lower bound
