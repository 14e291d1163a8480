"""Laws of reading untrusted input: it is read or refused, and all ways of reading see the same.

The laws are those that ``make fuzz`` looks for exceptions to, see ``fuzz.targets``.
"""

from __future__ import annotations

import struct
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any

import ormsgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fuzz.targets import FORGED, TARGETS, try_one
from sealpoint.errors import DecodeError, LimitError, SealpointError, UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.codes import EXTENSION_HEADS, EXTENSIONS, SIZES, STRINGS, read_length
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.limits import MAX_DECIMAL_EXPONENT, Limits
from sealpoint.serde.scan import read_key, scan
from tests.support.runs.extent import by_extent
from tests.support.values import hostile
from tests.support.values.forge import record
from tests.support.values.strategies import anything

serde = JsonPlusSerializer()
writer = JsonPlusSerializer(on_blocked="raw")  # also of what cannot be built again
strict = JsonPlusSerializer(allowed_msgpack_modules=None)


@given(hostile.msgpack)
def test_msgpack_is_read_or_refused(data: bytes) -> None:
    try_one("msgpack", data)


@given(hostile.records)
def test_records_are_read_or_refused(data: bytes) -> None:
    try_one("record", data)


@given(hostile.rows)
def test_rows_are_read_or_refused(data: bytes) -> None:
    try_one("row", data)


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - FORGED.keys()))  # tests/attacks has the others
@settings(max_examples=25)
@given(data=st.data())
def test_damaged_inputs_are_read_or_refused(target: str, data: st.DataObject) -> None:
    """Values, envelopes, tags, ring files, rows and whole databases, changed in some places."""
    try_one(target, data.draw(hostile.damaged(target)))


def entries(data: bytes) -> int | str:
    """Count the entries of all containers that the decoder makes, or say why it makes none."""
    total, failures = 0, []

    def unpacked(inner: bytes) -> Any:
        try:
            return ormsgpack.unpackb(inner, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)
        except ormsgpack.MsgpackDecodeError as error:
            failures.append(str(error))
            raise

    def count(value: Any) -> None:
        nonlocal total
        if isinstance(value, list | dict):
            total += len(value)
            for part in value.values() if isinstance(value, dict) else value:
                count(part)

    def look(_: int, inner: bytes) -> None:
        count(unpacked(inner))

    try:
        count(unpacked(data))
    except ormsgpack.MsgpackDecodeError:
        return failures[0]
    return total


@given(hostile.msgpack)
def test_what_passes_the_check_is_decoded_whole(data: bytes) -> None:
    """With as many entries as its headers announce, or not at all, for a text that is not UTF-8."""
    try:
        scan(data)
    except DecodeError:
        return
    assert entries(data) in (headers_announce(data), "invalid UTF-8 string")


def headers_announce(data: bytes) -> int:
    """Add up the counts in the headers of all containers that are values, going by the specification."""
    total, position = 0, 0
    ahead: list[tuple[bool, bool]] = [
        (True, False)
    ]  # for each token to come: does it count, is it a map's key
    while ahead:
        counts, is_key = ahead.pop()
        head = data[position]
        size, children, is_map = _token(data, position, head)
        position += size
        counts = counts and not is_key
        total += children if counts else 0
        pair = [(counts, False), (counts, is_map)]
        ahead += (pair if is_map else pair[:1]) * children
        if head in {*range(0xC7, 0xCA), *range(0xD4, 0xD9)}:
            ahead.append((counts, False))
    return total


def _token(data: bytes, at: int, head: int) -> tuple[int, int, bool]:
    """Return the bytes of a token up to its children, how many it has, and whether they are pairs."""
    fixed = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}
    if head in fixed:
        return fixed[head], 0, False
    if 0x80 <= head <= 0x9F:
        return 1, head & 15, head < 0x90
    if 0xA0 <= head <= 0xBF:
        return 1 + (head & 31), 0, False
    if head < 0xC4 or head >= 0xE0:
        return 1, 0, False
    if 0xD4 <= head <= 0xD8:
        return 2, 0, False
    width = {0: 1, 1: 2, 2: 4}[(head - 0xC4) % 3] if head < 0xCA else {0xD9: 1, 0xDA: 2, 0xDB: 4}.get(head, 0)
    width = width or (2 if head in (0xDC, 0xDE) else 4)
    number = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    if head >= 0xDC:
        return 1 + width, number, head >= 0xDE
    return 1 + width + (1 if 0xC7 <= head <= 0xC9 else number), 0, False


