"""Keys of maps, as a dict will take them: which are one, and which were made to share a hash."""

from __future__ import annotations

import math
import struct
from collections import Counter
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.headers import ARRAYS, SIZES, STRINGS, TEXTS, read_length
from sealpoint.serde.limits import MAX_SAME_HASH
from sealpoint.serde.scan.budget import Budget

_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
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


class Keys:
    """The keys of one map.

    Attributes:
        found: Each in a form that is equal where Python's dict takes two for one.
    """

    __slots__ = ("_budget", "_depth", "_has_arrays", "found")

    def __init__(self, budget: Budget, depth: int) -> None:
        """Begin with none.

        Args:
            budget: That of the value.
            depth: Levels that an array as a key may have.
        """
        self.found = set[Any]()
        self._budget = budget
        self._depth = depth
        self._has_arrays = False

    def read(self, data: bytes, position: int) -> int:
        """Add a key, and return where it ends.

        Raises:
            DecodeError: If it cannot be a key.
            LimitError: If it has more levels or elements than the value may have.
        """
        key, end = read_key(data, position, self._depth, position + self._budget.elements_left)
        if type(key) is tuple:
            self._budget.add_key(end - position)
            self._has_arrays = True
            key = hash(key), exactly(key)
        self.found.add(key)
        return end

    def require_distinct(self, count: int) -> None:
        """Refuse a map with fewer keys than pairs, or with array keys that were made to share a hash.

        A dict would drop pairs of the first, and compare each key of the second with all others.

        Raises:
            DecodeError: If it is one.
        """
        if len(self.found) != count:
            raise DecodeError("a map has a key twice, or two that are one in a dict")
        if self._has_arrays:
            hashes = Counter(key[0] for key in self.found if type(key) is tuple)
            if max(hashes.values()) > MAX_SAME_HASH:
                raise DecodeError("the keys of a map share a hash")


def read_key(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    """Return a key of a map in a form that is equal where Python's dict takes two for one, and where it ends.

    Text is given as the bytes of its shortest form, so that it is not equal to a binary.

    Args:
        data: The bytes.
        position: Where the key begins.
        depth: Levels that an array may have.
        last: Where the last item of an array may begin.

    Raises:
        DecodeError: If it is a map, an extension or NaN, or is nested too deeply.
        LimitError: If an array goes on after ``last``.
    """
    head = data[position]
    if head in ARRAYS:
        return _read_array(data, position, depth, last)
    if head in STRINGS:
        start, length = read_length(data, position)
        end = start + length
        return _string_key(head, data[start:end]), end
    end = position + SIZES[head]
    # An empty map has a size in `SIZES`, but as a key it cannot be hashed either.
    if end == position or head == 0x80:
        raise DecodeError("a map has a key that is a map or an extension")
    if 0xA0 <= head <= 0xBF:
        return data[position:end], end
    if head in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[head], data, position + 1)
        if math.isnan(number):
            raise DecodeError("a map has NaN as a key, which is not equal to itself")
        return number, end
    return _CONSTANTS.get(head, head if head < 0x80 else head - 0x100), end


def _string_key(head: int, content: bytes) -> bytes:
    if head not in TEXTS:
        return b"\xc4" + content
    return (bytes((0xA0 + len(content),)) if len(content) < 32 else b"\xd9") + content


def _read_array(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    if depth <= 0:
        raise DecodeError("a map has a key that is nested too deeply")
    position, count = read_length(data, position)
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

    Unlike the hash of a tuple of numbers, the hash of text cannot be chosen by an attacker.
    """
    if type(key) is tuple:
        return f"({','.join(map(exactly, key))})"
    # 1, 1.0 and True are one key of a dict, but have three texts.
    number = isinstance(key, bool) or (isinstance(key, float) and key.is_integer())
    return repr(int(key) if number else key)
