"""SqliteWholeRows: the rows of a SQLite file with all their columns. See `sealpoint.databases.whole`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

from sealpoint.databases.cells import Cell, Column, Where
from sealpoint.databases.sqlite.columns import CHECKPOINTS, WRITES, Access, access_to
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.databases.whole import Beside


class SqliteWholeRows(SqliteRows):
    """A store of whole rows over one SQLite file. For one thread."""

    def __init__(
        self, path: str | PathLike[str], *, writable: bool = False, thread_id: str | None = None
    ) -> None:
        """Open an existing file, see `SqliteRows`.

        Args:
            path: The file.
            writable: Whether `rewrite` will be called.
            thread_id: Only rows of this thread; ``None`` for all.
        """
        super().__init__(path, writable=writable)
        self._wanted: tuple[Column, ...] = (WRITES, CHECKPOINTS)
        encoded = None if thread_id is None else thread_id.encode(self._file.encoding).hex()
        if encoded is not None:
            self._holds = f"thread_id = CAST(X'{encoded}' AS TEXT)"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with values in the tables of the file."""
        return tuple(column for column in self._wanted if column.table in self._file.tables)

    @contextmanager
    def narrowed(self) -> Iterator[None]:
        """Leave only checkpoints within the context."""
        before, self._wanted = self._wanted, (CHECKPOINTS,)
        try:
            yield
        finally:
            self._wanted = before

    def remove_sentinels(self) -> int:
        """Do nothing: in SQLite no checkpoint needs one."""
        return 0

    def _access(self, column: Column) -> Access:
        kind = _CheckpointAccess if column is CHECKPOINTS else _WriteAccess
        path = "task_path" if self.has_task_path else "''"
        return kind.of(access_to(column), path)


@dataclass(frozen=True, slots=True)
class _WriteAccess(Access):
    """How whole rows of ``writes`` are read and replaced."""

    @classmethod
    def of(cls, access: Access, task_path: str) -> _WriteAccess:
        key = ", ".join(access.column.key)
        return cls(
            access.column,
            read=f"{key}, {task_path}, type, value, rowid",
            replace=f"{access.replace} AND {task_path} IS ?",
        )

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for *key, task_path, tag, value, row_id in rows:
            yield Cell(value, tag, Where(self.column, tuple(key), Beside(row_id, task_path=task_path)))

    def replacement(self, cell: Cell, tag: str, value: bytes, *_: Any) -> tuple[Any, ...]:
        """Return the parameters that replace a row if it is unchanged since it was read."""
        old: Beside = cell.where.locator
        return tag, value, old.locator, cell.tag, cell.value, *cell.where.key, old.task_path


@dataclass(frozen=True, slots=True)
class _CheckpointAccess(Access):
    """How whole rows of ``checkpoints`` are read and replaced."""

    @classmethod
    def of(cls, access: Access, task_path: str) -> _CheckpointAccess:
        del task_path  # only writes have one
        columns = "parent_checkpoint_id", "metadata"
        new = "".join(f", {name} = ?" for name in columns)
        same = "".join(f" AND {name} IS ?" for name in columns)
        return cls(
            access.column,
            read=f"{', '.join((*access.column.key, *columns))}, type, checkpoint, rowid",
            replace=access.replace.replace("checkpoint = ?", f"checkpoint = ?{new}", 1) + same,
        )

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for *key, parent, metadata, tag, value, row_id in rows:
            yield Cell(value, tag, Where(self.column, tuple(key), Beside(row_id, parent, metadata)))

    def replacement(
        self, cell: Cell, tag: str, value: bytes, parent: Any = None, metadata: Any = None, *_: Any
    ) -> tuple[Any, ...]:
        """Return the parameters that replace a row if all its columns are unchanged since it was read."""
        old: Beside = cell.where.locator
        same = cell.tag, cell.value, *cell.where.key, old.parent, old.metadata
        return tag, value, parent, metadata, old.locator, *same
