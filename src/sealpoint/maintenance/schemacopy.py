"""Decryption of a Postgres database: an unsealed copy in a new schema, for LangGraph's plain saver.

One transaction creates the schema and its tables, and inserts the rows of one state of the source. Nothing
else of the source is copied: no index, right, owner, trigger or other table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.cells import Cell, Column, SecretOf
from sealpoint.databases.failures import failure
from sealpoint.databases.postgres.newschema import NewSchema
from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.databases.postgres.snapshot import Snapshot, StoredRow
from sealpoint.databases.rows import BATCH, Batch, Event, Events, Need, Progress
from sealpoint.errors import RowError, SealpointError, excerpt
from sealpoint.maintenance.schemarows import RowOpener, cell_of, holds_value


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
        for cell in self._snapshot.pseudonyms():
            self._opener.learn(cell)
        # Checkpoints come last: their values are there by then.
        for column in self._columns:
            for rows in self._snapshot.pages(column.table, self._batch):
                yield from self._copy_page(column, rows)
                yield Progress(column.label, self._values, self._total, self._opened, 0, self._size, 0.0)

    def _copy_page(self, column: Column, rows: list[StoredRow]) -> Iterator[Event]:
        opened = []
        needs = dict[Need, Cell]()
        for row in rows:
            cell = cell_of(column, row)
            has_value = holds_value(cell)
            self._values += has_value
            try:
                copied = self._opener.open(cell, row)
            except SealpointError as error:
                self.has_failed = True
                yield failure(cell, error)
                continue
            if copied.row is not None:
                opened.append(copied.row)
            needs |= dict.fromkeys(copied.needs, cell)
            if has_value:
                self._opened += is_sealed(cell.tag)
                self._size += len(cell.value)
        if not self.has_failed:
            self._target.insert(column.table, opened)
            for need in self._target.lost([*needs]):
                self.has_failed = True
                yield failure(
                    needs[need], RowError(f"the value of channel {excerpt(need.channel)} is missing")
                )
