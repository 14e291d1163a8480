"""Compares JSON values as SQLite and Postgres do, so that a saver can search sealed metadata."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from sealpoint.serde.jsontext import are_same

_FLOATS: Final = 2**63  # from here on, SQLite reads integers of JSON as floats


def equals_on_sqlite(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal in SQLite, where booleans are the numbers 0 and 1."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict | list) or isinstance(found, dict | list):
        return are_same(found, wanted)
    if isinstance(found, int) and abs(found) >= _FLOATS:  # SQLite reads it as a float
        return bool(float(Decimal(found)) == wanted)
    return bool(found == wanted)


def contains_on_postgres(found: Any, wanted: Any) -> bool:
    """Whether a JSON value contains another by Postgres' operator ``@>``, which compares decimal digits."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and contains_on_postgres(found[key], part) for key, part in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(
            any(contains_on_postgres(one, part) for one in found) for part in wanted
        )
    if isinstance(wanted, float) or isinstance(found, float):
        return _is_number(found) and _is_number(wanted) and _digits(found) == _digits(wanted)
    return are_same(found, wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _digits(number: float) -> Decimal:
    return Decimal(repr(number) if isinstance(number, float) else number)
