"""Keys of maps, as a dict will take them: which are one, and which were made to share a hash."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.guards import MAX_SAME_HASH
from sealpoint.serde.scan.headers import SIZES, STRINGS, read_length

_FIXED_KEYS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}


def read_key(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    """Return a key of a map in a form that is equal where Python's dict takes two for one, and where it ends.

    An array has at most ``depth`` levels, and its last item begins at ``last`` or before. Text is
    given as the bytes of its shortest form, so that it is not equal to a binary.
    """
    head, end = data[position], position + SIZES[data[position]]
    if 0xA0 <= head <= 0xBF:
        return data[position:end], end
    if head in STRINGS:
        start, length = read_length(data, position, head)
        content, end = data[start : start + length], start + length
        if head < 0xD9:
            return b"\xc4" + content, end
        return (bytes((0xA0 + length,)) if length < 32 else b"\xd9") + content, end
    if head in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[head], data, position + 1)
        return _require_key_number(number), end
    if end > position and head not in (0x80, 0x90):
        return _FIXED_KEYS.get(head, head if head < 0x80 else head - 0x100), end
    return _read_array_key(data, position, depth, last)


def _read_array_key(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    head = data[position]
    if not (0x90 <= head <= 0x9F or head in (0xDC, 0xDD)) or depth <= 0:
        raise DecodeError("a map has a key that is a map or an extension, or is nested too deeply")
    position, count = (position + 1, head & 0x0F) if head <= 0x9F else read_length(data, position, head)
    if count > len(data) - position:
        raise DecodeError("a container announces more than the bytes can hold")
    items = []
    for _ in range(count):
        if position > last:
            raise LimitError("a map has a key of too many elements")
        item, position = read_key(data, position, depth - 1, last)
        items.append(item)
    return tuple(items), position


def exactly(key: Any) -> str:
    """Return a text that is the same for two array keys if, and only if, they are equal.

    Unlike a tuple of numbers it has a hash that nobody can choose.
    """
    if type(key) is tuple:
        return f"({','.join(map(exactly, key))})"
    number = isinstance(key, bool) or (isinstance(key, float) and key.is_integer())
    return repr(int(key) if number else key)


def require_spread(keys: set[Any]) -> None:
    """Refuse a map whose array keys were made to share a hash: a dict would compare each with all others."""
    most = Counter(key[0] for key in keys if type(key) is tuple).most_common(1)
    if most and most[0][1] > MAX_SAME_HASH:
        raise DecodeError("the keys of a map share a hash")


def _require_key_number(number: float) -> float:
    if math.isnan(number):
        raise DecodeError("a map has NaN as a key, which is not equal to itself")
    return number
