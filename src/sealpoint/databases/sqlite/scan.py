"""Walking over the rows of a SQLite table: selection, order, and text that is not UTF-8."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from sealpoint.crypto.tag import BOUND_MARK, LEGACY_END, SEALED_MARK, key_end
from sealpoint.databases.cells import Selection
from sealpoint.errors import DatabaseCorruptError, EndlessTreeError

_NOT_IN_ORDER: Final = "the row ids of a table are not in order"


def require_rising(first: int, row_ids: list[int]) -> None:
    """Refuse row ids that do not rise: a damaged file would be read endlessly.

    Raises:
        DatabaseCorruptError: If one is not above the previous one, or is below ``first``.
    """
    if row_ids and (row_ids[0] < first or any(before >= after for before, after in pairwise(row_ids))):
        raise DatabaseCorruptError(_NOT_IN_ORDER)


def require_found(cursor: sqlite3.Cursor, _most_bytes: int) -> None:
    """Refuse a tree in which a search misses rows, or a walk returns them twice.

    Args:
        cursor: Returns each row id, the last one first, and the row id that a search for it finds.

    Raises:
        DatabaseCorruptError: If row ids are not in order, or one is not found.
    """
    last = 2**63
    for row_id, found in cursor:
        if row_id >= last or found is None:
            raise DatabaseCorruptError(_NOT_IN_ORDER)
        last = row_id


def tally(cursor: sqlite3.Cursor, most_bytes: int) -> list[tuple[Any, int, float]]:
    """Return tags with the number of their rows and the bytes of their values.

    Raises:
        EndlessTreeError: If the values have more bytes than the file.
    """
    found = cursor.fetchall()
    if sum(size for _, _, size in found) > most_bytes:
        raise EndlessTreeError("the values of a table have more bytes than the file")
    return found


class UndecodedText(bytes):
    """The bytes of a text that is not UTF-8, which only a forged file contains. Such a value is refused."""


def text_or_bytes(text: bytes) -> str | UndecodedText:
    """Decode a text, or return its bytes as `UndecodedText`: savers do not read them as a BLOB."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return UndecodedText(text)


def as_bytes(text: str | bytes, encoding: str) -> bytes:
    """Return the bytes of a text that `text_or_bytes` gave, as they stand in a file of this encoding."""
    return text if isinstance(text, bytes) else text.encode(encoding)


def condition(selection: Selection, encoding: str = "UTF-8") -> tuple[str, tuple[Any, ...]]:
    """Return what follows WHERE: what `Selection.takes` says, in SQL.

    Ends are compared as bytes, because GLOB, LIKE and ``substr`` of a text take a NUL for the end.

    Args:
        selection: What is taken.
        encoding: Of the texts in the file.
    """
    text, parts, parameters = "coalesce(type, '')", list[str](), list[Any]()
    mark, stored = f"instr({text}, '{SEALED_MARK}')", f"CAST({text} AS BLOB)"
    if selection.bound is not None:
        found = f"({mark} AND instr(substr({text}, {mark}), '{BOUND_MARK}'))"
        parts.append(f"AND {'' if selection.bound else 'NOT '}{found}")
    if not selection.plaintext:
        parts.append(f"AND {mark}")
    for end in _left_out(selection):
        parts.append(f"AND NOT (substr({stored}, ?) = ? AND {mark})")
        parameters += _end(end, encoding)
    if selection.with_key is not None:
        others = f"{mark} = 0 OR substr({stored}, ?) = ?"
        parts.append(f"AND (substr({stored}, ?) = ? OR {others})")
        parameters += [*_end(LEGACY_END, encoding), *_end(key_end(selection.with_key), encoding)]
    if selection.thread_id is not None:
        parts.append("AND thread_id = ?")
        parameters.append(selection.thread_id)
    return " ".join(parts), tuple(parameters)


def _end(text: str, encoding: str) -> tuple[int, bytes]:
    """Return the parameters that compare the end of a tag."""
    data = text.encode(encoding)
    return -len(data), data


def _left_out(selection: Selection) -> Iterator[str]:
    """Yield the ends of tags that are not taken."""
    if not selection.legacy:
        yield LEGACY_END
    if selection.without_key is not None:
        yield key_end(selection.without_key)
