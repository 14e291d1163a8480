"""Models packed from the fields they hold are the bytes of model_dump(), or are dumped."""

from __future__ import annotations

import datetime
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import messages as lc
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
)
from typing_extensions import TypedDict

from sealpoint.errors import UnsupportedTypeError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.encode import plain_fields
from tests.property.without import without
from tests.support.values.strategies import anything


@dataclass
class Pair:
    a: Any
    b: int = 2


class Leaf(BaseModel):
    value: Any = None
    price: Decimal = Decimal(1)


class Bigger(Leaf):
    more: int = 1


class Tree(BaseModel):
    name: str
    day: datetime.date | None = None
    leaf: Leaf | None = None
    leaves: list[Leaf] = []
    named: dict[str, Leaf] = {}
    children: list[Tree] = []
    other: Any = None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: Any = None


class Counted(BaseModel):
    a: Any = None

    @functools.cached_property
    def twice(self) -> Any:
        return [self.a, self.a]


def outcome(model: BaseModel) -> tuple[str, bytes] | None:
    """Return what is written, or ``None`` for a refusal; the warnings of dumping are not the matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed(model)
        except UnsupportedTypeError:
            return None


def same(model: BaseModel) -> bool:
    """Whether both ways write the same, or refuse."""
    with without({"models"}):
        expected = outcome(model)
    return outcome(model) == expected


USAGE: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
CALLING = lc.AIMessage(
    "",
    usage_metadata=USAGE | {"input_token_details": {"cache_read": 1}},
    tool_calls=[{"name": "f", "args": {"a": [1, {"b": None}]}, "id": "1", "type": "tool_call"}],
    invalid_tool_calls=[{"name": "g", "args": "{", "id": None, "error": "x", "type": "invalid_tool_call"}],
    response_metadata={"model_name": "m", "when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
)


@pytest.mark.parametrize(
    "model",
    [
        lc.HumanMessage("x"),
        CALLING,
        lc.ToolMessage("x", tool_call_id="1", artifact={"a": [1]}),
        Leaf(value={"a": [1, None, b"x", UUID(int=5)]}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_shortcut_is_taken(model: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests here would compare dumping with itself."""
    expected = outcome(model)
    assert plain_fields(type(model)) is not None

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(BaseModel, "model_dump", fail)
    assert outcome(model) == expected is not None


odd = st.recursive(
    anything(),
    lambda inner: (
        st.builds(Pair, inner)
        | st.builds(lambda value: Bigger(value=value), inner)
        | st.builds(lambda value: Leaf.model_construct(value=value), inner)
        | st.dictionaries(st.integers() | st.tuples(st.text(max_size=2)), inner, max_size=2)
        | st.sampled_from([SecretStr("s"), 1j, object, bytearray(b"x")])
    ),
    max_leaves=4,
)
CLASSES: dict[str, Callable[[Any], BaseModel]] = {
    "any": lambda value: Leaf(value=value),
    "model inside": lambda value: Tree.model_construct(name="x", leaf=value, other=value),
    "list of models": lambda value: Tree.model_construct(name=value, leaves=[Leaf(), value], children=value),
    "missing field": lambda value: Tree.model_construct(name=value),
    "extra": lambda value: Open.model_validate({"a": 1, "more": value}),
    "metadata": lambda value: lc.AIMessage("x", response_metadata={"a": value}),
    "usage": lambda value: lc.AIMessage.model_construct(content="", usage_metadata=value, tool_calls=[value]),
}


@pytest.mark.parametrize("name", CLASSES)
@given(value=odd)
def test_any_value_in_a_field_is_packed_as_it_is_dumped(name: str, value: Any) -> None:
    assert same(CLASSES[name](value))


def test_what_is_not_a_field_is_not_packed() -> None:
    model = Counted(a=1)
    assert model.twice == [1, 1]
    assert "twice" in vars(model)
    assert same(model)


class Inner(TypedDict):
    a: int


class FieldSerializer(BaseModel):
    a: int

    @field_serializer("a")
    def _double(self, value: int) -> int:
        return value * 2


class Computed(BaseModel):
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def b(self) -> int:
        return self.a + 1


class OwnDump(BaseModel):
    a: int

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"own": self.a}


ALIAS = ConfigDict(serialize_by_alias=True)
DUMPED: dict[str, BaseModel] = {
    "typed dict": create_model("M", inner=(Inner, ...)).model_construct(inner={"a": 1, "dropped": 2}),
    "field serializer": FieldSerializer(a=1),
    "computed field": Computed(a=1),
    "excluded field": create_model("M", a=(int, Field(1, exclude=True)))(),
    "alias": create_model("M", __config__=ALIAS, a=(int, Field(1, serialization_alias="b")))(),
    "annotation": create_model("M", a=(Annotated[int, PlainSerializer(lambda value: value * 2)], 1))(),
    "root": RootModel[list[int]]([1]),
    "dataclass": create_model("M", pair=(Pair, Pair(1)))(),
    "models": Tree(name="x", leaf=Bigger(), children=[Tree(name="y")]),
    "own dump": OwnDump(a=1),
}


@pytest.mark.parametrize("name", DUMPED)
def test_a_class_that_dumps_anything_else_is_dumped(name: str) -> None:
    assert plain_fields(type(DUMPED[name])) is None
    assert same(DUMPED[name])
