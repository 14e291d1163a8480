"""Legacy json rows: LangChain's envelopes, under the same allowlist as msgpack."""

from __future__ import annotations

import collections
import datetime as dt
import json
import pathlib
import re
import uuid
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from sealpoint.errors import BlockedTypeError, DecodeError, UnbuildableValueError
from sealpoint.serde import JsonPlusSerializer
from tests.support.sample_types import Color, Model, Point
from tests.support.values.forge import envelope

TYPES = "tests", "support", "sample_types"
HUMAN = "langchain_core", "messages", "human", "HumanMessage"
METHODS: list[Any] = ["now", "model_construct", ["fromhex"], 5, {}]
ONE = str(uuid.UUID(int=1))

serde = JsonPlusSerializer(allowed_msgpack_modules=None)


def row(value: Any) -> tuple[str, bytes]:
    return "json", json.dumps(value).encode()


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (envelope("uuid", "UUID", args=[ONE]), uuid.UUID(int=1)),
        (envelope("uuid", "UUID", args=[ONE], kwargs={}, method=None), uuid.UUID(int=1)),
        (envelope("uuid", "UUID", args=[ONE], method=["nope", None]), uuid.UUID(int=1)),
        (envelope("builtins", "set", args=[[1, 2]]), {1, 2}),
        (envelope("collections", "deque", args=[[1]]), collections.deque([1])),
        (envelope("re", "compile", args=["a", 2]), re.compile("a", re.IGNORECASE)),
        (envelope("pathlib", "PosixPath", args=["/", "a"]), pathlib.Path("/a")),
        (
            envelope("builtins", "frozenset", args=[[json.loads(envelope("uuid", "UUID", args=[ONE])[1])]]),
            frozenset({uuid.UUID(int=1)}),
        ),
        (envelope("datetime", "date", args=[2026, 1, 1]), dt.date(2026, 1, 1)),
        (
            envelope("datetime", "datetime", method="fromisoformat", args=["2020-01-01T00:00:00+00:00"]),
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        ),
    ],
)
def test_envelopes_of_safe_types_are_rebuilt(data: tuple[str, bytes], value: Any) -> None:
    assert serde.loads_typed(data) == value


@pytest.mark.parametrize(
    "message", [HumanMessage("hi", id="1"), AIMessage("x"), ToolMessage("x", tool_call_id="1")]
)
def test_langchains_own_envelopes_are_rebuilt(message: Any) -> None:
    """They name the module where the class lived years ago."""
    assert serde.loads_typed(row({"messages": [dumpd(message)]})) == {"messages": [message]}


def test_a_type_is_blocked_until_it_is_listed() -> None:
    data = envelope(*TYPES, "Point", kwargs={"x": 1})
    with pytest.raises(BlockedTypeError) as caught:
        serde.loads_typed(data)
    assert "allowed_json_modules=[('tests.support.sample_types', 'Point')]" in caught.value.hint
    for allowed in ([(*TYPES, "Point")], [(".".join(TYPES), "Point")], True):
        listed = JsonPlusSerializer(allowed_msgpack_modules=None, allowed_json_modules=allowed)
        assert listed.loads_typed(data) == Point(1)


def test_what_msgpack_may_name_json_may_name() -> None:
    listed = JsonPlusSerializer(allowed_msgpack_modules=[Color])
    assert listed.loads_typed(envelope(*TYPES, "Color", args=["red"])) is Color.RED


def test_a_permissive_serializer_does_not_open_json_rows() -> None:
    """As in LangGraph: ``allowed_json_modules`` alone does."""
    lax = JsonPlusSerializer(allowed_msgpack_modules=True)
    with pytest.raises(BlockedTypeError):
        lax.loads_typed(envelope(*TYPES, "Point", kwargs={"x": 1}))


def test_arguments_that_a_type_refuses_raise() -> None:
    """LangGraph gives None, or an object that was never validated."""
    listed = JsonPlusSerializer(allowed_json_modules=[(*TYPES, "Model"), (*TYPES, "Point")])
    for data in (
        envelope(*TYPES, "Model", kwargs={"a": "text"}, method=[None, "construct"]),
        envelope(*TYPES, "Point", kwargs={"unknown": 1}),
    ):
        with pytest.raises(UnbuildableValueError):
            listed.loads_typed(data)
    good = envelope(*TYPES, "Model", kwargs={"a": 1}, method=[None, "construct"])
    assert listed.loads_typed(good) == Model(a=1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (envelope("builtins", "set", kind="secret", args=[[1]]), "its envelope is a 'secret'"),
        (envelope("builtins", "set", kind="not_implemented"), "its envelope is a 'not_implemented'"),
        (row({"lc": 1, "type": None, "id": ["builtins", "set"]}), "its envelope is a 'NoneType'"),
        (envelope("builtins", "set", args=[[1]], kwargs={"a": 1}), "arguments of both kinds"),
        (envelope("uuid", "UUID", args=["0" * 32, 1]), "other arguments than LangGraph writes"),
        (envelope("uuid", "UUID", kwargs={"hex": "0" * 32}), "other arguments than LangGraph writes"),
        (envelope("datetime", "date", kwargs={"year": 2026}), "other arguments than LangGraph writes"),
        (envelope("datetime", "time", args=[1, 2]), "other arguments than LangGraph writes"),
        (envelope(*HUMAN, args=["a"]), "other arguments than LangGraph writes"),
        *(
            (envelope("uuid", "UUID", args=[ONE], method=method), "its envelope calls the method")
            for method in METHODS
        ),
    ],
)
def test_other_envelopes_are_refused(data: tuple[str, bytes], reason: str) -> None:
    with pytest.raises(UnbuildableValueError, match=reason):
        serde.loads_typed(data)


@pytest.mark.parametrize("path", [None, "uuid.UUID", [], [5], ["uuid", 5], [["uuid"], "UUID"]])
def test_an_id_that_names_no_type_is_refused(path: Any) -> None:
    with pytest.raises(DecodeError):
        serde.loads_typed(row({"lc": 2, "type": "constructor", "id": path}))


@pytest.mark.parametrize("fields", [{"args": {"a": 1}}, {"args": "ab"}, {"kwargs": [1]}, {"kwargs": "a"}])
def test_arguments_of_the_wrong_shape_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        serde.loads_typed(envelope("uuid", "UUID", **fields))


def test_raw_gives_the_envelope() -> None:
    raw = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
    data = envelope("os", "system", args=["echo"])
    assert raw.loads_typed(data) == json.loads(data[1])
