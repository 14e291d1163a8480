"""How much of a query is taken into memory."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any, Final

from sealpoint.errors import EndlessTreeError


class Budget:
    """How much of a query is taken into memory.

    Attributes:
        spent: Whether there was more than that.
    """

    def __init__(self, rows: int, size_bytes: int, *, uncounted: int = 0) -> None:
        """Create a budget of ``rows`` and, for their texts and values, ``size_bytes``.

        The first ``uncounted`` rows are not part of either.
        """
        self._bytes, self._uncounted = size_bytes, uncounted
        self._most_rows = uncounted + max(rows, 1)
        self.spent = False

    def take(self, cursor: sqlite3.Cursor, most_bytes: int = sys.maxsize) -> list[tuple[Any, ...]]:
        """Return the rows that fit, including the one that exceeds the budget.

        Args:
            cursor: The cursor after executing the query.
            most_bytes: The capacity of the file.

        Raises:
            EndlessTreeError: If the rows have more bytes than that.
        """
        taken: list[tuple[Any, ...]] = []
        self.spent, size_bytes, room = False, 0, min(self._bytes, most_bytes)
        for row in cursor:
            taken.append(row)
            if len(taken) <= self._uncounted:
                continue
            for value in row:
                if type(value) is str or type(value) is bytes:  # a number counts as 0
                    size_bytes += len(value)
            if size_bytes > room or len(taken) == self._most_rows:
                self.spent = next(cursor, None) is not None
                break
        if size_bytes > most_bytes:
            raise EndlessTreeError("the rows of a table are more than the file can hold")
        return taken


UNLIMITED: Final = Budget(sys.maxsize, sys.maxsize)
