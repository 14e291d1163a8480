"""Lazy exports of packages: `dir` lists all names, and each is imported from its module at first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, places: Mapping[str, str], *, others: str = "") -> Callable[[str], Any]:
    """Return a function to be the ``__getattr__`` of a package: it imports each name at first use.

    Args:
        package: ``__name__`` of the package.
        places: Maps the name of a module to the names to import from it, separated by spaces.
        others: Module from which names are imported that are in ``__all__``, but not in ``places``.
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
