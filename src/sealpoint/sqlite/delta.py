"""Delta channels: reading their histories from the ancestors of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sealpoint.base import DeltaChannelHistory, PendingWrite
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.base.place import Place
from sealpoint.errors import ConfigError, RowError, excerpt
from sealpoint.serde import SerializerProtocol
from sealpoint.serde.outline import make_outline
from sealpoint.sqlite import schema
from sealpoint.sqlite.budget import Budget
from sealpoint.sqlite.database import Database
from sealpoint.sqlite.reader import FIRST_PAGE_ROWS, MAX_ANCESTORS, PAGE_BYTES, PAGE_ROWS, read_page_writes
from sealpoint.sqlite.rows import CheckpointRow


def read_histories(
    database: Database, serde: SerializerProtocol, place: Place, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return the histories of delta channels in the ancestors of the checkpoint at ``place``.

    Ancestors are read until a stored value was found for each channel. Sealed values of each ancestor are
    opened and checked, and built only where a channel's value is stored.

    Raises:
        RowError: If the parents form a cycle, or there are over `MAX_ANCESTORS`.
        ConfigError: If the serializer passes checkpoints on without decoding them.
    """
    walk, outline = DeltaWalk(channels), make_outline(serde)
    if walk.open:
        for row, writes in _read_ancestors(database, serde, place, walk.open):
            values = row.decode_values(serde, outline)
            if values is not None and not walk.open.isdisjoint(values):
                values = row.decode_values(serde)
            if values is None:
                raise ConfigError(
                    "the serializer does not decode checkpoints, so their delta channels are not known",
                    hint="call the method of the saver that wraps this one",
                )
            walk.visit(values, writes)
            if not walk.open:
                break
    return walk.histories()


def _read_ancestors(
    database: Database, serde: SerializerProtocol, place: Place, channels: Collection[str]
) -> Iterator[tuple[CheckpointRow, list[PendingWrite]]]:
    """Yield the ancestors of a checkpoint, nearest first, with their writes to ``channels``.

    The caller may remove channels meanwhile.
    """
    for line in _read_lines(database, place):
        while line:
            keys = [row.key for row in line]
            writes, page = read_page_writes(database, serde, keys, sorted(channels))
            for key, row in zip(page, line, strict=False):
                yield row, writes.get(key, [])
            line = line[len(page) :]  # noqa: PLW2901 -- large writes may not all fit


def _read_lines(database: Database, place: Place) -> Iterator[list[CheckpointRow]]:
    """Yield the ancestors of a checkpoint in batches, nearest first.

    Later ids sort after earlier ones, so the rows directly before a checkpoint are its ancestors, except
    for rows of forks between them. One range of rows therefore contains many ancestors, and takes half the
    time of finding the chain first and then each row by its key. If forks interrupt the chain, the ranges
    become shorter, down to one row.
    """
    statement = schema.SELECT_PARENT if place.checkpoint_id else schema.SELECT_LATEST_PARENT
    start = database.read(statement, place if place.checkpoint_id else place[:2])
    met = {row[0] for row in start}
    wanted, size = start[0][1] if start else None, FIRST_PAGE_ROWS
    while wanted:
        rows = _read_range(database, place, wanted, size)
        line: list[CheckpointRow] = []
        while wanted:
            if wanted in met:
                raise RowError(f"the parents of checkpoint {excerpt(str(wanted))} go in a circle")
            row = rows.pop(wanted, None)
            if row is None:
                break
            line.append(row)
            met.add(wanted)
            wanted = row.require_parent()
        if len(met) > MAX_ANCESTORS:
            raise RowError(f"a checkpoint has over {MAX_ANCESTORS} ancestors")
        if not line:
            return
        yield line
        size = max(1, len(line)) if rows else min(size * 2, PAGE_ROWS)


def _read_range(database: Database, place: Place, first: str, size: int) -> dict[str, CheckpointRow]:
    """Return the row with id ``first`` and those directly before it, at most ``size``, by their ids."""
    parameters = (*place[:2], first, size)
    found = database.read(schema.SELECT_RANGE, parameters, Budget(size, PAGE_BYTES))
    rows: dict[str, CheckpointRow] = {}
    for kind, data, thread_id, checkpoint_ns, checkpoint_id, parent in found:
        if (thread_id, checkpoint_ns) != place[:2]:
            raise RowError("the index of the table leads to the row of another checkpoint")
        row = CheckpointRow(thread_id, checkpoint_ns, checkpoint_id, parent, kind, data, None)
        rows[checkpoint_id] = row
    return rows
