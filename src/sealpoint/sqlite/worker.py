"""Running a call of a saver on a worker thread, for code on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on a worker thread, so that the event loop is not blocked.

    A task that is cancelled meanwhile waits for the thread, which cannot be stopped: otherwise the
    connection might be closed while in use, and SQLite would crash.
    """
    import asyncio  # imported here: without async callers it would be a third of the import time

    call = partial(copy_context().run, function, *arguments)
    work = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        work.exception()  # the task was cancelled, so the result is not used
        raise
