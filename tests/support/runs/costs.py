"""What a call costs, counted and not timed.

Nothing is collected as garbage meanwhile: when that happens depends on the tests before, and the functions
that it calls (hypothesis has one) would count as well.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def calls_of(call: Callable[[], object]) -> int:
    """Return how many functions written in Python a call enters, itself not counted."""
    return _count("call", call, sys.getprofile, sys.setprofile) - 1


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of Python a call runs."""
    return _count("line", call, sys.gettrace, sys.settrace)


def peak_of(call: Callable[[], object]) -> int:
    """Return how many bytes of memory Python holds at most for a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _count(
    wanted: str, call: Callable[[], object], get_hook: Callable[[], Any], set_hook: Callable[[Any], None]
) -> int:
    found = 0

    def hook(frame: object, event: str, value: object) -> Any:
        nonlocal found
        found += event == wanted
        return hook

    before, collects = get_hook(), gc.isenabled()
    gc.disable()
    set_hook(hook)
    try:
        call()
    finally:
        set_hook(before)
        if collects:
            gc.enable()
    return found
