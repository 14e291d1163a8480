"""Finds the class that stored bytes name, and checks that a later reader would find an object's class."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass, signature
from types import FunctionType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from sealpoint.errors import UnbuildableValueError, excerpt
from sealpoint.serde.catalogue import CATALOGUE
from sealpoint.serde.limits import MAX_WARNINGS

_MOVED_MODULES: Final = {"pathlib._local": "pathlib"}  # where Python 3.13 defines pathlib's classes
IMPORTABLE: Final = (
    "make the module, and its imports, importable in this process under the name in the value;"
    " `sealpoint trial` imports it with --import MODULE"
)
_RENAMED: Final = (
    "keep the old name at the top of its module while stored values name it, such as OLD = NEW;"
    ' serde=JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
)
_OF_ITS_PROGRAM: Final = (
    "the program that wrote the value had the type in its main module, perhaps in a class or a function: run"
    " that program on a copy of the database, not `sealpoint trial`; to let any program read it, define the"
    " type at the top level of a module, under its own name"
)


def home_of(module: str) -> str:
    """Return the module name that is stored for a class of ``module``; readers import the stored module."""
    return _MOVED_MODULES.get(module, module)


def find_class(module: str, name: str) -> Any:
    """Import the class that a record names. The caller has checked that the class may be imported."""
    home = home_of(module)
    try:
        found = getattr(sys.modules.get(home) or import_module(home), name)
    except Exception as error:  # noqa: BLE001 -- a module may raise anything while it is imported
        is_renamed = isinstance(error, AttributeError) and home in sys.modules
        cause = "its module has no such name" if is_renamed else type(error).__name__
        hint = _OF_ITS_PROGRAM if home == "__main__" else _RENAMED if is_renamed else IMPORTABLE
        raise UnbuildableValueError(module, name, cause, hint=hint) from None
    # LangGraph writes a pattern as a call of re.compile: the one name in its records that is not a class.
    if not isclass(found) and found is not re.compile:
        raise UnbuildableValueError(module, name, "it is not a class")
    return found


def why_not_found(cls: type) -> str | None:
    """Return why a reader would not find a class by its module and name; ``None`` if a reader would.

    A redefined class counts as the same class. Nothing is imported: a class of a module that is not loaded
    counts as found if the module exists.
    """
    module, name = cls.__module__, cls.__name__
    if not isinstance(module, str):
        return "it has no module"
    if home_of(module) not in sys.modules:
        try:
            spec = find_spec(home_of(module))
        except (ImportError, AttributeError, TypeError, ValueError):
            spec = None
        return "there is no such module" if spec is None else None
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
    return "its module has another object under that name"


def answers_by_instance(cls: type, methods: Iterable[str]) -> bool:
    """Whether objects of a class may have other ``methods`` than the class itself.

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


Value = TypeVar("Value", covariant=True)
Update = TypeVar("Update", contravariant=True)
C = TypeVar("C")


class ChannelProtocol(Protocol[Value, Update, C]):
    """A channel of a graph: holds one value of the graph's state, and converts the value to a stored form."""

    @property
    def ValueType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of the value."""

    @property
    def UpdateType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of an update."""

    def checkpoint(self) -> C | None:
        """Return the value to store, or raise `EmptyChannelError`."""

    def from_checkpoint(self, checkpoint: C | None) -> Self:
        """Return a channel with a stored value.

        Args:
            checkpoint: The value that `checkpoint` returned; ``None`` for an empty channel.
        """

    def update(self, values: Sequence[Update]) -> bool:
        """Apply updates; return whether the value changed.

        Args:
            values: All updates of one step.
        """

    def get(self) -> Value:
        """Return the value, or raise `EmptyChannelError`."""

    def consume(self) -> bool:
        """Mark the value as read; return whether this changed the channel."""


@runtime_checkable
class SendProtocol(Protocol):
    """A message to a node: what LangGraph's ``Send`` looks like."""

    node: str
    arg: Any

    def __hash__(self) -> int:
        """Hash by node and argument."""

    def __repr__(self) -> str:
        """Show node and argument."""

    def __eq__(self, value: object) -> bool:
        """Compare node and argument."""


class _DeltaSnapshot(NamedTuple):
    """The whole value of a delta channel, which saves reading the older updates to rebuild the value."""

    value: Any


logger: Final = logging.getLogger("sealpoint.serde")

_warned: set[tuple[str, str, str]] = set()


def warn_once(kind: str, module: str, name: str, message: str) -> None:
    """Log a warning, once per kind of warning and type in this process, and at most a hundred in all."""
    key = (kind, module[:256], name[:256])
    if key in _warned or len(_warned) > MAX_WARNINGS:
        return
    _warned.add(key)
    if len(_warned) > MAX_WARNINGS:
        logger.warning("over %d types have caused a warning; further types will not", MAX_WARNINGS)
    else:
        logger.warning("%s: %s", excerpt(f"{module}.{name}"), message)


# Hooks that run when a model is dumped, or created without validation.
_MODEL_HOOKS: Final = ("model_dump", "model_construct", "model_post_init")
# Types of enum values that msgpack returns unchanged.
_SIMPLE: Final = (bool, int, str, bytes, type(None))


def accepts_its_own(cls: Any) -> bool:
    """Whether a class certainly accepts the stored form of each of its objects.

    A Pydantic model whose validation refuses its dump is created without validation, if no hook would run.
    """
    if (home_of(cls.__module__), cls.__name__) in CATALOGUE or cls is re.Pattern:
        return True
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        own = cls.__mro__[: cls.__mro__.index(pydantic.BaseModel)]
        found = [vars(base)[name] for base in own for name in _MODEL_HOOKS if name in vars(base)]
        return all(getattr(hook, "__name__", "") == "init_private_attributes" for hook in found)  # pydantic's
    try:  # code of the user may define how an enum or a signature is made
        if issubclass(cls, Enum):
            return all(type(each.value) in _SIMPLE and cls(each.value) is each for each in cls)
        if hasattr(cls, "__dataclass_fields__") and not hasattr(cls, "__post_init__"):
            wanted = {field.name for field in dataclasses.fields(cls) if field.init}
            return _is_generated(cls, "__init__") and {*signature(cls).parameters} == wanted
    except Exception:  # noqa: BLE001
        return False
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and _is_generated(cls, "__new__")


def _is_generated(cls: Any, method: str) -> bool:
    """Whether the standard library generated a method of a class, which then accepts any fields unchanged."""
    return getattr(getattr(getattr(cls, method), "__code__", None), "co_filename", "") == "<string>"
