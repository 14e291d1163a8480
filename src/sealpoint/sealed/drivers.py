"""Drivers: checked decoding of columns that a driver, or the wrapped saver or Store, would decode itself.

Cursors of a copied saver or Store return rows whose JSON is parsed here, strictly and within limits, and
whose names and times are checked. On SQLite, a checkpoint's row gets one object with the sealed value and the
columns of parent and metadata.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import cache
from inspect import isasyncgenfunction, unwrap
from typing import Any, Final

from sealpoint.base.metadata import MAX_LEVELS
from sealpoint.errors import RowError
from sealpoint.seal.carrier import Sealed

_CHECKPOINT_COLUMNS: Final = 6  # or more: all, or without the namespace
_ITEM_COLUMNS: Final = 5  # or more
_TEXT: Final = frozenset((str,))


def saver_row(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check a row that SQLite returned to a saver; return the row, with a checkpoint as a `Sealed` object."""
    last = cursor.description[-1][0]
    if last == "idx" and not (type(row[-1]) is int and type(row[-2]) is type(row[0]) is str):
        raise RowError("the key of a write is not text and a number")
    if last != "metadata" or len(row) < _CHECKPOINT_COLUMNS:
        return row
    *names, parent, tag, blob, metadata = row
    return (*names, parent, tag, Sealed(tag, blob, (parent, metadata)), "{}")


def item_row(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check a row that SQLite returned to a Store; return the row with parsed JSON and times."""
    names = cursor.description
    if len(row) < _ITEM_COLUMNS:
        texts, at = row if names[0][0] == "prefix" else (), None
    else:
        at = 1 if names[1][0] == "value" else 2
        texts = (*row[:at], *row[at + 1 : at + 3])
    if not _TEXT.issuperset(map(type, texts)):
        raise RowError("the name or a time of an item is not text")
    if at is None:
        return row
    try:
        datetime.fromisoformat(texts[-1])
        datetime.fromisoformat(texts[-2])
    except ValueError:
        raise RowError("a time of an item is not a date with a time of day") from None
    return (*row[:at], _parse_item(row[at]), *row[at + 1 :])


def _parse_item(stored: Any) -> Any:
    """Parse JSON as `parse_item` does, but faster if orjson wrote it, as in LangGraph's Stores."""
    import orjson

    with suppress(ValueError, TypeError):
        value = orjson.loads(stored)
        if type(value) is dict and orjson.dumps(value) == stored:  # no other parser reads it differently
            return value
    from sealpoint.serde.jsontext import parse_item

    return parse_item(stored)


@cache
def _loaders() -> Sequence[tuple[str, Any]]:
    """Return the functions that decode columns for psycopg, by Postgres type."""
    from psycopg import DataError
    from psycopg.types.datetime import TimestamptzBinaryLoader
    from psycopg.types.json import JsonbBinaryLoader

    from sealpoint.serde.jsontext import parse_item

    class Json(JsonbBinaryLoader):
        def load(self, data: Any) -> Any:
            return parse_item(bytes(data[1:]), MAX_LEVELS)  # after the version of the format

    class Time(TimestamptzBinaryLoader):
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except DataError:
                raise RowError("the time of an item is not within the years 1 to 9999") from None

    return [("jsonb", Json), ("timestamptz", Time)]


_ON_POSTGRES: Final = {
    "langgraph.checkpoint.postgres.base.BasePostgresSaver",
    "langgraph.store.postgres.base.BasePostgresStore",
}


@cache
def _loading(kind: Any) -> Any:
    """Return a subclass whose cursors decode columns by the functions of this module."""
    given = kind._cursor

    def prepare(cursor: Any) -> Any:
        for name, loader in _loaders():
            cursor.adapters.register_loader(name, loader)
        return cursor

    @contextmanager
    def cursor(*arguments: Any, **options: Any) -> Any:
        with given(*arguments, **options) as found:
            yield prepare(found)

    @asynccontextmanager
    async def acursor(*arguments: Any, **options: Any) -> Any:
        async with given(*arguments, **options) as found:
            yield prepare(found)

    method = acursor if isasyncgenfunction(unwrap(given)) else cursor
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__slots__": (), "_cursor": method})


def decoding_late(wrapped: Any) -> Any:
    """Return a copy of a saver or Store that, on Postgres, decodes JSON by this module's functions."""
    made: Any = copy.copy(wrapped)
    kind: Any = type(wrapped)
    if hasattr(made, "_task"):
        made._task = None  # the task of the original: it would be cancelled with the copy
    if not _ON_POSTGRES.isdisjoint(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__):
        made.__class__ = _loading(kind)
    return made
