"""JSON text from a database: bounded in linear time before it is parsed; metadata is parsed strictly."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import BlockedTypeError, DecodeError, LimitError, MetadataError, UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert, inventory
from sealpoint.serde.jsontext import parse, require_bounded

DEPTH, ELEMENTS = 64, 2_000_000

strict = JsonPlusSerializer(allowed_msgpack_modules=None)
permissive = JsonPlusSerializer(allowed_msgpack_modules=True)

ENTRANCES: dict[str, Callable[[bytes], Any]] = {
    "metadata": decode_metadata,
    "metadata as text": lambda data: decode_metadata(data.decode()),
    "a strict serializer": lambda data: strict.loads_typed(("json", data)),
    "a permissive serializer": lambda data: permissive.loads_typed(("json", data)),
    "inert": lambda data: decode_inert("json", data),
    "the inventory": lambda data: inventory(data, "json"),
}
"""Wherever JSON of a database is read."""


BEYOND = {
    "lists": ("[" * 65 + "]" * 65, "nested over 64 deep"),
    "objects": ('{"a":' * 65 + "1" + "}" * 65, "nested over 64 deep"),
    "lists with brackets in text": ('["[[",' * 65 + "1" + "]" * 65, "nested over 64 deep"),
    "elements": ('{"a": [' + "0," * 2_000_000 + "0]}", "over 2000000 elements"),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", BEYOND)
def test_nothing_is_read_that_is_beyond_a_limit(name: str, entrance: str) -> None:
    text, reason = BEYOND[name]
    with pytest.raises((LimitError, MetadataError), match=reason):
        ENTRANCES[entrance](text.encode())


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_string_may_hold_more_brackets_and_commas_than_there_are_elements(entrance: str) -> None:
    text = json.dumps({"text": '[{,"\\' * 3_000, "\\": "\\\\", "a": ["]"] * 70})
    ENTRANCES[entrance](text.encode())


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_number_has_a_bound_whatever_the_process_allows(entrance: str) -> None:
    allowed = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        for number in (b"1" * 4301, b"-" + b"1" * 4300, b"0." + b"1" * 4300, b"1e" + b"0" * 4300):
            with pytest.raises((LimitError, MetadataError), match="4300"):
                ENTRANCES[entrance](b'{"a": ' + number + b"}")
        ENTRANCES[entrance](b'{"a": ' + b"1" * 4300 + b', "b": "' + b"1" * 9000 + b'"}')
    finally:
        sys.set_int_max_str_digits(allowed)


# --- what would be returned as something else than was stored -------------------------------------

CHANGED = [
    *(b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1E+400", b"1e-999", b"-0"),
    *(rb'"\ud800"', rb'"\uDFff"', rb'"\udc00\ud800"', rb'"\ud83d\ude00\ud83d"'),  # lone surrogates
    *(rb'"\ud83d\\\ude00"', rb'"\\\ud800"', rb'{"\ud800": 1}'),
    *(b'{"b": 1, "b": 2}', rb'{"b": 1, "\u0062": 2}'),  # a key twice
]
STRICT = [name for name in ENTRANCES if name.startswith("metadata")]


@pytest.mark.parametrize("entrance", STRICT)
@pytest.mark.parametrize("text", CHANGED)
def test_what_would_come_back_changed_is_refused(text: bytes, entrance: str) -> None:
    for data in (b'{"a": ' + text + b"}", b'{"a": [1, ' + text + b" ], " + b'"c": 1}'):
        with pytest.raises((DecodeError, MetadataError)) as caught:
            ENTRANCES[entrance](data)
        assert "999" not in str(caught.value)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
        (rb'"\\\\ud800 \\\u00e9"', "\\\\ud800 \\é"),
        (b"0", 0),
        (b"-0.0", -0.0),
        (b"0e5", 0.0),
        (b"-0E-5", -0.0),
        (b"5e-324", 5e-324),
        (b'"2026-01-01 -0"', "2026-01-01 -0"),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
        (b"18446744073709551616", 2**64),
    ],
)
def test_what_comes_back_as_it_was_is_read(text: bytes, value: Any, entrance: str) -> None:
    found = ENTRANCES[entrance](b'{"a": ' + text + b"}")
    if entrance != "the inventory":
        assert repr(found) == repr({"a": value})


VALUES: dict[str, Callable[[bytes], Any]] = {
    **{name: read for name, read in ENTRANCES.items() if name not in (*STRICT, "the inventory")},
    "sealed": lambda data: strict.loads_sealed("json", data),
    "not sealed": lambda data: permissive.loads_unsealed("json", data),
}


@pytest.mark.parametrize("reader", VALUES)
@pytest.mark.parametrize("text", [*CHANGED, '"\ud800"'.encode("utf-8", "surrogatepass")])
def test_a_row_of_a_value_is_read_as_langgraph_reads_it(text: bytes, reader: str) -> None:
    """Which wrote NaN and infinities, and reads the last value of a key."""
    for data in (b'{"a": ' + text + b"}", b'{"a": [1, ' + text + b" ], " + b'"c": 1}'):
        assert repr(VALUES[reader](data)) == repr(json.loads(data))
        assert inventory(data, "json") == {}


def test_the_last_key_counts_where_a_type_is_named() -> None:
    """What the allowlist is asked for is what is built."""
    text = b'{"lc": 2, "type": "constructor", "id": %s, "args": ["id"], "id": %s}'
    safe, other = b'["builtins", "set"]', b'["os", "system"]'
    assert inventory(text % (safe, other), "json") == {("os", "system"): 1}
    for read in (strict.loads_typed, lambda row: strict.loads_sealed(*row)):
        with pytest.raises(UnbuildableValueError):  # a set of a text
            read(("json", text % (other, safe)))
        with pytest.raises(BlockedTypeError):
            read(("json", text % (safe, other)))


def test_an_error_keeps_nothing_of_the_text() -> None:
    for read in (ENTRANCES["metadata"], ENTRANCES["inert"]):
        for data in (b'{"a": "hunter2", ', b'{"a": "hunter2\xff"}', b'{"a": "hunter2"' + b"[" * 65):
            with pytest.raises((DecodeError, MetadataError)) as caught:
                read(data)
            error: BaseException | None = caught.value
            while error is not None:
                assert "hunter" not in repr(vars(error)) + repr(error)
                error = error.__context__


# --- the bounds are exact -------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('[]{},:"\\a😀\n')),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('[{,"\\a')), inner, max_size=4)
    ),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


@given(value=json_values, is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_the_depth_is_that_of_the_value(value: Any, is_ascii: bool, indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    depth = depth_of(value)
    require_bounded(data, depth, ELEMENTS)
    assert parse(data, depth, ELEMENTS) == value
    if depth:
        with pytest.raises(LimitError):
            require_bounded(data, depth - 1, ELEMENTS)


@given(value=json_values)
def test_elements_are_counted(value: Any) -> None:
    """A container counts as one, and every item or pair but its first."""
    count, ahead = 0, [value]
    while ahead:
        part = ahead.pop()
        if isinstance(part, list | dict):
            count += max(len(part), 1)
            ahead += part.values() if isinstance(part, dict) else part
    data = json.dumps(value).encode()
    require_bounded(data, DEPTH, count)
    if count:
        with pytest.raises(LimitError):
            require_bounded(data, DEPTH, count - 1)


@pytest.mark.parametrize(
    ("text", "depth"),
    [(b'"\\"[[["', 0), (b'"\\\\"[]', 1), (b"[][][]", 1), (b"]]]][[", 0), (b"[" * 100_000, 100_000), (b"", 0)],
)
def test_text_that_is_not_json_has_a_depth_too(text: bytes, depth: int) -> None:
    """LangChain looks for an object in what a model wrote."""
    require_bounded(text, depth, ELEMENTS)
    if depth:
        with pytest.raises(LimitError):
            require_bounded(text, depth - 1, ELEMENTS)


@pytest.mark.parametrize("reader", VALUES)
@pytest.mark.parametrize(
    "text", [b'{"a": 1, "a": 2}', b'[{"a": {"b": 1, "b": 1}}]', b'{"lc": 2, "lc": 3, "type": "x", "id": 1}']
)
def test_of_a_key_twice_the_last_one_counts(text: bytes, reader: str) -> None:
    assert VALUES[reader](text) == json.loads(text)
