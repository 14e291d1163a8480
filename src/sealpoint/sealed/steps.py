"""Steps: what a saver does with the wrapped one, written once for sync and async.

A procedure is a generator. It yields requests, and receives the replies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

from sealpoint.base import CheckpointTuple, RunnableConfig
from sealpoint.sealed.pages import Request, stored_bytes
from sealpoint.sealed.transactions import aend_own_transaction, end_own_transaction
from sealpoint.threadpool import shared

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


_Asked = Request | Get | Do | Call
Steps = Generator[_Asked, Any, R]


def run(steps: Steps[R], saver: Any) -> R:
    """Run a procedure, which receives the errors of its requests, and return its result."""
    send: Callable[[Any], _Asked] = steps.send
    value: Any = None
    try:
        while True:
            request, send = send(value), steps.send
            try:
                if isinstance(request, Call):
                    value = request.function(*request.arguments)
                else:
                    value = _reply(request, saver)
            except Exception as error:  # noqa: BLE001 -- the procedure raises it again
                send, value = steps.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        del value  # an error would refer to itself


def _reply(request: Request | Get | Do, saver: Any) -> Any:
    """Return the reply of the wrapped saver, which has no transaction open if it raises."""
    try:
        if isinstance(request, Get):
            found = saver.get_tuple(request.config)
            return [] if found is None else [found]
        if isinstance(request, Request):
            return [*saver.list(request.config, **request.arguments)]
        return getattr(saver, request.method)(*request.arguments, **request.keywords)
    except BaseException:
        end_own_transaction(saver)
        raise


async def arun(steps: Steps[R], saver: Any) -> R:
    """Async version of `run`."""
    send: Callable[[Any], _Asked] = steps.send
    value: Any = None
    try:
        while True:
            request, send = send(value), steps.send
            try:
                if isinstance(request, Call):
                    if request.found is not None and stored_bytes(request.found) < LARGE_BYTES:
                        value = request.function(*request.arguments)
                    else:
                        value = await shared.run(request.function, *request.arguments)
                else:
                    value = await _areply(request, saver)
            except Exception as error:  # noqa: BLE001 -- the procedure raises it again
                send, value = steps.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        del value  # an error would refer to itself


async def _areply(request: Request | Get | Do, saver: Any) -> Any:
    """Async version of `_reply`."""
    try:
        if isinstance(request, Get):
            found = await saver.aget_tuple(request.config)
            return [] if found is None else [found]
        if isinstance(request, Request):
            return [item async for item in saver.alist(request.config, **request.arguments)]
        method = getattr(saver, f"a{request.method}")
        return await method(*request.arguments, **request.keywords)
    except GeneratorExit:  # the coroutine is closed, and may not wait; the next call rolls back
        raise
    except BaseException:  # also if the task is cancelled
        await aend_own_transaction(saver)
        raise
