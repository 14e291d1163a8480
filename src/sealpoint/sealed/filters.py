"""Filters of metadata: what the wrapped saver can find, and what is compared after opening."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from sealpoint.sealed.layout import Layout
from sealpoint.sealed.rows import Rows
from sealpoint.sealed.tokens import EXACT, in_json
from sealpoint.sqlite.query import are_same

_FLOATS: Final = 2**63
"""From here on, SQLite reads integers of JSON as floats."""


class Filter:
    """A filter, divided between the wrapped saver and this process.

    Attributes:
        stored: The part that the wrapped saver can apply: plain keys, and tokens of indexed keys.
        is_exact: Whether that part is the whole filter, so that a limit may be passed on too.
    """

    __slots__ = ("_layout", "_wanted", "is_exact", "stored")

    def __init__(self, rows: Rows, wanted: Mapping[str, Any] | None) -> None:
        """Divide a filter."""
        self._layout = rows.layout
        self._wanted = {key: _as_json(self._layout, value) for key, value in (wanted or {}).items()}
        self.stored = dict[str, Any]()
        self.is_exact = True
        for key, value in (wanted or {}).items():
            # Of a plain key, a saver for SQLite may also ask for a part: "parents.name".
            if key in rows.plain or (rows.layout is Layout.WHOLE and key.split(".")[0] in rows.plain):
                self.stored[key] = value
                continue
            is_indexed = key in rows.indexed and not self._has_equals(value)
            token = rows.tokens.token(key, value) if is_indexed else None
            # Rows from before the index, and rows that are not bound, have no tokens.
            if token is None or rows.allow_unbound or value is None:
                self.is_exact = False
            else:
                self.stored[token] = 1
                self.is_exact &= self._layout is not Layout.VALUES  # whose values are not those of JSON

    def takes(self, metadata: Mapping[str, Any]) -> bool:
        """Whether metadata matches, as it would match in the database.

        The part that the saver applies too: an index, an operator or a key that stands twice in the readable
        metadata may lead it to another row.
        """
        return all(self._matches(metadata, key, value) for key, value in self._wanted.items())

    def _has_equals(self, value: Any) -> bool:
        """Whether the database takes values for equal that have other tokens.

        SQLite and Python do so with 1, 1.0 and true, and with integers that are not exact as floats.
        """
        if self._layout is Layout.INLINE or not isinstance(value, int | float):
            return False
        return value in (0, 1) or abs(value) >= EXACT

    def _matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        if self._layout is Layout.INLINE:
            return key in metadata and _contains(metadata[key], wanted)
        if self._layout is Layout.VALUES:
            return bool(metadata.get(key) == wanted)
        return _equals(_member(metadata, key), wanted)


def _as_json(layout: Layout, value: Any) -> Any:
    """Return a value as it reads in JSON, into which savers turn what they search for."""
    if layout is Layout.VALUES or isinstance(value, tuple):
        return value
    if value is None or isinstance(value, str | int | float):
        return in_json(value)
    if not isinstance(value, dict | list):
        return str(value) if layout is Layout.WHOLE else value  # as LangGraph's SqliteSaver does
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return value


def _member(metadata: Mapping[str, Any], path: str) -> Any:
    """Return what a path of keys leads to, as ``json_extract`` does; ``None`` if it leads nowhere."""
    found: Any = metadata
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _equals(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal in SQLite, where booleans are the numbers 0 and 1."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict | list) or isinstance(found, dict | list):
        return are_same(found, wanted)
    if isinstance(found, int) and abs(found) >= _FLOATS:  # SQLite reads it as a float
        return bool(float(Decimal(found)) == wanted)
    return bool(found == wanted)


def _contains(found: Any, wanted: Any) -> bool:
    """Whether a JSON value contains another as Postgres' ``@>`` says, which compares decimal digits."""
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and _contains(found[key], part) for key, part in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_contains(one, part) for one in found) for part in wanted)
    if isinstance(wanted, float) or isinstance(found, float):
        return _is_number(found) and _is_number(wanted) and _digits(found) == _digits(wanted)
    return are_same(found, wanted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _digits(number: float) -> Decimal:
    return Decimal(repr(number) if isinstance(number, float) else number)
