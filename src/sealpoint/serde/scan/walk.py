"""The check that bytes pass before they are decoded, if nobody has vouched for them.

Bytes that the ring has just opened were written by a holder of the key. All others are
first walked through, header by header, without recursion and without building anything,
and refused for what would crash a decoder, fill memory, or decode to something else than
was stored: unbounded depth (an extension holds msgpack again, and a decoder starts
counting anew in it), counts that the bytes cannot hold, bytes left over, unknown
extensions, and keys that fall together in a dict (``1``, ``1.0`` and ``True``, NaN, the
same key twice).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde.codes import DELTA_SNAPSHOT
from sealpoint.serde.scan.headers import EXTENSIONS, SIZES, STRINGS, TEXT_KEYS, TEXTS, read_length, read_names
from sealpoint.serde.scan.mapkeys import exactly, read_key, require_spread


@dataclass(frozen=True, slots=True)
class Limits:
    """What unsealed bytes may be. The defaults pass any realistic checkpoint.

    Attributes:
        size_bytes: Length of a value; of a legacy json row half of it.
        depth: Containers and extensions within each other, counted from the top.
        elements: Elements of all containers together; a pair of a map counts as one, and an
            array that is a key as many as it has bytes.
        records: Extensions: each becomes an object, at up to 50 us and 3 kB.
        patterns: Regular expressions: each may take 20 ms to compile.
        chunks: Streamed messages of LangChain: each may take 1 ms to complete.
    """

    size_bytes: int = 128 * 1024 * 1024
    depth: int = 64
    elements: int = 2_000_000
    records: int = 100_000
    patterns: int = 100
    chunks: int = 2_000


DEFAULT_LIMITS: Final = Limits()

_PATTERN: Final = ("re", "compile")
_CHUNK: Final = ("langchain_core.messages.ai", "AIMessageChunk")
# The second byte of a record that may name one: the length of its module, or part of a header that is
# not the shortest.
_DEAR_BUT_CHUNKS: Final = frozenset((0xA0 + len(_PATTERN[0]), *TEXTS, 0))
_DEAR: Final = _DEAR_BUT_CHUNKS | {0xA0 + len(_CHUNK[0])}
_DEAR_NAMES: Final = (_PATTERN[1].encode(), _CHUNK[1].encode())
_SMALL_RECORD_BYTES: Final = 100
_COPIES: Final = 8
_FREE_COPIED_BYTES: Final = 16 * 1024 * 1024
_SIZES: Final = SIZES
_TEXT_KEYS: Final = TEXT_KEYS
_ITEMS: Final = [{0x93: 1, 0x94: 2}.get(head, 0) for head in range(256)]  # of a record, after its names


def scan(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[int]:
    """Walk through one msgpack value, and return where the payloads of its extensions start.

    The code of an extension is the byte before its payload. That strings are UTF-8 is left
    to the decoder, which checks it in any case.

    Raises:
        LimitError: If it is larger, deeper or has more elements than ``limits`` say, or its
            nested extensions, each of which a decoder copies, are over 8 times its size
            and over 16 MiB.
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
    must end, or -1. The loops over tokens stop at one that is long or holds others: ``head``.
    """
    sizes, text_keys, items, end_of_data = _SIZES, _TEXT_KEYS, _ITEMS, len(data)  # locals are found faster
    payloads: list[int] = []
    stack: list[tuple[int, set[Any] | None, int, int]] = []
    keys: set[Any] | None = None
    elements, most, records, depth, array_keys = 0, limits.elements, limits.records, limits.depth, False
    copied = (
        0  # bytes of the extensions that may hold others; all others together are not more than the value
    )
    position, remaining, target, level, head, last_code = 0, 1, end_of_data, 0, 0, DELTA_SNAPSHOT
    deepest, soft = depth - 3, min(most, 3 * records)  # a record has three elements at least
    while True:
        # The two loops differ in the keys alone; asking for them at every token took a tenth of the time.
        if keys is None:
            while remaining:
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
                remaining -= 1
        else:
            while remaining:
                size = text_keys[data[position]]
                if size:
                    start = position
                    position += size
                    keys.add(data[start:position])
                else:
                    start = position
                    key, position = read_key(data, start, depth - level, start + most - elements)
                    if type(key) is tuple:
                        key, array_keys = (hash(key), exactly(key)), True
                        elements += position - start
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
                remaining -= 1
        if not remaining:
            if keys is not None:
                if len(keys) != target:
                    raise DecodeError("a map has a key twice, or two that are one in a dict")
                if array_keys:
                    require_spread(keys)
            elif position != target >= 0:
                raise DecodeError("bytes are left over or missing at the end of a value")
            if not stack:
                if len(payloads) > records:
                    raise _too_many(elements, limits)
                if copied > _FREE_COPIED_BYTES and copied > _COPIES * end_of_data:
                    raise LimitError(
                        f"value has extensions within extensions of over {_COPIES} times its size"
                    )
                return payloads
            remaining, keys, target, level = stack.pop()
            continue
        remaining -= 1
        # The records that LangGraph writes, in one step and not in many: an array of two short texts, the
        # argument and maybe a method. Whatever is not just that goes the general way below.
        if head == 0xC7:
            start = position + 3
            end = start + data[position + 1]
        elif head <= 0x9F:
            if level >= depth:
                raise LimitError(f"value is nested over {depth} deep")
            stack.append((remaining, keys, target, level))
            position += 1
            level += 1
            remaining = head & 0x0F
            keys, target = (set(), remaining) if head < 0x90 else (None, -1)
            elements += remaining
            if elements > most:
                raise _too_many(elements, limits)
            continue
        elif head == 0xC8:
            start = position + 4
            end = start + (data[position + 1] << 8 | data[position + 2])
        else:
            start = end = 0
        if (
            end
            and (left := items[data[start]])
            and level <= deepest
            and data[start - 1] <= last_code
            and (module := text_keys[data[start + 1]])
            and (name := text_keys[data[start + 1 + module]])
        ):
            payloads.append(start)
            position = start + 1 + module + name
            head = data[position]
            elements += left + 2
            if elements > soft and (elements > most or len(payloads) > records):
                raise _too_many(elements, limits)
            size = sizes[head] or (2 + data[position + 1] if head == 0xD9 else 0)
            if size and left == 1 and position + size == end:  # of one scalar
                position = end
                continue
            inside = head & 0x0F if 0x80 <= head <= 0x9F else 0
            if inside:
                elements += inside
                if elements > most:
                    raise _too_many(elements, limits)
                if head <= 0x8F:  # the fields of a model
                    names, ahead, tokens = set(), position + 1, inside
                    while tokens and (size := text_keys[data[ahead]]):
                        value = ahead + size
                        head = data[value]
                        size = sizes[head]
                        if not size:
                            if head == 0xD9:
                                size = 2 + data[value + 1]
                            elif head == 0xDA:
                                size = 3 + (data[value + 1] << 8 | data[value + 2])
                            else:
                                break
                        names.add(data[ahead:value])
                        ahead = value + size
                        tokens -= 1
                    if (
                        not tokens
                        and len(names) == inside
                        and (ahead == end if left == 1 else ahead < end == ahead + text_keys[data[ahead]])
                    ):
                        position = end
                        continue
                    # The other fields are met one by one.
                    copied += end - start
                    stack += ((remaining, keys, target, level), (left - 1, None, end, level + 2))
                    remaining, target, keys, level, position = tokens, inside, names, level + 3, ahead
                    continue
                ahead, tokens = position + 1, left + inside - 1
            else:
                ahead, tokens = position, left
            while tokens:  # a value or a flat array of them, and the method
                head = data[ahead]
                size = sizes[head] or (2 + data[ahead + 1] if head == 0xD9 else 0)
                if not size:
                    break
                ahead += size
                tokens -= 1
            if not tokens and ahead == end:
                position = end
            else:
                copied += end - start
                elements -= inside  # which are counted again
                stack.append((remaining, keys, target, level))
                remaining, keys, target, level = left, None, end, level + 2
            continue
        start, count = read_length(data, position, head)
        if count > end_of_data - start:
            raise DecodeError("a string or container announces more than the bytes can hold")
        if head in STRINGS:
            position = start + count
            continue
        if level >= depth:
            raise LimitError(f"value is nested over {depth} deep")
        stack.append((remaining, keys, target, level))
        position = start
        level += 1
        if head in EXTENSIONS:
            if data[start - 1] > DELTA_SNAPSHOT:
                raise DecodeError(f"extension {data[start - 1]} is not one that LangGraph writes")
            payloads.append(start)
            if len(payloads) > records:
                raise _too_many(elements, limits)
            copied += count
            remaining, keys, target = 1, None, start + count
        else:
            remaining = count
            keys, target = (set(), count) if head >= 0xDE else (None, -1)
            elements += count
            if elements > most:
                raise _too_many(elements, limits)


def _too_many(elements: int, limits: Limits) -> LimitError:
    if elements > limits.elements:
        return LimitError(f"value has over {limits.elements} elements")
    return LimitError(f"value has over {limits.records} records")


def require_few_costly(data: bytes, payloads: list[int], limits: Limits) -> None:
    """Refuse scanned bytes that name more types than ``limits`` say of those that take long to build.

    Raises:
        LimitError: If they do.
    """
    if len(payloads) <= min(limits.patterns, limits.chunks):
        return
    # Nearly no value names one. Among large records the lengths of the modules tell: to ask map() for them
    # takes a tenth of the time of a search through all bytes. Chunks matter where there can be too many.
    if len(data) >= _SMALL_RECORD_BYTES * len(payloads):
        lengths = _DEAR if len(payloads) > limits.chunks else _DEAR_BUT_CHUNKS
        places = [payload + 1 for payload in payloads if payload + 1 < len(data)]
        if lengths.isdisjoint(map(data.__getitem__, places)):
            return
    if any(
        data.count(name) > most
        for name, most in zip(_DEAR_NAMES, (limits.patterns, limits.chunks), strict=True)
    ):
        require_counts(Counter(read_names(data, payload) for payload in payloads), limits)


def require_counts(names: Mapping[tuple[str, str], int], limits: Limits) -> None:
    """Refuse counts of types as `require_few_costly` does.

    Raises:
        LimitError: If there are too many of one.
    """
    if names[_PATTERN] > limits.patterns:
        raise LimitError(f"value has over {limits.patterns} regular expressions")
    if names[_CHUNK] > limits.chunks:
        raise LimitError(f"value has over {limits.chunks} streamed messages")
