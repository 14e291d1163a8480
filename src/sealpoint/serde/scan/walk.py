"""The walk through one value, header by header, without recursion and without building anything.

What it refuses would crash a decoder, fill memory, or be decoded to something else than was stored.
Each rule stands in a function of its own:

    size        `scan`: a value has a bounded number of bytes
    depth       `_Walk._enter`: so have containers and extensions within each other. A decoder starts
                counting anew in an extension, which holds msgpack again
    counts      `_Walk._enter`: a container announces no more elements than there are bytes
    ends        `_Payload.close`: a value, and the payload of an extension, ends where it says
    extensions  `_Walk._add_extension`: only codes that LangGraph writes
    budget      `Budget`: elements, records and copied bytes of the whole value
    keys        `_Map.close`: no two keys of a map are one in a dict, see `sealpoint.serde.scan.mapkeys`

That text is UTF-8 is left to the decoder, which checks it in any case.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.codes import EXTENSIONS
from sealpoint.serde.fast import is_on
from sealpoint.serde.fast.records import MAX_LEVELS, is_plain
from sealpoint.serde.headers import (
    EXTENSION_HEADS,
    FIXSTR_SIZES,
    MAPS,
    SIZES,
    STRINGS,
    read_length,
)
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.serde.scan.budget import Budget
from sealpoint.serde.scan.mapkeys import Keys


def scan(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """Walk through one msgpack value, and return where the payloads of its extensions start.

    The code of an extension is the byte before its payload.

    Raises:
        LimitError: If it is larger, deeper or has more elements than ``limits`` say, or its
            nested extensions, each of which a decoder copies, are many times its size.
        DecodeError: If it is malformed or ambiguous in one of the ways above.
    """
    if len(data) > limits.size_bytes:
        raise LimitError(f"value has {len(data)} bytes; at most {limits.size_bytes} are read")
    try:
        return _Walk(data, limits).run()
    except (IndexError, struct.error):
        raise DecodeError("value ends in the middle") from None


class _Level:
    """An array, a map or the payload of an extension that the walk is in.

    Attributes:
        remaining: Elements of it that are still to come; pairs in a map.
    """

    __slots__ = ("_size_of", "remaining")

    def __init__(self, count: int, size_of: Callable[[int], int]) -> None:
        self.remaining = count
        self._size_of = size_of

    def skip(self, data: bytes, position: int) -> int:
        """Step over elements up to one that is entered, and return where that begins or the level ends."""
        remaining = self.remaining
        while remaining:
            size = SIZES[data[position]] or self._size_of(position)
            if not size:
                break
            position += size
            remaining -= 1
        self.remaining = remaining
        return position

    def close(self, position: int) -> None:
        """Check what can be checked only at the end."""


class _Map(_Level):
    """A map. Where a value is entered, its key has been read."""

    __slots__ = ("_count", "_keys")

    def __init__(self, count: int, size_of: Callable[[int], int], keys: Keys) -> None:
        super().__init__(count, size_of)
        self._count, self._keys = count, keys

    def skip(self, data: bytes, position: int) -> int:
        found, remaining = self._keys.found, self.remaining
        while remaining:
            size = FIXSTR_SIZES[data[position]]
            if size:
                found.add(data[position : position + size])
                position += size
            else:
                position = self._keys.read(data, position)
            size = SIZES[data[position]] or self._size_of(position)
            if not size:
                break
            position += size
            remaining -= 1
        self.remaining = remaining
        return position

    def close(self, position: int) -> None:
        self._keys.require_distinct(self._count)


class _Payload(_Level):
    """The payload of an extension, or the whole value: one element, with a known end."""

    __slots__ = ("_end",)

    def __init__(self, end: int, size_of: Callable[[int], int]) -> None:
        super().__init__(1, size_of)
        self._end = end

    def close(self, position: int) -> None:
        # A step over a string does not read its bytes: this also refuses one that is longer than the data.
        if position != self._end:
            raise DecodeError("bytes are left over or missing at the end of a value")


class _Walk:
    """One pass over one value."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self._data = data
        self._depth = limits.depth
        self._budget = Budget(limits, len(data))
        self._payloads: list[int] = []
        self._around: list[_Level] = []  # the levels that the current one is in, outermost first
        # A value has no more elements than bytes, so that those of plain payloads need not be counted.
        skips_plain = is_on("records") and len(data) <= limits.elements
        self._plain_depth = min(limits.depth, MAX_LEVELS) if skips_plain else 0

    def run(self) -> list[int]:
        """Return where the payloads of extensions start."""
        data, around = self._data, self._around
        level: _Level = _Payload(len(data), self._size_of)
        position = 0
        while True:
            position = level.skip(data, position)
            if level.remaining:
                level.remaining -= 1
                position, inner = self._enter(position)
                around.append(level)
                level = inner
            else:
                level.close(position)
                if not around:
                    return self._payloads
                level = around.pop()

    def _size_of(self, position: int) -> int:
        """Return the bytes of an element that is not entered: a long string, or a plain payload; else 0."""
        data = self._data
        head = data[position]
        if head in EXTENSION_HEADS:
            levels = self._plain_depth - len(self._around) - 1
            start, length = read_length(data, position)
            end = start + length
            if levels > 0 and is_plain(data[start:end], levels):
                self._add_extension(start, length)
                return end - position
        elif head in STRINGS:
            start, length = read_length(data, position)
            return start + length - position
        return 0

    def _enter(self, position: int) -> tuple[int, _Level]:
        """Return where the elements of a container or extension begin, and its level."""
        start, count = read_length(self._data, position)
        # Five bytes of an array32 header can announce 2**32 - 1 elements; a decoder may allocate for them.
        if count > len(self._data) - start:
            raise DecodeError("a container announces more than the bytes can hold")
        if len(self._around) >= self._depth:
            raise LimitError(f"value is nested over {self._depth} deep")
        head = self._data[position]
        if head in EXTENSION_HEADS:
            self._add_extension(start, count)
            return start, _Payload(start + count, self._size_of)
        self._budget.add_elements(count)
        if head in MAPS:
            # An array that is a key of the map may have the levels that a value in it may have.
            return start, _Map(count, self._size_of, Keys(self._budget, self._depth - len(self._around) - 1))
        return start, _Level(count, self._size_of)

    def _add_extension(self, start: int, size: int) -> None:
        code = self._data[start - 1]
        if code not in EXTENSIONS:
            raise DecodeError(f"extension {code} is not one that LangGraph writes")
        self._budget.add_record(size)
        self._payloads.append(start)
