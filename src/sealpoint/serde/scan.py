"""Checks one msgpack value, header by header, without recursion and without building anything.

A refused value would crash a decoder, fill memory, or be decoded to another value than was stored.
Each rule has a function of its own:

    size        `scan`: a value has a bounded number of bytes
    depth       `_Walk._enter`: containers and extensions are nested to a bounded depth. A decoder counts
                anew in each extension, which contains msgpack again
    counts      `_Walk._enter`: a container announces no more elements than there are bytes
    ends        `_Payload.close`: a value, and the payload of an extension, ends where it says
    extensions  `_Walk._add_extension`: only codes that LangGraph writes
    budget      `_Walk`: elements, records and copied bytes of the whole value
    keys        `_Map.close`: no two keys of a map are equal in a dict

The decoder checks that text is UTF-8.

Two shortcuts skip parts that certainly pass the check. A payload that unpacks and packs again to the same
bytes has the shortest headers, ends where it should, has only text as keys, and no duplicate key; ormsgpack
does both faster than a walk (``records``). If the name of no costly type occurs too often in the bytes, no
costly type is named too often (``costly``).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import ormsgpack

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.codes import (
    ARRAYS,
    EXTENSION_HEADS,
    EXTENSIONS,
    FIXSTR_SIZES,
    MAPS,
    SIZES,
    STRINGS,
    TEXTS,
    read_length,
)
from sealpoint.serde.fast import is_on
from sealpoint.serde.limits import (
    DEFAULT_LIMITS,
    FREE_COPIED_BYTES,
    MAX_COPIES,
    MAX_SAME_HASH,
    WRITTEN_LIMITS,
    Limits,
)
from sealpoint.serde.probing import DICT_BEHIND, are_spread

# The types that take long to build, each with the field of `Limits` that says how many there may be.
_COSTLY: Final = {names: row.costly for names, row in CATALOGUE.items() if row.costly is not None}
_CALLED: Final = {"patterns": "regular expressions", "chunks": "streamed messages"}


def read_names(data: bytes, payload: int) -> tuple[str, str]:
    """Return the module and the name of the type of an extension."""
    code = data[payload - 1]
    fixed = EXTENSIONS[code].type_name
    if fixed is not None:
        return fixed
    start, count = read_length(data, payload) if data[payload] in ARRAYS else (0, 0)
    if count not in (3, 4):
        raise DecodeError(f"extension {code} does not have the contents that LangGraph writes")
    module, position = _read_text(data, start)
    name, _ = _read_text(data, position)
    return module, name


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    if not FIXSTR_SIZES[data[position]] and data[position] not in TEXTS:
        raise DecodeError("the name of a type in an extension is not text")
    start, length = read_length(data, position)
    try:
        return data[start : start + length].decode(), start + length
    except UnicodeDecodeError:
        raise DecodeError("the name of a type in an extension is not UTF-8") from None


def require_few_costly(data: bytes, payloads: list[int], limits: Limits) -> None:
    """Refuse scanned bytes that name types which take long to build more often than ``limits`` allow."""
    bounds = {names: getattr(limits, field) for names, field in _COSTLY.items()}
    if len(payloads) <= min(bounds.values()) or (is_on("costly") and _names_few(data, payloads, bounds)):
        return
    names = Counter[tuple[str, str]]()
    for payload in payloads:
        with suppress(DecodeError):  # nothing is built from it
            names[read_names(data, payload)] += 1
    require_counts(names, limits)


_SMALL_RECORD_BYTES: Final = 100
# The second byte of a record that does not begin with the shortest headers.
_LONG_HEADS: Final = TEXTS | {0}


def _names_few(data: bytes, payloads: list[int], bounds: Mapping[tuple[str, str], int]) -> bool:
    """Whether the bytes certainly name no type more often than is allowed."""
    # Few values name one. For large records the lengths of the module names are enough: map() over them
    # takes a tenth of the time of a search through all bytes.
    if len(data) >= _SMALL_RECORD_BYTES * len(payloads):
        modules = (module for (module, _), most in bounds.items() if len(payloads) > most)
        lengths = _LONG_HEADS.union(0xA0 + len(module) for module in modules)
        places = [payload + 1 for payload in payloads if payload + 1 < len(data)]
        if lengths.isdisjoint(map(data.__getitem__, places)):
            return True
    return all(data.count(name.encode()) <= most for (_, name), most in bounds.items())


def require_counts(names: Mapping[tuple[str, str], int], limits: Limits) -> None:
    """Refuse counts of types that exceed ``limits``, as `require_few_costly` does."""
    for costly, field in _COSTLY.items():
        if names[costly] > getattr(limits, field):
            raise limits.over(field, f"value has over {getattr(limits, field)} {_CALLED[field]}")


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


def read_key(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    """Return a key of a map in a form that compares like keys of a dict, and the offset after the key.

    Text is returned as the msgpack bytes of its shortest form, so that it does not equal a binary value.
    """
    head = data[position]
    if head in ARRAYS:
        return _read_array(data, position, depth, last)
    if head in STRINGS:
        start, length = read_length(data, position)
        content, end = data[start : start + length], start + length
        if head not in TEXTS:
            return b"\xc4" + content, end
        return (bytes((0xA0 + length,)) if length < 32 else b"\xd9") + content, end
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


def _read_array(data: bytes, position: int, depth: int, last: int) -> tuple[Any, int]:
    if depth <= 0:
        raise DecodeError("a map has a key that is nested too deeply")
    position, count = read_length(data, position)
    if count > len(data) - position:
        raise DecodeError("a container announces more than the bytes can hold")
    items = []
    for _ in range(count):
        if position > last:
            raise LimitError("a map has a key of too many elements", "elements")
        item, position = read_key(data, position, depth - 1, last)
        items.append(item)
    return tuple(items), position


def scan(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """Check one msgpack value, and return the offsets at which the payloads of its extensions start.

    The code of an extension is the byte before its payload.

    Raises:
        LimitError: If the value is larger, deeper or has more elements than ``limits`` allow, or its
            nested extensions, each of which a decoder copies, are many times its size.
        DecodeError: If the value is malformed or ambiguous in one of the ways above.
    """
    if len(data) > limits.size_bytes:
        raise limits.over("size_bytes", f"value has {len(data)} bytes; at most {limits.size_bytes} are read")
    try:
        return _Walk(data, limits).run()
    except (IndexError, struct.error):
        raise DecodeError("the value is truncated") from None


# Nesting of unpacked containers, for small stacks.
_MAX_LEVELS: Final = 64
_MAX_PLAIN_BYTES: Final = 64 * 1024
_NO_CONTAINERS: Final = bytes(
    set(range(256)) - {*range(0x81, 0x90), *range(0x91, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF}
)

_packb: Final = ormsgpack.packb
_unpackb: Final = ormsgpack.unpackb


def is_plain(payload: bytes, levels: int) -> bool:
    """Whether the bytes of an extension certainly contain nothing that the check refuses, and no extension.

    Elements are not counted: there are at most as many as bytes. Containers are nested at most ``levels``
    deep, because at most ``levels`` of the bytes, including text, could be headers of containers.
    """
    size = len(payload)
    if size > _MAX_PLAIN_BYTES or (size > levels and len(payload.translate(None, _NO_CONTAINERS)) > levels):
        return False
    try:
        return _packb(_unpackb(payload)) == payload
    except (ormsgpack.MsgpackDecodeError, ormsgpack.MsgpackEncodeError):
        return False


class _Level:
    """An array, a map or the payload of an extension that the walk is in.

    Attributes:
        remaining: Number of elements of the container still to be read; in a map, of pairs.
    """

    __slots__ = ("_size_of", "remaining")

    def __init__(self, count: int, walk: _Walk) -> None:
        self.remaining = count
        self._size_of = walk.size_of

    def skip(self, data: bytes, position: int) -> int:
        """Skip elements; return the position of the next element to enter, or the end of the level."""
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
        """Check the container at its end."""


class _Map(_Level):
    """A map. When the walk enters a value of the map, the key of the value has been read."""

    __slots__ = ("_count", "_depth", "_found", "_numbers", "_walk")

    def __init__(self, count: int, walk: _Walk, depth: int) -> None:
        super().__init__(count, walk)
        self._count, self._walk, self._depth = count, walk, depth
        # Each key in a form that is equal for keys that are equal in a dict. ``_numbers`` has the keys that
        # are not text: their hashes can be chosen.
        self._found = set[bytes]()
        self._numbers: list[Any] = []

    def skip(self, data: bytes, position: int) -> int:
        found, remaining = self._found, self.remaining
        while remaining:
            size = FIXSTR_SIZES[data[position]]
            if size:
                found.add(data[position : position + size])
                position += size
            else:
                position = self._add_key(data, position)
            size = SIZES[data[position]] or self._size_of(position)
            if not size:
                break
            position += size
            remaining -= 1
        self.remaining = remaining
        return position

    def _add_key(self, data: bytes, position: int) -> int:
        key, end = read_key(data, position, self._depth, position + self._walk.elements_left)
        if type(key) is bytes:
            self._found.add(key)
            return end
        if type(key) is tuple:
            self._walk.add_elements(end - position)  # one element for each byte
        self._numbers.append(key)
        return end

    def close(self, position: int) -> None:
        """Refuse duplicate keys, and keys that were chosen to collide in a hash table.

        A dict would drop pairs with duplicate keys, and would compare each colliding key with all others.
        """
        numbers = self._numbers
        if numbers and not self._walk.is_trusted:
            are_few = len(numbers) <= MAX_SAME_HASH
            if not (are_few or are_spread(numbers, self._count * 3 // 2, DICT_BEHIND)):
                raise DecodeError("a map has keys that were chosen to be slow to look up")
            if not are_few and max(Counter(map(hash, numbers)).values()) > MAX_SAME_HASH:
                raise DecodeError("too many keys of a map share a hash")
        if len(self._found) + len(dict.fromkeys(numbers)) != self._count:
            raise DecodeError("a map has a duplicate key, or two keys that are equal in a dict")


class _Payload(_Level):
    """The payload of an extension, or the whole value: one element, whose end is known."""

    __slots__ = ("_end",)

    def __init__(self, end: int, walk: _Walk) -> None:
        super().__init__(1, walk)
        self._end = end

    def close(self, position: int) -> None:
        # Skipping a string does not read its bytes: this also refuses a string that is longer than the data.
        if position != self._end:
            raise DecodeError("bytes are left over or missing at the end of a value")


class _Walk:
    """One pass over one value.

    Attributes:
        elements_left: Number of elements that the value may still have.
        is_trusted: Whether a key has authenticated the value, so that its map keys are not an attack.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        self._data, self._limits = data, limits
        self.is_trusted = limits.elements == WRITTEN_LIMITS.elements
        self.elements_left = limits.elements
        # The factor alone would refuse small values that are deeply nested. Their copies cost little.
        self._copies_left = max(FREE_COPIED_BYTES, MAX_COPIES * len(data))
        self._payloads: list[int] = []
        self._around: list[_Level] = []  # the levels around the current level, outermost first
        # A value has no more elements than bytes, so that those of plain payloads need not be counted.
        skips_plain = is_on("records") and len(data) <= limits.elements
        self._plain_depth = min(limits.depth, _MAX_LEVELS) if skips_plain else 0

    def run(self) -> list[int]:
        data, around = self._data, self._around
        level: _Level = _Payload(len(data), self)
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

    def size_of(self, position: int) -> int:
        """Return the size of an element that is not entered: a long string, or a plain payload; else 0."""
        head = self._data[position]
        if head in EXTENSION_HEADS:
            levels = self._plain_depth - len(self._around) - 1
            start, length = read_length(self._data, position)
            end = start + length
            if levels > 0 and is_plain(self._data[start:end], levels):
                self._add_extension(start, length)
                return end - position
        elif head in STRINGS:
            start, length = read_length(self._data, position)
            return start + length - position
        return 0

    def _enter(self, position: int) -> tuple[int, _Level]:
        """Return the offset of the first element of a container or extension, and the `_Level` for it."""
        start, count = read_length(self._data, position)
        # Five bytes of an array32 header can announce 2**32 - 1 elements; a decoder may allocate for them.
        if count > len(self._data) - start:
            raise DecodeError("a container announces more than the bytes can hold")
        depth_left = self._limits.depth - len(self._around) - 1
        if depth_left < 0:
            raise self._limits.over("depth", f"value is nested over {self._limits.depth} deep")
        head = self._data[position]
        if head in EXTENSION_HEADS:
            self._add_extension(start, count)
            return start, _Payload(start + count, self)
        self.add_elements(count)
        if head in MAPS:
            # An array that is a key of the map may have the levels that a value in it may have: it is hashed,
            # which recurses.
            return start, _Map(count, self, min(depth_left, _MAX_LEVELS))
        return start, _Level(count, self)

    def add_elements(self, count: int) -> None:
        self.elements_left -= count
        if self.elements_left < 0:
            raise self._limits.over("elements", f"value has over {self._limits.elements} elements")

    def _add_extension(self, start: int, size: int) -> None:
        """Count an extension, and the ``size`` bytes of its payload, which a decoder copies."""
        code = self._data[start - 1]
        if code not in EXTENSIONS:
            raise DecodeError(f"extension {code} is not one that LangGraph writes")
        self._payloads.append(start)
        if len(self._payloads) > self._limits.records:
            raise self._limits.over("records", f"value has over {self._limits.records} records")
        self._copies_left -= size
        if self._copies_left < 0:
            raise LimitError(f"value has extensions within extensions of over {MAX_COPIES} times its size")
