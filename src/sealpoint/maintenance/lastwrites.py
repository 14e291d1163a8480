"""Special writes of a whole database, compared with what a thread store remembers of them, while agents run.

The database is read first, and then the store. What differs is read again in the database: the events are
older than that then, so it is a finding if it still differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sealpoint.base import WRITES_IDX_MAP
from sealpoint.base.checkpoint import NULL_TASK_ID
from sealpoint.databases.cells import Cell
from sealpoint.databases.failures import Failure
from sealpoint.errors import RowError
from sealpoint.maintenance.bound import Parts
from sealpoint.maintenance.calls import WriteRows, checkpoint_of
from sealpoint.maintenance.headrows import CheckpointRows, spot_of
from sealpoint.sealed.specials import error_of, special_calls
from sealpoint.threads.specials import Calls, Special, contradiction, standing_calls
from sealpoint.threads.store import Kind, Spot, ThreadStore


class LastWrites:
    """The special writes of a database. Holds about 300 bytes for each."""

    def __init__(self) -> None:
        """Begin."""
        self.calls = dict[Spot, Calls]()

    def add(self, cell: Cell, parts: Parts) -> None:
        """Add a write that was opened; anything else is skipped."""
        task_id = cell.where.names.get("task_id")
        if parts.claims is not None and (parts.claims.idx < 0 or task_id == NULL_TASK_ID):
            self._add(checkpoint_of(cell), task_id, parts.claims.idx, parts.claims.call_id)

    def add_failure(self, failed: Failure) -> None:
        """Add a write that did not open: it is there, and has been named."""
        idx = WRITES_IDX_MAP.get(failed.place.get("channel", ""))
        if idx is not None or failed.place.get("task_id") == NULL_TASK_ID:
            spot = spot_of({field: failed.place.get(field) for field in Spot._fields})
            self._add(spot, failed.place["task_id"], idx, b"")

    def _add(self, spot: Spot | None, task_id: object, idx: int | None, call: bytes) -> None:
        if spot is not None:
            self.calls.setdefault(spot, {})[str(task_id), idx] = call

    def findings(self, rows: CheckpointRows, store: ThreadStore) -> Iterator[tuple[Spot, RowError]]:
        """Yield each checkpoint with a special write that is missing or replaced; all of it was read.

        Raises:
            ThreadStoreError: If the store cannot be read.
        """
        suspects = {
            spot: events
            for spot, events in store.specials()
            if contradiction(events, self.calls.get(spot, {})) is not None
        }
        self.calls.clear()
        if not suspects:
            return
        there = rows.find(suspects)  # a checkpoint that is missing itself is a finding of its own
        writes = WriteRows(rows.database, rows.cipher, rows.secret_of).writes(suspects.__contains__)
        for spot, events in suspects.items():
            error = error_of(contradiction(events, special_calls(writes.get(spot, ()))))
            if error is not None and spot in there and not _may_go(store, spot):
                yield spot, error

    def to_adopt(
        self, events: Mapping[Spot, Sequence[Special]], since: int
    ) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield the events after which a store takes what was added as true.

        Args:
            events: What the store knows of the checkpoints of the database.
            since: The number of its last event.
        """
        for spot in sorted(self.calls.keys() | events):
            rows, standing = self.calls.get(spot, {}), standing_calls(events.get(spot, ()))
            there = {
                (task_id, idx): call
                for (task_id, idx), call in rows.items()
                if idx is not None and call not in standing.get((task_id, idx), (b"",))
            }
            gone = [place for place, calls in standing.items() if any(calls) and place not in rows]
            if new := there | dict.fromkeys(gone, b""):
                yield spot, [Special(0, *place, call, since) for place, call in new.items()]


def _may_go(store: ThreadStore, spot: Spot) -> bool:
    """Whether a checkpoint was deleted meanwhile, or its deletion has begun."""
    return any(head.kind is not Kind.PUT for head in store.find([spot]).heads)
