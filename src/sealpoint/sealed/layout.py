"""Layouts: how a saver stores a checkpoint, and so what of it can be sealed as one value."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Final

from sealpoint.errors import ConfigError


class Layout(StrEnum):
    """How a saver stores a checkpoint."""

    WHOLE = "whole"
    """Its serializer gets the whole checkpoint. It is sealed as one value, with its metadata."""

    INLINE = "inline"
    """Text, numbers, booleans and None stand in a JSON column, all other values in rows of their own."""

    VALUES = "values"
    """Each value is in an entry of its own, and the serializer gets metadata too."""


_CLASSES: Final = {
    "langgraph.checkpoint.sqlite.SqliteSaver": Layout.WHOLE,
    "langgraph.checkpoint.sqlite.aio.AsyncSqliteSaver": Layout.WHOLE,
    "sealpoint.sqlite.saver.SqliteSaver": Layout.WHOLE,
    "sealpoint.sqlite.SqliteSaver": Layout.WHOLE,
    "langgraph.checkpoint.postgres.base.BasePostgresSaver": Layout.INLINE,
    "langgraph.checkpoint.memory.InMemorySaver": Layout.VALUES,
}
_SHALLOW: Final = frozenset(
    {
        "langgraph.checkpoint.postgres.shallow.ShallowPostgresSaver",
        "langgraph.checkpoint.postgres.shallow.AsyncShallowPostgresSaver",
    }
)


def layout_of(saver: Any, layout: str) -> Layout:
    """Return the layout of a saver.

    Args:
        saver: The saver.
        layout: ``auto``, or the layout by name for a saver of another class.

    Raises:
        ConfigError: If the saver cannot be sealed, or its layout is not known.
    """
    _require_saver(saver)
    names = [f"{base.__module__}.{base.__qualname__}" for base in type(saver).__mro__]
    if not _SHALLOW.isdisjoint(names) or any("Shallow" in name for name in names):
        raise ConfigError(
            f"{type(saver).__name__} stores no checkpoint ids, so its rows cannot be bound",
            hint="use PostgresSaver or AsyncPostgresSaver",
        )
    if layout != "auto":
        try:
            return Layout(layout)
        except ValueError:
            known = ", ".join(["auto", *Layout])
            raise ConfigError(f"layout is {layout!r}, not one of {known}") from None
    for name in names:
        if name in _CLASSES:
            return _CLASSES[name]
    if hasattr(saver, "UPSERT_CHECKPOINT_BLOBS_SQL"):  # kin of PostgresSaver, such as those for MySQL
        return Layout.INLINE
    raise ConfigError(
        f"the layout of {type(saver).__name__} is not known",
        hint=(
            "pass layout='whole' if its serializer gets the whole checkpoint, 'inline' if it stores text and"
            " numbers outside of it, 'values' if its serializer gets each value and the metadata"
        ),
    )


def _require_saver(saver: Any) -> None:
    """Refuse what a first program often has in place of a saver, each with the line to write."""
    if isinstance(saver, type):
        problem = f"{saver.__name__} is a class, not a saver"
    elif hasattr(saver, "get_tuple") or hasattr(saver, "aget_tuple"):
        return
    elif type(saver).__module__ == "contextlib":
        entered = "with" if isinstance(saver, AbstractContextManager) else "async with"
        raise ConfigError(
            "the saver is a context manager, as `from_conn_string` returns it, and has not been entered",
            hint=f"enter it first: {entered} ... as saver: SealedSaver(saver, ...)",
        )
    else:
        problem = f"{type(saver).__name__} is not a saver"
    raise ConfigError(problem, hint="wrap a saver: SealedSaver(SqliteSaver(connection), ...)")
