"""A record means the class that stands under its name now, not the one that stood there at first sight."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sealpoint.serde import JsonPlusSerializer

SOURCE = """
import dataclasses, enum, typing
from pydantic import BaseModel
from langchain_core.messages import HumanMessage

class Colour(enum.Enum):
    RED = "red"

@dataclasses.dataclass
class Point:
    x: int

class Pair(typing.NamedTuple):
    a: int

class Model(BaseModel):
    x: int

class Tags(set):
    pass
"""
KINDS = {
    "enum": "Colour.RED",
    "dataclass": "Point(1)",
    "named tuple": "Pair(1)",
    "pydantic": "Model(x=1)",
    "set": "Tags([1])",
}
MODULE = "sealpoint_reloaded"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(MODULE)
    sys.modules.pop(MODULE, None)


def run_again(module: Any) -> None:
    """What a notebook does with a cell: the same names in the same module, with new classes."""
    exec(SOURCE, vars(module))  # noqa: S102 -- our own text


def put_another(module: Any) -> None:
    """What Streamlit does at a rerun: another module under the same name."""
    fresh = type(sys)(MODULE)
    exec(SOURCE, vars(fresh))  # noqa: S102 -- our own text
    sys.modules[MODULE] = fresh


CHANGES: dict[str, Callable[[Any], Any]] = {
    "reloaded": importlib.reload,
    "run again": run_again,
    "another module": put_another,
    "removed": lambda module: sys.modules.pop(module.__name__),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_class_of_now(module: Any, change: str, kind: str, strict: bool) -> None:
    allowed: Any = [type(eval(KINDS[kind], vars(module)))] if strict else True  # noqa: S307
    serde = JsonPlusSerializer(allowed_msgpack_modules=allowed, on_blocked="raw" if strict else "raise")
    stored = serde.dumps_typed([eval(KINDS[kind], vars(module))] * 2)  # noqa: S307
    before = serde.loads_typed(stored)[0]
    CHANGES[change](module)
    after = serde.loads_typed(stored)[1]
    assert type(after) is getattr(sys.modules[MODULE], type(before).__name__)
    assert type(after) is not type(before)
    assert type(serde.loads_sealed(*stored)[0]) is type(after)
    again = eval(KINDS[kind], vars(sys.modules[MODULE]))  # noqa: S307
    assert serde.loads_typed(serde.dumps_typed([again]))[0] == again


def test_message_that_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a message that is adopted without validation, which remembers a class of its own."""
    from langchain_core.messages import human

    first, serde = human.HumanMessage, JsonPlusSerializer()
    stored = serde.dumps_typed([first("a"), first("b")])
    for _ in range(5):
        assert type(serde.loads_typed(stored)[0]) is first

    class HumanMessage(first):  # type: ignore[misc, valid-type]
        __module__ = first.__module__

    monkeypatch.setattr(human, "HumanMessage", HumanMessage)
    for _ in range(5):
        assert [type(message) for message in serde.loads_typed(stored)] == [HumanMessage] * 2


def test_class_that_is_gone_and_back(module: Any) -> None:
    """Under ``raw`` bare arguments stand for it only as long as it is gone."""
    serde = JsonPlusSerializer(allowed_msgpack_modules=True, on_blocked="raw")
    stored = serde.dumps_typed(module.Point(1))
    del module.Point
    for _ in range(3):
        assert serde.loads_typed(stored) == {"x": 1}
    run_again(module)
    assert serde.loads_typed(stored) == module.Point(1)


def test_class_of_a_module_that_answers_for_its_names(module: Any) -> None:
    """``__getattr__`` of a module is asked each time: what it gives is not in the module's names."""
    classes = [module.Point]
    stored = JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed(module.Point(1))
    del module.Point
    module.__getattr__ = lambda name: classes[-1]
    serde = JsonPlusSerializer(allowed_msgpack_modules=True)
    assert serde.loads_typed(stored) == classes[0](1)
    run_again(module)
    classes.append(module.__dict__.pop("Point"))
    assert serde.loads_typed(stored) == classes[1](1)
