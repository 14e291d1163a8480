"""`from sealpoint.langgraph import *` replaces nothing that a program has imported from LangGraph."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import sealpoint.langgraph

MODULES = (
    "langgraph.checkpoint.base",
    "langgraph.checkpoint.memory",
    "langgraph.checkpoint.serde.encrypted",
    "langgraph.checkpoint.serde.jsonplus",
    "langgraph.checkpoint.sqlite",
    "langgraph.checkpoint.sqlite.aio",
    "langgraph.checkpoint.postgres",
    "langgraph.checkpoint.postgres.aio",
    "langgraph.cache.memory",
    "langgraph.cache.sqlite",
    "langgraph.store.memory",
    "langgraph.store.sqlite",
    "langgraph.func",
    "langgraph.graph",
)
OTHERS = ("AsyncSqliteSaver", "EncryptedSerializer", "InMemorySaver", "JsonPlusSerializer", "SqliteSaver")


def test_no_name_stands_for_another_one_of_langgraph() -> None:
    for module in MODULES:
        import_module(module)
    names: dict[str, Any] = {}
    exec("from sealpoint.langgraph import *", names)  # noqa: S102 -- a star is allowed in a module only
    del names["__builtins__"]
    others = {
        (name, module)
        for module, loaded in sys.modules.items()
        if module.startswith("langgraph.")
        for name in names.keys() & vars(loaded).keys()
        if names[name] is not vars(loaded)[name]
    }
    assert others == set()
    assert "SealedSaver" in names


def test_the_others_are_imported_by_name() -> None:
    for name in OTHERS:
        assert vars(sealpoint.langgraph)[name].__module__ == "sealpoint.langgraph"
        assert name not in sealpoint.langgraph.__all__
