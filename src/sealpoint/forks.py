"""What is done at a fork: a child may use neither the connections nor the locks of its parent.

A file of SQLite that a child opens must not be open in the parent when it forks.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

# Connections of the parent. The child refers to them for ever: to close one would harm the parent's.
inherited: Final[list[object]] = []


class Forked(Protocol):
    """An object that is in use when its process forks."""

    def reset_after_fork(self) -> None:
        """Give up connections without closing them, and replace locks. Called in the child only."""


class Closed(Forked, Protocol):
    """An object that closes its file while its process forks."""

    def before_fork(self) -> None:
        """Close the file, and have other threads wait. Called in the parent."""

    def after_fork(self) -> None:
        """Let other threads go on. Called in the parent, also if `before_fork` was not."""


_objects: Final[WeakSet[Forked]] = WeakSet()
_closed: Final[WeakSet[Closed]] = WeakSet()
no_fork = threading.RLock()  # held while the process forks, and by what must not lie in a fork


def reset_in_child(forked: Forked) -> None:
    """Have an object reset in each child that is forked while the object exists."""
    _objects.add(forked)


def close_at_fork(closed: Closed) -> None:
    """Have an object close its file before each fork, and reset it in the child."""
    with no_fork:  # else a fork that has begun would not know of it
        _closed.add(closed)
    reset_in_child(closed)


def _before() -> None:
    no_fork.acquire()  # two threads would wait for one another, each with half of the objects
    for closed in [*_closed]:
        closed.before_fork()


def _after() -> None:
    for closed in [*_closed]:
        closed.after_fork()
    no_fork.release()


def _reset() -> None:
    global no_fork  # noqa: PLW0603 -- another thread may have waited for it
    no_fork = threading.RLock()
    for forked in [*_objects]:
        forked.reset_after_fork()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_reset)
