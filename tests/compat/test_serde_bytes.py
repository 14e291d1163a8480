"""Byte for byte what LangGraph's serializer writes, and each reads what the other wrote."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs

from sealpoint.serde import JsonPlusSerializer
from tests.support.sample_types import Color, Point
from tests.support.values.samples import LOSSY, SAMPLES, alike
from tests.support.values.strategies import anything

ours = JsonPlusSerializer()
theirs = Theirs()
pytestmark = pytest.mark.usefixtures("paths_of_pathlib")
PICKLING = JsonPlusSerializer(pickle_fallback=True), Theirs(pickle_fallback=True)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Both warn for every sample type."""
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("name", SAMPLES)
def test_type_and_bytes_are_the_same(name: str) -> None:
    assert ours.dumps_typed(SAMPLES[name]) == theirs.dumps_typed(SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_each_reads_what_the_other_wrote(name: str) -> None:
    from_theirs = ours.loads_typed(theirs.dumps_typed(SAMPLES[name]))
    from_ours = theirs.loads_typed(ours.dumps_typed(SAMPLES[name]))
    assert alike(from_theirs, from_ours)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_comes_back_unless_it_is_known_not_to(name: str) -> None:
    made = ours.loads_typed(ours.dumps_typed(SAMPLES[name]))
    assert alike(made, SAMPLES[name]) == (name not in LOSSY)


@given(anything())
def test_any_value_has_the_same_bytes(value: Any) -> None:
    """Also of what cannot be built again, which is refused unless bare arguments may be read instead."""
    assert JsonPlusSerializer(on_blocked="raw").dumps_typed(value) == theirs.dumps_typed(value)


@pytest.mark.parametrize(
    "value",
    [1 + 2j, range(3), Color, {"deep": [1j]}, 2**64, -(2**63) - 1, "\ud800", {"a\ud800": 1}],
    ids=repr,
)
def test_the_pickle_fallback_is_taken_for_the_same_values(value: Any) -> None:
    mine, other = PICKLING
    assert mine.dumps_typed(value) == other.dumps_typed(value)
    assert mine.loads_typed(other.dumps_typed(value)) == other.loads_typed(mine.dumps_typed(value))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        len,
        Color,
        ...,
        1 + 2j,
        range(3),
        2**64,
        {"a\ud800": 1},
        {frozenset([1]): 1},
        type(None),
        Point,
    ],
    ids=lambda value: type(value).__name__ if type(value) is object else repr(value),
)
def test_both_refuse_the_same_values(value: Any) -> None:
    """With the builtin error that LangGraph raises; ours is one of it."""
    for serde in (ours, theirs):
        with pytest.raises(TypeError):
            serde.dumps_typed(value)


@pytest.mark.parametrize(
    "row", [("zz", b""), ("pickle", b"x"), ("msgpack", b""), ("msgpack", b"\xc1"), ("json", b"{")]
)
def test_both_refuse_the_same_rows(row: tuple[str, bytes]) -> None:
    """Ours raises what LangGraph raises there, or a subclass of it."""
    with pytest.raises(Exception) as expected:  # noqa: PT011 -- whatever LangGraph raises
        theirs.loads_typed(row)
    wanted = ValueError if isinstance(expected.value, ValueError) else type(expected.value)
    with pytest.raises(wanted):
        ours.loads_typed(row)
