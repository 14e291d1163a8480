"""Searches sealed metadata as the wrapped saver would, and compares JSON values as SQLite and Postgres do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

from sealpoint.seal.jsontext import has_strict_form
from sealpoint.seal.layouts import Rows
from sealpoint.seal.tokens import EXACT, in_json
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


class Search:
    """What a wrapped saver finds for a filter, and which part of the filter it can apply itself."""

    # Whether the saver lists by id, over all threads and namespaces
    lists_by_id: ClassVar[bool] = True

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def applies(self, key: str) -> bool:
        """Whether the saver can search for a key of metadata itself."""
        return key in self._rows.plain

    def has_equals(self, value: Any) -> bool:
        """Whether the database takes values for equal that have other tokens.

        SQLite and Python do so with 1, 1.0 and true, and with integers that are not exact as floats.
        """
        return isinstance(value, int | float) and (value in (0, 1) or abs(value) >= EXACT)

    def wanted(self, value: Any) -> Any:
        """Return a value that is searched for, as it reads in JSON, into which savers turn it."""
        if value is None or isinstance(value, str | int | float):
            return in_json(value)
        try:
            return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value
        except (TypeError, ValueError, RecursionError):
            return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether a key of metadata matches, as it would in the database."""
        raise NotImplementedError

    def divide(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Return the part of a filter that the wrapped saver can apply: plain keys, and tokens.

        Also whether that is the whole filter, so that a limit may be passed on too.
        """
        stored, is_exact = dict[str, Any](), True
        for key, value in wanted.items():
            if self.applies(key) and has_strict_form(value):
                stored[key] = value
                continue
            is_indexed = key in self._rows.indexed and not self.has_equals(value)
            token = self._rows.tokens.token(key, value) if is_indexed else None
            # Rows from before the index, and rows that are not bound, have no tokens.
            if token is None or self._rows.allow_unbound or value is None:
                is_exact = False
            else:
                stored[token] = 1
                is_exact &= not self._rows.keeps_types
        return stored, is_exact


class OnSqlite(Search):
    """As a saver for SQLite searches."""

    def applies(self, key: str) -> bool:
        """Of a plain key, a saver for SQLite may also ask for a part: ``parents.name``."""
        return key in self._rows.plain or key.split(".", maxsplit=1)[0] in self._rows.plain

    def wanted(self, value: Any) -> Any:
        """Return text for what has no form in JSON, as LangGraph's SqliteSaver does."""
        is_known = value is None or isinstance(value, str | int | float | dict | list | tuple)
        return super().wanted(value) if is_known else str(value)

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether SQLite finds the value at a path of keys."""
        found: Any = metadata
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None  # as ``json_extract`` does
        return equals_on_sqlite(found, wanted)


class OnPostgres(Search):
    """As a saver for Postgres searches."""

    def has_equals(self, value: Any) -> bool:
        """Postgres compares decimal digits."""
        return False

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether Postgres finds the value in that of the key."""
        return key in metadata and contains_on_postgres(metadata[key], wanted)


class InPython(Search):
    """As LangGraph's InMemorySaver searches."""

    lists_by_id: ClassVar[bool] = False

    def wanted(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether Python finds them equal."""
        return bool(metadata.get(key) == wanted)


_SEARCHES: Final[Mapping[str, type[Search]]] = {"whole": OnSqlite, "inline": OnPostgres, "values": InPython}


def search_of(rows: Rows) -> Search:
    """Return the search of the saver that has a layout."""
    return _SEARCHES[rows.layout](rows)
