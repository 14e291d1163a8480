"""Writes that this process was told are stored, until a child of their checkpoint is stored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from sealpoint.base.place import Place
from sealpoint.errors import WritesLostError, excerpt
from sealpoint.sealed.calls import StoredWrite, is_whole

_REMEMBERED: Final = 1_000
"""Of how many checkpoints."""


class Acknowledged:
    """The calls of each checkpoint. In a delta graph the process goes on with their values in its memory."""

    def __init__(self) -> None:
        """Remember nothing."""
        self._calls = OrderedDict[Place, list[tuple[str, bytes]]]()

    def add(self, place: Place, task_id: str, call: bytes) -> None:
        """Remember a call that was stored."""
        self._calls.setdefault(place, []).append((task_id, call))
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)

    def require(self, place: Place, writes: Sequence[StoredWrite]) -> None:
        """Check that the places of all calls are still taken.

        Raises:
            WritesLostError: If one is empty.
        """
        for task_id, call in self._calls.get(place, ()):
            if not is_whole(writes, task_id, call):
                raise WritesLostError(f"a write of task {excerpt(task_id)} has gone since it was stored")

    def forget(self, place: Place) -> None:
        """Forget a checkpoint: a child of it is stored, which names the writes."""
        self._calls.pop(place, None)

    def forget_thread(self, thread_id: str) -> None:
        """Forget a thread: it is deleted."""
        for place in [place for place in [*self._calls] if place.thread_id == thread_id]:
            self.forget(place)
