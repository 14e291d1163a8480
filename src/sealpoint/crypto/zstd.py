"""Compression of values by zstd before they are sealed, and a limit of the bytes that a thread decompresses.

The length of a sealed value that was compressed shows how well it compressed: see SECURITY.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import inf
from typing import Any, Final, TypeVar

from sealpoint.errors import MissingExtraError
from sealpoint.seal.compression import MAX_BYTES, MIN_BYTES

Result = TypeVar("Result")

ZSTD: Final = "zstd"

_LEVEL: Final = 3


@cache
def require_zstd() -> Any:
    """Return the module for zstd: Python's own from 3.14 on, else that of the extra ``zstd``.

    Raises:
        MissingExtraError: If neither module is installed.
    """
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise MissingExtraError("backports.zstd", "zstd") from None
    return zstd


def compress(data: bytes) -> bytes | None:
    """Return the compressed bytes of a value; ``None`` unless compression saves at least a tenth of them."""
    if not MIN_BYTES <= len(data) <= MAX_BYTES:
        return None
    made: bytes = require_zstd().compress(data, level=_LEVEL)
    return made if len(made) * 10 <= len(data) * 9 else None


class Postponed(Exception):  # noqa: N818 -- no refusal: the value is opened on another thread
    """Raised for a value that is larger than this thread may decompress."""


class _Left(threading.local):
    bytes: float = inf


_left: Final = _Left()


def decompressing_at_most(size: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function; raise `Postponed` before it decompresses more than ``size`` bytes."""
    _left.bytes = size
    try:
        return function(*arguments)
    finally:
        _left.bytes = inf


def zstd_for(frame: bytes) -> Any:
    """Return the module for zstd.

    Raises:
        Postponed: If the frame states that it has more bytes than this thread may still decompress.
        MissingExtraError: If no module for zstd is installed.
    """
    zstd = require_zstd()
    with suppress(zstd.ZstdError):  # is refused when it is decompressed
        _left.bytes -= zstd.get_frame_info(frame).decompressed_size or 0
    if _left.bytes < 0:
        raise Postponed
    return zstd
