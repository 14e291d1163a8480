"""What a wrapped saver can do: LangGraph's tools look for methods in a saver's class."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

_OPTIONAL: Final = tuple(
    f"{prefix}{name}" for name in ("delete_thread", "delete_for_runs", "prune") for prefix in ("", "a")
)


def as_able_as(saver: Any, kind: Any) -> Any:
    """Return a subclass of ``kind`` that lacks the methods that ``saver`` lacks."""
    return _without(kind, tuple(name for name in _OPTIONAL if _lacks(saver, name)))


@cache
def _without(kind: Any, names: tuple[str, ...]) -> Any:
    """Return a subclass with the methods of the base class of all savers under these names."""
    missing = {name: getattr(kind._absent, name) for name in names}
    return type(kind.__name__, (kind,), {**missing, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _lacks(saver: Any, name: str) -> bool:
    """Whether a saver has a method only from the base class of all savers, or not at all."""
    owner = next((base for base in type(saver).__mro__ if name in vars(base)), None)
    return owner is None or owner.__name__ == "BaseCheckpointSaver"
