"""Fork handlers: a child process must not use the connections and locks of its parent.

If a child is to open a SQLite file, the parent must not have the file open at the fork.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

# Connections of the parent, which a child never closes: closing one would harm the parent's connection.
inherited: Final[list[object]] = []


class Forked(Protocol):
    """An object with connections or locks, which a fork copies to the child."""

    def reset_after_fork(self) -> None:
        """Forget connections without closing them, and replace locks. Called in the child only."""


class Closed(Forked, Protocol):
    """An object with a SQLite file, which it closes while its process forks."""

    def before_fork(self) -> None:
        """Close the file; block threads that use it until `after_fork`. Called in the parent."""

    def after_fork(self) -> None:
        """Unblock the threads that `before_fork` blocked, if it was called. Called in the parent."""


_objects: Final[WeakSet[Forked]] = WeakSet()
_closed: Final[WeakSet[Closed]] = WeakSet()
no_fork = threading.RLock()  # held while the process forks, and by code that a fork must not interrupt


def reset_in_child(forked: Forked) -> None:
    """Register an object; its `reset_after_fork` is called in each child that is forked from now on."""
    _objects.add(forked)


def close_at_fork(closed: Closed) -> None:
    """Register an object that closes its file before each fork, and is reset in the child."""
    with no_fork:  # otherwise a fork that has begun would miss the object
        _closed.add(closed)
    reset_in_child(closed)


def _before() -> None:
    no_fork.acquire()  # otherwise two forking threads could deadlock, each with half of the objects
    for closed in [*_closed]:
        closed.before_fork()


def _after() -> None:
    for closed in [*_closed]:
        closed.after_fork()
    no_fork.release()


def _reset() -> None:
    global no_fork  # noqa: PLW0603 -- a thread of the parent may hold or await the old lock
    no_fork = threading.RLock()
    for forked in [*_objects]:
        forked.reset_after_fork()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_reset)
