"""Locks with a time limit that no signal leaves behind.

Python runs the handler of a signal between two instructions of the main thread, and a handler may raise:
Ctrl-C, the time limit of a task queue. If that happens after ``acquire`` has returned, and before ``try``, or
in the first line of an ``__exit__``, the lock is held for ever. A lock without a time limit has none of
these gaps in a ``with`` statement: it is entered and left in one call of C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Lock(Protocol):
    """A lock of `threading`, or one that is called as these are."""

    def acquire(self, blocking: bool, timeout: float, /) -> bool:
        """Take the lock, and return whether it was taken in time."""

    def release(self) -> None:
        """Give it back."""


def take(lock: Lock, seconds: float, taken: list[bool]) -> None:
    """Take a lock, and note in ``taken`` whether it was taken in time: both in one call of C."""
    taken.extend(map(lock.acquire, (seconds != 0,), (seconds or -1,)))


def holding(lock: Lock, seconds: float, function: Callable[[], Result], late: Callable[[], Result]) -> Result:
    """Call a function while a lock is held, and give it back, whatever a signal's handler raises meanwhile.

    Args:
        lock: The lock.
        seconds: How long to wait for it; 0 not at all, and -1 without a limit.
        function: Is called with the lock held.
        late: Is called in its place if the lock was not free in that time.
    """
    taken = list[bool]()
    try:
        take(lock, seconds, taken)
        return function() if True in taken else late()
    finally:
        if True in taken:  # no call comes between this and the release, and so no handler
            lock.release()
