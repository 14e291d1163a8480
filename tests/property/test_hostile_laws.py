"""Laws of reading what a stranger wrote: it is read or refused, and all ways of reading see the same.

The laws are those that ``make fuzz`` looks for exceptions to, see ``fuzz.targets``.
"""

from __future__ import annotations

from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, try_one
from sealpoint.errors import DecodeError, SealpointError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.scan import scan
from tests.property import strategies_hostile as hostile
from tests.property.strategies_values import anything

serde = JsonPlusSerializer()


@given(hostile.msgpack)
def test_msgpack_is_read_or_refused(data: bytes) -> None:
    try_one("msgpack", data)


@given(hostile.records)
def test_records_are_read_or_refused(data: bytes) -> None:
    try_one("record", data)


@given(hostile.rows)
def test_rows_are_read_or_refused(data: bytes) -> None:
    try_one("row", data)


@pytest.mark.parametrize("target", TARGETS)
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


@given(anything())
def test_what_is_honest_passes(value: Any) -> None:
    """The check, and inert reading after it. Text with surrogates may lose what told two keys apart."""
    kind, data = serde.dumps_typed(value)
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
