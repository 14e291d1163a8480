"""Searches sealed metadata among the results of the wrapped saver; compares as SQLite and Postgres do."""

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
    """Whether a JSON value contains another by Postgres' operator ``@>``: numbers are exact decimals."""
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
    """How one kind of saver matches metadata, and the part of a filter that this saver can apply."""

    # Whether the saver lists by id, over all threads and namespaces
    lists_by_id: ClassVar[bool] = True

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def applies(self, key: str) -> bool:
        """Whether the wrapped saver can apply a key of a filter itself."""
        return key in self._rows.plain

    def has_equals(self, value: Any) -> bool:
        """Whether values exist that the database considers equal, but that have different tokens.

        On SQLite and in Python these are 1, 1.0 and true, and integers that floats cannot represent exactly.
        """
        return isinstance(value, int | float) and (value in (0, 1) or abs(value) >= EXACT)

    def wanted(self, value: Any) -> Any:
        """Return the searched value as it is read back from JSON: savers convert the value to JSON."""
        if value is None or isinstance(value, str | int | float):
            return in_json(value)
        try:
            return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value
        except (TypeError, ValueError, RecursionError):
            return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether the metadata has the searched value under a key, compared as the database does."""
        raise NotImplementedError

    def divide(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """Return the part of a filter that the wrapped saver can apply: plain keys, and tokens of others.

        Also return whether that part is the whole filter, so that the saver may apply a limit.
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
    """The search of a saver on SQLite."""

    def applies(self, key: str) -> bool:
        """Whether the saver can apply a key: a plain key, or a path into one such as ``parents.name``."""
        return key in self._rows.plain or key.split(".", maxsplit=1)[0] in self._rows.plain

    def wanted(self, value: Any) -> Any:
        """Return the value as read back from JSON; as text if JSON lacks its type, like LangGraph's saver."""
        is_known = value is None or isinstance(value, str | int | float | dict | list | tuple)
        return super().wanted(value) if is_known else str(value)

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether SQLite would find the searched value at a path of keys."""
        found: Any = metadata
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None  # as ``json_extract`` does
        return equals_on_sqlite(found, wanted)


class OnPostgres(Search):
    """The search of a saver on Postgres."""

    def has_equals(self, value: Any) -> bool:
        """Return false: Postgres compares decimal digits, as tokens do."""
        return False

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether Postgres would match the metadata's value under a name with the value of the filter."""
        return key in metadata and contains_on_postgres(metadata[key], wanted)


class InPython(Search):
    """The search of LangGraph's InMemorySaver."""

    lists_by_id: ClassVar[bool] = False

    def wanted(self, value: Any) -> Any:
        """Return the searched value unchanged."""
        return value

    def matches(self, metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
        """Whether the key's value equals the searched value in Python."""
        return bool(metadata.get(key) == wanted)


_SEARCHES: Final[Mapping[str, type[Search]]] = {"whole": OnSqlite, "inline": OnPostgres, "values": InPython}


def search_of(rows: Rows) -> Search:
    """Return the search of savers with this layout."""
    return _SEARCHES[rows.layout](rows)
