"""Reading checkpoints a page of rows at a time, with one query for all writes of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sealpoint.base import CheckpointTuple, PendingWrite, RunnableConfig
from sealpoint.base.place import Place
from sealpoint.errors import RowError, excerpt
from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import schema
from sealpoint.sqlite.budget import Budget
from sealpoint.sqlite.database import READ, Database, Session
from sealpoint.sqlite.rows import WRITE_NAMES, CheckpointRow, Key, decode_pending, decode_writes, make_row

FIRST_PAGE_ROWS: Final = 10
PAGE_ROWS: Final = 50
"""How many checkpoints are in memory at a time, whatever the length of a listing."""

PAGE_BYTES: Final = 16 * 1024 * 1024
"""How many bytes of them, if it is more than one."""

MAX_ANCESTORS: Final = 100_000
"""How far a delta channel is followed. LangGraph stores a snapshot every 5,000 steps at least."""

MAX_WRITES: Final = 200_000
MAX_WRITES_BYTES: Final = 256 * 1024 * 1024
"""How many writes, and bytes of them, are read on top of one checkpoint."""


def read_one(
    database: Database, serde: SerializerProtocol, place: Place, config: RunnableConfig
) -> CheckpointTuple | None:
    """Return the checkpoint at ``place`` with its pending writes, or ``None``."""
    found = database.at_once(READ, _read_one, place)
    if found is None:
        return None
    row, writes = found
    pending = decode_pending(writes, serde, WRITE_NAMES) if writes else []
    return row.decode_tuple(serde, pending, config if place.checkpoint_id else None)


def _read_one(session: Session, place: Place) -> tuple[CheckpointRow, list[tuple[Any, ...]]] | None:
    """Return the row at ``place`` and those of its writes."""
    thread_id, ns, checkpoint_id = place
    is_latest = not checkpoint_id
    statement = schema.SELECT_TUPLE[is_latest, session.database.has_task_path]
    budget = Budget(MAX_WRITES, MAX_WRITES_BYTES, uncounted=1)  # the checkpoint
    found = session.read(statement, schema.place_twice(place), budget)
    if not found or found[0][0] != "checkpoint":
        return None
    if budget.spent:
        raise _too_many_writes()
    first, *writes = found
    row = make_row(first[1:])
    if is_latest:
        checkpoint_id = row.checkpoint_id
    if first[1:4] != (thread_id, ns, checkpoint_id) or (
        is_latest and any(write[1] != checkpoint_id for write in writes)
    ):
        raise RowError("the index of the table leads to the row of another checkpoint")
    return row, writes


def read_many(
    database: Database, serde: SerializerProtocol, keys: Sequence[Key]
) -> Iterator[CheckpointTuple]:
    """Yield the checkpoints of ``keys`` in their order. One that was deleted meanwhile is left out.

    Pages double in size: the first is often enough.
    """
    position, size = 0, FIRST_PAGE_ROWS
    while position < len(keys):
        rows, found, page = database.together(_read_page, keys[position : position + size])
        writes = decode_writes(found, page, serde)
        for key in page:
            if key in rows:
                yield rows[key].decode_tuple(serde, writes.get(key, []))
        position, size = position + len(page), min(size * 2, PAGE_ROWS)


def _read_page(
    session: Session, page: Sequence[Key]
) -> tuple[dict[Key, CheckpointRow], list[tuple[Any, ...]], Sequence[Key]]:
    """Return rows by their keys, their writes, and how much of the page they are: large ones do not fit."""
    budget = Budget(PAGE_ROWS, PAGE_BYTES)
    found = session.read(schema.select_page(len(page)), [part for key in page for part in key], budget)
    rows = {row.key: row for row in (CheckpointRow(*columns) for columns in found)}
    if budget.spent:
        page = page[: page.index(found[-1][:3]) + 1]
    writes, page = _find_writes(session, page)
    return rows, writes, page


def read_page_writes(
    database: Database, serde: SerializerProtocol, page: Sequence[Key], channels: Sequence[str] = ()
) -> tuple[dict[Key, list[PendingWrite]], Sequence[Key]]:
    """Return writes by the keys of their checkpoints, and how much of the page they are.

    ``channels`` says whose writes to read, if it names any.

    Raises:
        RowError: If there are over `MAX_WRITES` on one, or they have over `MAX_WRITES_BYTES`.
    """
    found, page = database.together(_find_writes, page, channels)
    return decode_writes(found, page, serde), page


def _find_writes(
    session: Session, page: Sequence[Key], channels: Sequence[str] = ()
) -> tuple[list[tuple[Any, ...]], Sequence[Key]]:
    """Return rows of writes, as `decode_writes` takes them, and how much of the page they belong to."""
    task_path = "task_path" if session.database.has_task_path else "''"
    while True:
        budget = Budget(MAX_WRITES, PAGE_BYTES if len(page) > 1 else MAX_WRITES_BYTES)
        parameters = page[0] if len(page) == 1 else [part for key in page for part in key]
        statement = schema.select_writes(len(page), task_path, len(channels))
        found = session.read(statement, [*parameters, *channels], budget)
        if not budget.spent:
            return found, page
        if len(page) == 1:
            raise _too_many_writes()
        page = page[: len(page) // 2]


def _too_many_writes() -> RowError:
    return RowError(f"over {MAX_WRITES} writes or {MAX_WRITES_BYTES} bytes of them on one checkpoint")


def read_ancestors(session: Session, key: Key) -> list[Key]:
    """Return the keys from a checkpoint to its root: itself, its parent, and so on.

    Raises:
        RowError: If the chain is a cycle, or longer than `MAX_ANCESTORS`.
    """
    thread_id, checkpoint_ns, checkpoint_id = key
    place = {"thread": thread_id, "ns": checkpoint_ns, "id": checkpoint_id, "most": MAX_ANCESTORS + 1}
    chain = session.read(schema.SELECT_ANCESTORS, place)
    ids = {row[0] for row in chain}
    if len(ids) != len(chain) or (chain and chain[-1][1] in ids):
        raise RowError(f"the parents of checkpoint {excerpt(checkpoint_id)} go in a circle")
    if len(chain) > MAX_ANCESTORS:
        raise RowError(f"checkpoint {excerpt(checkpoint_id)} has over {MAX_ANCESTORS} ancestors")
    return [(thread_id, checkpoint_ns, row[0]) for row in chain]
