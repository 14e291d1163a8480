"""A value on its way into a database becomes bytes in one way only: sealed."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as LangGraphSerializer

from sealpoint.base.metadata import decode_mapping
from sealpoint.errors import DecodeError, MetadataError, SealingError, SealpointError
from sealpoint.seal.carrier import GUARD, OPEN, Carrier, Document, Sealable, Sealed
from sealpoint.serde import JsonPlusSerializer

VALUE = Sealable(lambda: ("msgpack+x.row@k1", b"sealed"))
WAYS: dict[str, Callable[[Any], Any]] = {
    "json": json.dumps,
    "pickle": pickle.dumps,
    "copy": copy.deepcopy,
    "ormsgpack": ormsgpack.packb,
    "LangGraph": LangGraphSerializer().dumps_typed,
    "LangGraph with pickle": LangGraphSerializer(pickle_fallback=True).dumps_typed,
    "sealpoint": JsonPlusSerializer().dumps_typed,
    "sealpoint with pickle": JsonPlusSerializer(pickle_fallback=True).dumps_typed,
}


@pytest.mark.claim("s23")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"a": value}])
def test_no_other_serializer_takes_a_value(way: str, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises((SealpointError, TypeError, ValueError)):
        WAYS[way](wrap(VALUE))


@pytest.mark.claim("s23")
@pytest.mark.parametrize("way", WAYS)
def test_no_other_serializer_takes_a_document(way: str) -> None:
    """It holds a guard in place of its values."""
    document = Document({"id": "1", "channel_values": {"text": GUARD}})
    document.dump = lambda: ("t", b"")
    with pytest.raises((SealpointError, TypeError, ValueError)):
        WAYS[way](document)


def test_a_carrier_seals_what_was_prepared() -> None:
    document = Document({"channel_values": {}})
    document.dump = lambda: ("document", b"1")
    assert Carrier().dumps_typed(VALUE) == ("msgpack+x.row@k1", b"sealed")
    assert Carrier().dumps_typed(document.copy()) == ("document", b"1")


@pytest.mark.parametrize("value", ["text", b"bytes", None, 1, {"a": 1}, ["a"], {"source": "loop"}])
@pytest.mark.parametrize("parse", [None, decode_mapping])
def test_a_carrier_refuses_all_else(value: Any, parse: Callable[[bytes], Any] | None) -> None:
    with pytest.raises(SealingError):
        Carrier(parse=parse).dumps_typed(value)


def test_a_guard_cannot_be_stored() -> None:
    with pytest.raises(SealingError, match="one by one"):
        Carrier().dumps_typed(GUARD)


def test_what_is_stored_comes_back_unopened() -> None:
    found = Carrier().loads_typed(("msgpack", b"\x01"))
    assert (type(found), found.tag, found.blob) == (Sealed, "msgpack", b"\x01")
    assert Carrier().is_opaque(found)
    assert not Carrier().is_opaque({"tag": 1})


def test_a_readable_mapping_is_read_only_where_the_saver_stores_such() -> None:
    stored = Carrier(parse=decode_mapping).dumps_typed({"step": 1, "__sealpoint__": {}})
    assert Carrier(parse=decode_mapping).loads_typed(stored) == {"step": 1, "__sealpoint__": {}}
    assert type(Carrier().loads_typed(stored)) is Sealed
    with pytest.raises(DecodeError):
        Carrier(parse=decode_mapping).loads_typed((OPEN, b"{"))


def test_a_readable_mapping_has_a_form_in_json() -> None:
    with pytest.raises(MetadataError):
        Carrier(parse=decode_mapping).dumps_typed({"tenant": object(), "__sealpoint__": {}})
