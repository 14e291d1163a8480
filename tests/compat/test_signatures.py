"""Every public name of LangGraph's modules is here too, with the same signature.

`DIFFERENCES` holds every one that is not, with its reason; a row that is no longer true fails as well.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any, Final

import pytest

MODULES: Final = {
    "langgraph.checkpoint.serde.base": "sealpoint.serde.base",
    "langgraph.checkpoint.serde.types": "sealpoint.serde.types",
    "langgraph.checkpoint.serde.jsonplus": "sealpoint.serde.jsonplus",
    "langgraph.checkpoint.serde.encrypted": "sealpoint.serde.encrypted",
    "langgraph.checkpoint.base": "sealpoint.base",
    "langgraph.checkpoint.base.id": "sealpoint.base.id",
    "langgraph.checkpoint.sqlite": "sealpoint.sqlite",
    "langgraph._internal._replay": "sealpoint.replay",
}
FACES: Final = {"langgraph.checkpoint.base"}
"""Modules from which users import what is defined elsewhere."""

_PASSED_ON = "it is in sealpoint.base"
_INNER = "a number of the format; see sealpoint.serde.encode"

DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "sealpoint.serde.jsonplus": {
        "JsonPlusSerializer.__init__ adds on_blocked": "what may not be rebuilt raises unless it is 'raw'",
        "JsonPlusSerializer.__init__ adds limits": "bytes that are not sealed are checked first",
        "InvalidModuleError.__init__(message) is (module, name, parameter)": "it names the type",
        "no EMPTY_BYTES": "an inner detail",
        **{
            f"no EXT_{name}": _INNER
            for name in (
                "CONSTRUCTOR_KW_ARGS",
                "CONSTRUCTOR_POS_ARGS",
                "CONSTRUCTOR_SINGLE_ARG",
                "DELTA_SNAPSHOT",
                "METHOD_SINGLE_ARG",
                "NUMPY_ARRAY",
                "PYDANTIC_V1",
                "PYDANTIC_V2",
            )
        },
    },
    "sealpoint.serde.encrypted": {
        "EncryptedSerializer.__init__ adds allow_unauthenticated_types": "else such rows are read strictly",
        "EncryptedSerializer.__init__ adds plaintext": "plaintext rows are refused unless it is 'allow'",
        "no EncryptedSerializer.from_pycryptodome_aes": "its rows are bound to nothing; a ring reads them",
    },
    "sealpoint.sqlite": {
        "SqliteSaver.from_conn_string adds serde": "so that a database is opened sealed in one line",
        "no ChannelVersions": _PASSED_ON,
        "no WRITES_IDX_MAP": _PASSED_ON,
        "no DELTA_STAGE1_SQL": "an inner detail",
    },
    "sealpoint.replay": {"no NS_END": "an inner detail"},
}


def public_names(module: Any) -> Iterator[str]:
    """Names that a module defines, and those it passes on if it is a face; no typing machinery."""
    face = module.__name__ in FACES
    for name, value in vars(module).items():
        if name.startswith("_") or name == "TYPE_CHECKING" or isinstance(value, types.ModuleType):
            continue
        home = "" if isinstance(value, types.GenericAlias) else getattr(value, "__module__", None) or ""
        if home in ("", module.__name__) or (face and home.startswith("langgraph.")):
            yield name


def public_methods(cls: type) -> Iterator[str]:
    """Methods and properties that LangGraph's classes have, inherited ones included."""
    for base in cls.__mro__:
        if base.__module__.startswith("langgraph."):
            for name, value in vars(base).items():
                usable = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
                if usable and (not name.startswith("_") or name in ("__init__", "__call__")):
                    yield name


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(function).parameters.items() if name != "self"}


