"""Delta history: the updates of channels in the ancestors of a checkpoint, over authenticated parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sealpoint.base import CheckpointTuple, DeltaChannelHistory
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.base.place import Place
from sealpoint.errors import RowError, excerpt
from sealpoint.sealed.entry import Entry
from sealpoint.sealed.heads import spot_of
from sealpoint.sealed.made import Made, is_named, require_made
from sealpoint.sealed.pages import Request
from sealpoint.sealed.procedures import Asked, Procedures
from sealpoint.sealed.reading import Listed, compared, get
from sealpoint.sealed.steps import Steps

_FIRST_ROWS: Final = 2
_MAX_ROWS: Final = 128


def histories(
    do: Procedures, asked: Asked, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return the histories of delta channels in the ancestors of a checkpoint.

    Args:
        do: What all methods share.
        asked: The checkpoint.
        channels: Which.

    Raises:
        RowError: If an ancestor is missing, the parents form a cycle, or the database returns another row.
        WritesLostError: If a write to an ancestor is missing.
    """
    walk = DeltaWalk(channels)
    entry = (yield from get(do, asked)) if walk.open else None
    met, size = set[str](), _FIRST_ROWS
    page: dict[str, Listed] = {}
    of_child: Made | None = None
    while walk.open and entry is not None:
        checkpoint_id = str(entry.place.checkpoint_id)
        if met:  # writes to the checkpoint itself are pending, and no part of the history
            writes = entry.writes(walk.open)
            if of_child is not None:
                writes = [write for write in writes if is_named(of_child, write.task_id, write.claims)]
            walk.visit(entry.values(walk.open), [write[1:] for write in writes])
        met.add(checkpoint_id)
        parent = entry.parent
        if not parent or not walk.open:
            break
        if parent in met:
            raise RowError(f"the parents of checkpoint {excerpt(parent)} go in a circle")
        if parent not in page:
            # Ids of ancestors are usually the next lower ones; each page costs as much as one row.
            page = yield from _page(do, asked.place, checkpoint_id, size)
            size = min(size * 2, _MAX_ROWS)
        made = entry.made
        named = asked._replace(place=asked.place._replace(checkpoint_id=parent), has_ns=True)
        entry = yield from (_open(do, named, page[parent]) if parent in page else get(do, named))
        if entry is None:
            raise RowError(f"checkpoint {excerpt(parent)}, an ancestor, is missing")
        of_child = None if made is None else require_made(made, entry.stored_writes())
    return walk.histories()


def _page(do: Procedures, place: Place, before: str, size: int) -> Steps[dict[str, Listed]]:
    """Return the next checkpoints below an id, by their ids."""
    found: list[CheckpointTuple] = yield Request(
        place._replace(checkpoint_id=None).config(), None, before, size
    )
    known = (yield from do.heads.find([*map(spot_of, found)])) if do.heads is not None else None
    return {spot_of(item).checkpoint_id: Listed(item, known) for item in found}


def _open(do: Procedures, asked: Asked, row: Listed) -> Steps[Entry | None]:
    """Open a row of a page; ``None`` if it counts as absent."""
    found, known = row
    entry = yield from do.opened(found, asked)
    return entry if known is None else (yield from compared(do, asked, entry, known))
