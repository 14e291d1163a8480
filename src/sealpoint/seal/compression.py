"""Compression of values before they are sealed.

A compressed value is one zstd frame (RFC 8878) whose header says the size of its content. The tag of the
value says that it is compressed, and both are authenticated. A key holder can still make a bomb, so the size
is read first, and nothing is decompressed beyond it.

The length of a sealed value then says how well it compressed: see SECURITY.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from typing import Any, Final, TypeVar

from sealpoint.errors import DecodeError, LimitError

Result = TypeVar("Result")
Zstd = Callable[[], Any]  # returns the module for zstd, or raises MissingExtraError

ZSTD: Final = "zstd"

# Shorter values gain little, and there are many of them.
MIN_BYTES: Final = 512
# What the limits of a serializer say by default; longer values are not compressed.
MAX_BYTES: Final = 128 * 1024 * 1024

_LEVEL: Final = 3


def compress(data: bytes, zstd: Zstd) -> bytes | None:
    """Return a value compressed; ``None`` if that does not save at least a tenth of its bytes."""
    if not MIN_BYTES <= len(data) <= MAX_BYTES:
        return None
    made: bytes = zstd().compress(data, level=_LEVEL)
    return made if len(made) * 10 <= len(data) * 9 else None


class Postponed(Exception):  # noqa: N818 -- no refusal: the value is opened on another thread
    """A value is larger than this thread may decompress."""


# How many bytes may still be decompressed; each thread has a context of its own.
_left: Final = ContextVar("left", default=inf)


def decompressing_at_most(size: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function; raise `Postponed` before it decompresses more than ``size`` bytes."""
    before = _left.set(size)
    try:
        return function(*arguments)
    finally:
        _left.reset(before)


def decompress(frame: bytes, zstd: Zstd) -> bytes:
    """Return the value that `compress` was given.

    Raises:
        LimitError: If it has over `MAX_BYTES`.
        DecodeError: If it is not one whole frame that says its size.
        Postponed: If it is larger than may be decompressed here.
        MissingExtraError: If there is no module for zstd.
    """
    module = zstd()
    try:
        size = module.get_frame_info(frame).decompressed_size
        if size is None or size < MIN_BYTES:
            raise DecodeError("a compressed value does not say its size, or is too short to be one")
        if size > MAX_BYTES:
            raise LimitError(f"a compressed value has {size} bytes; at most {MAX_BYTES} are read", hint="")
        left = _left.get() - size
        if left < 0:
            raise Postponed
        _left.set(left)
        decompressor = module.ZstdDecompressor()
        data: bytes = decompressor.decompress(frame, size + 1)
    except module.ZstdError:
        raise DecodeError("a compressed value is not a zstd frame") from None
    if not decompressor.eof or decompressor.unused_data or len(data) != size:
        raise DecodeError("a compressed value ends too early or too late")
    return data
