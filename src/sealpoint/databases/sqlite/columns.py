"""The columns of a SQLite file with values, and the SQL that reads and replaces their cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sealpoint.base import coordinates
from sealpoint.databases.cells import Cell, Column, Where

_CHECKPOINT_KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")

CHECKPOINTS: Final = Column("checkpoints", "checkpoint", _CHECKPOINT_KEY, coordinates.CHECKPOINT)
WRITES: Final = Column("writes", "value", (*_CHECKPOINT_KEY, "task_id", "idx", "channel"), coordinates.WRITE)


@dataclass(frozen=True, slots=True)
class Access:
    """How the cells of a column are found, read and replaced.

    Attributes:
        column: The column.
        read: The columns after SELECT: the key, those beside it, the tag, the value, the row id.
        replace: The text after UPDATE, with the parameters of `replacement`.
    """

    column: Column
    read: str
    replace: str

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        column, end = self.column, len(self.column.key)
        for row in rows:
            tag, value, row_id = row[-3:]
            yield Cell(value, tag, Where(column, row[:end], row_id, row[end:-3]))

    def replacement(self, cell: Cell, tag: str, value: bytes) -> tuple[Any, ...]:
        """Return the parameters that replace a cell if it is unchanged since it was read."""
        return tag, value, cell.where.locator, cell.tag, cell.value, *cell.where.key


@cache
def access_to(column: Column) -> Access:
    """Return how the cells of a column are found, read and replaced."""
    # Includes the key: SQLite may reuse the row id of a deleted row. IS also compares NULL.
    same = " ".join(f"AND {name} IS ?" for name in column.key)
    return Access(
        column,
        read=f"{', '.join((*column.key, *column.beside))}, type, {column.name}, rowid",
        replace=f"main.{column.table} NOT INDEXED SET type = ?, {column.name} = ?"
        f" WHERE rowid = ? AND type IS ? AND {column.name} IS ? {same}",
    )


COLUMNS: Final = (CHECKPOINTS, WRITES)
NAMED: Final = {
    "checkpoints": ("thread_id", "checkpoint_ns"),
    "writes": ("thread_id", "checkpoint_ns", "channel", "task_path"),
}
"""Columns with names, which are never sealed, by table."""
