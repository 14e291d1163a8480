"""Lone surrogates in text that is written: an error in strict mode, else ``?`` with a warning."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs

from sealpoint.errors import UnsupportedTypeError
from sealpoint.serde import JsonPlusSerializer, diagnostics
from sealpoint.serde.types import _DeltaSnapshot
from tests.support.sample_types import Model, Point

LONE = "a\ud800b"


@dataclass
class Nested:
    text: Any
    inner: Any = None


VALUES: dict[str, Any] = {
    "text": LONE,
    "a list": ["x", [LONE]],
    "a message": HumanMessage(LONE, id="1"),
    "a dataclass": Point(LONE),
    "nested": Nested(LONE, Nested("x", Nested(LONE))),
    "around another": Nested("x", Nested(LONE)),
    "a deque": deque([LONE]),
    "a snapshot": _DeltaSnapshot([LONE]),
}

permissive = JsonPlusSerializer(allowed_msgpack_modules=True)
strict = JsonPlusSerializer(allowed_msgpack_modules=[Nested, Point, Model])


@pytest.mark.parametrize("name", VALUES)
def test_a_permissive_serializer_writes_what_langgraph_writes(name: str) -> None:
    if name != "a snapshot":
        assert permissive.dumps_typed(VALUES[name]) == Theirs().dumps_typed(VALUES[name])
    assert b"a?b" in permissive.dumps_typed(VALUES[name])[1]


@pytest.mark.parametrize("name", VALUES)
def test_a_strict_serializer_refuses(name: str) -> None:
    with pytest.raises(UnsupportedTypeError, match="lone surrogate") as caught:
        strict.dumps_typed([VALUES[name], "after"])
    assert "a" + "\\ud800" not in str(caught.value)
    assert strict.dumps_typed(["a?b", Point("😀")]) == permissive.dumps_typed(["a?b", Point("😀")])


@pytest.mark.parametrize("serde", [permissive, strict])
def test_a_key_is_refused_in_every_mode(serde: JsonPlusSerializer) -> None:
    """As LangGraph's serializer refuses it: two keys might become one."""
    with pytest.raises(UnsupportedTypeError):
        serde.dumps_typed({LONE: 1})


def test_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    diagnostics._warn_of_replaced.cache_clear()
    with caplog.at_level(logging.WARNING, "sealpoint.serde"):
        permissive.dumps_typed("a?b")
        assert not caplog.records
        for value in VALUES.values():
            permissive.dumps_typed(value)
    assert [record.getMessage() for record in caplog.records] == [
        "text with a lone surrogate was written with '?' in its place"
    ]


def test_what_one_value_had_is_not_said_of_the_next() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"builtins\.object"):
        strict.dumps_typed([Point(LONE), object()])
    assert strict.dumps_typed(Point("x"))[0] == "msgpack"
    assert not diagnostics.noted


def test_objects_in_objects_are_packed_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One around another is packed again for its own text: in a chain that doubles the work at each."""
    monkeypatch.setattr(diagnostics, "MAX_REPLACEMENTS", 100)
    value: Any = None
    for _ in range(40):
        value = Nested(value, LONE)
    with pytest.raises(UnsupportedTypeError, match="so many objects"):
        permissive.dumps_typed(value)
    assert len(permissive.dumps_typed([LONE] * 1000)[1]) > 3000


def test_threads_do_not_answer_for_each_other() -> None:
    ended: list[str] = []

    def write(serde: JsonPlusSerializer, value: Any, wanted: str) -> None:
        for _ in range(300):
            try:
                serde.dumps_typed(value)
                found = "written"
            except UnsupportedTypeError:
                found = "refused"
            if found != wanted:
                return
        ended.append(wanted)

    tasks = [
        (permissive, Point(LONE), "written"),
        (strict, Point("x"), "written"),
        (strict, Point(LONE), "refused"),
    ]
    threads = [threading.Thread(target=write, args=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["refused", "written", "written"]
