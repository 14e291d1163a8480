"""Reading checkpoints a page of rows at a time, with one query for all writes of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sealpoint.base import CheckpointTuple, DeltaChannelHistory, PendingWrite, RunnableConfig
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.errors import RowError, excerpt
from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import schema
from sealpoint.sqlite.database import Database
from sealpoint.sqlite.query import Place
from sealpoint.sqlite.rows import CheckpointRow, Key, decode_writes

PAGE_ROWS: Final = 50
"""How many checkpoints are in memory at a time, whatever the length of a listing."""


def read_one(
    database: Database, serde: SerializerProtocol, place: Place, config: RunnableConfig
) -> CheckpointTuple | None:
    """Return the checkpoint at ``place`` with its pending writes, or ``None``."""
    statement = schema.SELECT_ONE if place.checkpoint_id else schema.SELECT_LATEST
    rows = database.read(statement, place if place.checkpoint_id else place[:2])
    if not rows:
        return None
    row = CheckpointRow(*rows[0])
    writes = read_writes(database, serde, [row.key])
    return row.decode_tuple(serde, writes.get(row.key, []), config if place.checkpoint_id else None)


def read_many(
    database: Database, serde: SerializerProtocol, keys: Sequence[Key]
) -> Iterator[CheckpointTuple]:
    """Yield the checkpoints of ``keys`` in their order. One that was deleted meanwhile is left out."""
    for start in range(0, len(keys), PAGE_ROWS):
        page = keys[start : start + PAGE_ROWS]
        rows = _read_rows(database, page)
        writes = read_writes(database, serde, page)
        for key in page:
            if key in rows:
                yield rows[key].decode_tuple(serde, writes.get(key, []))


def _read_rows(database: Database, keys: Sequence[Key]) -> dict[Key, CheckpointRow]:
    found = database.read(schema.select_page(len(keys)), [part for key in keys for part in key])
    return {row.key: row for row in (CheckpointRow(*columns) for columns in found)}


def read_writes(
    database: Database, serde: SerializerProtocol, keys: Sequence[Key], channels: Sequence[str] = ()
) -> dict[Key, list[PendingWrite]]:
    """Return the pending writes on top of the checkpoints of ``keys``, of all channels or of ``channels``."""
    task_path = "task_path" if database.has_task_path else "''"
    statement = schema.select_writes(len(keys), task_path, len(channels))
    parameters = [part for key in keys for part in key]
    return decode_writes(database.read(statement, [*parameters, *channels]), serde)


def read_histories(
    database: Database, serde: SerializerProtocol, key: Key, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return what the ancestors of a checkpoint hold for delta channels.

    Raises:
        RowError: If the chain of parents is a cycle.
    """
    walk = DeltaWalk(channels)
    for page in _pages(read_ancestors(database, key)[1:]):
        if not walk.open:
            break
        rows = _read_rows(database, page)
        writes = read_writes(database, serde, page, sorted(walk.open))
        for ancestor in page:
            if walk.open and ancestor in rows:
                values = rows[ancestor].decode(serde)["channel_values"]
                walk.visit(values, writes.get(ancestor, ()))
    return walk.histories()


def _pages(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    """Cut ``keys`` into pages that double in size: the first ancestors are often enough."""
    start, size = 0, 8
    while start < len(keys):
        yield keys[start : start + size]
        start, size = start + size, min(size * 2, PAGE_ROWS * 4)


def read_ancestors(database: Database, key: Key) -> list[Key]:
    """Return the keys from a checkpoint to its root: itself, its parent, and so on.

    Raises:
        RowError: If the chain is a cycle.
    """
    thread_id, checkpoint_ns, checkpoint_id = key
    chain = database.read(
        schema.SELECT_ANCESTORS, {"thread": thread_id, "ns": checkpoint_ns, "id": checkpoint_id}
    )
    ids = {row[0] for row in chain}
    if len(ids) != len(chain) or (chain and chain[-1][1] in ids):
        raise RowError(f"the parents of checkpoint {excerpt(checkpoint_id)} go in a circle")
    return [(thread_id, checkpoint_ns, row[0]) for row in chain]
