"""The bridge's savers take what LangGraph's take; `DIFFERENCES` holds all that is different, and why."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver as Base
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirSerializer
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync

from sealpoint import langgraph, memory, sqlite
from sealpoint.base import BaseCheckpointSaver
from sealpoint.sqlite import aio
from tests.compat.test_signatures import compare_classes

PAIRS: Final[dict[str, tuple[type, type]]] = {
    "sqlite.aio": (TheirAsync, aio.AsyncSqliteSaver),
    "memory": (TheirMemory, memory.InMemorySaver),
    "langgraph sqlite": (Theirs, langgraph.SqliteSaver),
    "langgraph sqlite.aio": (TheirAsync, langgraph.AsyncSqliteSaver),
    "langgraph memory": (TheirMemory, langgraph.InMemorySaver),
    "langgraph jsonplus": (TheirSerializer, langgraph.JsonPlusSerializer),
    "langgraph encrypted": (TheirEncrypted, langgraph.EncryptedSerializer),
}

_ONE_LINE: Final = "so that a database is opened sealed in one line"
_MEMORY: Final = {
    "__init__ lacks factory": "values lie in a database in memory, not in a mapping of the caller's",
    "__aexit__ lacks _InMemorySaver__exc_type, _InMemorySaver__exc_value, _InMemorySaver__traceback": (
        "names that no caller can use; Python passes them by position"
    ),
}
_ASYNC: Final = {"from_conn_string adds serde": _ONE_LINE}
DIFFERENCES: Final[dict[str, dict[str, str]]] = {
    "sqlite.aio": _ASYNC,
    "memory": _MEMORY,
    "langgraph sqlite": {"from_conn_string adds serde": _ONE_LINE},
    "langgraph sqlite.aio": _ASYNC,
    "langgraph memory": _MEMORY,
    "langgraph jsonplus": {
        "__init__ adds on_blocked": "what may not be rebuilt raises unless it is 'raw'",
        "__init__ adds limits": "bytes that are not sealed are checked first",
    },
    "langgraph encrypted": {
        "__init__ adds allow_unauthenticated_types": "else such rows are read strictly",
        "__init__ adds allowed_msgpack_modules": "in place of `serde`: what the hints of errors name",
        "__init__ adds compress": "off by default",
        "__init__ adds plaintext": "plaintext rows are refused unless it is 'allow'",
        "no from_pycryptodome_aes": "its rows are bound to nothing; a ring reads them",
    },
}


def differences(theirs: Any, ours: Any) -> set[str]:
    """As `compare_classes` words them, without the name of the class in front."""
    found = set()
    for line in compare_classes("", theirs, ours):
        name, _, rest = line.replace("no .", "no ", 1).removeprefix(".").partition("(")
        found.add(name + lacking(theirs, ours, name) if rest else name)
    return found


def lacking(theirs: Any, ours: Any, method: str) -> str:
    """Name the parameters that a method of ours does not have."""
    wanted, found = (inspect.signature(getattr(each, method)).parameters for each in (theirs, ours))
    return f" lacks {', '.join(name for name in wanted if name not in found)}"


@pytest.mark.parametrize("pair", PAIRS)
def test_methods_and_signatures_are_langgraphs(pair: str) -> None:
    assert differences(*PAIRS[pair]) == set(DIFFERENCES[pair])


def test_every_difference_has_a_reason() -> None:
    assert DIFFERENCES.keys() == PAIRS.keys()
    assert all(len(reason) > 5 for table in DIFFERENCES.values() for reason in table.values())


@pytest.mark.parametrize("ours", [sqlite.SqliteSaver, aio.AsyncSqliteSaver, memory.InMemorySaver])
def test_the_bridge_adds_nothing_of_its_own(ours: Any) -> None:
    """Every method of a saver of the bridge is the one of the class that it stands on."""
    bridged = getattr(langgraph, ours.__name__)
    for name in dir(ours):
        if not name.startswith("__"):
            assert inspect.getattr_static(bridged, name) is inspect.getattr_static(ours, name), name


INHERITED: Final = {"get", "aget", "with_allowlist"}
"""Methods of all savers that call others."""


def test_sealed_saver_has_each_method_itself() -> None:
    """A release of LangGraph with another one makes this fail: without it, the method is refused."""
    methods = {name for name, value in vars(Base).items() if name[0] != "_" and inspect.isfunction(value)}
    bases = {Base, BaseCheckpointSaver}
    owners = {
        name: next(cls for cls in langgraph.SealedSaver.__mro__ if name in vars(cls)) for name in methods
    }
    assert {name for name, owner in owners.items() if owner in bases} == INHERITED


CLASSES = [name for name in langgraph.__all__ if isinstance(getattr(langgraph, name), type)]


@pytest.mark.parametrize("name", sorted({*CLASSES} - {"EmptyChannelError"}))
def test_classes_carry_the_name_under_which_they_are_imported(name: str) -> None:
    assert getattr(langgraph, name).__module__ == "sealpoint.langgraph"
