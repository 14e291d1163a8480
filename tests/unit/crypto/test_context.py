"""Contexts: the bytes of the design, and that no two differ without differing in bytes."""

from __future__ import annotations

from itertools import combinations
from types import MappingProxyType

import pytest

from sealpoint.crypto import Row, context

TAG = "a+xaes256gcm.row@k"


def test_without_a_row_it_is_the_prefix_and_the_tag() -> None:
    assert context("msgpack+aes") == b"sealpoint\x00\x01\x00\x00\x00\x0bmsgpack+aes"


def test_coordinates_follow_sorted_by_name_with_their_lengths() -> None:
    row = {"thread_id": "Zoë", "ns": ""}
    tail = b"\0\0\0\x02ns\0\0\0\0\0\0\0\x09thread_id\0\0\0\x04Zo\xc3\xab"
    assert context(TAG, row) == context(TAG) + tail


def test_order_of_the_row_does_not_matter() -> None:
    assert context(TAG, {"a": "1", "b": "2"}) == context(TAG, {"b": "2", "a": "1"})


def test_any_mapping_is_a_row() -> None:
    assert context(TAG, MappingProxyType({"a": "1"})) == context(TAG, {"a": "1"})


def test_no_two_rows_share_a_context() -> None:
    """Characters that move from one field into the next, or fields that are empty, change the bytes."""
    rows: list[Row] = [
        {},
        {"": ""},
        {"a": ""},
        {"": "a"},
        {"a": "b"},
        {"ab": ""},
        {"": "ab"},
        {"a": "bc"},
        {"ab": "c"},
        {"a": "", "b": ""},
        {"a": "b", "c": "d"},
        {"a": "bcd"},
        {"a": "b\0\0\0\x01c\0\0\0\x01d"},
        {"a": "d", "c": "b"},
    ]
    for one, two in combinations(rows, 2):
        assert context(TAG, one) != context(TAG, two), (one, two)


@pytest.mark.parametrize("row", [{"a": 1}, {"a": None}, {"a": b"x"}, {1: "a"}, {None: "a"}])
def test_coordinates_are_strings(row: dict[str, str]) -> None:
    """A number is not silently written as text: 1 and "1" are different threads to somebody."""
    with pytest.raises(TypeError, match="strings"):
        context(TAG, row)
