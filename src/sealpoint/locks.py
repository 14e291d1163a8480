"""Acquiring locks with a time limit, so that no signal handler leaves a lock held.

Python runs the handler of a signal between two instructions of the main thread, and a handler may raise:
Ctrl-C, the time limit of a task queue. If that happens after ``acquire`` has returned, and before ``try``, or
in the first line of an ``__exit__``, the lock is held for ever. A ``with`` statement over a lock without a
time limit has no such gap: one C call acquires the lock, another releases it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Lock(Protocol):
    """A lock with the methods of `threading.Lock`."""

    def acquire(self, blocking: bool, timeout: float, /) -> bool:
        """Acquire the lock, and return whether it was acquired within ``timeout`` seconds."""

    def release(self) -> None:
        """Release the lock."""


def take(lock: Lock, seconds: float, taken: list[bool]) -> None:
    """Acquire a lock, and append to ``taken`` whether it was acquired in time, both in one C call."""
    taken.extend(map(lock.acquire, (seconds != 0,), (seconds or -1,)))


def holding(lock: Lock, seconds: float, function: Callable[[], Result], late: Callable[[], Result]) -> Result:
    """Call a function with a lock held, and release the lock even if a signal handler raises meanwhile.

    Args:
        lock: The lock to acquire and release.
        seconds: How long to wait for the lock; 0 does not wait, -1 waits without a limit.
        function: Called while the lock is held; its result is returned.
        late: Called instead of ``function`` if the lock was not acquired in time.
    """
    taken = list[bool]()
    try:
        take(lock, seconds, taken)
        return function() if True in taken else late()
    finally:
        if True in taken:  # no call comes between this and the release, and so no handler
            lock.release()
