"""Decryption of a Postgres database: an unsealed copy in a new schema, for LangGraph's plain saver.

One transaction creates the schema and its tables, and inserts the rows of one state of the source. Nothing
else of the source is copied: no index, right, owner, trigger or other table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from sealpoint.base.frame import find_frame
from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.cells import Cell, Column, SecretOf, Where
from sealpoint.databases.failures import failure
from sealpoint.databases.postgres.newschema import NewSchema, nullable_columns
from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.databases.postgres.snapshot import Snapshot, StoredRow
from sealpoint.databases.rows import BATCH, Batch, Event, Events, Progress
from sealpoint.errors import RowError, SealpointError
from sealpoint.maintenance.decrypt import open_value, require_no_frame

_NO_VALUE: Final = "empty"  # the type of a channel without a value


def decrypt_schema(
    store: PostgresRows,
    out: str,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    secret_of: SecretOf | None = None,
    batch: Batch = BATCH,
) -> Events:
    """Write the decrypted rows of a Postgres saver to the new schema ``out`` of the same database.

    One state of the source is read; it is not changed. Other sessions see ``out`` when it is complete: a run
    that ends early, or finds a value that does not open, leaves no schema. Only the connecting role has
    rights to it.

    Args:
        store: The source.
        out: The name of the schema; it must not exist.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Copy values too that are not sealed; else each is a failure. In the copy
            nothing tells them from what a holder of the key wrote.
        secret_of: Gives the secrets of values that have one in their key; without it these are failures.
        batch: How much to read at a time.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        OutputExistsError: If ``out`` exists.
        OutputNameError: If a schema cannot have this name.
        AccessError: If the role may not create a schema, or the server is read-only.
        HeldError: If another session is creating ``out``.
        SchemaError: If a table of the saver is missing, or has changed.
        StoppedError: If the disk is full or the server ended the session. The run can be repeated.
    """
    opener = RowOpener(cipher, allow_plaintext, secret_of)
    with closing(store.new_schema(out)) as target:
        with store.snapshot() as snapshot:
            run = _Copy(store, snapshot, target, opener, batch)
            yield from run.events()
        if not run.has_failed:
            target.commit()


class RowOpener:
    """Turns each stored row into the row of the copy."""

    def __init__(self, cipher: RingCipher, allow_plaintext: bool, secret_of: SecretOf | None) -> None:
        """Take what opens values; see `decrypt_schema`."""
        self._cipher = cipher
        self._allow_plaintext = allow_plaintext
        self._secret_of = secret_of

    def open(self, cell: Cell, row: StoredRow) -> StoredRow:
        """Return a row with nothing sealed in it.

        Args:
            cell: Its value; that of ``checkpoints`` is its metadata.
            row: All of its columns.

        Raises:
            SealpointError: If its value does not open, or LangGraph could not have stored the row.
        """
        column = cell.where.column
        for name, value in row.items():
            if value is None and name not in nullable_columns(column.table):
                raise RowError(f"column {name!r} of table {column.table!r} is NULL")
        if column.in_json:
            require_no_frame(row[column.name])
            return row
        if not _has_value(row):
            return row
        parts = open_value(
            self._cipher, cell, allow_plaintext=self._allow_plaintext, secret_of=self._secret_of
        )
        kind, data = parts.opened.typed
        return row | {"type": kind, column.name: data}


class _Copy:
    """Inserts the rows of a snapshot into a new schema, with decrypted values.

    Attributes:
        has_failed: Whether a value did not open. Then the other values are only opened.
    """

    def __init__(
        self, store: PostgresRows, snapshot: Snapshot, target: NewSchema, opener: RowOpener, batch: Batch
    ) -> None:
        self.has_failed = False
        self._columns = store.columns
        self._snapshot = snapshot
        self._target = target
        self._opener = opener
        self._batch = batch
        self._values = self._total = self._opened = self._size = 0

    def events(self) -> Iterator[Event]:
        self._total = self._snapshot.count()
        for column in self._columns:
            for rows in self._snapshot.pages(column.table, self._batch):
                yield from self._copy_page(column, rows)
                yield Progress(column.label, self._values, self._total, self._opened, 0, self._size, 0.0)

    def _copy_page(self, column: Column, rows: list[StoredRow]) -> Iterator[Event]:
        opened = []
        for row in rows:
            cell = _cell_of(column, row)
            has_value = not column.in_json and _has_value(row)
            self._values += has_value
            try:
                opened.append(self._opener.open(cell, row))
            except SealpointError as error:
                self.has_failed = True
                yield failure(cell, error)
                continue
            if has_value:
                self._opened += is_sealed(cell.tag)
                self._size += len(cell.value)
        if not self.has_failed:
            self._target.insert(column.table, opened)


def _cell_of(column: Column, row: StoredRow) -> Cell:
    where = Where(column, tuple(row[name] for name in column.key))
    if column.in_json:
        frame = find_frame(row[column.name])
        return Cell(frame and frame.value, frame and frame.tag, where)
    return Cell(row[column.name], row["type"], where)


def _has_value(row: StoredRow) -> bool:
    return row["type"] != _NO_VALUE or row["blob"] is not None
