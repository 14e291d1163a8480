"""Failures of a run over a database, and their accumulator."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sealpoint.databases.cells import Cell
from sealpoint.errors import KeyRingError

MAX_KEPT: Final = 1000
MAX_CAUSES: Final = 20
MAX_CHARS: Final = 1000
"""How much is kept of a text of a row that failed: a hostile one may have many megabytes."""

_OTHER_CAUSES: Final = "other causes"


class Failure(NamedTuple):
    """A value did not open; it was not changed.

    Attributes:
        table: The label of its column, see `Column.label`.
        place: The columns of the row's key by name.
        tag: Its tag.
        error: Why it did not open.
    """

    table: str
    place: dict[str, Any]
    tag: Any
    error: Exception


def failure(cell: Cell, error: Exception) -> Failure:
    """Return the failure of a cell."""
    return Failure(cell.where.column.label, cell.where.names, cell.tag, _bare(error))


def _bare(error: Exception) -> Exception:
    """Return an error without a traceback, which would keep bytes of a value in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _cut(value: Any) -> Any:
    return value[:MAX_CHARS] if isinstance(value, str | bytes) and len(value) > MAX_CHARS else value


class Failures:
    """The failures of a run.

    Attributes:
        count: How many values failed.
        kept: The first failures, at most `MAX_KEPT`, with at most `MAX_CHARS` of each text.
        causes: Number of failures by cause, grouped by hint. Causes beyond `MAX_CAUSES` are counted as one:
            a forged database may have any number.
        lacks_keys_only: Whether all failed because a key is missing: with another ring they may open.
    """

    def __init__(self, *, may_repeat: bool = False) -> None:
        """Begin without any.

        Args:
            may_repeat: Whether a value may be read again; then a hash is kept for each failure.
        """
        self.count = 0
        self.kept: list[Failure] = []
        self.causes: dict[str, dict[str, int]] = {}
        self.lacks_keys_only = True
        self._marks = set[int]() if may_repeat else None

    def add(self, failed: Failure) -> bool:
        """Count a failure; return whether it is the first of its value."""
        if self._marks is not None:
            mark = hash(repr((failed.table, failed.place)))  # hash() alone is the same for -1 and -2
            if mark in self._marks:
                return False
            self._marks.add(mark)
        self.count += 1
        if len(self.kept) < MAX_KEPT:
            place = {name: _cut(value) for name, value in failed.place.items()}
            self.kept.append(Failure(failed.table, place, _cut(failed.tag), _bare(failed.error)))
        self.lacks_keys_only = self.lacks_keys_only and isinstance(failed.error, KeyRingError)
        hint, cause = getattr(failed.error, "hint", ""), str(failed.error)
        known = sum(map(len, self.causes.values()))
        if cause not in self.causes.get(hint, {}) and known >= MAX_CAUSES:
            hint, cause = hint if hint in self.causes else "", _OTHER_CAUSES
        counts = self.causes.setdefault(hint, {})
        counts[cause] = counts.get(cause, 0) + 1
        return True
