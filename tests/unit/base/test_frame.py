"""Frames: a sealed value in a JSON column has one text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sealpoint.base.frame import decode_value, encode_value


@given(st.binary(max_size=40), st.integers(min_value=0))
def test_any_flipped_bit_is_another_value_or_none(value: bytes, bit: int) -> None:
    text = bytearray(encode_value(value + b"."), "ascii")
    text[bit // 8 % len(text)] ^= 1 << bit % 8
    found = decode_value(text.decode("latin-1"))
    assert found is None or encode_value(found) == text.decode("latin-1")


@given(st.binary(max_size=40))
def test_value_is_read_again(value: bytes) -> None:
    assert decode_value(encode_value(value)) == value


def test_unused_bits_are_zero() -> None:
    assert decode_value("AA==") == b"\0"
    assert decode_value("AB==") is None
