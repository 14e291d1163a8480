"""Contexts: the bytes of the design, and that no two differ without differing in bytes."""

from __future__ import annotations

from itertools import combinations
from types import MappingProxyType

import pytest

from sealpoint.crypto import PackedRow, Row, RowTemplate, context
from sealpoint.crypto.context import pack_row
from tests.support.costs import calls_of
from tests.support.rings import make_cipher

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


@pytest.mark.parametrize("value", [1, None, b"x"])
def test_coordinates_of_a_template_are_strings(value: str) -> None:
    with pytest.raises(TypeError):
        RowTemplate({"a": value}, ())
    with pytest.raises(TypeError):
        RowTemplate({}, ("a",)).row(value)


@pytest.mark.parametrize(("shared", "names"), [({"a": "1"}, ("a",)), ({}, ("a", "a"))])
def test_template_names_each_coordinate_once(shared: Row, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="twice"):
        RowTemplate(shared, names)


@pytest.mark.parametrize("values", [(), ("1", "2")])
def test_template_takes_a_value_for_each_name(values: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="1 coordinates"):
        RowTemplate({"a": "1"}, ("b",)).row(*values)


def test_bytes_are_not_a_packed_row() -> None:
    """Only what packs coordinates makes one: other bytes could stand for any row."""
    with pytest.raises((TypeError, AttributeError)):
        make_cipher().seal("msgpack", b"value", row=bytes(pack_row({"a": "1"})))  # type: ignore[arg-type]


def test_packed_row_costs_no_call_more_than_none() -> None:
    """What a bound value shares with others (its tag, and the coordinates of its template) is packed once."""
    cipher = make_cipher("xaes256gcm")
    names = {"table": "writes", "thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "2"}
    row = RowTemplate(names, ("task_id", "channel")).row("3", "messages")
    free, bound = cipher.seal("msgpack", b"value"), cipher.seal("msgpack", b"value", row=row)
    assert isinstance(row, PackedRow)
    for with_row, without in (
        (lambda: cipher.open(*bound, row=row), lambda: cipher.open(*free)),
        (lambda: cipher.seal("msgpack", b"", row=row), lambda: cipher.seal("msgpack", b"")),
    ):
        with_row(), without()  # fill the caches
        assert calls_of(with_row) == calls_of(without) > 0
