"""Delta history: the updates of channels in the ancestors of a checkpoint, over authenticated parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sealpoint.base import CheckpointTuple, DeltaChannelHistory
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.base.place import Place
from sealpoint.errors import RowError, excerpt
from sealpoint.sealed.entry import open_entry
from sealpoint.sealed.rows import Rows
from sealpoint.sealed.steps import Get, Request, Steps

_FIRST_ROWS: Final = 2
_MAX_ROWS: Final = 128


def histories(
    rows: Rows, place: Place, thread_id: str, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return the histories of delta channels in the ancestors of the checkpoint at ``place``.

    Args:
        rows: Opens values.
        place: Its row.
        thread_id: The thread; the database may have a pseudonym for it.
        channels: Which.

    Raises:
        RowError: If an ancestor is missing, the parents form a cycle, or the database returns another row.
    """
    walk = DeltaWalk(channels)
    found = (yield from _get(place)) if walk.open else []
    met, size = set[str](), _FIRST_ROWS
    page: dict[str, CheckpointTuple] = {}
    while walk.open and found:
        checkpoint_id = found[0].config["configurable"]["checkpoint_id"]
        entry = open_entry(rows, found[0], place._replace(checkpoint_id=checkpoint_id))
        if entry.thread_id != thread_id:
            raise RowError(f"the database returned the row of another thread, {excerpt(checkpoint_id)}")
        if met:  # writes to the checkpoint itself are pending, and no part of the history
            walk.visit(entry.values(walk.open), entry.pending(walk.open))
        met.add(checkpoint_id)
        parent = entry.parent
        if not parent or not walk.open:
            break
        if parent in met:
            raise RowError(f"the parents of checkpoint {excerpt(parent)} go in a circle")
        if parent not in page:
            # Ids of ancestors are usually the next lower ones; each page costs as much as one row.
            reply = yield Request(place._replace(checkpoint_id=None).config(), None, checkpoint_id, size)
            page = {item.config["configurable"]["checkpoint_id"]: item for item in reply}
            size = min(size * 2, _MAX_ROWS)
        if parent in page:
            found = [page[parent]]
        else:
            found = yield from _get(place._replace(checkpoint_id=parent))
        if not found:
            raise RowError(f"checkpoint {excerpt(parent)}, an ancestor, is missing")
    return walk.histories()


def _get(place: Place) -> Steps[list[CheckpointTuple]]:
    """Return the checkpoint at ``place``: an index, or an operator of another schema, may lead to another."""
    found = yield Get(place.config())
    for item in found:
        checkpoint_id = item.config["configurable"]["checkpoint_id"]
        if place.checkpoint_id and checkpoint_id != place.checkpoint_id:
            raise RowError(f"the database returned the row of another checkpoint, {excerpt(checkpoint_id)}")
    return found
