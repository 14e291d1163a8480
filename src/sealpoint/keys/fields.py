"""Fields of the tables in a ring file: which a table may have, and their types."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sealpoint.errors import RingFileError, excerpt


def require_fields(
    table: Mapping[str, Any], known: Collection[str], needed: Collection[str], where: str
) -> None:
    """Refuse a table with an unknown field, or without a required one.

    Raises:
        RingFileError: If a field is not in ``known``, or one of ``needed`` is missing; ``where`` names the
            table in the message.
    """
    for field in table:
        if field not in known:
            raise RingFileError(f"{where} has an unknown field {excerpt(field)}")
    for field in sorted(set(needed) - table.keys()):
        raise RingFileError(f"{where} lacks the field '{field}'")


def get_text(table: Mapping[str, Any], field: str, where: str) -> str | None:
    """Return a field that is one line of text; ``None`` if the table does not have it.

    Raises:
        RingFileError: If it is not a string, is empty, or has a character that is not printable.
    """
    return require_text(table, field, where) if field in table else None


def require_text(table: Mapping[str, Any], field: str, where: str) -> str:
    """Return a field that is one line of text.

    Raises:
        RingFileError: If it is missing, is not a string, is empty, or has a character that is not printable.
    """
    if field not in table:
        raise RingFileError(f"{where} lacks the field '{field}'")
    value = table[field]
    if not isinstance(value, str) or not value or not value.isprintable():
        raise RingFileError(f"{where}: '{field}' is not one line of text")
    return value


def require_words(table: Mapping[str, Any], field: str, where: str) -> tuple[str, ...]:
    """Return a field that is a command: a program and its arguments.

    Raises:
        RingFileError: If it is missing, is not a list of strings, or is empty.
    """
    if field not in table:
        raise RingFileError(f"{where} lacks the field '{field}'")
    value = table[field]
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise RingFileError(f"{where}: '{field}' is a list of words: program and arguments, no shell")
    return tuple(value)


def get_seconds(table: Mapping[str, Any], field: str, where: str, default: float, maximum: float) -> float:
    """Return a field that is a time limit in seconds, or its default.

    Raises:
        RingFileError: If it is not a number over 0, or is over ``maximum``.
    """
    value = table.get(field, default)
    # TOML's true is a bool, which is an int; its nan is equal to nothing and fails both comparisons.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= maximum:
        raise RingFileError(f"{where}: '{field}' is not a number of seconds up to {maximum:g}")
    return float(value)
