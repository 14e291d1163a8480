"""SqliteRows: the values of a SQLite file, in the order of its row ids."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from sealpoint.databases.rows import (
    BATCH,
    EVERYTHING,
    MAX_TAGS,
    Batch,
    Cell,
    Change,
    InlineValue,
    Page,
    Rewritten,
    Selection,
    Table,
    TagCount,
    require_few_tags,
)
from sealpoint.databases.sqlite.checked import CheckedFile, size_bytes
from sealpoint.databases.sqlite.connection import translate_errors
from sealpoint.databases.sqlite.scan import as_bytes, condition, require_found, require_rising, tally
from sealpoint.errors import DatabaseMissingError
from sealpoint.keys.lock import holding
from sealpoint.sqlite import guard
from sealpoint.sqlite.budget import Budget
from sealpoint.sqlite.database import BUSY_TIMEOUT_MS

CHECKPOINTS: Final = Table(
    name="checkpoints",
    value="checkpoint",
    key=("thread_id", "checkpoint_ns", "checkpoint_id"),
    logical=(("table", "checkpoints"), ("column", "checkpoint")),
    coordinates=("thread_id", "checkpoint_ns", "checkpoint_id"),
)
WRITES: Final = Table(
    name="writes",
    value="value",
    key=("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel"),
    logical=(("table", "writes"),),
    coordinates=("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "channel"),
)

READERS_TIMEOUT_MS: Final = 5_000
"""How long to wait for readers who need the log that is to be emptied."""

_NAMES: Final = {
    CHECKPOINTS: ("thread_id", "checkpoint_ns"),
    WRITES: ("thread_id", "checkpoint_ns", "channel", "task_path"),
}


class SqliteRows:
    """A `RowStore` over one SQLite file. For one thread.

    Values are found again by row id, and changed only if their key, tag and bytes are still
    those that were read. No index is read: one of a hostile file may have other rows than its table.

    Attributes:
        is_over: Asked while a statement is at work; once it says yes, the statement ends with `HaltedError`.
    """

    def __init__(self, path: str | PathLike[str], *, writable: bool = False) -> None:
        """Open a file that exists, and check its tables as the saver does. Nothing is made or altered.

        Args:
            path: The file.
            writable: Whether `rewrite` will be called.

        Raises:
            DatabaseMissingError: If there is no such file.
            SchemaError: If it has none of the two tables, or has them altered.
            DatabaseCorruptError: If it is damaged, or no database.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise DatabaseMissingError(f"no file at {self.path}")
        self.is_over: Callable[[], bool] | None = None
        self._file = CheckedFile(self.path, self._must_end, writable=writable)
        self.connection = self._file.connection
        self._behind = ThreadPoolExecutor(1, "sealpoint-commit")
        self._commit: Future[None] | None = None
        self._lock_seconds = 0.0
        self._ahead: tuple[Table, Any, Selection, Page] | None = None
        self._in_order = set[Table]()

    @property
    def name(self) -> str:
        """The path as it was given."""
        return str(self.path)

    def close(self) -> None:
        """Close the connection, once the last batch is committed."""
        try:
            self.settle()
        finally:
            self._behind.shutdown()
            self.connection.close()

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those of the tables that there are."""
        return tuple(table for table in _NAMES if table.name in self._file.tables)

    @property
    def has_task_path(self) -> bool:
        """Whether ``writes`` has the column, which older databases lack."""
        return self._file.has_task_path

    def _must_end(self) -> bool:
        return self.is_over is not None and self.is_over()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything within the context as it is at one moment.

        In WAL mode writers go on meanwhile; in the other modes they wait.
        """
        self.settle()
        with self._file.snapshot():
            yield

    def hold(self) -> Any:
        """Keep other runs away: a lock on a file beside the database, gone with this process."""
        return holding(self.path)

    def count(self) -> list[TagCount]:
        """Return how many values carry which tag, by table and tag. Reads no value."""
        self.settle()
        counts = []
        for table in self.tables:
            self._require_order(table)
            # Lengths first: a sort by tag would carry the values along.
            statement = f"""
                WITH sizes(tag, size) AS MATERIALIZED (
                    SELECT {_TAG}, length({table.value}) FROM main.{table.name} NOT INDEXED)
                SELECT tag, count(*), total(size) FROM sizes GROUP BY tag ORDER BY tag LIMIT {MAX_TAGS + 1}"""
            found = self._file.query(statement, (), tally, _SUBQUERIES)
            require_few_tags(table, found)
            counts += [TagCount(table.name, tag, rows, int(size)) for tag, rows, size in found]
        return counts

    def _require_order(self, table: Table) -> None:
        """Require once that a walk meets no row twice, and that a search finds each row that it meets."""
        if table in self._in_order:
            return
        # From the end: SQLite would take a step, and not search, for a row that comes after the last one.
        statement = f"""
            SELECT each.rowid, found.rowid FROM main.{table.name} AS each NOT INDEXED
            LEFT JOIN main.{table.name} AS found NOT INDEXED ON found.rowid = each.rowid
            ORDER BY each.rowid DESC"""
        self._file.query(statement, (), require_found)
        self._in_order.add(table)

    def read(self, table: Table, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH) -> Page:
        """Return the selected values after a row id. See `RowStore.read`."""
        where, parameters = condition(selection)
        statement = f"""
            SELECT {", ".join(table.key)}, type, {table.value}, rowid FROM main.{table.name} NOT INDEXED
            WHERE rowid >= ? {where} ORDER BY rowid"""
        first = _LOWEST
        if after is not None:
            self._require_order(table)
            first = after + 1
        found, more = self._rows(statement, (first, *parameters), batch)
        require_rising(first, [row[-1] for row in found])
        values = [Cell(table, row[:-3], *row[-3:]) for row in found]
        return Page(values, values[-1].locator if more else None)

    def _rows(
        self, statement: str, parameters: tuple[Any, ...], batch: Batch
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Return as many rows of a query as fit, and whether there are more."""
        self.settle()
        budget = Budget(batch.rows, batch.size_bytes)
        return self._file.query(statement, parameters, budget.take), budget.spent

    def rewrite(
        self,
        table: Table,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Change a batch of values. See `RowStore.rewrite`.

        Reading and ``change`` hold no lock. The commit goes on behind the caller's back, while the
        next batch is changed; what it meets is raised by the next call, `settle` or `close`.
        """
        page = self._page(table, after, selection, batch)
        updates = []
        for value in page.values:
            changed = change(value)
            if changed is not None:
                updates.append((*changed, value.locator, value.tag, value.blob, *value.key))
        lock_seconds = self._settle_and_time()
        if page.last is not None:  # before the write lock is taken, so that the commit is all that holds it
            self._ahead = table, page.last, selection, self.read(table, page.last, selection, batch)
        swapped = self._update(table, updates) if updates else 0
        if page.last is None:  # nothing comes behind which the commit could go on
            lock_seconds = max(lock_seconds, self._settle_and_time())
        size = sum(len(value.blob) for value in page.values if isinstance(value.blob, bytes))
        return Rewritten(len(page.values), swapped, len(updates) - swapped, size, lock_seconds, page.last)

    def _page(self, table: Table, after: Any, selection: Selection, batch: Batch) -> Page:
        """Return the page that was read ahead, if it is the one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:3] == (table, after, selection):
            return ahead[3]
        return self.read(table, after, selection, batch)

    def _update(self, table: Table, updates: list[tuple[Any, ...]]) -> int:
        same = " ".join(f"AND {column} IS ?" for column in table.key)
        statement = f"""
            UPDATE main.{table.name} NOT INDEXED SET type = ?, {table.value} = ?
            WHERE rowid = ? AND type IS ? AND {table.value} IS ? {same}"""
        with self._file.writing() as cursor:
            start = perf_counter()
            changed = cursor.executemany(statement, updates).rowcount
        self._commit = self._behind.submit(self._end, start)
        return changed

    def _end(self, start: float) -> None:
        with translate_errors():
            try:
                self.connection.execute("COMMIT")
            except BaseException:
                self._file.roll_back()
                raise
            self._lock_seconds = max(self._lock_seconds, perf_counter() - start)
            self.connection.execute("PRAGMA main.wal_checkpoint(PASSIVE)")

    def settle(self) -> None:
        """Wait until the last batch is committed, and raise what that met."""
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.result()

    def _settle_and_time(self) -> float:
        """Settle, and return how long the longest write lock was held since the last call."""
        self.settle()
        seconds, self._lock_seconds = self._lock_seconds, 0.0
        return seconds

    def vacuum(self) -> bool:
        """Write the file anew without what was deleted from it, and empty its log.

        Returns:
            Whether the log is empty: a reader may need what is in it.

        Raises:
            StoppedError: If there is no room for a second copy, or the file stays locked.
        """
        self.settle()
        with self._file.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete = ON")
            guard.allow(size_bytes(cursor))
            cursor.execute("VACUUM")
            self.connection.execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")
            busy, _, _ = self.connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        return not busy

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield what is readable in key columns. See `RowStore.names`."""
        for table in self.tables:
            for column in _NAMES[table]:
                has_it = column != "task_path" or self.has_task_path
                if has_it and only in (None, column):
                    yield from ((column, text) for text in self._texts(table, column))

    def _texts(self, table: Table, column: str) -> Iterator[str]:
        statement = f"""
            SELECT DISTINCT {column} FROM main.{table.name} NOT INDEXED
            WHERE typeof({column}) = 'text' AND {column} {{}} CAST(? AS TEXT) ORDER BY {column}"""
        last, operator, more = b"", ">=", True
        while more:
            found, more = self._rows(statement.format(operator), (last,), _TEXTS)
            yield from (text for (text,) in found if isinstance(text, str))
            if more:
                last, operator = as_bytes(found[-1][0]), ">"

    def metadata(self) -> Iterator[Any]:
        """Yield the metadata of each checkpoint, as it stands in the column."""
        statement = "SELECT metadata, rowid FROM main.checkpoints NOT INDEXED WHERE rowid >= ? ORDER BY rowid"
        first, more = _LOWEST, CHECKPOINTS in self.tables
        while more:
            found, more = self._rows(statement, (first,), BATCH)
            require_rising(first, [row_id for _, row_id in found])
            yield from (metadata for metadata, _ in found)
            if more:
                self._require_order(CHECKPOINTS)
                first = found[-1][1] + 1

    def inline(self) -> Iterator[InlineValue]:
        """Yield nothing: in SQLite each channel's value stands in the checkpoint."""
        yield from ()


_LOWEST: Final = -(2**63)
_TEXTS: Final = Batch(100_000, 64 * 1024 * 1024)  # each batch of names takes a walk over the whole table
# Of a text that is too long for a tag, what tells whether it counts as sealed, and under which key.
_TAG: Final = """iif(length(type) <= 100 OR type IS NULL, type,
    substr(type, 1, 49) || iif(instr(type, '+'), '+', ' ') || substr(type, -50))"""
_SUBQUERIES: Final = frozenset({"sizes"})
