"""The reference of the API: every public name says what it is, what it takes, and what it raises."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sealpoint import errors
from tests.support.api import Entry, everything

EVERYTHING = everything()
SECTION = re.compile(r"^([A-Z][a-z]+):\n((?:(?: .*)?\n)*)", re.MULTILINE)
ASYNC = re.compile(r"Async version of `(\w+)`")
SAME = re.compile(r"See `([\w.]+)`\.|Raises as `(\w+)`|As `(\w+)`")


def docstring(value: Any) -> str:
    """The own docstring of a class with that of its constructor, of a function, or of a property."""
    value = getattr(value, "__func__", value)
    parts = [value, vars(value).get("__init__")] if isinstance(value, type) else [value]
    return "\n\n".join(inspect.cleandoc(part.__doc__) for part in parts if part and part.__doc__)


def sections(doc: str) -> dict[str, set[str]]:
    """The names that each section of a docstring in Google's style describes."""
    return {
        title: set(re.findall(r"^ {4}\*{0,2}(\w+)(?: \([^)]*\))?: ", body, re.MULTILINE))
        for title, body in SECTION.findall(f"{doc}\n")
    }


def function_of(value: Any) -> Callable[..., Any] | None:
    """The function whose signature a reader calls; none of an exception, which no caller creates."""
    value = getattr(value, "__func__", getattr(value, "fget", value))
    if isinstance(value, type):
        if issubclass(value, BaseException) or getattr(value, "_is_protocol", False):
            return None
        value = vars(value).get("__init__")
    value = inspect.unwrap(value) if inspect.isfunction(value) else None
    return value if value is not None and value.__code__.co_filename != "<string>" else None  # of a dataclass


def parameters(function: Callable[..., Any]) -> set[str]:
    return {name for name in inspect.signature(function).parameters if name not in {"self", "cls"}}


def fields(value: Any) -> set[str]:
    """The fields of a dataclass or a named tuple, which its constructor takes."""
    own = getattr(value, "__dataclass_fields__", ()) if isinstance(value, type) else ()
    return {name for name in (*own, *getattr(value, "_fields", ())) if not name.startswith("_")}


def raised(function: Callable[..., Any]) -> set[type]:
    """The classes that the statements of a function raise by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names |= {called.id} if isinstance(called, ast.Name) else set()
    found = {known(name, function.__module__) for name in names}
    return {cls for cls in found if cls is not None}


def known(name: str, module: str) -> type | None:
    """The exception of this name."""
    places = (vars(sys.modules[module]), vars(errors), vars(builtins))
    found = next((place[name] for place in places if name in place), None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def faults(entry: Entry) -> Iterator[str]:
    """What the docstring of a public name leaves unsaid, or says wrongly."""
    doc = docstring(entry.value)
    summary = doc.partition("\n")[0]
    if not re.fullmatch(r"[A-Z`].*[.:]", doc.partition("\n\n")[0].replace("\n", " ")):
        yield f"its summary is no sentence: {summary!r}"
    says = sections(doc)
    if (
        isinstance(entry.value, type)
        and (own := fields(entry.value))
        and not says.get("Attributes", set()) >= own
    ):
        yield f"attributes without a description: {own - says.get('Attributes', set())}"
    function = function_of(entry.value)
    if function is None:
        return
    takes = parameters(function) - (fields(entry.value) if isinstance(entry.value, type) else set())
    if "Args" in says:
        if says["Args"] != takes:
            yield f"it describes {sorted(says['Args'])} and takes {sorted(takes)}"
    elif twin := ASYNC.match(doc):
        if entry.owner is not None and takes != parameters(getattr(entry.owner, twin[1])):
            yield f"it is not a version of {twin[1]}, whose parameters differ"
    elif unnamed := {name for name in takes if f"``{name}``" not in doc}:
        yield f"parameters without a description: {sorted(unnamed)}"
    wrong = {name for name in says.get("Raises", ()) if known(name, function.__module__) is None}
    if wrong:
        yield f"no exceptions: {sorted(wrong)}"
    described = tuple(filter(None, (known(name, function.__module__) for name in says.get("Raises", ()))))
    if not SAME.search(doc) and (
        silent := {cls.__name__ for cls in raised(function) if not issubclass(cls, described)}
    ):
        yield f"it raises what it does not describe: {sorted(silent)}"


@pytest.mark.parametrize("entry", EVERYTHING, ids=lambda entry: entry.path)
def test_says_what_it_is_what_it_takes_and_what_it_raises(entry: Entry) -> None:
    assert list(faults(entry)) == []
