"""A connection to a SQLite file whose tables are checked: cursors, transactions and queries."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar

from sealpoint.admin.databases.cells import Cell, Column, Selection, Where
from sealpoint.admin.databases.rows import CACHE
from sealpoint.admin.results.jobs import Batch
from sealpoint.errors import (
    AccessError,
    DatabaseCorruptError,
    EndlessTreeError,
    OldTablesError,
    SchemaError,
    StoppedError,
    TextError,
)
from sealpoint.guards import statements, tables
from sealpoint.guards.files import BUSY_TIMEOUT_MS, open_file, prepare, require_whole
from sealpoint.guards.limits import Budget, capacity_bytes
from sealpoint.seal import places as coordinates
from sealpoint.seal.tag import BOUND_MARK, SEALED_MARK

# ruff: noqa: S608 -- statements are built from constants and placeholders only

# Cache size for a batch, so that each page is read once for reading, comparing and changing.
CACHE_KIB: Final = 32 * 1024

_ELSEWHERE: Final = (
    "let this account open the file and create files next to it; or read a copy of the file and its log"
)
_STOPS: Final[dict[int, tuple[type[StoppedError], str, str | None]]] = {
    # Temporary conditions.
    sqlite3.SQLITE_FULL: (StoppedError, "the disk is full", None),
    sqlite3.SQLITE_IOERR: (StoppedError, "the file cannot be read or written", None),
    sqlite3.SQLITE_BUSY: (
        StoppedError,
        f"another connection kept the database locked for {BUSY_TIMEOUT_MS // 1000} s",
        None,
    ),
    sqlite3.SQLITE_READONLY: (AccessError, "the file, or its log, is read-only for this account", _ELSEWHERE),
    sqlite3.SQLITE_CANTOPEN: (AccessError, "the file, or its log, cannot be opened", _ELSEWHERE),
    sqlite3.SQLITE_READONLY_ROLLBACK: (
        AccessError,
        "an interrupted change must be rolled back, which needs write access",
        "start an agent on the file, or: sqlite3 DB .schema; then run the same command again",
    ),
}


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open an existing file with a busy timeout, ``trusted_schema`` off, and explicit transactions."""
    path = path.resolve()  # SQLite expects the log next to the file, not the link
    with translate_errors():
        if writable:
            return _connect(path, "mode=rw")
        try:
            return _connect(path, "mode=ro")
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
            has_log = any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
            if has_log or code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
        # With immutable=1 SQLite ignores transactions in a log, so this is used only without a log.
        return _connect(path, "mode=ro&immutable=1")  # read-only medium


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = open_file(path, options, timeout=BUSY_TIMEOUT_MS / 1000)
    try:
        file = prepare(connection)
        with statements.guarding(connection):
            # If a power failure loses a batch, the next run repeats it.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # a checkpoint follows each commit
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            # The first statement that reads the file.
            connection.execute("SELECT 1 FROM main.sqlite_master LIMIT 1").fetchall()
            with closing(connection.cursor()) as cursor:
                require_whole(cursor, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _stopped(error: Exception) -> StoppedError | None:
    if isinstance(error, MemoryError):
        return StoppedError("not enough memory for the contents of the file")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    for known in (code, code & 0xFF):
        if known in _STOPS:
            kind, cause, hint = _STOPS[known]
            return kind(cause, hint=hint)
    return None


translate_errors: Final = partial(statements.translate_errors, _stopped)

_CHECKPOINT_KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id")

CHECKPOINTS: Final = Column("checkpoints", "checkpoint", _CHECKPOINT_KEY, coordinates.CHECKPOINT)
WRITES: Final = Column("writes", "value", (*_CHECKPOINT_KEY, "task_id", "idx", "channel"), coordinates.WRITE)


@dataclass(frozen=True, slots=True)
class Access:
    """SQL to find, read and replace the cells of a column."""

    column: Column
    read: str  # after SELECT: key, other columns, tag, value, row id
    replace: str  # after UPDATE, with the parameters of `replacement`
    beside: tuple[str, ...]  # names of the other columns

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield each row of the result of a SELECT as a cell."""
        end = len(self.column.key)
        for row in rows:
            *others, tag, value, row_id = row[end:]
            beside = dict(zip(self.beside, others, strict=True))
            yield Cell(value, tag, Where(self.column, row[:end], row_id, beside))

    def replacement(self, cell: Cell, tag: str, value: bytes, *more: Any) -> tuple[Any, ...]:
        """Return the parameters to replace a cell, or a row, if it is unchanged since it was read."""
        new, where = more[:2] if self.column is CHECKPOINTS else (), cell.where
        return tag, value, *new, where.locator, cell.tag, cell.value, *where.key, *where.beside.values()


@cache
def access_to(column: Column, task_path: str | None = None) -> Access:
    """Return the SQL to find, read and replace the cells of a column.

    If ``task_path`` is given (SQL for this column or its substitute), the cells are those of whole rows.
    """
    beside, new = dict(zip(column.beside, column.beside, strict=True)), ""
    if task_path is not None:
        beside = {"task_path": task_path}
        if column is CHECKPOINTS:
            beside = {"parent": "parent_checkpoint_id", "metadata": "metadata"}
            new = ", parent_checkpoint_id = ?, metadata = ?"
    # Compares the key, too: SQLite may reuse the row id of a deleted row. IS also compares NULL.
    same = "".join(f" AND {name} IS ?" for name in (*column.key, *beside.values()))
    return Access(
        column,
        read=f"{', '.join((*column.key, *beside.values()))}, type, {column.name}, rowid",
        replace=f"main.{column.table} NOT INDEXED SET type = ?, {column.name} = ?{new}"
        f" WHERE rowid = ? AND type IS ? AND {column.name} IS ?{same}",
        beside=tuple(beside),
    )


# Columns with ids and names, which are never sealed, by table.
NAMED: Final = {
    "checkpoints": ("thread_id", "checkpoint_ns"),
    "writes": ("thread_id", "checkpoint_ns", "channel", "task_path"),
    "store": ("prefix", "key"),
}


_NOT_IN_ORDER: Final = "the row ids of a table are not in order"


def require_rising(first: int, row_ids: list[int]) -> None:
    """Raise if row ids do not increase: otherwise a damaged file could be read endlessly."""
    if row_ids and (row_ids[0] < first or any(before >= after for before, after in pairwise(row_ids))):
        raise DatabaseCorruptError(_NOT_IN_ORDER)


def _require_found(cursor: sqlite3.Cursor, _most_bytes: int) -> None:
    """Raise unless the row ids decrease, and a search by row id finds each row."""
    last = 2**63
    for row_id, found in cursor:
        if row_id >= last or found is None:
            raise DatabaseCorruptError(_NOT_IN_ORDER)
        last = row_id


def tally(cursor: sqlite3.Cursor, most_bytes: int) -> list[tuple[Any, int, float]]:
    """Return each tag with the number of its rows, and the total size of their values in bytes."""
    found = cursor.fetchall()
    if sum(size for _, _, size in found) > most_bytes:
        raise EndlessTreeError("the values of a table have more bytes than the file")
    return found


class UndecodedText(bytes):
    """The bytes of a text that is not UTF-8. Savers do not write such text, and the value is refused."""


def text_or_bytes(text: bytes) -> str | UndecodedText:
    """Decode a text; if it is not UTF-8, return `UndecodedText`, which is not accepted as a BLOB."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return UndecodedText(text)


def condition(selection: Selection, encoding: str = "UTF-8") -> tuple[str, tuple[Any, ...]]:
    """Return the condition after WHERE and its parameters, for the selected rows (see `Selection.takes`).

    The end of a text is compared as bytes, because GLOB, LIKE and ``substr`` stop at a NUL.
    """
    text = "coalesce(type, '')"
    mark = f"instr({text}, '{SEALED_MARK}')"

    def ends_with(end: str) -> str:
        data = end.encode(encoding)
        return f"substr(CAST({text} AS BLOB), -{len(data)}) = X'{data.hex()}'"

    is_bound = f"({mark} AND instr(substr({text}, {mark}), '{BOUND_MARK}'))"
    parts = selection.conditions(f"({mark} > 0)", is_bound, ends_with, "?")
    return "".join(f" AND {part}" for part in parts), selection.parameters


Result = TypeVar("Result")


_IN_LOG: Final = (
    "if the file is a copy, its tables may be in the original's log {}-wal, which was not copied: copy by"
    ' SQLite\'s backup, `sqlite3 ORIGINAL ".backup COPY"`; otherwise, '
)
# Counts a column: for count(*), SQLite counts by pages, without calling the progress handler.
_COUNT_OLD: Final = "SELECT count(thread_ts) FROM main.{} NOT INDEXED"


class CheckedFile:
    """An open SQLite file. If its schema has changed, a transaction checks the tables again.

    Use it in one thread at a time.

    Attributes:
        path: Path of the file.
        connection: Connection to the file.
        encoding: Encoding of texts in the file.
        has_task_path: Whether ``writes`` has the column ``task_path``, which older databases lack.
        store_columns: Columns of ``store``; older databases lack the columns of expiry.
        is_over: Function called while a statement runs; a true result ends the statement by `HaltedError`.
    """

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        """Open and check an existing file."""
        self.path, self._file = path, path.resolve()
        self.is_over: Callable[[], bool] | None = None
        self.connection = connect(path, writable=writable)
        self._version: int | None = None
        self._in_order = set[str]()
        self._behind = ThreadPoolExecutor(1, "sealpoint-commit")
        self._commit: Future[None] | None = None
        self._lock_seconds = 0.0
        try:
            with self.reading() as cursor:
                (self.encoding,) = cursor.execute("PRAGMA main.encoding").fetchone()
        except BaseException:
            self.connection.close()
            raise

    @contextmanager
    def cursor(self) -> Iterator[sqlite3.Cursor]:
        """Wait for the last commit; provide a cursor with limits on statements and with translated errors."""
        self.settle()
        guarded = statements.guarding(self.connection, self.is_over)
        with translate_errors(), guarded, closing(self.connection.cursor()) as cursor:
            yield cursor

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """Read one snapshot of the database within the context; raises if SQLite did not keep the snapshot.

        See `RowStore.one_state`.
        """
        try:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                self._require_checked(cursor)
            yield
            if not self.connection.in_transaction:  # some errors end a transaction
                raise StoppedError("SQLite ended the read transaction too early")
        finally:
            self._roll_back()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Cursor]:
        """Provide a cursor in a read transaction, or in the transaction of `one_state`."""
        with self.cursor() as cursor:
            is_ours = not self.connection.in_transaction
            if is_ours:
                cursor.execute("BEGIN")
            try:
                self._require_checked(cursor)
                yield cursor
            finally:
                if is_ours:
                    self._roll_back()

    def change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Change rows; return the number of changed rows. The commit runs in another thread, see `settle`."""
        with self.cursor() as cursor:
            # In WAL mode, a transaction that begins with a read fails with SQLITE_BUSY, without waiting, if
            # another connection has written since. BEGIN IMMEDIATE waits for the write lock.
            cursor.execute("BEGIN IMMEDIATE")
            try:
                self._require_checked(cursor)
                statements.allow(self.size_bytes(cursor))
                start = perf_counter()
                changed = cursor.executemany(statement, rows).rowcount
            except BaseException:
                self._roll_back()
                raise
        self._commit = self._behind.submit(self._end, start)
        return changed

    def _end(self, start: float) -> None:
        with translate_errors():
            try:
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            self._lock_seconds = max(self._lock_seconds, perf_counter() - start)
            # Automatic checkpoints are off, so the log would grow with the run. PASSIVE never waits.
            self.connection.execute("PRAGMA main.wal_checkpoint(PASSIVE)")

    def settle(self) -> None:
        """Wait until the last commit is done; raise the error of this commit, if any."""
        commit, self._commit = self._commit, None
        if commit is not None:
            commit.result()

    def settle_and_time(self) -> float:
        """Wait for the last commit; return the longest write lock since the last call, in seconds."""
        self.settle()
        seconds, self._lock_seconds = self._lock_seconds, 0.0
        return seconds

    def close(self) -> None:
        """Wait for the last commit, and close the connection."""
        try:
            self.settle()
        finally:
            self._behind.shutdown()
            self.connection.close()

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _require_checked(self, cursor: sqlite3.Cursor) -> None:
        """Check the tables again if the schema has changed, within the transaction that uses them."""
        (version,) = cursor.execute("PRAGMA main.schema_version").fetchone()
        if version == self._version:
            return
        self._version = None  # so that a refused schema is checked again
        statements.allow(self.size_bytes(cursor))
        try:
            self._present = tables.require_tables(cursor, (*tables.SAVER, *tables.store_names(cursor)))
        except OldTablesError:
            old = [name for name in tables.SAVER if "thread_ts" in tables.columns_of(cursor, name)]
            counts = (f"{cursor.execute(_COUNT_OLD.format(name)).fetchone()[0]} of {name!r}" for name in old)
            raise OldTablesError(f"unsealed rows: {' and '.join(counts)}") from None
        with suppress(SchemaError):  # another program's table of this name is not read
            self._present |= tables.require_tables(cursor, (CACHE,))
        self.has_task_path = tables.has_task_path(cursor)
        self.store_columns = tables.columns_of(cursor, "store")
        if self._present.isdisjoint(NAMED):
            (mode,) = cursor.execute("PRAGMA main.journal_mode").fetchone()
            raise SchemaError(
                f"{self.path} has none of the tables 'checkpoints', 'writes' and 'store'",
                hint=_IN_LOG.format(self.path.name) * (mode == "wal")
                + "is it the right file? a saver, or a Store, creates these tables when first used",
            )
        self._version = version

    def size_bytes(self, cursor: sqlite3.Cursor) -> int:
        """Return the size of the file and its log in bytes."""
        return capacity_bytes(cursor, self._file)

    def page(
        self, statement: str, parameters: tuple[Any, ...], batch: Batch
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Return as many rows of a query as fit into a batch, and whether there are more."""
        budget = Budget(batch.rows, batch.size_bytes)
        return self.query(statement, parameters, budget.take), budget.spent

    def require_order(self, table: str) -> None:
        """Check once that a scan returns no row twice, and that a search by row id finds each row."""
        if table in self._in_order:
            return
        # In descending order: in ascending order, SQLite would step to the next row instead of searching.
        statement = f"""
            SELECT each.rowid, found.rowid FROM main.{table} AS each NOT INDEXED
            LEFT JOIN main.{table} AS found NOT INDEXED ON found.rowid = each.rowid
            ORDER BY each.rowid DESC"""
        self.query(statement, (), _require_found)
        self._in_order.add(table)

    def query(
        self,
        statement: str,
        parameters: tuple[Any, ...],
        take: Callable[[sqlite3.Cursor, int], Result],
        subqueries: Collection[str] = (),
    ) -> Result:
        """Call ``take`` with the rows of a query and the size of the file; return its result.

        If text is not UTF-8, ``take`` is called again, with bytes in place of such text.
        """

        def run() -> Result:
            with self.reading() as cursor:
                most_bytes = self.size_bytes(cursor)
                statements.allow(most_bytes, len(parameters), subqueries)
                return take(cursor.execute(statement, parameters), most_bytes)

        try:
            return run()
        except TextError:
            self.connection.text_factory = text_or_bytes
        try:
            return run()
        finally:
            self.connection.text_factory = str
