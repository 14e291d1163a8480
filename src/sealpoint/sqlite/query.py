"""What a caller asks for: configs, filters and limits, checked and turned into parameters."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any, Final

from sealpoint.base import RunnableConfig
from sealpoint.base.metadata import MAX_DEPTH, MAX_ELEMENTS
from sealpoint.base.place import configurable_of, optional_text, require_place, require_unicode
from sealpoint.errors import ConfigError, ConfigKeyError, DecodeError, excerpt
from sealpoint.serde.jsontext import parse
from sealpoint.sqlite import schema
from sealpoint.sqlitefile import guard

SAME_JSON: Final = "sealpoint_same_json"
_FILTER_KEY: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _require_integer(name: str, number: float) -> float:
    """Return ``number``, if SQLite can hold it: integers have 64 bits there."""
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise ConfigError(f"{name} has over 64 bits")
    return number


def select_keys(
    config: RunnableConfig | None,
    metadata: dict[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> tuple[str, list[Any]]:
    """Return the statement that finds the keys of the checkpoints to list, and its parameters.

    Keys first, rows later: SQLite would carry whole values through its sort.
    """
    conditions = _place_conditions(config) + _filter_conditions(metadata) + _before_conditions(before)
    where = f" WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
    parameters = [value for _, values in conditions for value in values]
    found = f"{schema.SELECT_KEYS_OF_ALL if metadata and config is None else schema.SELECT_KEYS}{where}"
    if limit is not None and config is not None and config["configurable"].get("checkpoint_ns") is None:
        found = schema.from_the_end(found)  # with a namespace the index has the order
    return f"{found} ORDER BY checkpoint_id DESC LIMIT ?", [*parameters, _limit(limit)]


def _place_conditions(config: RunnableConfig | None) -> list[tuple[str, list[Any]]]:
    if config is None:
        return []
    place = require_place(config)
    conditions: list[tuple[str, list[Any]]] = [("thread_id = ?", [place.thread_id])]
    if config["configurable"].get("checkpoint_ns") is not None:
        conditions.append(("checkpoint_ns = ?", [place.checkpoint_ns]))
    if place.checkpoint_id:
        conditions.append(("checkpoint_id = ?", [place.checkpoint_id]))
    return conditions


def _filter_conditions(metadata: dict[str, Any] | None) -> list[tuple[str, list[Any]]]:
    conditions: list[tuple[str, list[Any]]] = []
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not _FILTER_KEY.fullmatch(key):
            raise ConfigError(f"filter key {excerpt(key)} is not made of letters, digits, '_', '-' and '.'")
        conditions.append(_filter_condition(key, value))
    return conditions


def _filter_condition(key: str, value: Any) -> tuple[str, list[Any]]:
    # Metadata is a BLOB. Without the CAST, SQLite 3.45 and later may take its bytes for JSONB.
    path, metadata = f"$.{key}", "CAST(metadata AS TEXT)"
    found, kind = f"json_extract({metadata}, ?)", f"json_type({metadata}, ?)"
    if value is None:
        return f"{found} IS NULL", [path]
    if isinstance(value, str):  # an object is extracted as its text, which is no string of the metadata
        text = require_unicode(f"filter value of {key!r}", value)
        return f"({found} = ? AND {kind} = 'text')", [path, text, path]
    if isinstance(value, int | float):
        # SQLite may read the fractions of JSON by the locale of the process; a CAST does not. Of two paths it
        # extracts the text of an array, and a CAST takes the number at the beginning of a text.
        text = f"substr(json_extract({metadata}, ?, ?), 2)"
        number = f"CASE {kind} WHEN 'real' THEN CAST({text} AS REAL) ELSE {found} END"
        return f"{number} = ?", [*[path] * 4, _require_integer(f"filter value of {key!r}", value)]
    if not isinstance(value, dict | list | tuple):
        raise ConfigError(f"filter value of {key!r} is {type(value).__name__}, which JSON does not have")
    wanted = "object" if isinstance(value, dict) else "array"
    same = f"CASE {kind} WHEN '{wanted}' THEN {SAME_JSON}('[' || {found} || ',' || ? || ']') ELSE 0 END"
    return same, [path, path, _filter_text(key, value)]


def _filter_text(key: str, value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        parse(require_unicode(f"filter value of {key!r}", text).encode(), MAX_DEPTH, MAX_ELEMENTS)
    except ConfigError:
        raise
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(f"filter value of {key!r} has no form in JSON") from None
    return text


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the function that filters use. No schema may use it: none is trusted."""
    connection.create_function(SAME_JSON, 1, guard.keeping_cause(_is_same_json), deterministic=True)


def _is_same_json(pair: str) -> bool:
    """Whether both elements of a JSON array are the same JSON value, whatever the order of keys."""
    try:
        stored, wanted = parse(pair.encode(), MAX_DEPTH + 1, 2 * (MAX_ELEMENTS + 1))
    except DecodeError:  # what is stored is not strict JSON: it is no value
        return False
    return are_same(stored, wanted)


def are_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, and ``true`` is neither."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _before_conditions(before: RunnableConfig | None) -> list[tuple[str, list[Any]]]:
    if before is None:
        return []
    checkpoint_id = optional_text(configurable_of(before), "checkpoint_id")
    if checkpoint_id is None:
        raise ConfigKeyError("'before' names no 'checkpoint_id', so it is before nothing")
    return [("checkpoint_id < ?", [checkpoint_id])]


def _limit(limit: int | None) -> int:
    if limit is None:
        return -1
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ConfigError(f"limit is {excerpt(str(limit))}; it is a whole number, 0 or more")
    return int(_require_integer("limit", limit))
