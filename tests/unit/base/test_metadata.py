"""JSON columns: what of a config is stored as metadata, strict JSON, and the one text of a sealed value."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sealpoint.base import (
    get_checkpoint_metadata,
    get_serializable_checkpoint_metadata,
)
from sealpoint.base import metadata as metadata_module
from sealpoint.base.metadata import decode_metadata, encode_metadata
from sealpoint.errors import MetadataError
from sealpoint.seal.places import decode_value, encode_value

texts = st.text(st.characters(exclude_categories=["Cs"]))


class Tier(StrEnum):
    GOLD = "gold"


def test_text_of_another_class_becomes_plain() -> None:
    """As LangGraph has it: else a saver might store the class."""
    merged: Any = get_checkpoint_metadata({"configurable": {"tier": Tier.GOLD}}, {"run_id": Tier.GOLD})
    assert merged == {"run_id": "gold", "tier": "gold"}
    assert {type(value) for value in merged.values()} == {str}


CHANGED: dict[str, Any] = {
    "NUL characters": {"run_id": "x\x00y"},
    "lone surrogates": {"run_id": "x\ud800y"},
}


def store(metadata: Any) -> bytes:
    return encode_metadata(get_checkpoint_metadata({}, metadata))


@pytest.mark.parametrize("what", CHANGED)
def test_a_change_of_text_is_logged_once(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bytes are LangGraph's, which drops the characters in silence."""
    monkeypatch.delenv("LANGGRAPH_STRICT_MSGPACK", raising=False)
    monkeypatch.setattr(metadata_module, "_warned", set())
    with caplog.at_level(logging.WARNING, "sealpoint.base"):
        for _ in range(2):
            assert store(CHANGED[what]) == b'{"run_id": "xy"}'
            assert store({"run_id": "xy"}) == b'{"run_id": "xy"}'
    assert [record.getMessage() for record in caplog.records] == [
        f"text in metadata has {what}, and is stored without them"
    ]


@pytest.mark.parametrize("what", CHANGED)
def test_a_change_of_text_is_refused_in_strict_mode(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
    with pytest.raises(MetadataError, match=what):
        store(CHANGED[what])
    assert store({"run_id": "xy"}) == b'{"run_id": "xy"}'


def test_the_metadata_of_the_caller_is_not_changed() -> None:
    metadata: Any = {"step": 1, "writes": {}}
    config: Any = {"configurable": {"a": 1}}
    assert get_serializable_checkpoint_metadata(config, metadata) == {"step": 1, "a": 1}
    assert metadata == {"step": 1, "writes": {}}


def test_an_error_does_not_repeat_the_metadata() -> None:
    with pytest.raises(MetadataError) as caught:
        decode_metadata(b'{"secret": "hunter2", "secret": "hunter3"}')
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


any_text = st.text(st.characters(), max_size=3)  # with lone surrogates
keys = any_text | st.integers(0, 1) | st.none() | st.booleans() | st.just(0.0)
any_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text | st.just(b"bytes"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(metadata=any_values | st.dictionaries(keys, any_values, max_size=4))
def test_what_is_stored_is_read_back(metadata: Any) -> None:
    """As Python's parser, and so LangGraph, reads it."""
    try:
        data = encode_metadata(metadata)
    except MetadataError:
        return
    assert repr(decode_metadata(data, strict=False)) == repr(json.loads(data))


@pytest.mark.parametrize(
    "metadata",
    [
        {"a\ud800": 1, "a": 2},
        {"parents": {"ü\ud800": "1", "ü": "2"}},
        {1: 1, "1": 2},
        {"parents": {None: "1", "null": "2"}},
        {"deep": {"parents": {True: 1, "true": 2}}},
        {"long": "x" * 16 * 1024 * 1024},
        [],
    ],
    ids=lambda metadata: str(metadata)[:30],
)
def test_what_could_not_be_read_back_is_not_stored(metadata: Any) -> None:
    with pytest.raises(MetadataError):
        encode_metadata(metadata)


@given(value=st.binary(max_size=40), bit=st.integers(min_value=0))
@example(value=b"", bit=11)  # of a character whose last four bits have no meaning
def test_a_sealed_value_has_one_text(value: bytes, bit: int) -> None:
    """Any flipped bit is another value, or none."""
    value += b"."
    assert decode_value(encode_value(value)) == value
    assert decode_value(encode_value(value) + "=") is None
    text = bytearray(encode_value(value), "ascii")
    text[bit // 8 % len(text)] ^= 1 << bit % 8
    found = decode_value(text.decode("latin-1"))
    assert found is None or encode_value(found) == text.decode("latin-1")