def compare_signatures(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    wanted, found = parameters(theirs), parameters(ours)
    if inspect.iscoroutinefunction(theirs) != inspect.iscoroutinefunction(ours):
        yield f"{name} is not as asynchronous"
    if list(wanted) != [each for each in found if each in wanted]:
        yield f"{name}({', '.join(wanted)}) is ({', '.join(found)})"
        return
    for each in found:
        if each not in wanted:
            optional = found[each].default is not inspect.Parameter.empty
            yield f"{name} adds {each}" if optional else f"{name} demands {each}"
        elif wanted[each].kind is not found[each].kind:
            yield f"{name} takes {each} as {found[each].kind.description}"
        elif not same_default(wanted[each].default, found[each].default):
            yield f"{name} has {each}={found[each].default!r} for {wanted[each].default!r}"


def same_default(one: Any, other: Any) -> bool:
    """Plain values must be equal; of sentinels and objects, only the name of the class."""
    if isinstance(one, type(None) | bool | int | str | tuple):
        return bool(one == other and type(one) is type(other))
    return type(one).__name__ == type(other).__name__


def compare_classes(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    if typing.is_typeddict(theirs):
        for attribute in ("__required_keys__", "__optional_keys__"):
            if getattr(theirs, attribute) != getattr(ours, attribute, None):
                yield f"{name} has other keys"
        return
    if getattr(theirs, "_fields", None) != getattr(ours, "_fields", None):
        yield f"{name} has other fields"
    if getattr(theirs, "_field_defaults", None) != getattr(ours, "_field_defaults", None):
        yield f"{name} has other defaults"
    for method in dict.fromkeys(public_methods(theirs)):
        yield from compare_methods(f"{name}.{method}", theirs, ours, method)


def compare_methods(name: str, theirs: Any, ours: Any, method: str) -> Iterator[str]:
    one, other = inspect.getattr_static(theirs, method), inspect.getattr_static(ours, method, None)
    if other is None:
        yield f"no {name}"
    elif type(one) is not type(other):
        yield f"{name} is no {type(one).__name__}"
    elif not isinstance(one, property):
        yield from compare_signatures(name, getattr(theirs, method), getattr(ours, method))


def compare(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    if inspect.isclass(theirs) and not isinstance(theirs, types.GenericAlias):
        if not inspect.isclass(ours):
            yield f"{name} is no class"
        else:
            yield from compare_classes(name, theirs, ours)
    elif inspect.isfunction(theirs):
        yield from compare_signatures(name, theirs, ours)
    elif isinstance(theirs, typing.TypeVar):
        kinds = "__bound__", "__constraints__", "__covariant__", "__contravariant__"
        if any(getattr(theirs, kind) != getattr(ours, kind, "") for kind in kinds):
            yield f"{name} is another TypeVar"
    elif theirs != ours:
        yield f"{name} is {ours!r} instead of {theirs!r}"


def differences(theirs: Any, ours: Any) -> set[str]:
    """Return every difference between two modules, as the table writes it."""
    found: set[str] = set()
    for name in public_names(theirs):
        if not hasattr(ours, name):
            found.add(f"no {name}")
        elif getattr(getattr(theirs, name), "__module__", "") in ("", "builtins", theirs.__name__):
            found.update(compare(name, getattr(theirs, name), getattr(ours, name)))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_public_names_and_signatures_are_langgraphs(module: str) -> None:
    theirs, ours = importlib.import_module(module), importlib.import_module(MODULES[module])
    assert differences(theirs, ours) == set(DIFFERENCES.get(MODULES[module], {}))


def test_every_difference_has_a_reason() -> None:
    for table in DIFFERENCES.values():
        assert all(len(reason) > 5 for reason in table.values())


def test_an_empty_module_would_be_found_out() -> None:
    """The comparison sees what it should: names by the dozen, methods among them."""
    theirs = importlib.import_module("langgraph.checkpoint.serde.base")
    assert "no SerializerProtocol" in differences(theirs, types.ModuleType("empty"))
    assert set(public_methods(theirs.SerializerProtocol)) >= {"dumps_typed", "loads_typed"}
