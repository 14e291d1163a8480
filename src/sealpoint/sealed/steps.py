"""Steps: what a saver does with the wrapped one, written once for sync and async.

A procedure is a generator. It yields requests, and receives the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

from sealpoint.base import CheckpointTuple, RunnableConfig
from sealpoint.sealed.pages import Request, stored_bytes

R = TypeVar("R")

LARGE_BYTES: Final = 65_536
"""From this size on, values are opened and decoded on a worker thread, so that no event loop waits."""


class Get(NamedTuple):
    """A call of ``get_tuple``; the reply is a list of at most one."""

    config: RunnableConfig


class Do(NamedTuple):
    """A call of a method of the wrapped saver that stores or deletes; there is no reply."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012 -- never changed


class Call(NamedTuple):
    """A call of a function; the reply is its result.

    Attributes:
        function: What to call.
        arguments: Its arguments.
        found: The row that it opens or decodes; ``None`` if it waits for a thread store.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    found: CheckpointTuple | None = None


Steps = Generator[Request | Get | Do | Call, Any, R]


def run(steps: Steps[R], saver: Any) -> R:
    """Run a procedure, and return its result."""
    reply = None
    try:
        while True:
            request = steps.send(reply)
            if isinstance(request, Call):
                reply = request.function(*request.arguments)
            elif isinstance(request, Get):
                found = saver.get_tuple(request.config)
                reply = [] if found is None else [found]
            elif isinstance(request, Request):
                reply = [*saver.list(request.config, **request.arguments)]
            else:
                reply = getattr(saver, request.method)(*request.arguments, **request.keywords)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Steps[R], saver: Any) -> R:
    """Async version of `run`."""
    reply = None
    try:
        while True:
            request = steps.send(reply)
            if isinstance(request, Call):
                if request.found is not None and stored_bytes(request.found) < LARGE_BYTES:
                    reply = request.function(*request.arguments)
                else:
                    reply = await asyncio.to_thread(request.function, *request.arguments)
            elif isinstance(request, Get):
                found = await saver.aget_tuple(request.config)
                reply = [] if found is None else [found]
            elif isinstance(request, Request):
                reply = [item async for item in saver.alist(request.config, **request.arguments)]
            else:
                method = getattr(saver, f"a{request.method}")
                reply = await method(*request.arguments, **request.keywords)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
