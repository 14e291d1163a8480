"""Decompression of values that were compressed before they were sealed.

A compressed value is one zstd frame (RFC 8878) whose header states the size of its content. The tag of the
value states that it is compressed, and both are authenticated. A key holder can still seal a small frame with
huge content, so the stated size is read first, and no more bytes than stated are decompressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError

# Returns the module for zstd that decompresses a frame; raises an error to refuse or postpone decompression.
Zstd = Callable[[bytes], Any]

MIN_BYTES: Final = 512  # shorter values are never compressed
MAX_BYTES: Final = 128 * 1024 * 1024  # longer values are never compressed: the limit of a serializer


def decompress(frame: bytes, zstd: Zstd) -> bytes:
    """Return the decompressed content of a zstd frame.

    Raises:
        LimitError: If the content has over `MAX_BYTES` bytes.
        DecodeError: If ``frame`` is not one whole frame that states its size.
    """
    module = zstd(frame)
    try:
        size = module.get_frame_info(frame).decompressed_size
        if size is None or size < MIN_BYTES:
            raise DecodeError("a compressed value does not state its size, or is too short for zstd")
        if size > MAX_BYTES:
            raise LimitError(f"a compressed value has {size} bytes; at most {MAX_BYTES} are read", hint="")
        decompressor = module.ZstdDecompressor()
        data: bytes = decompressor.decompress(frame, size + 1)
    except module.ZstdError:
        raise DecodeError("a compressed value is not a zstd frame") from None
    if not decompressor.eof or decompressor.unused_data or len(data) != size:
        raise DecodeError("a compressed value is shorter or longer than its zstd frame states")
    return data
