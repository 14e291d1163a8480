"""The type name beside the bytes, and bytes that are not what it says."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sealpoint.errors import (
    SealedValueError,
    UnknownTypeError,
    UnsupportedTypeError,
)
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.sample_types import Point

serde = JsonPlusSerializer()
WITH_PICKLE = JsonPlusSerializer(pickle_fallback=True)


@pytest.mark.parametrize(
    ("value", "label"),
    [(None, "null"), (b"x", "bytes"), (bytearray(b"x"), "bytearray"), (1, "msgpack"), ([b"x"], "msgpack")],
)
def test_every_value_has_its_label(value: Any, label: str) -> None:
    row = serde.dumps_typed(value)
    assert row[0] == label
    assert type(row[1]) is bytes
    assert serde.loads_typed(row) == value


@pytest.mark.parametrize("label", ["", "zz", "PICKLE", "msgpack ", "json\0", None, 5, b"msgpack"])
def test_an_unknown_label_is_refused(label: Any) -> None:
    with pytest.raises(UnknownTypeError, match="Unknown serialization type"):
        serde.loads_typed((label, b"\xc0"))


@pytest.mark.parametrize("label", ["msgpack", "null", "bytes", "bytearray", "json", "pickle"])
@pytest.mark.parametrize("content", [0, None, "text", 1.5, memoryview(b"x")])
def test_content_that_is_not_bytes_is_refused(label: str, content: Any) -> None:
    """SQLite happily returns an INTEGER; ``bytes(10**9)`` would be a gigabyte."""
    with pytest.raises(SealedValueError):
        WITH_PICKLE.loads_typed((label, content))


def test_pickle_is_neither_written_nor_read_unless_asked_for() -> None:
    with pytest.raises(UnsupportedTypeError):
        serde.dumps_typed(1 + 2j)
    with pytest.raises(UnknownTypeError) as caught:
        serde.loads_typed(("pickle", pickle.dumps(1)))
    assert "pickle_fallback=True" in caught.value.hint


def test_a_sealed_pickle_is_read_if_asked_for() -> None:
    sealed = EncryptedSerializer.from_key(bytes(32), serde=WITH_PICKLE)
    row = sealed.dumps_typed(1 + 2j)
    assert row[0] == "pickle+cobblestone256@k1"
    assert sealed.loads_typed(row) == 1 + 2j
    with pytest.raises(UnknownTypeError):
        EncryptedSerializer.from_key(bytes(32)).loads_typed(row)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "builtins.object"),
        ({"deep": [Point({1j})]}, "builtins.complex"),
        ([len], "builtin_function_or_method"),
        (2**64, "64-bit"),
        ({frozenset(): 1}, "key"),
    ],
)
def test_a_value_without_a_form_is_named(value: Any, named: str) -> None:
    """The part that has none, not the container that it was met in."""
    with pytest.raises(UnsupportedTypeError, match=named):
        serde.dumps_typed(value)


def test_a_value_that_holds_itself_is_an_error_of_ours() -> None:
    loop: list[Any] = []
    loop.append(loop)
    point = Point(1)
    point.x = {"me": point}
    for value in (loop, point):
        with pytest.raises(UnsupportedTypeError):
            serde.dumps_typed(value)
