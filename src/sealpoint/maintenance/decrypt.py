"""Decryption: an unsealed copy of a SQLite database, for LangGraph's plain saver.

The copy consists of tables that this module creates and rows that it inserts one by one. Nothing else of
the source is copied: no schema, index, other table or free page.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.base.frame import has_frame
from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.cells import Cell, Column, SecretOf, open_cell, require_decodable
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.rows import BATCH, Batch, Event, Events, Progress
from sealpoint.databases.sqlite.columns import CHECKPOINTS, WRITES
from sealpoint.databases.sqlite.connection import translate_errors
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import (
    AccessError,
    OutputExistsError,
    OutputNameError,
    RowError,
    SealpointError,
    StoppedError,
    excerpt,
)
from sealpoint.errors.maintenance import stopped_by
from sealpoint.keys.folder import PrivateFolder
from sealpoint.keys.lock import holding
from sealpoint.maintenance.bound import Parts, Restoring, take_apart
from sealpoint.maintenance.partial import COPY, KIND, remove_leftovers
from sealpoint.maintenance.verify import pages
from sealpoint.sealed.tokens import Tokens
from sealpoint.sqlite import schema
from sealpoint.sqlite.opening import COMPANIONS, create_file

_HINT: Final = "check that this account may write to the folder, and that it has free space"
_MORE_COLUMNS: Final = {CHECKPOINTS: ("parent_checkpoint_id", "metadata"), WRITES: ("task_path",)}
_COLUMN_TYPES: Final[dict[str, tuple[type, ...]]] = {  # all others hold text
    "idx": (int,),
    "parent_checkpoint_id": (str, type(None)),
    "metadata": (bytes, str, type(None)),
}


def decrypt(
    source: str | PathLike[str],
    out: str | PathLike[str],
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    secret_of: SecretOf | None = None,
    batch: Batch = BATCH,
) -> Events:
    """Write the decrypted checkpoints and writes of ``source`` to the new file ``out``.

    One state of the source is read; it is not changed. Only its owner can read ``out``, which appears when
    it is complete: a run that ends early, or finds a value that does not open, leaves no copy. Until then
    the copy is in a private folder beside ``out``.

    Args:
        source: A SQLite file.
        out: The path of the copy; it must not exist.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Copy values too that are not sealed; else each is a failure. In the copy
            nothing tells them from what a holder of the key wrote.
        secret_of: Gives the secrets of values that have one in their key; without it these are failures.
        batch: How much to read at a time.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        OutputExistsError: If ``out`` exists.
        OutputNameError: If its name is too long.
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
                run = _Copy(
                    store, target, cipher, batch, allow_plaintext=allow_plaintext, secret_of=secret_of
                )
                yield from run.events()
            if run.is_complete:
                _put_in_place(folder, out)


