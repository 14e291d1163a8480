"""Steps: what a saver does with the wrapped one, written once for sync and async.

A procedure is a generator. It yields requests to the wrapped saver, and receives the replies.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from sealpoint.base import CheckpointTuple, RunnableConfig

R = TypeVar("R")


class Request(NamedTuple):
    """A call of ``list``.

    Attributes:
        config: Names a thread, and perhaps more; ``None`` for all threads.
        filter: Metadata to search for.
        before: Id that the checkpoints must be older than.
        limit: How many at most.
    """

    config: RunnableConfig | None
    filter: dict[str, Any] | None = None
    before: str | None = None
    limit: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``list``."""
        before = None if self.before is None else {"configurable": {"checkpoint_id": self.before}}
        return {"filter": self.filter or None, "before": before, "limit": self.limit}


class Get(NamedTuple):
    """A call of ``get_tuple``; the reply is a list of at most one."""

    config: RunnableConfig


Steps = Generator[Request | Get, list[CheckpointTuple], R]


def run(steps: Steps[R], saver: Any) -> R:
    """Run a procedure, and return its result."""
    reply = None
    try:
        while True:
            request = next(steps) if reply is None else steps.send(reply)
            if isinstance(request, Get):
                found = saver.get_tuple(request.config)
                reply = [] if found is None else [found]
            else:
                reply = [*saver.list(request.config, **request.arguments)]
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Steps[R], saver: Any) -> R:
    """Async version of `run`."""
    reply = None
    try:
        while True:
            request = next(steps) if reply is None else steps.send(reply)
            if isinstance(request, Get):
                found = await saver.aget_tuple(request.config)
                reply = [] if found is None else [found]
            else:
                reply = [item async for item in saver.alist(request.config, **request.arguments)]
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
