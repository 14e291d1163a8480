"""SQL functions that read the frame in a metadata column, exactly as `sealpoint.base.frame` does.

SQLite's own JSON functions would differ: in a UTF-16 file they take a BLOB for UTF-16, and before 3.45
they do not compare keys with escapes in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from sealpoint.base.frame import Frame, find_frame
from sealpoint.sqlite import guard

HAS_FRAME, FRAME_TAG, FRAME_SIZE = "sealpoint_has_frame", "sealpoint_frame_tag", "sealpoint_frame_size"
_OF_TEXT: Final = "_of_text"  # of these functions for values that are stored as text, in the file's encoding


def call(name: str, column: str) -> str:
    """Return the call of one of the functions for a column, in SQL.

    It receives the bytes as they are stored: text that is not valid would be an error.
    """
    stored = f"CAST({column} AS BLOB)"
    return f"CASE typeof({column}) WHEN 'text' THEN {name}{_OF_TEXT}({stored}) ELSE {name}({stored}) END"


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions. No schema may use them: none is trusted."""
    (encoding,) = connection.execute("PRAGMA main.encoding").fetchone()

    def find_in_text(stored: bytes) -> Frame | None:
        return find_frame(stored if encoding == "UTF-8" else stored.decode(encoding, "replace"))

    for suffix, find in (("", find_frame), (_OF_TEXT, find_in_text)):
        for name, function in _functions(lru_cache(1)(find)):  # a statement asks for the tag and the size
            kept = guard.keeping_cause(function)
            connection.create_function(name + suffix, 1, kept, deterministic=True)


def _functions(find: Callable[[Any], Frame | None]) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield the functions by name; ``find`` returns the frame in a stored value."""
    yield HAS_FRAME, lambda stored: find(stored) is not None
    yield FRAME_TAG, lambda stored: (frame := find(stored)) and frame.tag
    yield FRAME_SIZE, lambda stored: _size(find(stored))


def _size(frame: Frame | None) -> int | None:
    """Return how many characters of base64 the value has."""
    return None if frame is None or frame.value is None else -(-len(frame.value) // 3) * 4
