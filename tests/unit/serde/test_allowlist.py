"""Allowlist: what a constructor's argument means, and when the environment is read."""

from __future__ import annotations

from typing import Any

import pytest

from sealpoint.serde import SAFE_TYPES, Allowlist, JsonPlusSerializer
from tests.support.sample_types import Color, Outer, Point

POINT = ("tests.support.sample_types", "Point")


@pytest.mark.parametrize(
    "entry",
    [Point, POINT, ["tests.support.sample_types", "Point"], ("tests", "support", "sample_types", "Point")],
)
def test_a_type_and_every_way_to_write_its_name_allow_it(entry: Any) -> None:
    assert Allowlist.of([entry]).types == SAFE_TYPES | {POINT}


def test_a_nested_class_is_named_as_the_bytes_name_it() -> None:
    assert ("tests.support.sample_types", "Inner") in Allowlist.of([Outer.Inner]).types


@pytest.mark.parametrize("entry", ["tests", ("tests",), (), (1, 2), ("a", None), None, b"ab"])
def test_anything_else_is_no_entry(entry: Any) -> None:
    with pytest.raises(TypeError, match="an allowlist holds types and tuples of strings"):
        Allowlist.of([entry])


def test_none_means_the_safe_types_and_true_means_all() -> None:
    assert Allowlist.of(None) == Allowlist(SAFE_TYPES)
    assert Allowlist.of([]) == Allowlist(SAFE_TYPES)
    assert Allowlist.of(True) == Allowlist(SAFE_TYPES, permissive=True)


def test_an_iterable_is_used_up_once() -> None:
    """A generator is good for both questions that are asked of an allowlist."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=(entry for entry in [POINT]))
    assert serde.loads_typed(serde.dumps_typed(Point(1))) == Point(1)
    assert serde.loads_typed(serde.dumps_typed(Point(2))) == Point(2)


def test_names_are_exact_and_no_prefix_allows() -> None:
    allowed = Allowlist.of([("tests", "Point"), ("tests.support.sample_types", "Poin")])
    assert POINT not in allowed.types


def test_extending_by_nothing_new_gives_the_same_policy() -> None:
    allowed = Allowlist.of([POINT])
    assert allowed.extended([Point]) is allowed
    assert allowed.extended([Color]).types - allowed.types == {("tests.support.sample_types", "Color")}


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "Yes"])
def test_the_environment_makes_new_serializers_strict(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """It is read when a serializer is made, neither at import nor when a value is read."""
    monkeypatch.delenv("LANGGRAPH_STRICT_MSGPACK", raising=False)
    before = JsonPlusSerializer()
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", text)
    assert before.allowlist.permissive
    assert not JsonPlusSerializer().allowlist.permissive
    assert JsonPlusSerializer(allowed_msgpack_modules=True).allowlist.permissive


@pytest.mark.parametrize("text", ["", "0", "false", "no", "on", "2", " true"])
def test_other_texts_in_the_environment_do_not(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", text)
    assert JsonPlusSerializer().allowlist.permissive
