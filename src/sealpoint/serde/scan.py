"""The check that bytes pass before they are decoded, if nobody has vouched for them.

Bytes that the ring has just opened were written by a holder of the key. All others are
first walked through, header by header, without recursion and without building anything,
and refused for what would crash a decoder, fill memory, or decode to something else than
was stored: unbounded depth (an extension holds msgpack again, and a decoder starts
counting anew in it), counts that the bytes cannot hold, bytes left over, unknown
extensions, and keys that fall together in a dict (``1``, ``1.0`` and ``True``, NaN, the
same key twice).

Headers: https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats".
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.encode import DELTA_SNAPSHOT, NUMPY_ARRAY
from sealpoint.serde.guards import MAX_SAME_HASH


@dataclass(frozen=True, slots=True)
class Limits:
    """What unsealed bytes may be. The defaults pass any realistic checkpoint.

    Attributes:
        size_bytes: Length of a value.
        depth: Containers and extensions within each other, counted from the top.
        elements: Elements of all containers together; a pair of a map counts as one.
        records: Extensions: each becomes an object, at up to 50 us and 3 kB.
        patterns: Regular expressions: each may take 20 ms to compile.
    """

    size_bytes: int = 128 * 1024 * 1024
    depth: int = 64
    elements: int = 2_000_000
    records: int = 100_000
    patterns: int = 100


DEFAULT_LIMITS: Final = Limits()


# Bytes of a token that needs no look inside, by its header; 0 for those that do.
_SIZES: Final = (
    [1] * 0x80  # positive fixint
    + [1, *[0] * 15, 1, *[0] * 15]  # fixmap, fixarray: only the empty ones
    + list(range(1, 0x21))  # fixstr
    + [1, 0, 1, 1]  # nil, never used, false, true
    + [0] * 6  # bin, ext
    + [5, 9, 2, 3, 5, 9, 2, 3, 5, 9]  # float, uint, int
    + [0] * 12  # fixext, str, array, map
    + [1] * 0x20  # negative fixint
)
_TEXT_KEYS: Final = [size if 0xA0 <= head <= 0xBF else 0 for head, size in enumerate(_SIZES)]
# Bytes of the length that follows the header of a string, binary, array, map or extension.
_LENGTHS: Final = {
    **dict.fromkeys((0xC4, 0xC7, 0xD9), 1),
    **dict.fromkeys((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), 2),
    **dict.fromkeys((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), 4),
}
_NAMELESS: Final = {
    NUMPY_ARRAY: ("numpy", "ndarray"),
    DELTA_SNAPSHOT: ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"),
}
_STRINGS: Final = frozenset((0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB))
_EXTENSIONS: Final = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
_FIXED_KEYS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
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


def scan(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """Walk through one msgpack value, and return where the payloads of its extensions start.

    The code of an extension is the byte before its payload. That strings are UTF-8 is left
    to the decoder, which checks it in any case.

    Raises:
        LimitError: If it is larger, deeper or has more elements than ``limits`` say.
        DecodeError: If it is malformed or ambiguous in one of the ways above.
    """
    if len(data) > limits.size_bytes:
        raise LimitError(f"value has {len(data)} bytes; at most {limits.size_bytes} are read")
    try:
        return _walk(data, limits)
    except (IndexError, struct.error):
        raise DecodeError("value ends in the middle") from None


def _walk(data: bytes, limits: Limits) -> list[int]:  # noqa: C901, PLR0912, PLR0915 -- see below
    """Do the work of `scan`. One long function: a call for every token would take most of the time.

    A level is a container or the payload of an extension, and the value itself is the one
    element of the first. ``remaining`` counts the elements of a level still to come (pairs in
    a map), ``level`` those around it. ``keys`` holds the keys of a map so far, of which there
    must be ``target`` in the end; elsewhere it is ``None``, and ``target`` is where a payload
    must end, or -1. ``size`` is 0 where the loops over tokens stop at one that holds others.
    """
    sizes, text_keys, end_of_data = _SIZES, _TEXT_KEYS, len(data)
    payloads: list[int] = []
    stack: list[tuple[int, set[Any] | None, int, int]] = []
    keys: set[Any] | None = None
    elements, most, depth, array_keys = 0, limits.elements, limits.depth, False
    position, remaining, target, level, size, head = 0, 1, end_of_data, 0, 1, 0
    while True:
        # The two loops differ in the keys alone; asking for them at every token took a tenth of the time.
        if keys is None:
            for remaining in range(remaining - 1, -1, -1):
                head = data[position]
                size = sizes[head]
                if not size:
                    if head == 0xD9:  # the two commonest of the strings, here for speed alone
                        size = 2 + data[position + 1]
                    elif head == 0xDA:
                        size = 3 + (data[position + 1] << 8 | data[position + 2])
                    else:
                        break
                position += size
        else:
            for remaining in range(remaining - 1, -1, -1):
                size = text_keys[data[position]]
                if size:
                    start = position
                    position += size
                    keys.add(data[start:position])
                else:
                    key, position = _read_key(data, position, depth - level)
                    if type(key) is tuple:
                        key, array_keys = (hash(key), _exactly(key)), True
                    keys.add(key)
                head = data[position]
                size = sizes[head]
                if not size:
                    if head == 0xD9:
                        size = 2 + data[position + 1]
                    elif head == 0xDA:
                        size = 3 + (data[position + 1] << 8 | data[position + 2])
                    else:
                        break
                position += size
        if size:
            if keys is not None:
                if len(keys) != target:
                    raise DecodeError("a map has a key twice, or two that are one in a dict")
                if array_keys:
                    _require_spread(keys)
            elif position != target >= 0:
                raise DecodeError("bytes are left over or missing at the end of a value")
            if not stack:
                return payloads
            remaining, keys, target, level = stack.pop()
            continue
        size = 1
        if head <= 0x9F:
            if level >= depth:
                raise LimitError(f"value is nested over {depth} deep")
            stack.append((remaining, keys, target, level))
            position += 1
            level += 1
            remaining = head & 0x0F
            keys, target = (set(), remaining) if head < 0x90 else (None, -1)
            elements += remaining
            if elements > most:
                raise LimitError(f"value has over {most} elements")
            continue
        if head == 0xC7 or head == 0xC8:
            # The records that LangGraph writes, in one step and not in five: an array of three or
            # four, which begins with two short texts. Whatever is not just that goes the general way.
            if head == 0xC7:
                start = position + 3
                end = start + data[position + 1]
            else:
                start = position + 4
                end = start + (data[position + 1] << 8 | data[position + 2])
            first = data[start]
            if 0x93 <= first <= 0x94 and end <= end_of_data and level + 2 <= depth:
                module = text_keys[data[start + 1]]
                name = text_keys[data[start + 1 + module]]
                if module and name and data[start - 1] <= DELTA_SNAPSHOT:
                    payloads.append(start)
                    if len(payloads) > limits.records:
                        raise LimitError(f"value has over {limits.records} records")
                    elements += first & 0x0F
                    if elements > most:
                        raise LimitError(f"value has over {most} elements")
                    position = start + 1 + module + name
                    if first == 0x93 and position + sizes[data[position]] == end:
                        position = end
                    else:
                        stack.append((remaining, keys, target, level))
                        remaining, keys, target, level = (first & 0x0F) - 2, None, end, level + 2
                    continue
        start, count = _length(data, position, head)
        if count > end_of_data - start:
            raise DecodeError("a string or container announces more than the bytes can hold")
        if head in _STRINGS:
            position = start + count
            continue
        if level >= depth:
            raise LimitError(f"value is nested over {depth} deep")
        stack.append((remaining, keys, target, level))
        position = start
        level += 1
        if head in _EXTENSIONS:
            if data[start - 1] > DELTA_SNAPSHOT:
                raise DecodeError(f"extension {data[start - 1]} is not one that LangGraph writes")
            payloads.append(start)
            if len(payloads) > limits.records:
                raise LimitError(f"value has over {limits.records} records")
            remaining, keys, target = 1, None, start + count
        else:
            remaining = count
            keys, target = (set(), count) if head >= 0xDE else (None, -1)
            elements += count
            if elements > most:
                raise LimitError(f"value has over {most} elements")


def _length(data: bytes, position: int, head: int) -> tuple[int, int]:
    """Return where the content of a token starts (past the code of an extension), and its length or count."""
    width = _LENGTHS.get(head)
    if width is None:
        if head not in _FIXED_EXTENSIONS:
            raise DecodeError(f"header {head:#x} is not used in msgpack")
        return position + 2, _FIXED_EXTENSIONS[head]
    start = position + 1 + width
    return start + (head in _EXTENSIONS), int.from_bytes(data[position + 1 : start], "big")


def require_few_patterns(data: bytes, payloads: list[int], limits: Limits) -> None:
    """Refuse scanned bytes that name more regular expressions than ``limits`` say.

    Raises:
        LimitError: If they do.
    """
    if len(payloads) > limits.patterns and b"compile" in data:
        names = Counter(read_names(data, payload) for payload in payloads)
        if names["re", "compile"] > limits.patterns:
            raise LimitError(f"value has over {limits.patterns} regular expressions")


def read_names(data: bytes, payload: int) -> tuple[str, str]:
    """Return the module and the name at the head of an extension's payload, which `scan` has found.

    Raises:
        DecodeError: If there are none.
    """
    code = data[payload - 1]
    if code in _NAMELESS:
        return _NAMELESS[code]
    if data[payload] not in (0x93, 0x94):
        raise DecodeError(f"extension {code} does not hold what LangGraph writes there")
    module, position = _read_text(data, payload + 1)
    name, _ = _read_text(data, position)
    return module, name


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    key, end = _read_key(data, position, 0)
    if not isinstance(key, bytes):
        raise DecodeError("an extension names its type by something else than text")
    try:
        return data[end - len(key) + 1 : end].decode(), end
    except UnicodeDecodeError:
        raise DecodeError("an extension names its type in something else than UTF-8") from None


def _read_key(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    """Return a key of a map in a form that is equal where Python's dict takes two for one, and where it ends.

    Text is given as the bytes of its shortest form, so that it is not equal to a binary.
    """
    head, end = data[position], position + _SIZES[data[position]]
    if 0xA0 <= head <= 0xBF:
        return data[position:end], end
    if head in _STRINGS:
        start, length = _length(data, position, head)
        content, end = data[start : start + length], start + length
        if head < 0xD9:
            return b"\xc4" + content, end
        return (bytes((0xA0 + length,)) if length < 32 else b"\xd9") + content, end
    if head in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[head], data, position + 1)
        return _require_key_number(number), end
    if end > position and head not in (0x80, 0x90):
        return _FIXED_KEYS.get(head, head if head < 0x80 else head - 0x100), end
    return _read_array_key(data, position, depth)


def _read_array_key(data: bytes, position: int, depth: int) -> tuple[Any, int]:
    head = data[position]
    if not (0x90 <= head <= 0x9F or head in (0xDC, 0xDD)) or depth <= 0:
        raise DecodeError("a map has a key that is a map or an extension, or is nested too deeply")
    position, count = (position + 1, head & 0x0F) if head <= 0x9F else _length(data, position, head)
    if count > len(data) - position:
        raise DecodeError("a container announces more than the bytes can hold")
    items = []
    for _ in range(count):
        item, position = _read_key(data, position, depth - 1)
        items.append(item)
    return tuple(items), position


def _exactly(key: Any) -> str:
    """Return a text that is the same for two array keys if, and only if, they are equal.

    Unlike a tuple of numbers it has a hash that nobody can choose.
    """
    if type(key) is tuple:
        return f"({','.join(map(_exactly, key))})"
    number = isinstance(key, bool) or (isinstance(key, float) and key.is_integer())
    return repr(int(key) if number else key)


def _require_spread(keys: set[Any]) -> None:
    """Refuse a map whose array keys were made to share a hash: a dict would compare each with all others."""
    most = Counter(key[0] for key in keys if type(key) is tuple).most_common(1)
    if most and most[0][1] > MAX_SAME_HASH:
        raise DecodeError("the keys of a map share a hash")


def _require_key_number(number: float) -> float:
    if math.isnan(number):
        raise DecodeError("a map has NaN as a key, which is not equal to itself")
    return number
