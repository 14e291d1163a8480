"""Metadata: what of a config is stored, and that JSON goes in and out strictly."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.base import (
    EXCLUDED_METADATA_KEYS,
    get_checkpoint_metadata,
    get_serializable_checkpoint_metadata,
)
from sealpoint.base import metadata as metadata_module
from sealpoint.base.metadata import decode_metadata, encode_metadata
from sealpoint.errors import MetadataError

texts = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)


def test_what_the_metadata_says_goes_before_the_config() -> None:
    config: Any = {"configurable": {"a": 1, "b": 2, "c": 3}, "metadata": {"a": 4, "b": 5}}
    assert get_checkpoint_metadata(config, {"a": 0}) == {"a": 0, "b": 5, "c": 3}  # type: ignore[typeddict-unknown-key]


def test_what_is_never_stored() -> None:
    unstored: dict[str, Any] = dict.fromkeys(EXCLUDED_METADATA_KEYS, "x") | {
        "__own": 1,
        "none": None,
        "list": [],
        "bytes": b"",
    }
    config: Any = {"configurable": unstored, "metadata": unstored}
    assert get_checkpoint_metadata(config, {}) == {}


def test_text_loses_its_nul_characters() -> None:
    config: Any = {"configurable": {"a": "x\x00y"}}
    assert get_checkpoint_metadata(config, {"run_id": "\x00"}) == {"run_id": "", "a": "xy"}


class Tier(StrEnum):
    GOLD = "gold"


def test_text_of_another_class_becomes_plain() -> None:
    """As LangGraph has it: else a saver might store the class."""
    merged: Any = get_checkpoint_metadata({"configurable": {"tier": Tier.GOLD}}, {"run_id": Tier.GOLD})
    assert merged == {"run_id": "gold", "tier": "gold"}
    assert {type(value) for value in merged.values()} == {str}


@pytest.mark.parametrize("metadata", ["", [], [("a", 1)]], ids=repr)
def test_metadata_is_a_mapping(metadata: Any) -> None:
    with pytest.raises(AttributeError):
        get_checkpoint_metadata({"configurable": {"a": 1}}, metadata)


def test_text_loses_its_lone_surrogates() -> None:
    """They have no form in UTF-8; LangGraph leaves them out too."""
    assert encode_metadata({"run_id": "x\ud800y"}) == b'{"run_id": "xy"}'


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


@given(metadata=st.dictionaries(texts, json_values, max_size=4))
def test_what_goes_in_comes_out(metadata: Any) -> None:
    data = encode_metadata(metadata)
    assert decode_metadata(data) == decode_metadata(data.decode()) == metadata


@given(metadata=st.dictionaries(st.text(), st.text(), max_size=4))
def test_what_is_stored_can_always_be_read(metadata: Any) -> None:
    """Also where keys are the same without their lone surrogates: those are refused."""
    try:
        data = encode_metadata(metadata)
    except MetadataError:
        assert len({key.encode("utf-8", "ignore") for key in metadata}) < len(metadata)
    else:
        assert decode_metadata(data) == json.loads(data)


def test_an_error_does_not_repeat_the_metadata() -> None:
    with pytest.raises(MetadataError) as caught:
        decode_metadata(b'{"secret": "hunter2", "secret": "hunter3"}')
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


keys = st.text(max_size=2) | st.integers(0, 1) | st.none() | st.booleans() | st.just(0.0)
any_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(b"bytes"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(metadata=any_values | st.dictionaries(keys, any_values, max_size=4))
def test_what_is_not_read_back_would_be_read_back(metadata: Any) -> None:
    """Ordinary metadata is stored without being read again: whatever is stored can be, nonetheless."""
    try:
        data = encode_metadata(metadata)
    except MetadataError:
        return
    assert decode_metadata(data) == json.loads(data)


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
