"""Every public name of LangGraph's modules is here too, with the same signature.

`DIFFERENCES` holds every one that is not, with its reason; a row that is no longer true fails as well.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from importlib.metadata import files
from typing import Any, Final

import pytest

DISTRIBUTIONS: Final = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite")

NOT_OURS: Final = {
    "langgraph.cache.": "caches remain LangGraph's; SealedCache wraps any of them",
    "langgraph.store.": "stores remain LangGraph's; SealedStore wraps any of them",
    "langgraph.checkpoint.serde.event_hooks": "no serializer here emits events: no listener would be called",
    "langgraph.checkpoint.sqlite.utils": "SQL of LangGraph's saver; not on its reference",
}
"""Modules without a counterpart, each with its reason; a name that ends with a dot stands for all in it."""


def installed() -> Iterator[str]:
    """The public modules that LangGraph's distributions install, whatever their release."""
    for distribution in DISTRIBUTIONS:
        for file in files(distribution) or ():
            parts = file.with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if file.suffix == ".py" and not any(part.startswith("_") for part in parts):
                yield ".".join(parts)
    yield "langgraph._internal._replay"


def swapped(module: str) -> str:
    """The module that has the names of one of LangGraph's here."""
    return module.replace("langgraph.checkpoint", "sealpoint").replace("langgraph._internal._", "sealpoint.")


def reasons(module: str) -> list[str]:
    return [each for each in NOT_OURS if module == each or (each[-1] == "." and module.startswith(each))]


INSTALLED: Final = sorted(installed())
MODULES: Final = {module: swapped(module) for module in INSTALLED if not reasons(module)}
FACES: Final = {"langgraph.checkpoint.base"}
"""Modules from which users import what is defined elsewhere."""

_PASSED_ON = "it is in sealpoint.base"
_AEXIT = ", ".join(f"_InMemorySaver__{name}" for name in ("exc_type", "exc_value", "traceback"))
_INNER = "a number of the format; see sealpoint.serde.encode"

DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "sealpoint.serde.jsonplus": {
        "JsonPlusSerializer.__init__ adds on_blocked": "what may not be rebuilt raises unless it is 'raw'",
        "JsonPlusSerializer.__init__ adds limits": "bytes that are not sealed are checked first",
        "InvalidModuleError.__init__(message) is (module, name, parameter)": "it names the type",
        "no EMPTY_BYTES": "an inner detail",
        "no LC_REVIVER": "an inner detail",
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
        "EncryptedSerializer.__init__ adds allowed_msgpack_modules": "in place of `serde`: what hints name",
        "EncryptedSerializer.__init__ adds compress": "off by default",
        "EncryptedSerializer.__init__ adds plaintext": "plaintext rows are refused unless it is 'allow'",
        "no EncryptedSerializer.from_pycryptodome_aes": "its rows are bound to nothing; a ring reads them",
    },
    "sealpoint.sqlite": {
        "SqliteSaver.from_conn_string adds serde": "so that a database is opened sealed in one line",
        "no ChannelVersions": _PASSED_ON,
        "no WRITES_IDX_MAP": _PASSED_ON,
        "no DELTA_STAGE1_SQL": "an inner detail",
    },
    "sealpoint.sqlite.aio": {
        "AsyncSqliteSaver.from_conn_string adds serde": "so that a database is opened sealed in one line",
        "no ChannelVersions": _PASSED_ON,
        "no WRITES_IDX_MAP": _PASSED_ON,
        "no DELTA_STAGE1_SQL": "an inner detail",
        "no T": "an inner detail",
    },
    "sealpoint.memory": {
        **{
            f"{name}.__init__(serde, factory) is (serde)": "the checkpoints are in SQLite, not in dicts"
            for name in ("InMemorySaver", "MemorySaver")
        },
        **{
            f"{name}.__aexit__({_AEXIT}) is (exception)": "only a with statement calls it"
            for name in ("InMemorySaver", "MemorySaver")
        },
        "no ChannelVersions": _PASSED_ON,
        "no PersistentDict": "the checkpoints are in SQLite, not in dicts",
        "no PendingWrite": _PASSED_ON,
        "no WRITES_IDX_MAP": _PASSED_ON,
        "no logger": "nothing is logged",
    },
    "sealpoint.replay": {"no NS_END": "an inner detail"},
}


