"""What is readable beside a sealed value is compared exactly: 8.4 of the format."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sealpoint.crypto import KeyRing
from sealpoint.errors import RowError
from sealpoint.seal.rows import require_same_metadata
from sealpoint.seal.tokens import Tokens

NO_TOKENS = Tokens(lambda: KeyRing([]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-3, 3)
scalars = numbers | st.booleans() | st.none() | st.sampled_from(["", "1", "true"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner), max_leaves=4
)


def accepts(readable: Any, sealed: Any) -> bool:
    try:
        require_same_metadata({"x": readable}, {"x": sealed}, NO_TOKENS)
    except RowError:
        return False
    return True


def same(readable: Any, sealed: Any) -> bool:
    """The rule once more: as texts of unlimited precision."""
    if isinstance(readable, list | dict) or isinstance(sealed, list | dict):
        if type(readable) is not type(sealed) or len(readable) != len(sealed):
            return False
        pairs = zip(sorted(readable), sorted(sealed), strict=True) if isinstance(sealed, dict) else ()
        if any(one != other for one, other in pairs):
            return False
        parts = (
            [(readable[k], sealed[k]) for k in sealed]
            if isinstance(sealed, dict)
            else [*zip(readable, sealed, strict=True)]
        )
        return all(same(*part) for part in parts)
    if type(readable) in (int, float) and type(sealed) in (int, float):
        exact = {Decimal(sealed)} | ({Decimal(repr(sealed))} if isinstance(readable, int) else set())
        return Decimal(readable) in exact
    return type(readable) is type(sealed) and readable == sealed


@given(readable=values, sealed=values)
@example(0, 0.9)
@example(3, 3.99)
@example(-1, -1.5)
@example(False, 1e-7)
@example(0, 1e-7)
@example(True, 1)
@example(1, True)
@example([True], [1])
@example({"a": 1}, {"a": True})
@example([1], 1)
@example(1, [1])
@example({"a": 1}, 1)
@example(1, {"a": 1})
@example({"a": 1}, ["a"])
@example(["a"], {"a": 1})
@example(1, 1.0)
@example(100000000000000000000000, 1e23)
@example(99999999999999991611392, 1e23)
@example(99999999999999991611393, 1e23)
def test_a_readable_value_is_the_sealed_one(readable: Any, sealed: Any) -> None:
    assert accepts(readable, sealed) is same(readable, sealed)


@given(value=values)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert accepts(value, value)


@pytest.mark.parametrize("sealed", [math.nan, math.inf, -math.inf])
def test_no_integer_is_what_is_not_finite(sealed: float) -> None:
    assert not accepts(sealed, sealed)  # JSON lacks it: it is only sealed
    assert not accepts(0, sealed)
    assert not accepts(10**400, sealed)
