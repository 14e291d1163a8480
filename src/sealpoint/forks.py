"""What a child process does after a fork: it may use neither the connections nor the locks of its parent."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

# Connections of the parent. The child refers to them for ever: to close one would harm the parent's.
inherited: Final[list[object]] = []


class Forked(Protocol):
    """An object that is in use when its process forks."""

    def reset_after_fork(self) -> None:
        """Give up connections without closing them, and replace locks. Called in the child only."""


_objects: Final[WeakSet[Forked]] = WeakSet()


def reset_in_child(forked: Forked) -> None:
    """Have an object reset in each child that is forked while the object exists."""
    _objects.add(forked)


def _reset() -> None:
    for forked in [*_objects]:
        forked.reset_after_fork()


os.register_at_fork(after_in_child=_reset)