def public_names(module: Any) -> Iterator[str]:
    """Names that a module defines, and those that it passes on if it is a face."""
    for name, value in vars(module).items():
        if name.startswith("_") or name == "TYPE_CHECKING" or isinstance(value, types.ModuleType):
            continue
        home = home_of(name, value)
        foreign = home.partition(".")[0] in sys.stdlib_module_names
        if home in ("", module.__name__) or (module.__name__ in FACES and not foreign):
            yield name


def home_of(name: str, value: Any) -> str:
    """The module that a value was imported from: its own has it under the same name."""
    home = "" if isinstance(value, types.GenericAlias) else getattr(value, "__module__", None) or ""
    return home if getattr(sys.modules.get(home), name, None) is value else ""


SPECIAL: Final = ("__init__", "__call__", "__enter__", "__exit__", "__aenter__", "__aexit__")


def public_members(cls: type) -> Iterator[str]:
    """Methods, properties and attributes that LangGraph's classes have, inherited ones included."""
    for base in cls.__mro__:
        if base.__module__.startswith("langgraph."):
            yield from (name for name in vars(base) if not name.startswith("_") or name in SPECIAL)


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
    for member in dict.fromkeys(public_members(theirs)):
        yield from compare_members(f"{name}.{member}", theirs, ours, member)


def compare_members(name: str, theirs: Any, ours: Any, member: str) -> Iterator[str]:
    one, other = inspect.getattr_static(theirs, member), inspect.getattr_static(ours, member, None)
    is_method = inspect.isfunction(one) or isinstance(one, classmethod | staticmethod)
    if not hasattr(ours, member):
        yield f"no {name}"
    elif not is_method and not isinstance(one, property):
        return  # a value, which the instances have too: see test_instances
    elif type(one) is not type(other):
        yield f"{name} is no {type(one).__name__}"
    elif is_method:
        yield from compare_signatures(name, getattr(theirs, member), getattr(ours, member))


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
    elif isinstance(theirs, logging.Logger):
        if not isinstance(ours, logging.Logger) or not MODULES[theirs.name].startswith(ours.name):
            yield f"{name} is not the logger of the package"
    elif theirs != ours:
        yield f"{name} is {ours!r} instead of {theirs!r}"


def differences(theirs: Any, ours: Any) -> set[str]:
    """Return every difference between two modules, as the table writes it."""
    found: set[str] = set()
    for name in public_names(theirs):
        if not hasattr(ours, name):
            found.add(f"no {name}")
        elif home_of(name, getattr(theirs, name)) in ("", theirs.__name__):
            found.update(compare(name, getattr(theirs, name), getattr(ours, name)))
    return found


def test_the_paths_of_a_release_are_known() -> None:
    """What is on LangGraph's reference is among those found, and each that is left out exists."""
    assert MODULES.keys() >= {"langgraph.checkpoint.base.id", "langgraph.checkpoint.serde.types"}
    assert MODULES.keys() >= {"langgraph.checkpoint.memory", "langgraph.checkpoint.sqlite.aio"}
    assert {reason for module in INSTALLED for reason in reasons(module)} == NOT_OURS.keys()


@pytest.mark.parametrize("module", MODULES)
def test_every_path_imports_under_the_prefix_swap(module: str) -> None:
    """In a process of its own, as in a program where nothing else has loaded the package."""
    subprocess.run([sys.executable, "-c", f"import {MODULES[module]}"], check=True)


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
    assert set(public_members(theirs.SerializerProtocol)) >= {"dumps_typed", "loads_typed"}
