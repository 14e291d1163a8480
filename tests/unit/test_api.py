"""The reference of the API: every public name says what it is, what it takes, and what it raises."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from sealpoint import errors
from tests.support.api import Entry, described_by, everything

EVERYTHING = everything()
SECTION = re.compile(r"^([A-Z][a-z]+):\n((?:(?: .*)?\n)*)", re.MULTILINE)
AS_ANOTHER = re.compile(r"Async version of `|Raises as `")


def docstring(value: Any) -> str:
    """The own docstring of a class with that of its constructor, of a function, or of a property."""
    value = getattr(value, "__func__", value)
    parts = [value, vars(value).get("__init__")] if isinstance(value, type) else [value]
    return "\n\n".join(inspect.cleandoc(part.__doc__) for part in parts if part and part.__doc__)


def sections(doc: str) -> dict[str, set[str]]:
    """The names that each section of a docstring in Google's style describes."""
    return {
        title: set(re.findall(r"^ {4}\*{0,2}(\w+): ", body, re.MULTILINE))
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
    says = sections(doc)
    if not re.fullmatch(r"[A-Z`].*[.:]", doc.partition("\n\n")[0].replace("\n", " ")):
        yield f"its summary is no sentence: {doc.partition(chr(10))[0]!r}"
    if unsaid := fields(entry.value) - says.get("Attributes", set()):
        yield f"attributes without a description: {sorted(unsaid)}"
    function = function_of(entry.value)
    if function is not None:
        yield from faults_of_parameters(entry, doc, parameters(function))
        yield from faults_of_errors(doc, function)


def faults_of_parameters(entry: Entry, doc: str, takes: set[str]) -> Iterator[str]:
    """Each is in the section, or named in the sentences of a docstring without one."""
    said = sections(doc).get("Args")
    twin = described_by(entry) if takes else None
    if said is not None:
        if said != takes:
            yield f"it describes {sorted(said)} and takes {sorted(takes)}"
    elif twin is not None:
        other = import_module(entry.module) if entry.owner is None else entry.owner
        if takes != parameters(getattr(other, twin.rpartition(".")[2])):
            yield f"its parameters are not those of {twin}"
    elif unnamed := {name for name in takes if f"``{name}``" not in doc}:
        yield f"parameters without a description: {sorted(unnamed)}"


def faults_of_errors(doc: str, function: Callable[..., Any]) -> Iterator[str]:
    """The section names exceptions, and among them each that the function raises, or its base class."""
    said = {name: known(name, function.__module__) for name in sections(doc).get("Raises", ())}
    if wrong := {name for name, cls in said.items() if cls is None}:
        yield f"no exceptions: {sorted(wrong)}"
    described = (NotImplementedError, *filter(None, said.values()))
    silent = {cls.__name__ for cls in raised(function) if not issubclass(cls, described)}
    if silent and not AS_ANOTHER.search(doc):
        yield f"it raises what it does not describe: {sorted(silent)}"


@pytest.mark.parametrize("entry", EVERYTHING, ids=lambda entry: entry.path)
def test_says_what_it_is_what_it_takes_and_what_it_raises(entry: Entry) -> None:
    assert list(faults(entry)) == []
