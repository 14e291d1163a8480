"""Conditions: which the wrapped store applies, and how the others are compared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.memory import _compare_values as theirs

from sealpoint.errors import ConfigError
from sealpoint.sealed.conditions import divide, field_of, matches
from tests.unit.sealed.test_items import items

DAY: Final = datetime(2026, 1, 2, tzinfo=UTC)

numbers = st.integers(-3, 3) | st.sampled_from([0.5, -1.5, 2.0])
scalars = st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "1", "10", "9"])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
equality = st.sampled_from(["$eq", "$ne"])
order = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])


@given(found=values, wanted=values | st.dictionaries(equality, values, min_size=1))
def test_equality_is_that_of_langgraph(found: Any, wanted: Any) -> None:
    assert matches(found, wanted) is bool(theirs(found, wanted))


@given(found=numbers | st.booleans(), wanted=st.dictionaries(order, numbers, min_size=1))
def test_numbers_are_ordered_as_langgraph_does(found: Any, wanted: Any) -> None:
    assert matches(found, wanted) is bool(theirs(found, wanted))


@pytest.mark.parametrize(
    ("found", "condition", "expected"),
    [
        (10, {"$gt": 9}, True),
        ("10", {"$gt": 9}, True),
        (10, {"$gt": "9"}, True),
        ("2026-02", {"$gt": "2026-01"}, True),
        ("b", {"$lt": "a"}, False),
        (DAY, {"$gte": DAY}, True),
        (None, {"$gt": 1}, False),
        ("text", {"$gt": 1}, False),
        ([1], {"$lt": 1}, False),
        (float("nan"), {"$lte": 1}, False),
        (2**60 + 1, {"$gt": 2**60}, True),
        (10**400, {"$gt": 0.5}, True),
        ("1e999", {"$gt": 10**400}, False),
        (5, {"$gt": 1, "$lt": 5}, False),
        ((1, 2), [1, 2], True),
        ([1, 2], {"$eq": (1, 2)}, True),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"$eq": {"a": 1}}, False),
        ({"a": {"n": 3}}, {"a": {"n": {"$gt": 2}}}, True),
        (None, None, True),
        (None, {"$ne": 1}, True),
    ],
)
def test_a_condition(found: Any, condition: Any, expected: bool) -> None:
    assert matches(found, condition) is expected


def test_a_name_with_dots_is_a_field_or_a_path() -> None:
    assert field_of({"a.b": 1, "a": {"b": 2}}, "a.b") == 1
    assert field_of({"a": {"b": {"c": 2}}}, "a.b.c") == 2
    for value in ({}, {"a": None}, {"a": [0]}, {"a": {"b": None}}):
        assert field_of(value, "a.0" if value == {"a": [0]} else "a.b") is None


TOKEN: Final = items().tokens.token("user", "u1")


@pytest.mark.parametrize(
    ("wanted", "stored", "own"),
    [
        ({"lang": "en"}, {"lang": "en"}, {}),
        ({"lang": {"$gt": "a", "$ne": "b"}}, {"lang": {"$gt": "a", "$ne": "b"}}, {}),
        ({"user": "u1"}, {TOKEN: 1}, {}),
        ({"user": {"$eq": "u1"}}, {TOKEN: 1}, {}),
        ({"user": {"$eq": "u1", "$ne": "u2"}}, {TOKEN: 1}, {"user": {"$eq": "u1", "$ne": "u2"}}),
        ({"user": {"$ne": "u1"}}, {}, {"user": {"$ne": "u1"}}),
        ({"user": None}, {}, {"user": None}),
        ({"user": ["u1"]}, {}, {"user": ["u1"]}),
        ({"text": "x", "lang": "en"}, {"lang": "en"}, {"text": "x"}),
        ({"lang.x": "en"}, {}, {"lang.x": "en"}),
    ],
)
def test_what_the_store_applies(wanted: Any, stored: Any, own: Any) -> None:
    found = divide(items(), wanted)
    assert (found.stored, found.own) == (stored, own)
    assert divide(items(allow_unbound=True), wanted) == ({}, wanted, {})


@pytest.mark.parametrize(
    ("condition", "value", "met"),
    [
        ("en", "en", True),
        ("en", "de", False),
        ({"$eq": "en"}, "de", False),
        ({"$ne": "en"}, "en", False),
        ({"$ne": "en"}, "de", True),
        ({"$ne": 1}, True, True),  # Postgres tells them apart
        (1, True, True),  # SQLite does not
        ({"$gt": 9}, 10, True),
        ({"$gt": "9"}, 10, True),  # no store need agree with another
        ({"$lt": 9}, 10, True),
    ],
)
def test_what_the_store_has_found_is_compared_again_if_it_can_be_refuted(
    condition: Any, value: Any, met: bool
) -> None:
    assert divide(items(), {"lang": condition}).are_met({"lang": value}) is met


@pytest.mark.parametrize("condition", [{"$in": [1]}, {"$gt": 1, "x": 2}, {"$eq": 1, "$not": 1}])
def test_an_unknown_operator_is_refused(condition: Any) -> None:
    """Before any item is opened; deeper within a condition when it is compared."""
    with pytest.raises(ConfigError, match="operator"):
        divide(items(), {"text": condition})
    with pytest.raises(ConfigError, match="operator"):
        matches({"a": 2}, {"a": {"$in": 1, **condition}})
