"""Values as agents change them: models after validation, and classes that may refuse what is stored."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Self
from uuid import UUID

from hypothesis import strategies as st
from langchain_core import messages as lc
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PrivateAttr,
    RootModel,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Size(enum.Enum):
    """Of a tuple, a list within one, and a number that is equal to nothing."""

    PAIR = (1, 2)
    MIXED = ((1,), [2])
    NAN = float("nan")
    PLAIN = 3


class Ticket(BaseModel):
    class Stage(enum.StrEnum):
        OPEN = "open"
        DONE = "done"

    class Mark(NamedTuple):
        x: int = 1

    stage: Stage = Stage.OPEN
    stages: list[Stage] = []
    by_stage: dict[str, Stage] = {}
    kinds: set[Stage] = set()
    frozen: frozenset[Stage] = frozenset()
    mark: Mark = Mark()
    other: Any = None


Tone = enum.Enum("ToneOfVoice", "WARM COLD")  # type: ignore[misc]  # another name than its own


def _local() -> Any:
    class Local(enum.Enum):
        A = "a"

    class Holder(BaseModel):
        tone: Tone = Tone.WARM
        local: Local = Local.A
        ticket: Ticket = Ticket()

    Holder.__qualname__ = "Holder"
    return Holder


Holder = _local()


@dataclass
class Plain:
    x: Any = None
    y: int = 1


@dataclass
class Guarded:
    left: Any = 0
    doubled: Any = field(init=False, default=0)

    def __post_init__(self) -> None:
        if not isinstance(self.left, int) or self.left < 0:
            raise ValueError("less than nothing")


@dataclass
class Seeded:
    x: Any
    seed: InitVar[int]


@pydantic_dataclass
class Checked:
    x: int = 1


class Pair(NamedTuple):
    a: Any = None
    b: int = 2


class Wary(Pair):
    def __new__(cls, a: Any = None, b: int = 2) -> Self:
        if a == "refused":
            raise ValueError("no")
        return super().__new__(cls, a, b)


class Attempts(BaseModel):
    left: int = Field(default=1, ge=0)
    note: str = ""
    mood: Mood = Mood.GOOD
    inner: Attempts | None = None
    many: list[Attempts] = []
    plain: Plain | None = None
    size: Decimal | None = None
    key: UUID | None = None
    _hidden: int = PrivateAttr(default=2)


class Webhook(BaseModel):
    body: Json[Any]
    inner: Attempts = Attempts()


class Parsed(BaseModel):
    amount: Any

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        if not isinstance(data, str):
            if isinstance(data, dict):
                data["amount"] = "changed by the validator"
            raise ValueError("text, please")
        return {"amount": int(data)}


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    pair: tuple[int, int] = (1, 2)


class Aliased(BaseModel):
    foo: int = Field(alias="fooAlias")
    bar: int = Field(default=0, alias="barAlias")


class Hooked(BaseModel):
    a: int = 1

    def model_post_init(self, context: Any, /) -> None:
        if not isinstance(self.a, int):
            raise ValueError("no number")


class AsText(BaseModel):
    a: int = 1

    @model_serializer
    def _text(self) -> str:
        return f"a={self.a}"


class Numbers(RootModel[list[int]]):
    pass


class Upper(BaseModel):
    name: str = "A"

    @field_validator("name")
    @classmethod
    def _is_upper(cls, name: str) -> str:
        if name.lower() == name:
            raise ValueError("lower case")
        return name


REFUSED = Wary()._replace(a="refused")  # the constructor of the class does not make it
ALLOWED: list[Any] = [
    *(
        Mood,
        Size,
        Ticket,
        Plain,
        Guarded,
        Seeded,
        Checked,
        Pair,
        Wary,
        Attempts,
        Webhook,
        Parsed,
        Open,
        Closed,
    ),
    *(Aliased, Hooked, AsText, Numbers, Upper, Holder, Tone),
]
MADE: list[Callable[[], Any]] = [
    lambda: Ticket(stages=[Ticket.Stage.DONE], by_stage={"a": Ticket.Stage.OPEN}, kinds={Ticket.Stage.DONE}),
    lambda: Ticket(frozen=frozenset(Ticket.Stage), mark=Ticket.Mark(5)),
    lambda: Holder(tone=Tone.COLD),
    lambda: Guarded(1),
    lambda: Seeded(1, seed=2),
    Checked,
    Wary,
    lambda: Attempts(
        inner=Attempts(left=3), many=[Attempts()], plain=Plain(1), size=Decimal(1), key=UUID(int=1)
    ),
    lambda: Webhook(body='{"a": [1]}'),
    lambda: Webhook(body='"5"'),
    lambda: Parsed.model_validate("5"),
    lambda: Open.model_validate({"a": 1, "more": {"b": 2}}),
    Closed,
    lambda: Aliased(fooAlias=1, barAlias=2),
    Hooked,
    AsText,
    lambda: Numbers([1, 2]),
    Upper,
    lambda: lc.HumanMessage("hello", id="1"),
    lambda: lc.AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1"}]),
    lambda: lc.ToolMessage("x", tool_call_id="1", artifact={"a": 1}),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(),
    st.text("aB1", max_size=3),
    st.binary(max_size=2),
)


def _fields(value: Any) -> list[str]:
    model: Any = getattr(type(value), "model_fields", None) or getattr(
        type(value), "__dataclass_fields__", ()
    )
    return [name for name in model if name != "seed"]


@st.composite
def changed(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Any:
    """Return a value that was valid when it was made, with some fields replaced since, or never validated."""
    value = draw(st.sampled_from(MADE))()
    names = _fields(value)
    if isinstance(value, tuple) or not names:
        return value
    given = draw(st.dictionaries(st.sampled_from(names), inner | scalars, max_size=2))
    if isinstance(value, BaseModel) and not isinstance(value, Hooked) and draw(st.booleans()):
        return type(value).model_construct(**{**vars(value), **given})
    for name, field_value in given.items():
        value.__dict__[name] = field_value
    return value


def values() -> st.SearchStrategy[Any]:
    """Values as they stand in a state of an agent."""
    leaves = scalars | st.sampled_from([*Mood, *Size, *Ticket.Stage, Tone.WARM, Ticket.Mark(3), REFUSED])
    return changed(
        st.recursive(
            leaves | changed(leaves),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2)
                | st.builds(Plain, inner)
                | st.builds(Pair, inner)
                | changed(inner)
            ),
            max_leaves=3,
        )
    )