class Walk:
    """What `scan` does, the plain way: a call for each value. Keys of maps it reads as `scan` does."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data, self.limits = data, limits
        self.elements, self.payloads = 0, list[int]()

    def whole(self) -> list[int] | None:
        """Return where the payloads of extensions start, or ``None`` if the value is refused."""
        try:
            passes = self.value(0, 0) == len(self.data) and len(self.payloads) <= self.limits.records
        except (DecodeError, LimitError, IndexError, struct.error):
            return None
        return self.payloads if passes else None

    def value(self, start: int, level: int) -> int:
        """Return where a value ends, of which so many levels are around it."""
        head = self.data[start]
        if SIZES[head]:
            return self.within(start + SIZES[head])
        start, count = (start + 1, head & 15) if head < 0xA0 else read_length(self.data, start)
        end = start + count
        if head >= 0xA0:
            self.within(end)
        if head in STRINGS:
            return end
        self.require(level < self.limits.depth)
        if head in EXTENSION_HEADS:
            self.require(self.data[start - 1] in EXTENSIONS)
            self.payloads.append(start)
            self.require(self.value(start, level + 1) == end)
            return end
        self.elements += count
        self.require(self.elements <= self.limits.elements)
        if head < 0x90 or head >= 0xDE:
            return self.pairs(start, count, level)
        for _ in range(count):
            start = self.value(start, level + 1)
        return start

    def pairs(self, start: int, count: int, level: int) -> int:
        keys = set[Any]()
        for _ in range(count):
            room = start + self.limits.elements - self.elements
            key, end = read_key(self.data, start, self.limits.depth - level - 1, room)
            self.elements += end - start if type(key) is tuple else 0
            self.require(self.elements <= self.limits.elements)
            keys.add(key)
            start = self.value(end, level + 1)
        self.require(len(keys) == count)
        return start

    def within(self, end: int) -> int:
        self.require(end <= len(self.data))
        return end

    def require(self, condition: bool) -> None:
        if not condition:
            raise DecodeError("refused")


def scanned(data: bytes, limits: Limits) -> list[int] | None:
    try:
        return scan(data, limits)
    except DecodeError:
        return None


@settings(max_examples=by_extent(75, 300))
@example(b"\x81\x90\x90")  # an array as a key is the last that counts
@given(hostile.written | hostile.msgpack)
def test_the_check_is_that_of_the_plain_way(data: bytes) -> None:
    """Whatever shortcuts it takes, also just at and just below every bound."""
    free = Walk(data, Limits())
    free.whole()
    elements, records = free.elements, len(free.payloads)
    bounds = [(elements, records), (elements - 1, records), (elements, max(records - 1, 0)), (999, 99)]
    for depth, (most, objects) in product(range(1, 10), bounds):
        limits = Limits(depth=depth, elements=most, records=objects)
        assert scanned(data, limits) == Walk(data, limits).whole()


@given(hostile.decimals)
def test_no_decimal_is_large_in_any_spelling(text: str) -> None:
    """What the class writes is read if it is small, and refused if arithmetic could not use it."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = None
    try:
        found = strict.loads_typed(record(0, "decimal", "Decimal", text))
    except UnbuildableValueError:
        assert value is None or str(value) != text or abs(value.adjusted()) > MAX_DECIMAL_EXPONENT
    else:
        assert found == value
        assert abs(found.adjusted()) <= MAX_DECIMAL_EXPONENT + 1


@given(anything())
def test_what_is_honest_passes(value: Any) -> None:
    """The check, and inert reading after it. Text with surrogates may lose what told two keys apart."""
    kind, data = writer.dumps_typed(value)
    if kind == "msgpack":
        scan(data)
    decode_inert(kind, data)


@given(hostile.msgpack)
def test_inert_values_hold_nothing_but_plain_data(data: bytes) -> None:
    try:
        ahead = [decode_inert("msgpack", data)]
    except SealpointError:
        return
    plain = (type(None), bool, int, float, str, bytes, list, dict, tuple, Inert)
    while ahead:
        part = ahead.pop()
        assert type(part) in plain
        if isinstance(part, Inert):
            ahead.append(part.payload)
        elif isinstance(part, dict):
            ahead += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            ahead += part
