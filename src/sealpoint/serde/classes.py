"""Classes: finding the class that a record names, and whether an object's class would be found.

Nothing is cached: after a reload, or when a notebook cell runs again, the same name is another class, and
records mean that class from then on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass
from types import FunctionType
from typing import Any, Final

from sealpoint.errors import UnbuildableValueError

_MOVED_MODULES: Final = {"pathlib._local": "pathlib"}  # where Python 3.13 defines its paths
_IMPORTABLE: Final = (
    "let this process find the module and what it imports, under the name in the value;"
    " `sealpoint trial` imports it with --import MODULE"
)


def home_of(module: str) -> str:
    """Return the module that a record names for a class of ``module``, and in which it is searched."""
    return _MOVED_MODULES.get(module, module)


def find_class(module: str, name: str) -> Any:
    """Import the current class of a record. The caller has checked that it may be imported.

    Raises:
        UnbuildableValueError: If there is no such module or name, or it is not a class.
    """
    home = home_of(module)
    try:
        found = getattr(sys.modules.get(home) or import_module(home), name)
    except Exception as error:  # noqa: BLE001 -- a module may raise anything while it is imported
        hint = _IMPORTABLE if isinstance(error, ModuleNotFoundError) else None
        raise UnbuildableValueError(module, name, type(error).__name__, hint=hint) from None
    # LangGraph writes a pattern as a call of re.compile: the one name in its records that is not a class.
    if not isclass(found) and found is not re.compile:
        raise UnbuildableValueError(module, name, "it is not a class")
    return found


def why_not_found(cls: type) -> str | None:
    """Return why a reader would not find a class by its module and name; ``None`` if it would.

    A redefined class counts as the same one. Nothing is imported: for a module that is not loaded it is
    enough that it exists.
    """
    module, name = cls.__module__, cls.__name__
    if not isinstance(module, str):
        return "it has no module"
    if home_of(module) not in sys.modules:
        return None if _is_importable(home_of(module)) else "there is no such module"
    if "<locals>" in cls.__qualname__:
        reason = "it is defined in a function"
    elif cls.__qualname__.endswith(f".{name}"):
        reason = "it is defined in another class"
    else:
        reason = "its module has no such name"
    try:
        found = find_class(module, name)
    except UnbuildableValueError as error:
        return error.cause if error.cause == "it is not a class" else reason
    if found is cls or (found.__module__, found.__qualname__) == (module, cls.__qualname__):
        return None
    return "its module has something else under that name"


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


def answers_by_instance(cls: type, methods: Iterable[str]) -> bool:
    """Whether the class does not determine which of ``methods`` its objects have.

    pydantic's models also have ``__getattr__``, but their ``model_dump`` is a plain method and is checked
    first. The ``__getattribute__`` slot of classes written in C uses the default lookup: only a Python
    function can differ by instance.
    """
    if callable(getattr(cls, "model_dump", None)):
        return False
    hooks = (vars(base).get(name) for base in cls.__mro__ for name in ("__getattr__", "__getattribute__"))
    if any(isinstance(hook, FunctionType) for hook in hooks):
        return True
    return any(hasattr(cls, name) and not callable(getattr(cls, name)) for name in methods)
