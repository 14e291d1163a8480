"""How much of a query is taken into memory."""

from __future__ import annotations

import sqlite3
import sys
from itertools import islice
from operator import length_hint
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
        self._rows, self._bytes, self._uncounted = rows, size_bytes, uncounted
        self.spent = False

    def take(self, cursor: sqlite3.Cursor, most_bytes: int = sys.maxsize) -> list[tuple[Any, ...]]:
        """Return the rows that fit, including the one that exceeds the budget.

        Args:
            cursor: The cursor after executing the query.
            most_bytes: The capacity of the file.

        Raises:
            EndlessTreeError: If the rows have more bytes than that.
        """
        taken: list[tuple[Any, ...]] = [*islice(cursor, self._uncounted)]
        size_bytes = room = min(self._bytes, most_bytes)
        for row in islice(cursor, max(self._rows, 1)):
            taken.append(row)
            size_bytes -= sum(map(length_hint, row))  # of texts and values; a number counts as 0
            if size_bytes < 0:
                break
        self.spent = next(cursor, None) is not None
        if room - size_bytes > most_bytes:
            raise EndlessTreeError("the rows of a table are more than the file can hold")
        return taken


UNLIMITED: Final = Budget(sys.maxsize, sys.maxsize)
