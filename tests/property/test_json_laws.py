"""Laws of hostile JSON: it is refused, or returned as LangGraph reads it, at a cost linear in the text.

Metadata is returned as it was stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import SealpointError
from sealpoint.seal.jsontext import prepared_encoder
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert, inventory
from tests.support.runs.costs import lines_of, peak_of

BYTES_PER_BYTE = 60
"""Memory for each byte of the text, at most: an empty object takes 64, a pointer 8 and its text 3."""

STEPS_PER_BYTE = 8
"""Lines of Python for each byte of the text, at most: those are what the hooks of the parser run."""

strict = JsonPlusSerializer(allowed_msgpack_modules=None)

pieces = st.sampled_from(
    [*'[]{},:"\\-0', '"', '\\"', "\\\\", "[]", '""', "1", "-0", "1e999", "NaN", "true", "\\ud800", "é", " "]
)
hostile = st.lists(pieces, max_size=30).map("".join)
repeated = st.builds(
    lambda head, unit, times, tail: head + unit * times + tail, hostile, hostile, st.integers(1, 400), hostile
)
"""A few pieces again and again, which is what makes anything superlinear show."""

READERS: list[Callable[[bytes], Any]] = [
    lambda data: strict.loads_typed(("json", data)),
    lambda data: decode_inert("json", data),
    lambda data: inventory(data, "json"),
    decode_metadata,
]


def attempt(read: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return read(data)
    except SealpointError:
        return None


@given(repeated)
def test_memory_is_linear(text: str) -> None:
    data = text.encode()
    for read in READERS:
        assert peak_of(partial(attempt, read, data)) < BYTES_PER_BYTE * len(data) + 20_000


@pytest.mark.claim("f17")
@settings(deadline=None)
@given(repeated)
def test_steps_are_linear(text: str) -> None:
    data = text.encode()
    for read in READERS:
        assert lines_of(partial(attempt, read, data)) < STEPS_PER_BYTE * len(data) + 300


@given(hostile | repeated)
def test_what_is_returned_is_what_python_reads_and_writes_again(text: str) -> None:
    """In metadata nothing was lost, rounded to nothing, or put in place of another."""
    found = attempt(decode_metadata, b'{"a": [' + text.encode() + b"]}")
    if found is not None:
        written = json.dumps(found, allow_nan=False, ensure_ascii=False)
        assert written.encode().decode() == written
        assert json.loads(written) == json.loads(f'{{"a": [{text}]}}')


@given(hostile | repeated)
def test_a_value_is_what_langgraph_reads_and_all_readers_agree(text: str) -> None:
    data = f"[{text}]".encode()
    try:
        wanted = repr(json.loads(data))
    except (ValueError, RecursionError):
        wanted = None
    for read in READERS[:2]:
        found = attempt(read, data)
        assert found is None or repr(found) == wanted
        # A value of these pieces is within the limits, but for its depth.
        assert found is not None or wanted is None or text.count("[") > 60


in_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)


@given(value=in_json, in_ascii=st.booleans(), is_tight=st.booleans())
def test_a_prepared_encoder_writes_what_the_encoder_writes(
    value: Any, in_ascii: bool, is_tight: bool
) -> None:
    encoder = json.JSONEncoder(
        ensure_ascii=in_ascii,
        separators=(",", ":") if is_tight else None,
        allow_nan=False,
        check_circular=False,
    )
    assert "".join(prepared_encoder(encoder)(value, False)) == encoder.encode(value)


@pytest.mark.parametrize("value", [{("a",): 1}, {b"a": 1}, {1, 2}, float("nan")])
def test_a_prepared_encoder_leaves_nothing_out(value: Any) -> None:
    encode = prepared_encoder(json.JSONEncoder(allow_nan=False, check_circular=False))
    with pytest.raises((TypeError, ValueError)):
        "".join(encode([value], False))
