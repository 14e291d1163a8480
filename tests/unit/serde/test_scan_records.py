"""Records that are checked in one step: counts, ends and limits are those of the general way."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk

from sealpoint.errors import DecodeError, LimitError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.codes import EXTENSIONS
from sealpoint.serde.limits import Limits
from sealpoint.serde.scan import scan
from tests.support.wire import NIL, array, extension, mapping, record, text

NAMES = text("m") + text("n")
LONG = b"\xd9\x28" + b"x" * 40
LONGER = b"\xda\x01\x2c" + b"x" * 300

WHOLE = {
    "nil": NIL,
    "text": LONG,
    "longer text": LONGER,
    "no items": array(),
    "one item": array(NIL),
    "items": array(NIL, LONG, b"\x05"),
    "item that is a container": array(NIL, array(NIL)),
    "field": mapping(text("a"), NIL),
    "fields": mapping(text("a"), LONG, text("b"), LONGER, text("c"), NIL),
    "field that is a container": mapping(text("a"), array(NIL), text("b"), NIL),
    "last field is a container": mapping(text("a"), NIL, text("b"), array(NIL)),
    "keys that are no text": mapping(text("a"), NIL, b"\x01", NIL),
    "a record": extension(0, b"\x93" + NAMES + NIL, 1),
}
TORN = {
    "an item is missing": b"\x92\xc0",
    "all items are missing": b"\x92",
    "a pair is missing": b"\x82\xa1a\xc0",
    "a value is missing": b"\x82\xa1a\xc0\xa1b",
    "all pairs are missing": b"\x82",
    "a text is cut": b"\xd9\x05xyz",
}
AFTER = {
    "nothing": b"",
    "nil": NIL,
    "text": text("model_validate_json"),
    "long text": LONG,
    "array": array(NIL),
    "two arrays": array(NIL) + array(NIL),
    "pair": text("b") + NIL,
    "map": mapping(text("b"), NIL),
    "record": extension(7, NIL, 1),
}
METHODS = {"no method": b"", "method": text("fromisoformat"), "long method": LONG, "array": array(NIL)}


def is_refused(data: bytes, limits: Limits | None = None) -> bool:
    try:
        scan(data, limits or Limits())
    except DecodeError:
        return True
    return False


def end_of(data: bytes, at: int) -> int:
    """Where a token of those above ends, read by the specification; beyond the data if it is cut."""
    head = data[at]
    if head in (0xC7, 0xC8, 0xC9):
        start = at + {0xC7: 3, 0xC8: 4, 0xC9: 6}[head]
        end = start + int.from_bytes(data[at + 1 : start - 1], "big")
        if end_of(data[:end], start) != end:
            raise IndexError
        return end
    if head in (0xD9, 0xDA):
        start = at + head - 0xD7
        return start + int.from_bytes(data[at + 1 : start], "big")
    if 0xA0 <= head <= 0xBF:
        return at + 1 + head - 0xA0
    at += 1
    if 0x80 <= head <= 0x9F:
        for _ in range(head - 0x90 if head >= 0x90 else 2 * (head - 0x80)):
            at = end_of(data, at)
    return at


def is_whole(data: bytes) -> bool:
    """Whether bytes are one value, and so is the payload of each extension in it."""
    try:
        return end_of(data, 0) == len(data)
    except IndexError:
        return False


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("argument", [*WHOLE, *TORN])
def test_a_record_holds_what_it_announces(argument: str, after: str, width: int) -> None:
    """What is behind it completes no record, however many elements that would take from those around it."""
    held = {**WHOLE, **TORN}[argument]
    for announced, method, count in itertools.product((3, 4), METHODS.values(), range(1, 4)):
        payload = bytes((0x90 + announced,)) + NAMES + held + method
        if len(payload) >> 8 * width == 0:
            data = bytes((0x90 + count,)) + extension(0, payload, width) + AFTER[after]
            assert is_refused(data) is not is_whole(data), (announced, method, count)


def test_records_of_both_kinds_were_tried() -> None:
    """So that the test above compares something."""
    assert is_whole(array(extension(0, b"\x94" + NAMES + NIL + NIL), array(NIL)))
    assert not is_whole(array(extension(0, b"\x94" + NAMES + NIL), array(NIL)))
    assert not is_whole(array(extension(0, b"\x93" + NAMES + NIL + NIL), array(NIL)))


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("argument", WHOLE)
@pytest.mark.parametrize("method", METHODS)
def test_a_record_has_no_byte_more_and_none_less(argument: str, method: str, width: int) -> None:
    """Its announced length is moved by some bytes, with more records behind it to move it into."""
    announced = 4 - (method == "no method")
    payload = bytes((0x90 + announced,)) + NAMES + WHOLE[argument] + METHODS[method]
    good = extension(0, payload, width)
    scan(array(good, good))
    for by in (-2, -1, 1, 2):
        length = (len(payload) + by).to_bytes(width, "big")
        assert is_refused(array(good[:1] + length + good[1 + width :], good))


def elements_of(argument: bytes) -> int:
    """The elements of the argument itself, by trying: the largest limit that refuses it alone."""
    return next(n for n in range(100) if not is_refused(array(argument), Limits(elements=n + 1)))


@pytest.mark.parametrize("method", ["no method", "method", "array"])
@pytest.mark.parametrize("argument", WHOLE)
def test_elements_of_a_record_are_counted_exactly(argument: str, method: str) -> None:
    """The names, the argument with its elements, and the method."""
    announced = 4 - (method == "no method")
    one = extension(0, bytes((0x90 + announced,)) + NAMES + WHOLE[argument] + METHODS[method], 2)
    inside = elements_of(WHOLE[argument]) + (method == "array")
    for records in (1, 3):
        most = records * (1 + announced + inside)
        scan(array(*[one] * records), Limits(elements=most))
        scan(array(*[one] * records), Limits(elements=most, records=records * (1 + one.count(0xC7))))
        with pytest.raises(LimitError, match=f"over {most - 1} elements"):
            scan(array(*[one] * records), Limits(elements=most - 1))


@pytest.mark.parametrize("argument", WHOLE)
def test_records_are_counted_exactly(argument: str) -> None:
    one = extension(0, b"\x93" + NAMES + WHOLE[argument], 2)
    records = 4 * (1 + (argument == "a record"))
    scan(array(*[one] * 4), Limits(records=records))
    with pytest.raises(LimitError, match=f"over {records - 1} records"):
        scan(array(*[one] * 4), Limits(records=records - 1))


DEPTHS = {
    "nil": 3, "text": 3, "longer text": 3, "no items": 3, "one item": 4, "items": 4,
    "item that is a container": 5, "field": 4, "fields": 4, "field that is a container": 5,
    "last field is a container": 5, "keys that are no text": 4, "a record": 5,
}  # fmt: skip


@pytest.mark.parametrize("argument", WHOLE)
@pytest.mark.parametrize("around", [0, 1, 7])
def test_the_depth_of_a_record_is_exact(argument: str, around: int) -> None:
    """An array, the record, the array in it, and the containers in that."""
    depth = DEPTHS[argument] + around
    data = b"\x91" * around + array(extension(0, b"\x93" + NAMES + WHOLE[argument], 2))
    scan(data, Limits(depth=depth))
    with pytest.raises(LimitError, match=f"over {depth - 1} deep"):
        scan(data, Limits(depth=depth - 1))


@pytest.mark.parametrize("code", [*sorted(set(range(256)) - EXTENSIONS.keys())[:2], 64, 127, 128, 255])
@pytest.mark.parametrize("argument", WHOLE)
def test_a_record_of_another_extension_is_refused(argument: str, code: int) -> None:
    payload = b"\x93" + NAMES + WHOLE[argument]
    with pytest.raises(DecodeError, match=f"extension {code} "):
        scan(extension(code, payload, 2))


# --- types that are limited by their names --------------------------------------------------------

COSTLY: dict[str, Any] = {"patterns": re.compile("a"), "chunks": AIMessageChunk(content="a")}


@pytest.mark.parametrize("filler", [[], [{1}] * 9, ["x" * 10_000]], ids=["alone", "records", "long text"])
@pytest.mark.parametrize("kind", COSTLY)
def test_costly_types_are_counted(kind: str, filler: list[Any]) -> None:
    """Among records that are short or long: the search for names has another way for each."""
    data = JsonPlusSerializer().dumps_typed([COSTLY[kind]] * 4 + filler)
    few = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(**{kind: 4}))
    assert few.loads_typed(data) == [COSTLY[kind]] * 4 + filler
    fewer = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(**{kind: 3}))
    with pytest.raises(LimitError, match=r"over 3 (regular expressions|streamed messages)"):
        fewer.loads_typed(data)


def forms(name: str) -> list[bytes]:
    """Every header under which a text may stand."""
    data = name.encode()
    sizes = {0xD9: 1, 0xDA: 2, 0xDB: 4}
    long = [bytes((head,)) + len(data).to_bytes(size, "big") + data for head, size in sizes.items()]
    return [text(name), *long] if len(data) < 32 else long


@pytest.mark.parametrize("filler", [NIL, text("x" * 10_000)], ids=["short", "long"])
@pytest.mark.parametrize("head", [b"\x93", b"\xdc\x00\x03", b"\xdd\x00\x00\x00\x03"], ids=bytes.hex)
@pytest.mark.parametrize(
    ("kind", "module", "name"),
    [("patterns", "re", "compile"), ("chunks", "langchain_core.messages.ai", "AIMessageChunk")],
)
def test_costly_types_are_counted_in_every_form(
    kind: str, module: str, name: str, head: bytes, filler: bytes
) -> None:
    """Under headers that no encoder writes, too."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(**{kind: 3}))
    for first, second in itertools.product(forms(module), forms(name)):
        one = extension(1, head + first + second + array(text("a"), b"\x20"))
        with pytest.raises(LimitError, match=r"over 3 (regular expressions|streamed messages)"):
            serde.loads_typed(("msgpack", array(filler, *[one] * 4)))


def test_names_of_costly_types_elsewhere_are_no_such_types() -> None:
    """As text, or as the names of other types in the same record."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, limits=Limits(patterns=1, chunks=1))
    value = ["compile", "AIMessageChunk", {"re", "compile"}, {"AIMessageChunk", "re"}] * 4
    assert serde.loads_typed(serde.dumps_typed(value)) == value
    data = array(*[record(0, "builtins", "set", array(text("compile"), text("re")))] * 4)
    assert len(serde.loads_typed(("msgpack", data))) == 4
