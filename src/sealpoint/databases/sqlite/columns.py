"""The columns of a SQLite file with values, and the SQL that reads and replaces their cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sealpoint.base import coordinates, frame
from sealpoint.databases.cells import Cell, Column, Where
from sealpoint.databases.sqlite import frames

_CHECKPOINT_KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")

CHECKPOINTS: Final = Column("checkpoints", "checkpoint", _CHECKPOINT_KEY, coordinates.CHECKPOINT)
METADATA: Final = Column("checkpoints", "metadata", _CHECKPOINT_KEY, coordinates.METADATA, in_json=True)
WRITES: Final = Column("writes", "value", (*_CHECKPOINT_KEY, "task_id", "idx", "channel"), coordinates.WRITE)


@dataclass(frozen=True, slots=True)
class Access:
    """How the cells of a column are found, read and replaced.

    Attributes:
        column: The column.
        holds: In SQL, whether a row has a cell in this column.
        tag: In SQL, the tag of a cell.
        size: In SQL, its size as stored.
        read: The columns after SELECT: the key, then two columns for `cells`, then the row id.
        replace: The text after UPDATE, with the parameters of `replacement`.
    """

    column: Column
    holds: str
    tag: str
    size: str
    read: str
    replace: str

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        column = self.column
        for row in rows:
            key, (tag, value, row_id) = row[:-3], row[-3:]
            yield Cell(value, tag, Where(column, key, row_id))

    def replacement(self, cell: Cell, tag: str, value: bytes) -> tuple[Any, ...]:
        """Return the parameters that replace a cell if it is unchanged since it was read."""
        return tag, value, cell.where.locator, cell.tag, cell.value, *cell.where.key


@dataclass(frozen=True, slots=True)
class JsonAccess(Access):
    """The same for values in JSON. The locator of a cell is its row id with the whole JSON."""

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for row in rows:
            key, (_, metadata, row_id) = row[:-3], row[-3:]
            found = frame.find_frame(metadata)
            if found is not None:
                yield Cell(found.value, found.tag, Where(self.column, key, (row_id, metadata)))

    def replacement(self, cell: Cell, tag: str, value: bytes) -> tuple[Any, ...]:
        """Return the parameters that replace a cell if the whole JSON is unchanged since it was read."""
        row_id, metadata = cell.where.locator
        return frame.replace_frame(metadata, tag, value), row_id, metadata, *cell.where.key


def _typed(column: Column) -> Access:
    return Access(
        column,
        holds="1",
        tag="type",
        size=f"length({column.name})",
        read=f"{', '.join(column.key)}, type, {column.name}, rowid",
        replace=f"main.{column.table} NOT INDEXED SET type = ?, {column.name} = ?"
        f" WHERE rowid = ? AND type IS ? AND {column.name} IS ? {_same(column)}",
    )


def _framed(column: Column) -> Access:
    return JsonAccess(
        column,
        holds=frames.call(frames.HAS_FRAME, column.name),
        tag=frames.call(frames.FRAME_TAG, column.name),
        size=frames.call(frames.FRAME_SIZE, column.name),
        read=f"{', '.join(column.key)}, NULL, {column.name}, rowid",
        replace=f"main.{column.table} NOT INDEXED SET {column.name} = ?"
        f" WHERE rowid = ? AND {column.name} IS ? {_same(column)}",
    )


def _same(column: Column) -> str:
    # Includes the key: SQLite may reuse the row id of a deleted row. IS also compares NULL.
    return " ".join(f"AND {name} IS ?" for name in column.key)


@cache
def access_to(column: Column) -> Access:
    """Return how the cells of a column are found, read and replaced."""
    return _framed(column) if column.in_json else _typed(column)


COLUMNS: Final = (CHECKPOINTS, WRITES, METADATA)
NAMED: Final = {
    "checkpoints": ("thread_id", "checkpoint_ns"),
    "writes": ("thread_id", "checkpoint_ns", "channel", "task_path"),
}
"""Columns with names, which are never sealed, by table."""
