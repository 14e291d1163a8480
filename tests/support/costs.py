"""What a call costs, counted and not timed.

Nothing is collected as garbage meanwhile: when that happens depends on the tests before, and the functions
that it calls (hypothesis has one) would count as well.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def calls_of(call: Callable[[], object]) -> int:
    """Return how many functions written in Python a call enters, itself not counted."""
    calls = 0

    def count(frame: FrameType, event: str, value: Any) -> None:
        nonlocal calls
        calls += event == "call"

    profiler = sys.getprofile()
    with _without_collection():
        sys.setprofile(count)
        try:
            call()
        finally:
            sys.setprofile(profiler)
    return calls - 1


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs."""
    lines = 0

    def count(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    tracer = sys.gettrace()
    with _without_collection():
        sys.settrace(count)
        try:
            call()
        finally:
            sys.settrace(tracer)
    return lines


def peak_of(call: Callable[[], object]) -> int:
    """Return how many bytes of memory Python holds at most for a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def _without_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
