"""The types of the samples: what users put into a graph's state, and what is awkward about it."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from typing import Any, NamedTuple

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

# --- enums ---------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


class OldText(str, enum.Enum):  # noqa: UP042 -- the form before StrEnum
    A = "a"


class Flags(enum.Flag):
    X = 1
    Y = 2


class IntFlags(enum.IntFlag):
    X = 1
    Y = 2


class Odd(enum.Enum):
    NONE = None
    BYTES = b"x"
    LIST = [1, 2]  # noqa: RUF012 -- a member, not an attribute
    SET = frozenset({1})


class Pair(enum.Enum):
    """LangGraph gives back the list [1, 2]."""

    P = (1, 2)


class MixedPair(enum.Enum):
    """A list in a tuple: the bytes do not say which was which."""

    P = ((1,), [2])


# --- dataclasses and named tuples ----------------------------------------------------------------


@dataclasses.dataclass
class Point:
    x: Any
    label: str = "p"


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    inner: Any = None


@dataclasses.dataclass(kw_only=True)
class KeywordOnly:
    x: int


@dataclasses.dataclass
class Computed:
    """LangGraph gives back a dict."""

    x: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.x


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenComputed:
    """LangGraph gives back a dict."""

    x: int
    stamp: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass
class NeedsInitOnly:
    """What was given for ``seed`` is not stored, so nobody can rebuild it."""

    x: int
    seed: dataclasses.InitVar[int]


@pydantic_dataclass
class Checked:
    x: int
    label: str = "c"


class Named(NamedTuple):
    a: Any
    b: int = 2


Classic = collections.namedtuple("Classic", "p q")  # noqa: PYI024 -- the form that state still holds


class Outer:
    @dataclasses.dataclass
    class Inner:
        """The bytes name it ``Inner``, and the module has no such name."""

        x: int


# --- pydantic ------------------------------------------------------------------------------------


class Model(BaseModel):
    a: int
    point: Point | None = None
    model: Model | None = None


class Aliased(BaseModel):
    foo: int = Field(alias="fooAlias")


class AliasedDefault(BaseModel):
    """LangGraph gives back the default instead of what was stored."""

    foo: int = Field(default=0, alias="fooAlias")


class AliasedInside(BaseModel):
    one: Aliased
    many: list[AliasedDefault] = []


class ManyAliases(BaseModel):
    x: int = Field(validation_alias=AliasChoices("p", "q"))


class DumpsAliases(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    foo: int = Field(alias="fooAlias")


class RootList(RootModel[list[int]]):
    """LangGraph gives back the bare list."""


class RootDict(RootModel[dict[str, int]]):
    pass


class Roots(BaseModel):
    numbers: RootList
    table: RootDict


class Secretive(BaseModel):
    password: SecretStr


class Private(BaseModel):
    a: int = 1
    _hidden: int = PrivateAttr(default=2)


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 1


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class WithInit(BaseModel):
    a: int

    def __init__(self, a: int) -> None:
        super().__init__(a=a)


class Rich(BaseModel):
    color: Color
    pair: tuple[int, str]
    numbers: set[int]
    by_number: dict[int, Color]
    at: dt.datetime


class Doubled(BaseModel):
    a: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class StrictTuple(BaseModel):
    """LangGraph gives back an object that was never validated, with a list in the tuple's place."""

    model_config = ConfigDict(strict=True)
    pair: tuple[int, int]


class Unfit(BaseModel):
    """Its own dump does not validate."""

    a: int

    @field_serializer("a")
    def _in_brackets(self, value: int) -> str:
        return f"<{value}>"


class ForbidsComputed(BaseModel):
    """Its own dump does not validate."""

    model_config = ConfigDict(extra="forbid")
    a: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


# --- subclasses and look-alikes ------------------------------------------------------------------


class MyStr(str):
    __slots__ = ()


class MyDict(dict[str, int]):
    pass


class MyList(list[int]):
    pass


class MySet(set[int]):
    pass


class MyDeque(collections.deque[int]):
    pass


class MyDate(dt.date):
    pass


class MyDatetime(dt.datetime):
    """LangGraph gives back the bare ISO text."""


class MyDelta(dt.timedelta):
    pass


class MyDecimal(decimal.Decimal):
    pass


class MyUUID(uuid.UUID):
    pass


class MyPath(type(pathlib.Path())):  # type: ignore[misc]
    pass


@dataclasses.dataclass
class FailureError(Exception):
    """An exception that is a dataclass is stored as a dataclass."""

    code: int = 1


class Dumps:
    """Has a ``model_dump``, but does not take it back."""

    def model_dump(self) -> dict[str, Any]:
        return {"secret": 1}


class SendLike:
    """Looks like a Send, but does not take its two parts back."""

    def __init__(self) -> None:
        self.node = "n"
        self.arg = 1
