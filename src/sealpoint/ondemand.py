"""Faces of packages: `dir` lists a name, which is imported from its module when it is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, places: Mapping[str, str], *, others: str = "") -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a package, which gives the names of its ``__all__`` and more.

    Args:
        package: Its ``__name__``.
        places: By the module that has them, names with spaces between them.
        others: The module that has those of ``__all__`` that are not among them.
    """
    face: Any = sys.modules[package]
    modules = {name: module for module, names in places.items() for name in names.split()}

    def get(name: str) -> Any:
        module = modules.get(name) or (others if name in face.__all__ else "")
        if not module:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=face)
        found = getattr(import_module(f"sealpoint.{module}"), name)
        setattr(face, name, found)
        return found

    face.__dir__ = lambda: sorted({*vars(face), *modules, *face.__all__})
    return get
