"""Threads for calls that would block an event loop.

The default executor of the loop is not used, because LangGraph runs synchronous nodes there. If such nodes
occupied all its threads and waited for an agent on the same loop, the agent's saver would get no thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sealpoint.forks import inherited, reset_in_child

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from concurrent.futures import ThreadPoolExecutor

Result = TypeVar("Result")

# The default of Python's ThreadPoolExecutor.
MAX_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)


def is_on(loop: AbstractEventLoop) -> bool:
    """Whether this thread is running the event loop ``loop``."""
    import asyncio  # imported here: without async callers it would be a third of the import time

    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def finish(work: Future[Result]) -> Result:
    """Wait for ``work`` and return its result; a task that is cancelled still waits until ``work`` ends."""
    import asyncio  # imported here, as above

    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        work.exception()  # the task was cancelled, so the result is not used
        raise


class ThreadPool:
    """Runs calls on a limited number of threads, which start when they are needed.

    A called function must not wait for another call of the pool that has not begun. It may wait for an event
    loop only if no other loop uses the pool.
    """

    def __init__(self) -> None:
        """Create a pool without threads."""
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        reset_in_child(self)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on a thread of the pool, in a copy of the current context.

        A task that is cancelled meanwhile still waits for the thread, which cannot be stopped: otherwise a
        connection might be closed while in use, and SQLite would crash. If the interpreter is shutting down
        while a loop still runs, the function is called on the caller's thread.
        """
        import asyncio  # imported here, as above
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(MAX_THREADS, "sealpoint")
            try:
                begun = self._executor.submit(copy_context().run, function, *arguments)
            except RuntimeError as error:
                if not str(error).startswith("cannot schedule new futures"):
                    raise
                begun = None
        if begun is None:  # the interpreter is shutting down, and starts no more threads
            return function(*arguments)
        return await finish(asyncio.wrap_future(begun))

    def shutdown(self) -> None:
        """Let each thread end after its present call, without waiting; a later call starts new threads."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    def reset_after_fork(self) -> None:
        """Forget the threads and the lock of the parent process."""
        if self._executor is not None:
            inherited.append(self._executor)
        self._executor, self._lock = None, threading.Lock()


# For calls that do not wait for an event loop: requests to thread stores, opening and decoding of values.
shared: Final = ThreadPool()