class _Copy:
    """Inserts the rows of a database into another one, with decrypted values.

    Attributes:
        is_complete: Whether all of them were inserted.
    """

    def __init__(
        self,
        store: SqliteRows,
        target: sqlite3.Connection,
        cipher: RingCipher,
        batch: Batch,
        *,
        allow_plaintext: bool,
        secret_of: SecretOf | None,
    ) -> None:
        self.is_complete = False
        self._store = store
        self._target = target
        self._cipher = cipher
        self._batch = batch
        self._allow_plaintext = allow_plaintext
        self._secret_of = secret_of
        self._restoring = Restoring(Tokens(lambda: cipher.ring))
        self._rows = self._total = self._opened = self._size = 0
        self._failed = False

    def events(self) -> Iterator[Event]:
        with translate_errors():
            self._target.execute("BEGIN")
            self._target.execute(schema.CREATE_CHECKPOINTS)
            self._target.execute(schema.CREATE_WRITES)
        with self._store.snapshot():
            self._total = sum(count.rows for count in self._store.count())
            for table in self._store.columns:
                yield from self._copy_table(table)
        with translate_errors():
            self._target.execute("COMMIT")
        self.is_complete = not self._failed

    def _copy_table(self, table: Column) -> Iterator[Event]:
        more = _MORE_COLUMNS[table]
        if table is WRITES and not self._store.has_task_path:
            more = ()
        for page in pages(self._store, replace(table, beside=more), batch=self._batch):
            for cell in page.cells:
                failed = self._copy_row(cell)
                if failed is not None:
                    self._failed = True
                    yield failed
            self._rows += len(page.cells)
            yield Progress(table.label, self._rows, self._total, self._opened, 0, self._size, 0.0)

    def _copy_row(self, cell: Cell) -> Failure | None:
        try:
            _require_types(cell)
            parts = open_value(
                self._cipher, cell, allow_plaintext=self._allow_plaintext, secret_of=self._secret_of
            )
            row = self._restoring.restore(cell, parts)
            if not self._failed:  # else there will be no copy, and the other values are only opened
                with translate_errors():
                    self._target.execute(_insert(cell.where.column.table, row), (*row.values(),))
        except sqlite3.IntegrityError:
            return failure(cell, RowError("two rows of the table have the same key"))
        # A full disk ends the run; it is not a failure of this value.
        except StoppedError:
            raise
        except SealpointError as error:
            return failure(cell, error)
        self._opened += is_sealed(cell.tag)
        self._size += len(cell.value)
        return None


def _insert(table: str, row: Mapping[str, Any]) -> str:
    names, places = ", ".join(row), ", ".join("?" * len(row))
    return f"INSERT INTO main.{table} ({names}) VALUES ({places})"  # noqa: S608 -- names of columns


def open_value(
    cipher: RingCipher, cell: Cell, *, allow_plaintext: bool = False, secret_of: SecretOf | None = None
) -> Parts:
    """Return a value for a copy with nothing sealed in it.

    Raises:
        SealpointError: What `open_cell` and `take_apart` raise, and `require_decodable` for a sealed value
            that no key authenticates.
    """
    opened = open_cell(cipher, cell, allow_plaintext=allow_plaintext, secret_of=secret_of)
    if is_sealed(cell.tag) and not opened.authenticated:
        require_decodable(opened.inner, opened.data)
    return take_apart(cell, opened)


def require_no_frame(metadata: Any) -> None:
    """Refuse sealed metadata, which would be sealed in the copy too.

    Raises:
        RowError: If it is sealed.
    """
    if has_frame(metadata):
        hint = (
            "read the thread with the saver that sealed it, and store it with one that does not seal metadata"
        )
        raise RowError("the metadata of the row is sealed, and would be sealed in the copy", hint=hint)


def _require_types(cell: Cell) -> None:
    """Refuse a row with wrong types, or a row that would remain partly sealed.

    Raises:
        RowError: If a column contains another type, or the metadata is sealed.
    """
    columns = cell.where.names | cell.where.beside
    for name, column in columns.items():
        if type(column) not in _COLUMN_TYPES.get(name, (str,)):
            raise RowError(
                f"column {name!r} of table {cell.where.column.table!r} holds {type(column).__name__}"
            )
    require_no_frame(columns.get("metadata"))


def _require_free(out: Path) -> None:
    for suffix in ("", *COMPANIONS):  # SQLite would use an existing log as the copy's own
        file = Path(f"{out}{suffix}")  # a path may have no name
        try:
            file.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise OutputNameError(f"{excerpt(str(out))} is too long") from None
        raise OutputExistsError(f"{file} is there already")


def _make_folder(out: Path) -> PrivateFolder:
    try:
        return PrivateFolder(out, KIND)
    except AccessError:
        raise
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise OutputNameError(f"{excerpt(str(out))} is too long") from None
        raise stopped_by(error, f"no folder can be made in {out.parent}", _HINT) from None


def _put_in_place(folder: PrivateFolder, out: Path) -> None:
    _require_free(out)  # again, because the run took a while
    try:
        folder.publish(COPY, out)
    except FileExistsError:
        raise OutputExistsError(f"{out} is there already") from None
