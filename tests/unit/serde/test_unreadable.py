"""A value whose class a reader would not find is reported when it is written, once per type."""

from __future__ import annotations

import dataclasses
import enum
import logging
import re
import sys
from collections import deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel

from sealpoint.errors import UnreadableTypeError, UnsupportedTypeError
from sealpoint.serde import JsonPlusSerializer

T = TypeVar("T")


class Model(BaseModel):
    x: int = 1


class Box(BaseModel, Generic[T]):
    x: T


class Outer:
    class Inner(BaseModel):
        x: int = 1

    class Model(BaseModel):
        """Named as one at the top of the module, which a reader would find in its place."""

        x: int = 1


def local_set() -> Any:
    class Tags(set[int]):
        pass

    return Tags([1])


def local_deque() -> Any:
    class Items(deque[int]):
        pass

    return Items([1])


def local_enum() -> Any:
    class Colour(enum.Enum):
        RED = 1

    return Colour.RED


def local_dataclass() -> Any:
    @dataclasses.dataclass
    class Point:
        x: int = 1

    return Point()


def local_tuple() -> Any:
    class Pair(NamedTuple):
        a: int = 1

    return Pair()


def local_that_answers_itself() -> Any:
    @dataclasses.dataclass
    class Asked:
        x: int = 1

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    return Asked()


def local_subclass() -> Any:
    class Id(UUID):
        pass

    return Id(int=1)


def shadowed() -> Any:
    made = dataclasses.make_dataclass("T", ["x"])
    made.__module__ = __name__
    return made(1)


def of_no_module() -> Any:
    made = dataclasses.make_dataclass("Lost", ["x"])
    made.__module__ = "sealpoint.no_such_module"
    return made(1)


def no_identifier() -> Any:
    made = dataclasses.make_dataclass("Odd", ["x"])
    made.__module__, made.__name__ = __name__, "a-b.c"
    return made(1)


UNREADABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "set": (local_set, "defined in a function"),
    "deque": (local_deque, "defined in a function"),
    "enum": (local_enum, "defined in a function"),
    "dataclass": (local_dataclass, "defined in a function"),
    "named tuple": (local_tuple, "defined in a function"),
    "instance that answers": (local_that_answers_itself, "defined in a function"),
    "UUID": (local_subclass, "defined in a function"),
    "named tuple by call": (lambda: make_pair(1), "no such name"),
    "nested": (Outer.Inner, "defined in another class"),
    "nested under a name that is taken": (Outer.Model, "something else"),
    "generic": (lambda: Box[int](x=1), "no such name"),
    "shadowed": (shadowed, "not a class"),
    "no module": (of_no_module, "no such module"),
    "no identifier": (no_identifier, "no such name"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_permissive_writes_and_warns_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bytes are those of LangGraph. Another type has a warning of its own."""
    make, cause = UNREADABLE[name]
    value, serde = make(), JsonPlusSerializer(allowed_msgpack_modules=True)
    kinds = {serde.dumps_typed(outer)[0] for outer in (value, [value], {"a": {"b": value}})}
    assert kinds == {"msgpack"}
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("sealpoint.serde", logging.WARNING)
    assert cause in record.getMessage()
    assert type(value).__name__ in record.getMessage()


@pytest.mark.parametrize("name", UNREADABLE)
def test_strict_refuses_each_time(name: str, caplog: pytest.LogCaptureFixture) -> None:
    make, cause = UNREADABLE[name]
    value, serde = make(), JsonPlusSerializer(allowed_msgpack_modules=None)
    for outer in (value, [value], {"a": {"b": value}}):
        with pytest.raises(UnreadableTypeError, match=cause) as caught:
            serde.dumps_typed(outer)
        assert (caught.value.module, caught.value.name) == (type(value).__module__, type(value).__name__)
        assert "top level" in caught.value.hint
    assert serde.dumps_typed([1])[0] == "msgpack"
    assert not caplog.records


def test_strict_that_gives_bare_arguments_warns() -> None:
    """As LangGraph does: what is written comes back as its arguments."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None, on_blocked="raw")
    assert serde.loads_typed(serde.dumps_typed(local_dataclass())) == {"x": 1}


Pair = namedtuple("Pair", "a")  # noqa: PYI024 -- as older programs write it
make_pair: Any = Pair
del Pair


class Described(TypedDict):
    x: int


FINE = {
    "model": Model(),
    "typed dict": Described(x=1),
    "pattern": re.compile("a"),
    "path": Path("a"),
    "error": type("Local", (Exception,), {})("a"),
    "sets": [{1}, frozenset({1}), deque([1])],
}


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("allowed", [None, True])
def test_what_can_be_read_is_not_reported(name: str, allowed: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Types that are not on the allowlist of a strict serializer are written by it all the same."""
    JsonPlusSerializer(allowed_msgpack_modules=allowed).dumps_typed(FINE[name])
    assert not caplog.records


def test_class_that_was_defined_again_is_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object from before a reload is written, and comes back as one of the class of now."""
    old = Model()
    new = type("Model", (BaseModel,), {"__module__": __name__, "__qualname__": "Model"})
    monkeypatch.setattr(sys.modules[__name__], "Model", new)
    serde = JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Model")])
    assert type(serde.loads_typed(serde.dumps_typed(old))) is new


def test_class_that_can_be_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    value, serde = local_dataclass(), JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Point")])
    with pytest.raises(UnreadableTypeError):
        serde.dumps_typed(value)
    monkeypatch.setattr(sys.modules[__name__], "Point", type(value), raising=False)
    assert serde.loads_typed(serde.dumps_typed(value)) == value


def test_value_without_a_form_leaves_nothing_behind() -> None:
    """What is noted of a value that is not written is not held against the next one."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    with pytest.raises(UnsupportedTypeError):
        serde.dumps_typed([local_dataclass(), object()])
    assert serde.dumps_typed([1])[0] == "msgpack"
