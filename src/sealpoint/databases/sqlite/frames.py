"""SQL functions that read the frame in a metadata column, exactly as `sealpoint.base.frame` does.

SQLite's own JSON functions would differ: in a UTF-16 file they take a BLOB for UTF-16, and before 3.45
they do not compare keys with escapes in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sealpoint.base.frame import Frame, find_frame
from sealpoint.sqlite import guard

HAS_FRAME, FRAME_TAG, FRAME_SIZE = "sealpoint_has_frame", "sealpoint_frame_tag", "sealpoint_frame_size"


def arguments(column: str) -> str:
    """Return the arguments of each of the functions for a column, in SQL.

    The bytes as they are stored: text that is not valid would be an error.
    """
    return f"CAST({column} AS BLOB), typeof({column})"


def add_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the functions. No schema may use them: none is trusted."""
    (encoding,) = connection.execute("PRAGMA main.encoding").fetchone()

    @lru_cache(1)  # a statement asks for the tag and the size of one frame
    def find(stored: bytes | None, kind: str) -> Frame | None:
        is_utf8 = kind != "text" or encoding == "UTF-8"
        return find_frame(stored if stored is None or is_utf8 else stored.decode(encoding, "replace"))

    def add(name: str, part: Callable[[Frame | None], Any]) -> None:
        function = guard.keeping_cause(lambda stored, kind: part(find(stored, kind)))
        connection.create_function(name, 2, function, deterministic=True)

    add(HAS_FRAME, lambda frame: frame is not None)
    add(FRAME_TAG, lambda frame: frame and frame.tag)
    add(FRAME_SIZE, _size)


def _size(frame: Frame | None) -> int | None:
    """Return how many characters of base64 the value has."""
    return None if frame is None or frame.value is None else -(-len(frame.value) // 3) * 4
