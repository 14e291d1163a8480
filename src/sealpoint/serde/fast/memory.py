"""Memory of large packed values, kept for the next one instead of returned to the kernel."""

from __future__ import annotations

import functools
from typing import Final

from sealpoint.serde.fast import is_on

LARGE_BYTES: Final = 128 * 1024
_KEPT_BYTES: Final = 24 * 1024 * 1024


def keep_freed_memory() -> None:
    """Let glibc's malloc keep freed memory. Called once at the first large value, so an import has no effect.

    It asks the kernel for every block over a threshold, 128 KiB at first, and gives it back when it is
    freed. msgpack packs into blocks that grow, and the page faults of 400 KB take longer than packing
    it. The threshold rises to the largest such block that was ever freed: to this one, of which no
    page is ever touched. In return the process may keep up to twice as much of what it has freed.
    """
    if is_on("memory"):
        _free_one_block()


@functools.cache
def _free_one_block() -> None:
    bytes(_KEPT_BYTES)
