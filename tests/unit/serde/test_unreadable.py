"""What is written and could not be read back, a class or a text: an error in strict mode, else a warning."""

from __future__ import annotations

import dataclasses
import enum
import logging
import re
import sys
from collections import deque, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from pydantic import BaseModel

from sealpoint.errors import UnreadableTypeError, UnsupportedTypeError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde import encode as diagnostics
from sealpoint.serde.classes import _DeltaSnapshot
from tests.support.sample_types import Point

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


class Asks:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def local(*bases: type, is_dataclass: bool = False) -> Any:
    """Return a class that is defined in a function."""

    class Local(*bases):  # type: ignore[misc]
        pass

    return dataclasses.dataclass(Local) if is_dataclass else Local


def made(name: str, module: str = __name__) -> Any:
    """Return a dataclass that says where it is."""
    cls = dataclasses.make_dataclass("Made", ["x"])
    cls.__module__, cls.__name__ = module, name
    return cls


def local_enum() -> Any:
    class Colour(enum.Enum):
        RED = 1

    return Colour.RED


def local_tuple() -> Any:
    class Pair(NamedTuple):
        a: int = 1

    return Pair()


UNREADABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "set": (lambda: local(set)([1]), "defined in a function"),
    "enum": (local_enum, "defined in a function"),
    "dataclass": (local(is_dataclass=True), "defined in a function"),
    "named tuple": (local_tuple, "defined in a function"),
    "instance that answers": (local(Asks, is_dataclass=True), "defined in a function"),
    "named tuple by call": (lambda: make_pair(1), "no such name"),
    "nested": (Outer.Inner, "defined in another class"),
    "nested under a name that is taken": (Outer.Model, "another object"),
    "generic": (lambda: Box[int](x=1), "no such name"),
    "shadowed": (lambda: made("T")(1), "not a class"),
    "no module": (lambda: made("Lost", "sealpoint.no_such_module")(1), "no such module"),
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
    assert serde.loads_typed(serde.dumps_typed(local(is_dataclass=True)())) == {}


Pair = namedtuple("Pair", "a")  # noqa: PYI024 -- as older programs write it
make_pair: Any = Pair
del Pair


FINE = {
    "model": Model(),
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
    value, serde = (
        local(is_dataclass=True)(),
        JsonPlusSerializer(allowed_msgpack_modules=[(__name__, "Local")]),
    )
    with pytest.raises(UnreadableTypeError):
        serde.dumps_typed(value)
    monkeypatch.setattr(sys.modules[__name__], "Local", type(value), raising=False)
    assert serde.loads_typed(serde.dumps_typed(value)) == value


# --- lone surrogates ------------------------------------------------------------------------------

LONE = "a\ud800b"


@dataclasses.dataclass
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
strict = JsonPlusSerializer(allowed_msgpack_modules=[Nested, Point])


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


def test_objects_in_objects_are_packed_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One around another is packed again for its own text: in a chain that doubles the work at each."""
    monkeypatch.setattr(diagnostics, "MAX_REPLACEMENTS", 100)
    value: Any = None
    for _ in range(40):
        value = Nested(value, LONE)
    with pytest.raises(UnsupportedTypeError, match="too many objects"):
        permissive.dumps_typed(value)
    assert len(permissive.dumps_typed([LONE] * 1000)[1]) > 3000
