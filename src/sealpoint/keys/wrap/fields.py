"""The fields of a ``[[wrapper]]`` table, and the SDK that a kind of wrapper needs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sealpoint.errors import KeyUnavailableError, RingFileError
from sealpoint.keys.entry import require_fields

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_texts(
    table: Mapping[str, object], where: str, needed: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the fields of a table of which each is one line of text.

    Raises:
        RingFileError: If a field is unknown, missing, or is not one line of text; ``where`` names the table
            in the message.
    """
    require_fields(table, optional | needed, needed, where)
    texts: dict[str, str] = {}
    for field, value in table.items():
        if not isinstance(value, str) or not value or not value.isprintable():
            raise RingFileError(f"{where}: {field!r} is not one line of text")
        texts[field] = value
    return texts


def load_sdk(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Raises:
        KeyUnavailableError: If it is not installed; its hint names the extra.
    """
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
    hint = f"pip install 'sealpoint[{extra}]'"
    raise KeyUnavailableError(f"package {missing!r} of the extra {extra!r} is not installed", hint=hint)
