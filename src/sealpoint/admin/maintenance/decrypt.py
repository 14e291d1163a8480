"""Decryption: an unsealed copy of a SQLite database, for LangGraph's plain saver and Store.

The copy consists of tables that this module creates and rows that it inserts one by one. Nothing else of
the source is copied: no schema, index, other table or free page. Embeddings are left out, because they are
not authenticated and may belong to deleted items. An item that is put again gets a new embedding.

A copy with decrypted values is written in its own folder next to the output, with mode 0700, named

    .<name>.partial-<random>

No other account can read the copy there, or put a journal next to it. After SIGKILL or a power failure the
folder remains; earlier versions left a hidden file ``.<name>.partial``.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.databases.cells import ITEMS, Cell, Column, Opener
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.databases.rows import failure, pages
from sealpoint.admin.databases.sqlite.checked import CHECKPOINTS, WRITES, translate_errors
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.keys.lock import holding
from sealpoint.admin.maintenance.items import format_item, name_of, read_item
from sealpoint.admin.maintenance.leftovers import COPY, KIND, remove_leftovers
from sealpoint.admin.maintenance.names import two_histories
from sealpoint.admin.results.events import Event, Events, Progress
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.base.metadata import encode_metadata
from sealpoint.base.place import has_frame
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import (
    AccessError,
    OutputError,
    RowError,
    SealpointError,
    StoppedError,
    excerpt,
    stopped_by,
)
from sealpoint.guards.files import COMPANIONS, create_file
from sealpoint.keys.files import PrivateFolder
from sealpoint.seal.items import require_unframed
from sealpoint.seal.tag import is_sealed
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits
from sealpoint.sqlite import schema

_HINT: Final = "check that this account can write to the folder, and that the disk has free space"
_TIMES: Final = ("created_at", "updated_at", "expires_at", "ttl_minutes")
_MORE_COLUMNS: Final = {
    CHECKPOINTS: CHECKPOINTS.widened.beside,
    WRITES: ("task_path",),
    ITEMS: (*ITEMS.widened.beside, *_TIMES),
}
_COLUMN_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **dict.fromkeys(_TIMES, (str, int, float, type(None))),
    "fields": (str,),
    "task_path": (str,),
    "parent_checkpoint_id": (str, type(None)),
    "metadata": (bytes, str, type(None)),
}


def decrypt(
    source: str | PathLike[str],
    out: str | PathLike[str],
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
) -> Events:
    """Write the decrypted checkpoints, writes and items of ``source`` to the new file ``out``.

    The source is read in one transaction, and not changed. The file ``out`` is readable by its owner only,
    and is created when the copy is complete: if a run ends early, or a value does not open, there is no file.
    Until then the copy is in a private folder next to ``out``.

    Args:
        source: A SQLite file.
        out: Path of the copy; the file must not exist.
        cipher: Opens sealed values.
        allow_plaintext: Also copy unsealed values; otherwise each is a failure. In the copy, they cannot
            be distinguished from authenticated values.
        limits: Limits, such as depth, for decoding values whose type no key authenticates.
        batch: Maximum number of rows and bytes to read at a time.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        OutputError: If ``out`` exists, or its name is too long.
        HeldError: If another run writes to ``out``.
        StoppedError: If the disk is full. The run can be repeated.
    """
    source, out = Path(source), Path(out)
    _require_free(out)
    with holding(out):
        remove_leftovers(out)
        with _make_folder(out) as folder:
            copy = folder.path / COPY
            with (
                closing(SqliteRows(source)) as store,
                closing(create_file(copy, folder.descriptor)) as target,
            ):
                run = _FileCopy(store, target, Opener(cipher, allow_plaintext, limits=limits), batch)
                yield from run.events()
            if not run.has_failed:
                _require_free(out)  # again: the file may have been created meanwhile
                try:
                    folder.publish(COPY, out)
                except FileExistsError:
                    raise OutputError(f"{out} already exists") from None


class Copy:
    """An unsealed copy of a database: opens the values, replaces pseudonyms by ids, and counts values.

    Keeps about 100 bytes per thread in memory.

    Attributes:
        has_failed: Whether a value did not open. Then no copy is made; the remaining values are only opened.
    """

    def __init__(self, opener: Opener, batch: Batch) -> None:
        self.has_failed = False
        self._opener, self._batch = opener, batch
        self._tokens = Tokens(lambda: opener.cipher.ring)
        self._ids = dict[str, str]()  # thread ids by pseudonym, from checkpoints
        self._columns = dict[str, str]()  # the stored name of each id in the copy
        self._values = self._total = self._opened = self._size = 0

    def progress(self, column: Column) -> Progress:
        """Return an event with the numbers of values read and opened so far, for the label of a column."""
        return Progress(column.label, self._values, self._total, self._opened, 0, self._size, 0.0)

    def count(self, cell: Cell) -> None:
        """Add an opened value to the counts of this copy."""
        self._opened += is_sealed(cell.tag)
        self._size += len(cell.value)

    def parts(self, cell: Cell) -> Parts:
        """Open a value; if it is a checkpoint, note the thread id that was sealed with it."""
        opened = self._opener.open(cell)
        if is_sealed(cell.tag):
            self._opener.require_decodable(cell, opened)
        parts = cell.parts(opened)
        if parts.header is not None and "thread" in parts.header:
            self._ids[cell.where.names["thread_id"]] = str(parts.header["thread"])
        return parts

    def item(self, cell: Cell, parts: Parts, *, allow_nul: bool = False) -> dict[str, str]:
        """Return an item's columns as LangGraph's Store has them: real names, and the value as JSON text."""
        value, name = read_item(cell, parts, self._tokens), parts.name or name_of(cell)
        require_unframed(value)
        text = format_item(value, allow_nul=allow_nul)
        if not allow_nul and "\0" in "".join((*name.namespace, name.key)):
            raise RowError("the name of the item has a NUL character, which Postgres cannot store")
        return {"prefix": ".".join(name.namespace), "key": name.key, "value": text}

    def require_id(self, column: str) -> str:
        """Return the thread id that the agent uses, for the stored id or pseudonym."""
        thread_id = self._ids.get(column, column)
        if self._columns.setdefault(thread_id, column) != column:
            raise two_histories()
        return thread_id


class _FileCopy(Copy):
    def __init__(self, store: SqliteRows, target: sqlite3.Connection, opener: Opener, batch: Batch) -> None:
        super().__init__(opener, batch)
        self._store, self._target = store, target

    def events(self) -> Iterator[Event]:
        with translate_errors():
            self._target.execute("BEGIN")
            self._target.execute(schema.CREATE_CHECKPOINTS)
            self._target.execute(schema.CREATE_WRITES)
            for statement in schema.CREATE_STORE if ITEMS in self._store.columns else ():
                self._target.execute(statement)
        with self._store.one_state():
            self._total = sum(count.rows for count in self._store.count())
            for table in self._store.columns:
                yield from self._copy_table(table)
        with translate_errors():
            self._target.execute("COMMIT")

    def _copy_table(self, table: Column) -> Iterator[Event]:
        more = _MORE_COLUMNS[table]
        if table is WRITES and not self._store.has_task_path:
            more = ()
        elif table is ITEMS:
            more = tuple(name for name in more if name in {"fields", *self._store.store_columns})
        for page in pages(self._store, replace(table, beside=more), batch=self._batch):
            for cell in page.cells:
                try:
                    self._copy_row(cell)
                except StoppedError:  # a full disk is not a failure of this value, but ends the run
                    raise
                except SealpointError as error:
                    self.has_failed = True
                    yield failure(cell, error)
            self._values += len(page.cells)
            yield self.progress(table)

    def _copy_row(self, cell: Cell) -> None:
        row, table = self._restored(cell), cell.where.column.table
        if not self.has_failed:
            names, places = ", ".join(row), ", ".join("?" * len(row))
            insert = f"INSERT INTO main.{table} ({names}) VALUES ({places})"  # noqa: S608 -- names of columns
            try:
                with translate_errors():
                    self._target.execute(insert, (*row.values(),))
            except sqlite3.IntegrityError:
                raise RowError("two rows of the table have the same key") from None
        self.count(cell)

    def _restored(self, cell: Cell) -> dict[str, Any]:
        """Return all columns of a row, as a saver without `SealedSaver` stores it."""
        for name, column in cell.where.beside.items():
            if type(column) not in _COLUMN_TYPES[name]:
                raise RowError(
                    f"column {name!r} of table {cell.where.column.table!r} holds {type(column).__name__}"
                )
        require_no_frame(cell.where.beside.get("metadata"))
        parts, row = self.parts(cell), {**cell.where.names, **cell.where.beside}
        if cell.is_item:
            del row["fields"]
            item = self.item(cell, parts, allow_nul=True)
            return {**row, **item, "value": item["value"].encode()}  # LangGraph stores a BLOB
        if parts.header is not None:
            cell.require_same(parts.header, self._tokens)
            row["metadata"] = encode_metadata(parts.header["metadata"])
        if parts.claims is not None:
            row |= parts.claims.columns
        kind, data = parts.opened.typed
        row["thread_id"] = self.require_id(row["thread_id"])
        return {**row, "type": kind, cell.where.column.name: data}


def require_no_frame(metadata: Any) -> None:
    """Refuse opened metadata that contains a frame: the copy would have sealed metadata, too."""
    if has_frame(metadata):
        hint = (
            "read the thread by the saver that sealed it, and store it by a saver that does not seal metadata"
        )
        raise RowError("the metadata of the row is sealed, and would be sealed in the copy, too", hint=hint)


def _require_free(out: Path) -> None:
    for suffix in ("", *COMPANIONS):  # SQLite would use an existing log as that of the copy
        file = Path(f"{out}{suffix}")  # with_name would fail for a path without a name
        try:
            file.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise _too_long(out) from None
        raise OutputError(f"{file} already exists")


def _make_folder(out: Path) -> PrivateFolder:
    try:
        return PrivateFolder(out, KIND)
    except AccessError:
        raise
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _too_long(out) from None
        raise stopped_by(error, f"cannot create a folder in {out.parent}", _HINT) from None


def _too_long(out: Path) -> OutputError:
    return OutputError(
        f"the name {excerpt(str(out))} is too long",
        hint="choose a shorter name: temporary files next to the output have longer names",
    )
