"""Models packed from the fields they hold are the bytes of model_dump(), or are dumped."""

from __future__ import annotations

import datetime
import enum
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import messages as lc
from langchain_core.documents import Document
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)
from typing_extensions import TypedDict

from sealpoint.errors import UnsupportedTypeError
from sealpoint.serde.codes import PYDANTIC_V2
from sealpoint.serde.encode import _default, encode
from sealpoint.serde.fast.models import plain_fields
from sealpoint.serde.packing import PACK
from tests.support.samples import SAMPLES
from tests.support.strategies_values import messages


class Text(str):
    __slots__ = ()


class Shade(enum.StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: Any


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


def dumped(model: BaseModel) -> bytes:
    """Return the bytes of the general path."""
    cls = type(model)
    record = (cls.__module__, cls.__name__, model.model_dump(), "model_validate_json")
    return ormsgpack.packb(ormsgpack.Ext(PYDANTIC_V2, ormsgpack.packb(record, _default, PACK)))


def same(model: BaseModel) -> bool:
    """Whether both ways write the same, or refuse; the warnings of dumping are not the matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected: bytes | None = dumped(model)
        except ormsgpack.MsgpackEncodeError:
            expected = None
        try:
            return encode(model) == expected
        except UnsupportedTypeError:
            return expected is None


MESSAGES: dict[str, Any] = {
    name: value for name, value in SAMPLES.items() if isinstance(value, lc.BaseMessage)
} | {
    "usage": lc.AIMessage(
        "",
        usage_metadata={
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_token_details": {"cache_read": 1},
        },
        tool_calls=[{"name": "f", "args": {"a": [1, {"b": None}]}, "id": "1", "type": "tool_call"}],
        invalid_tool_calls=[
            {"name": "g", "args": "{", "id": None, "error": "x", "type": "invalid_tool_call"}
        ],
        response_metadata={"model_name": "m", "when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)},
    ),
    "unknown usage": lc.AIMessage(
        "",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "more": {"x": 1}},
    ),
    "artifact": lc.ToolMessage("x", tool_call_id="1", artifact={"a": (1, {2}), "b": Leaf(value=Pair(1))}),
    "extra": lc.HumanMessage("x", color="red", name="me"),
    "document": Document("x", metadata={"source": "a", "page": 1}),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_packed_as_it_is_dumped(name: str) -> None:
    assert same(MESSAGES[name])


@given(messages())
def test_any_message_is_packed_as_it_is_dumped(message: lc.BaseMessage) -> None:
    assert same(message)


@pytest.mark.parametrize(
    "model",
    [
        lc.HumanMessage("x"),
        MESSAGES["usage"],
        lc.ToolMessage("x", tool_call_id="1", artifact={"a": [1]}),
        Leaf(value={"a": [1, None, b"x", UUID(int=5)]}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_shortcut_is_taken(model: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests here would compare dumping with itself."""
    expected = dumped(model)
    assert plain_fields(type(model)) is not None
    encode(model)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(BaseModel, "model_dump", fail)
    assert encode(model) == expected


odd_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.binary(max_size=5).map(bytearray),
    st.sampled_from([Shade.RED, Text("t"), SecretStr("s"), PurePosixPath("a/b"), 1j, object, UUID(int=1)]),
    st.datetimes(),
    st.dates(),
    st.timedeltas(),
    st.decimals(),
)
odd = st.recursive(
    odd_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(st.integers(), max_size=3).map(set),
        st.dictionaries(
            st.text(max_size=3) | st.integers() | st.tuples(st.text(max_size=2)), inner, max_size=3
        ),
        st.builds(Point, st.integers(0, 9), inner),
        st.builds(Pair, inner),
        st.builds(lambda value: Leaf(value=value), inner),
        st.builds(lambda value: Bigger(value=value), inner),
        st.builds(lambda value, more: Open.model_validate({"a": value, "more": more}), inner, inner),
        st.builds(lambda value: Leaf.model_construct(value=value), inner),
        st.builds(lambda value: lc.HumanMessage("x", additional_kwargs={"a": value}), inner),
    ),
    max_leaves=6,
)
CLASSES: dict[str, Callable[[Any], BaseModel]] = {
    "any": lambda value: Leaf(value=value),
    "model inside": lambda value: Tree.model_construct(name="x", leaf=value, other=value),
    "list of models": lambda value: Tree.model_construct(name=value, leaves=[Leaf(), value], children=value),
    "subclass inside": lambda value: Tree(name="x", leaf=Bigger(value=value)),
    "missing field": lambda value: Tree.model_construct(name=value),
    "extra": lambda value: Open.model_validate({"a": 1, "more": value}),
    "artifact": lambda value: lc.ToolMessage("x", tool_call_id="1", artifact=value),
    "metadata": lambda value: lc.AIMessage("x", response_metadata={"a": value}),
    "content": lambda value: lc.HumanMessage.model_construct(content=value),
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


def test_a_deleted_field_is_not_packed() -> None:
    model = Leaf(value=1)
    del model.value
    assert same(model)


def test_a_key_that_is_no_text_is_left_to_dumping() -> None:
    """A typed dict refuses it, and a dict of anything does not."""
    assert same(lc.AIMessage.model_construct(content="", usage_metadata={0: None}))
    assert same(lc.AIMessage("", additional_kwargs={0: None, (1,): b""}))


def test_what_holds_itself_is_refused() -> None:
    model = Leaf()
    model.value = [model]
    with pytest.raises(UnsupportedTypeError):
        encode(model)


class Inner(TypedDict):
    a: int


class HoldsTyped(BaseModel):
    inner: Inner


class FieldSerializer(BaseModel):
    a: int

    @field_serializer("a")
    def _double(self, value: int) -> int:
        return value * 2


class ModelSerializer(BaseModel):
    a: int

    @model_serializer
    def _swap(self) -> dict[str, int]:
        return {"b": self.a}


class Computed(BaseModel):
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def b(self) -> int:
        return self.a + 1


class Excluded(BaseModel):
    a: int = Field(exclude=True)


class ByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    a: int = Field(serialization_alias="b")


class Annotations(BaseModel):
    a: Annotated[int, PlainSerializer(lambda value: value * 2)]


class Root(RootModel[list[int]]):
    pass


class HoldsPair(BaseModel):
    pair: Pair


class OwnDump(BaseModel):
    a: int

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"own": self.a}


class HoldsFieldSerializer(BaseModel):
    inner: list[FieldSerializer]


@pytest.mark.parametrize(
    "model",
    [
        HoldsTyped.model_construct(inner={"a": 1, "dropped": 2}),
        FieldSerializer(a=1),
        ModelSerializer(a=1),
        Computed(a=1),
        Excluded(a=1),
        ByAlias(a=1),
        Annotations(a=1),
        Root([1]),
        HoldsPair(pair=Pair(1)),
        Tree(name="x", leaf=Bigger(), children=[Tree(name="y")]),
        OwnDump(a=1),
        HoldsFieldSerializer(inner=[FieldSerializer(a=1)]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_class_that_dumps_anything_else_is_dumped(model: BaseModel) -> None:
    assert plain_fields(type(model)) is None
    assert same(model)
