"""The steps of a call: what it costs, counted and not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_of(call: Callable[..., object], *arguments: Any) -> int:
    """Return how many lines of Python a call runs."""
    lines = 0

    def count(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        call(*arguments)
    finally:
        sys.settrace(tracer)
    return lines
