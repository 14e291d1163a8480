"""SqliteRows: the values of a SQLite file, in the order of row ids."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.databases.cells import EVERYTHING, ITEMS, Column, InlineValue, Record, Selection, unframe
from sealpoint.admin.databases.rows import (
    CACHE,
    MAX_TAGS,
    VECTORS,
    Change,
    Need,
    OwnedRow,
    Page,
    Residue,
    Rewritten,
    Table,
    TagCount,
    Vectors,
    pages,
    tag_counts,
)
from sealpoint.admin.databases.sqlite.checked import (
    CHECKPOINTS,
    NAMED,
    WRITES,
    Access,
    CheckedFile,
    access_to,
    condition,
    require_rising,
    tally,
)
from sealpoint.admin.databases.sqlite.items import ItemAccess
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.base.place import has_frame
from sealpoint.errors import DatabaseMissingError, SealpointError, SourceError, stopped_by
from sealpoint.guards import statements, tables
from sealpoint.guards.files import BUSY_TIMEOUT_MS
from sealpoint.keys.sources import run_command
from sealpoint.seal.tag import SEALED_MARK

# ruff: noqa: S608 -- statements are built from constants and placeholders only


LOWEST: Final = -(2**63)
_TEXTS: Final = Batch(100_000, 64 * 1024 * 1024)  # large, as each batch of names scans the whole table


# Tables with rows of threads and namespaces: key, source of the tag, ``beside``, parent.
_OWNED: Final = {
    "writes": (WRITES.key[:-1], "type", "NULL", "NULL"),
    "checkpoints": (CHECKPOINTS.key, "type", "NULL", "parent_checkpoint_id"),
    VECTORS: ((*ITEMS.key, "field_name"), "NULL", "NULL", "NULL"),
    ITEMS.table: (ITEMS.key, "value", "updated_at", "NULL"),
}

_SLACK: Final = str(Path(__file__).with_name("slack.py"))  # runs as a separate program
_LEAST_SECONDS: Final = 5.0
_BYTES_PER_SECOND: Final = 1_000_000  # valid files are 50 times faster


Find = Callable[[bytes], Iterable[tuple[bytes, int]]]
"""Returns hits in bytes, with their positions."""

# Milliseconds to wait for readers before the log is emptied.
READERS_TIMEOUT_MS: Final = 5_000


class SqliteRows(CheckedFile):
    """A `RowStore` over one SQLite file. Not thread-safe.

    Values are found by row id, and changed only if key, tag and bytes are unchanged since they were read.
    Indexes are not used: in a hostile file, an index may contain other rows than its table.

    Attributes:
        kind: ``sqlite``.
        name: The path as text.
    """

    kind = "sqlite"

    def __init__(self, path: str | PathLike[str], *, writable: bool = False, deletes: bool = False) -> None:
        """Open an existing file, and check its tables as the saver does. The file is not changed.

        Args:
            path: Path of the file.
            writable: Whether `rewrite` or `delete` will be called.
            deletes: Whether to overwrite deleted content with zeros.

        Raises:
            DatabaseMissingError: If there is no such file, or it is not a regular file.
            SchemaError: If the file has none of the tables with values, or their schema is altered.
            DatabaseCorruptError: If the file is damaged, or is not a database.
        """
        _require_file(path)
        super().__init__(Path(path), writable=writable)
        self.name = str(self.path)
        if deletes:
            self.connection.execute("PRAGMA secure_delete = ON")
        self._ahead: tuple[Column, Any, Selection, Page] | None = None
        self._holds = "1"  # SQL condition for the rows of this store
        self._columns: tuple[Column, ...] = CHECKPOINTS, WRITES, ITEMS

    @property
    def identity(self) -> dict[str, Any]:
        """The absolute path, and the device and inode numbers: a copy has another inode."""
        found = self.path.stat()
        return {"path": str(self.path.resolve()), "device": found.st_dev, "inode": found.st_ino}

    @property
    def missing_tables(self) -> tuple[str, ...]:
        """Names of missing tables of a saver, if the file has one of them; empty for only a Store."""
        found = self._present.intersection(tables.SAVER)
        return tuple(sorted(set(tables.SAVER) - found)) if found else ()

    def tables(self) -> list[Table]:
        """Return all tables of the file. See `RowStore.tables`."""
        with self.reading() as cursor:
            statements.allow(self.size_bytes(cursor))
            names = tables.table_names(cursor)
        read = self._present & {*NAMED, CACHE}
        return [Table(name, name.lower() in read, name.lower() != "store") for name in names]

    def residue(self) -> Residue:
        """Return the numbers of bytes in the file that no statement reads."""
        path = self.path.resolve()  # SQLite expects the log next to the file, not the link
        with self.reading() as cursor:
            (free,) = cursor.execute("PRAGMA main.freelist_count").fetchone()
            (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
            sizes = dict.fromkeys(("-wal", "-journal"), 0)
            for suffix in sizes:
                with suppress(FileNotFoundError):
                    sizes[suffix] = path.with_name(path.name + suffix).stat().st_size
            seconds = _LEAST_SECONDS + self.size_bytes(cursor) / _BYTES_PER_SECOND
            slack_bytes: int | None = None  # if the file cannot be parsed in the time for its size
            with suppress(SourceError, ValueError):
                slack_bytes = int(run_command((sys.executable, "-IS", _SLACK, str(path)), seconds))
            return Residue(free * page_bytes, sizes["-wal"], sizes["-journal"], slack_bytes)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with values in the tables of the file."""
        return tuple(column for column in self._columns if column.table in self._present)

    def _access(self, column: Column) -> Access | ItemAccess:
        if column.in_json:
            return ItemAccess(column)
        has_path = column == WRITES and self.has_task_path  # savers sort writes by it
        return access_to(column, "task_path" if has_path else None)

    def hold(self) -> Any:
        """Exclude other runs by a lock on a file next to the database; the lock ends with this process."""
        return holding(self.path)

    def count(self, damage: list[SealpointError] | None = None) -> list[TagCount]:
        """Count the values by column and tag. See `RowStore.count`."""
        counts = []
        for column in self.columns:
            counts += self._count_items(column) if column.in_json else self._tally(column.table, column.name)
        return counts

    def _tally(self, table: str, value: str, tag: str = "type") -> list[TagCount]:
        self.require_order(table)
        # Compute lengths first: sorting by tag would move whole values.
        statement = f"""
            WITH found(tag, size) AS (
                SELECT {tag}, length({value}) FROM main.{table} NOT INDEXED WHERE {self._holds}),
            sizes(tag, size) AS MATERIALIZED (SELECT {_SHORT_TAG}, size FROM found)
            SELECT tag, count(*), total(size) FROM sizes GROUP BY tag ORDER BY tag LIMIT {MAX_TAGS + 1}"""
        return tag_counts(table, self.query(statement, (), tally, _SUBQUERIES))

    def _count_items(self, column: Column) -> list[TagCount]:
        # Refuse rows that share pages, so that each query below reads fewer bytes than the file has.
        self._tally(column.table, column.name, "NULL")
        cells = (cell for page in pages(self, column) for cell in page.cells)
        found = ((tag, 1, len(value) if isinstance(value, bytes) else 0) for value, tag, _ in cells)
        return sorted(tag_counts(column.label, found), key=lambda count: str(count.tag))

    def read(
        self, column: Column, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH
    ) -> Page:
        """Return the selected cells after a row id. See `RowStore.read`."""
        access = self._access(column)
        if column.in_json and selection.thread_id is not None:
            return Page((), None)
        where, parameters = ("", ()) if column.in_json else condition(selection, self.encoding)
        statement = f"""
            SELECT {access.read} FROM main.{column.table} NOT INDEXED
            WHERE rowid >= ? AND {self._holds} {where} ORDER BY rowid"""
        first = LOWEST
        if after is not None:
            self.require_order(column.table)
            first = after + 1
        found, more = self.page(statement, (first, *parameters), batch)
        require_rising(first, [row[-1] for row in found])
        cells = access.cells(found)
        if column.in_json:
            cells = (cell for cell in cells if selection.takes(cell.tag))
        return Page(list(cells), found[-1][-1] if more else None)

    def key_texts(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield the readable texts of key columns. See `RowStore.key_texts`."""
        for table in sorted(self._present & NAMED.keys()):
            for column in NAMED[table]:
                if (column != "task_path" or self.has_task_path) and only in (None, column):
                    yield from ((column, text) for text in self._texts(table, column))

    def _texts(self, table: str, column: str) -> Iterator[str]:
        statement = f"""
            SELECT DISTINCT {column} FROM main.{table} NOT INDEXED
            WHERE typeof({column}) = 'text' AND {column} {{}} CAST(? AS TEXT) ORDER BY {column}"""
        last, operator, more = b"", ">=", True
        while more:
            found, more = self.page(statement.format(operator), (last,), _TEXTS)
            yield from (text for (text,) in found if isinstance(text, str))
            if more:
                (text,) = found[-1]
                last, operator = text if isinstance(text, bytes) else text.encode(self.encoding), ">"

    def records(self) -> Iterator[Record]:
        """Yield each row of ``checkpoints``, without the checkpoint itself. See `RowStore.records`."""
        statement = f"""
            SELECT {", ".join(CHECKPOINTS.key)}, parent_checkpoint_id, metadata, rowid
            FROM main.checkpoints NOT INDEXED WHERE rowid >= ? ORDER BY rowid"""
        for *key, parent, metadata, _ in self._walk(CHECKPOINTS.table, statement):
            yield Record("checkpoints", dict(zip(CHECKPOINTS.key, key, strict=True)), parent, metadata)

    def _walk(
        self, table: str, statement: str, parameters: tuple[Any, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query in row id order; the query's first parameter is the lowest row id."""
        first, more = LOWEST, table in self._present
        while more:
            found, more = self.page(statement, (first, *parameters), BATCH)
            require_rising(first, [row[-1] for row in found])
            yield from found
            if more:
                self.require_order(table)
                first = found[-1][-1] + 1

    def inline(self) -> Iterator[InlineValue]:
        """Yield nothing: on SQLite, all channel values are inside the checkpoint's value."""
        yield from ()

    @property
    def owned_tables(self) -> tuple[str, ...]:
        """The tables with rows of threads and namespaces. See `RowStore.owned_tables`."""
        return tuple(table for table in _OWNED if table in self._present)

    def owned(self, table: str, names: Sequence[str]) -> Iterator[OwnedRow]:
        """Yield the rows of some threads or namespaces. See `RowStore.owned`."""
        (owner, *_), tag, beside, parent = key, *_ = _OWNED[table]
        which = f"{owner} IN ({', '.join('?' * len(names))})"
        parameters: tuple[Any, ...] = (*names,)
        if owner == "prefix":  # compared as bytes: functions on text stop at a NUL
            prefixes = [f"{name}.".encode(self.encoding) for name in names]
            each = "substr(CAST(prefix || '.' AS BLOB), 1, ?) = ?"
            which = " OR ".join([each] * len(names))
            parameters = tuple(part for prefix in prefixes for part in (len(prefix), prefix))
        statement = f"""
            SELECT {", ".join(key)}, {beside}, {parent}, {tag}, rowid FROM main.{table} NOT INDEXED
            WHERE rowid >= ? AND ({which}) ORDER BY rowid"""
        for *name, when, above, stored, row_id in self._walk(table, statement, parameters):
            shown = unframe(stored)[0] if table == ITEMS.table else stored
            yield OwnedRow(tuple(name), shown, when, above, row_id)

    def delete(self, table: str, rows: Sequence[OwnedRow]) -> int:
        """Delete rows. See `RowStore.delete`."""
        # Compares the key, too: SQLite may reuse the row id of a deleted row.
        same = "".join(f" AND {name} IS ?" for name in _OWNED[table][0])
        statement = f"DELETE FROM main.{table} NOT INDEXED WHERE rowid = ?{same}"
        deleted = self.change(statement, [(row.locator, *row.key) for row in rows])
        self.settle()
        return deleted

    def cached(self) -> list[TagCount]:
        """Count the cached values by tag. See `RowStore.cached`."""
        return self._tally(CACHE, "val", "encoding") if CACHE in self._present else []

    def vectors(self) -> Vectors | None:
        """Count the embeddings. See `RowStore.vectors`."""
        if VECTORS not in self._present:
            return None
        # Compare quoted texts: an attacker's file may contain NULL, which NOT IN never matches.
        item, items = "quote(prefix) || ' ' || quote(key)", "main.store NOT INDEXED"
        is_left = f"{item} NOT IN (SELECT {item} FROM {items})" if "store" in self._present else "1"
        statement = f"SELECT count(*), coalesce(sum({is_left}), 0) FROM main.{VECTORS} NOT INDEXED"
        ((rows, left),) = self.query(statement, (), lambda cursor, _: cursor.fetchall())
        return Vectors(rows, left)

    def lost(self, needs: Sequence[Need]) -> Sequence[Need]:
        """Return all of ``needs``: SQLite has no rows that could contain such values. See `RowStore.lost`."""
        return needs

    def rewrite(
        self,
        column: Column,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Change a batch of cells. See `RowStore.rewrite`.

        Reading and ``change`` hold no lock. The commit runs in another thread while the next batch is
        changed; errors of the commit are raised by the next call, `settle` or `close`.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[:3] == (column, after, selection):
            page = ahead[3]
        else:
            page = self.read(column, after, selection, batch)
        access = self._access(column)
        updates = [
            access.replacement(cell, *changed) for cell in page.cells if (changed := change(cell)) is not None
        ]
        lock_seconds = self.settle_and_time()
        if page.last is not None:  # before the write lock, which is held only for the commit
            self._ahead = column, page.last, selection, self.read(column, page.last, selection, batch)
        changed_rows = self.change(f"UPDATE {access.replace}", updates) if updates else 0
        if page.last is None:  # there is no next batch during which to commit
            lock_seconds = max(lock_seconds, self.settle_and_time())
        size = sum(len(cell.value) for cell in page.cells if isinstance(cell.value, bytes))
        raced = len(updates) - changed_rows
        return Rewritten(len(page.cells), changed_rows, raced, size, lock_seconds, page.last)

    def search(self, find: Find) -> Iterator[tuple[bytes, str, bool | None]]:
        """Yield the hits of ``find`` in each stored value of all tables; no view or SQL function runs.

        Each hit has ``table.column``, and whether the cell is readable by design, such as names, metadata and
        fields of sealed items; ``None`` if the table is not LangGraph's.
        """
        with self.reading() as cursor:
            real = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND rootpage > 0"  # not virtual
            found = ["sqlite_master", *(name for (name,) in cursor.execute(real).fetchall())]
            columns = {table: tables.stored_columns(cursor, table) for table in found}
        values = {(column.table, column.name): column.in_json for column in self.columns}
        for table, names in columns.items():
            is_ours = table.lower() in self._present & NAMED.keys()
            cells = ", ".join(f"CAST({tables.quoted(name)} AS BLOB)" for name in names)
            statement = f"SELECT {cells} FROM main.{tables.quoted(table)} NOT INDEXED"
            for needle, name, is_framed in self.query(statement, (), partial(_found_in, names, find)):
                in_json = values.get((table.lower(), name.lower()))
                is_readable = in_json is None or (in_json and is_framed)
                yield needle, f"{table}.{name}", is_readable if is_ours else None

    def vacuum(self) -> bool:
        """Rewrite the file without deleted contents, empty its log, and remove a persistent journal.

        Returns:
            Whether the log is empty; a reader may prevent that.

        Raises:
            StoppedError: If the disk has no space for a second copy, the file is still locked, or the journal
                cannot be removed.
        """
        with self.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete = ON")
            statements.allow(self.size_bytes(cursor))
            cursor.execute("VACUUM")
            self.connection.execute(f"PRAGMA busy_timeout = {READERS_TIMEOUT_MS}")
            # In WAL mode VACUUM writes to the log, so the log is emptied afterwards.
            busy, _, _ = self.connection.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            (mode,) = self.connection.execute("PRAGMA main.journal_mode").fetchone()
        if mode == "wal":
            # Left by journal_mode=PERSIST, and unused: while this connection is open, no process can leave
            # WAL mode, and in other modes this connection has removed the journal at the end of VACUUM.
            journal = Path(f"{self.path.resolve()}-journal")
            try:
                journal.unlink(missing_ok=True)
            except OSError as error:
                raise stopped_by(error, f"{journal} cannot be removed") from None
        return not busy


def _found_in(
    names: Sequence[str], find: Find, cursor: Iterable[Any], _most_bytes: int
) -> set[tuple[bytes, str, bool]]:
    """Return the hits in a query's rows: each with the column's name, and whether the value has a frame."""
    cells = ((name, cell) for row in cursor for name, cell in zip(names, row, strict=True) if cell)
    return {(needle, name, has_frame(cell)) for name, cell in cells for needle, _ in find(cell)}


def _require_file(path: str | PathLike[str]) -> None:
    if not fspath(path):  # `Path("")` would be the current folder
        raise DatabaseMissingError(
            "the path of a database is empty",
            hint="name a SQLite file or a postgresql:// URL; perhaps a shell variable is unset",
        )
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise DatabaseMissingError(f"no file at {path}") from None
    if stat.S_ISDIR(mode):
        raise DatabaseMissingError(f"{path} is a directory, not a file")
    if not stat.S_ISREG(mode):
        raise DatabaseMissingError(f"{path} is not a regular file")


# Shortens a text too long for a tag; keeps the marks of a sealed value and the key id.
_SHORT_TAG: Final = f"""iif(length(tag) <= 100 OR tag IS NULL, tag,
    substr(tag, 1, 49) || iif(instr(tag, '{SEALED_MARK}'), '{SEALED_MARK}', ' ') || substr(tag, -50))"""
_SUBQUERIES: Final = frozenset({"found", "sizes"})


class SqliteWholeRows(SqliteRows):
    """A store of whole rows over one SQLite file. Not thread-safe."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        writable: bool = False,
        thread_id: str | None = None,
        sentinel: object = None,
    ) -> None:
        """Open an existing file, see `SqliteRows`. ``sentinel`` is ignored: only Postgres has sentinels."""
        super().__init__(path, writable=writable)
        self._columns = WRITES, CHECKPOINTS, ITEMS
        if thread_id is not None:
            self._columns = WRITES, CHECKPOINTS
            encoded = thread_id.encode(self.encoding).hex()
            self._holds = f"thread_id = CAST(X'{encoded}' AS TEXT)"

    def remove_sentinels(self) -> int:
        """Do nothing: only Postgres databases have sentinels, see `Cell.is_sentinel`."""
        return 0

    def _access(self, column: Column) -> Access | ItemAccess:
        if column.in_json:
            return ItemAccess(column, is_whole=True)
        return access_to(column, "task_path" if self.has_task_path else "''")
