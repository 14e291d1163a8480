"""Pages: a listing of the wrapped saver in parts of bounded size.

A page is a finished list before the next call of the saver: some hold a lock while they list.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

from sealpoint.base import CheckpointTuple, RunnableConfig
from sealpoint.base.place import KEY
from sealpoint.errors import RowError
from sealpoint.sealed.carrier import Sealed

FIRST_ROWS: Final = 16
MAX_ROWS: Final = 128
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of values in a page, about, if it has more than one checkpoint."""


class Request(NamedTuple):
    """A call of ``list``.

    Attributes:
        config: Names a thread, and perhaps more; ``None`` for all threads.
        filter: Metadata to search for.
        before: Id that the checkpoints must be older than.
        limit: How many at most.
    """

    config: RunnableConfig | None
    filter: dict[str, Any] | None = None
    before: str | None = None
    limit: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``list``."""
        before = None if self.before is None else {"configurable": {"checkpoint_id": self.before}}
        return {"filter": self.filter or None, "before": before, "limit": self.limit}


class Pages:
    """Divides one listing.

    Checkpoints come latest first. Several may have one id: in other namespaces, or in copies of a thread.
    Those are never divided between pages, because the next page begins below an id.

    Attributes:
        request: What to ask for next; ``None`` at the end.
    """

    __slots__ = ("_has_unique_ids", "_is_sorted", "_is_whole", "_taken", "request")

    def __init__(
        self,
        config: RunnableConfig | None,
        stored: dict[str, Any],
        before: str | None,
        limit: int | None,
        *,
        is_paged: bool,
        is_sorted: bool = False,
        first: int = FIRST_ROWS,
    ) -> None:
        """Begin; a ``limit`` of ``None`` means that it is not known how many rows are needed.

        ``is_paged`` says that the saver lists by id, over all threads and namespaces; with ``is_sorted`` its
        order is not relied on, nor that all are older than asked for.
        """
        configurable = {} if config is None else config["configurable"]
        self._has_unique_ids = configurable.get("checkpoint_ns") is not None
        self._is_sorted = is_sorted
        self._is_whole = limit is not None and (limit <= MAX_ROWS or not is_paged)
        size = limit if self._is_whole else first if is_paged else None
        self._taken = frozenset[tuple[str, ...]]()
        self.request: Request | None = Request(config, stored, before, size)

    def take(self, found: list[CheckpointTuple]) -> list[CheckpointTuple]:
        """Return the part of a reply that is complete, and determine the next request."""
        request = self.request
        places = [_place(item) for item in found]
        is_named = all(type(ns) is type(checkpoint_id) is str for _, ns, checkpoint_id in places)
        if is_named and (len({*places}) < len(places) or not self._taken.isdisjoint(places)):
            raise RowError("the database lists a checkpoint twice")
        # A row that is not named by text is refused when it is opened, and has no order.
        is_all = self._is_whole or not is_named
        if request is None or request.limit is None or is_all or len(found) < request.limit:
            self.request = None
            return self._latest_first(found, request) if is_named else found
        ids = [checkpoint_id for _, _, checkpoint_id in places]
        is_below = not self._taken or request.before is None or ids[0] < request.before
        if not is_below or any(one < other for one, other in pairwise(ids)):
            self.request = request._replace(limit=None)  # the saver has another order: all at once
            return []
        end = len(ids) if self._has_unique_ids else ids.index(ids[-1])
        # A page of large checkpoints is shorter. If all have one id, it must still become longer.
        largest = max(1, MAX_BYTES * len(found) // max(1, sum(map(stored_bytes, found))))
        size = min(request.limit * 2, MAX_ROWS, largest) if end else request.limit * 2
        before = ids[end - 1] if end else request.before
        self.request = request._replace(before=before, limit=size)
        self._taken = frozenset(places[:end]) or self._taken
        return found[:end]

    def _latest_first(self, found: list[CheckpointTuple], request: Request | None) -> list[CheckpointTuple]:
        """Return the last rows in the order that they have in full pages."""
        if not self._is_sorted:
            return found
        before = request and request.before
        found = [item for item in found if before is None or _place(item)[2] < before]
        return sorted(found, key=lambda item: str(_place(item)[2]), reverse=True)


def _place(found: CheckpointTuple) -> tuple[str, Any, Any]:
    """Return the names of a row, of any types."""
    named = found.config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns", ""), named["checkpoint_id"]


def stored_bytes(found: CheckpointTuple) -> int:
    """Return how many bytes of values were read for a checkpoint."""
    checkpoint: Any = found.checkpoint
    values: list[Any] = [value for _, _, value in found.pending_writes or ()]
    if isinstance(checkpoint, dict):
        values += checkpoint.get("channel_values", {}).values()
    blobs = [value.blob for value in (checkpoint, *values) if type(value) is Sealed]
    frame: Any = found.metadata.get(KEY) if isinstance(found.metadata, dict) else None
    if isinstance(frame, dict):
        blobs.append(frame.get("value"))
    return sum(len(blob) for blob in blobs if isinstance(blob, bytes | str))  # else it is refused later
