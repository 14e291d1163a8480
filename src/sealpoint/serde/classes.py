"""Classes: finding the class that a record names, and whether an object's class would be found."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from inspect import isclass
from types import FunctionType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from sealpoint.errors import UnbuildableValueError, excerpt
from sealpoint.serde.limits import MAX_WARNINGS

_MOVED_MODULES: Final = {"pathlib._local": "pathlib"}  # where Python 3.13 defines its paths
IMPORTABLE: Final = (
    "let this process find the module and what it imports, under the name in the value;"
    " `sealpoint trial` imports it with --import MODULE"
)
_RENAMED: Final = (
    "keep the name at the top of its module while stored values have it, such as OLD = NEW;"
    ' serde=JsonPlusSerializer(on_blocked="raw") returns the bare arguments'
)
_OF_ITS_PROGRAM: Final = (
    "the program that wrote it had the type in its main module, perhaps inside a class or a function: run"
    " that program on a copy of the database, not `sealpoint trial`; for any program to read it, define the"
    " type at the top level of a module, under its own name"
)


def home_of(module: str) -> str:
    """Return the module that a record names for a class of ``module``, and in which it is searched."""
    return _MOVED_MODULES.get(module, module)


def find_class(module: str, name: str) -> Any:
    """Import the current class of a record. The caller has checked that it may be imported."""
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
    """Return why a reader would not find a class by its module and name; ``None`` if it would.

    A redefined class counts as the same one. Nothing is imported: for a module that is not loaded it is
    enough that it exists.
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
    return "its module has something else under that name"


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


ERROR: Final = "__error__"
SCHEDULED: Final = "__scheduled__"
INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
TASKS: Final = "__pregel_tasks"

Value = TypeVar("Value", covariant=True)
Update = TypeVar("Update", contravariant=True)
C = TypeVar("C")


class ChannelProtocol(Protocol[Value, Update, C]):
    """A channel: holds one value of a graph's state and knows how to save it."""

    @property
    def ValueType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of the value."""

    @property
    def UpdateType(self) -> Any:  # noqa: N802 -- LangGraph's name
        """Type of an update."""

    def checkpoint(self) -> C | None:
        """Return what to store, or raise `EmptyChannelError`."""

    def from_checkpoint(self, checkpoint: C | None) -> Self:
        """Return a channel that holds what was stored.

        Args:
            checkpoint: What `checkpoint` returned; ``None`` for an empty channel.
        """

    def update(self, values: Sequence[Update]) -> bool:
        """Apply updates; return whether the value changed.

        Args:
            values: All updates of one step.
        """

    def get(self) -> Value:
        """Return the value, or raise `EmptyChannelError`."""

    def consume(self) -> bool:
        """Mark the value as read; return whether that changed it."""


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
    """The whole value of a delta channel, stored so that a walk over its updates may end here."""

    value: Any


logger: Final = logging.getLogger("sealpoint.serde")

_warned: set[tuple[str, str, str]] = set()


def warn_once(kind: str, module: str, name: str, message: str) -> None:
    """Log one warning per kind and type in this process, and at most a hundred in all."""
    key = (kind, module[:256], name[:256])
    if key in _warned or len(_warned) > MAX_WARNINGS:
        return
    _warned.add(key)
    if len(_warned) > MAX_WARNINGS:
        logger.warning("over %d types have been warned about; no more will be", MAX_WARNINGS)
    else:
        logger.warning("%s: %s", excerpt(f"{module}.{name}"), message)
