"""How any Postgres server is reached: what psycopg does, and when this process no longer waits for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from sealpoint.errors import MissingExtraError


def require_psycopg() -> Any:
    """Return the module psycopg.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import psycopg
        import psycopg.generators
    except ImportError:
        raise MissingExtraError("psycopg", "postgres") from None
    return psycopg


def watched_steps(
    steps: Generator[Any, Any, Any], check: Callable[[bool], object]
) -> Generator[Any, Any, Any]:
    """Run the steps of psycopg, which waits between them for the socket, for 0.1 s at a time.

    Args:
        steps: What a connection waits for.
        check: Called after each wait with whether the socket was ready; it raises to end the wait.
    """
    ready = None
    while True:
        try:
            wanted = steps.send(ready)
        except StopIteration as ended:
            return ended.value
        ready = yield wanted
        check(bool(ready))
