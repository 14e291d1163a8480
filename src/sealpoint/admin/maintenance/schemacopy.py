"""Decryption of a Postgres database: an unsealed copy in a new schema, for LangGraph's plain saver and Store.

One transaction creates the schema and its tables, and inserts the rows of one snapshot of the source. Nothing
else is copied: no index, right, owner, trigger or other table. Embeddings are left out, because they are not
authenticated. An item that is put again gets a new embedding.

Three readable parts of a checkpoint differ from those of the plain saver, and are converted: the version
of SealedSaver's own channel, empty text in place of inline values, and pseudonyms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from sealpoint.admin.databases.cells import ITEMS, Cell, Column, Opener, Where, unframe
from sealpoint.admin.databases.postgres.newschema import NULLABLE, NewSchema, Snapshot, StoredRow
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Need, failure
from sealpoint.admin.maintenance.decrypt import Copy, require_no_frame
from sealpoint.admin.maintenance.documents import as_json, parse_json, restore
from sealpoint.admin.results.events import Event, Events
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import DecodeError, RowError, SealpointError
from sealpoint.seal.places import KEY, read_frame
from sealpoint.seal.rows import SENTINEL, require_never_sealed, value_missing
from sealpoint.seal.tag import MSGPACK
from sealpoint.serde.inert import read_outline
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

_NO_VALUE: Final = "empty"  # type in the row of a channel without a value
_QUOTED: Final = f'"{KEY}"'  # Postgres writes keys without escapes


# A row of the copy, and the values that it needs in other rows; None if the plain saver has no such row.
Copied = tuple[StoredRow | None, tuple[Need, ...]]


def cell_of(column: Column, row: StoredRow) -> Cell:
    """Return the value of a row as a cell; for ``checkpoints``, the sealed part of the metadata."""
    key = tuple(row[name] for name in column.key)
    if column == ITEMS:
        tag, value, fields = unframe(row["value"])
        return Cell(value, tag, Where(column, key, None, {"fields": json.dumps(fields)}))
    if not column.in_json:
        return Cell(row[column.name], row["type"], Where(column, key))
    metadata = row[column.name]
    if metadata is None or _QUOTED not in metadata:
        return Cell(None, None, Where(column, key))
    tag, value = read_frame(None)
    # `has_frame` is not used: sealed metadata may exceed its limit, which is for readable metadata.
    try:
        document = parse_json(metadata)
    except DecodeError:
        document = None
    if isinstance(document, dict):
        if KEY not in document:
            return Cell(None, None, Where(column, key))
        tag, value = read_frame(document.pop(KEY))
    beside = {"metadata": json.dumps(document)}
    if "parent_checkpoint_id" in row:
        beside["parent_checkpoint_id"] = row["parent_checkpoint_id"]
    return Cell(value, tag, Where(column, key, None, beside))


def holds_value(cell: Cell) -> bool:
    """Whether a row contains a value. A channel without a value has a row, too."""
    if cell.where.column.in_json:
        return bool(cell.where.beside)
    return bool(cell.tag != _NO_VALUE or cell.value is not None)


def decrypt_schema(
    store: PostgresRows,
    out: str,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
) -> Events:
    """Write the decrypted rows of a Postgres saver and Store to the new schema ``out`` of the same database.

    The source is read in one transaction, and not changed. Other sessions see ``out`` when it is complete: if
    a run ends early, or a value does not open, the schema is not created. Only the connecting role has rights
    to ``out``.

    Args:
        store: The database to copy.
        out: Name of the new schema; the schema must not exist.
        cipher: Opens sealed values.
        allow_plaintext: Also copy unsealed values; otherwise each is a failure. In the copy, they cannot
            be distinguished from authenticated values.
        limits: Limits, such as depth, for decoding values whose type no key authenticates.
        batch: Maximum number of rows and bytes to read at a time.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        OutputError: If ``out`` exists, or is not a valid schema name.
        AccessError: If the role has no right to create a schema, or the server is read-only.
        HeldError: If another session is creating ``out``.
        SchemaError: If a table of the saver is missing, or is not as expected.
        StoppedError: If the disk is full or the server ended the session. The run can be repeated.
    """
    with closing(store.new_schema(out)) as target:
        with store.snapshot() as snapshot:
            run = _SchemaCopy(store, snapshot, target, Opener(cipher, allow_plaintext, limits=limits), batch)
            yield from run.events()
        if not run.has_failed:
            target.commit()


class _SchemaCopy(Copy):
    def __init__(
        self, store: PostgresRows, snapshot: Snapshot, target: NewSchema, opener: Opener, batch: Batch
    ) -> None:
        super().__init__(opener, batch)
        self._read, self._snapshot, self._target = store.columns, snapshot, target

    def events(self) -> Iterator[Event]:
        self._total = self._snapshot.count()
        for cell in self._snapshot.pseudonyms():
            with suppress(SealpointError):  # the failure is reported when the row is copied
                self.parts(cell)
        # Checkpoints come last: by then their values have been copied.
        for column in self._read:
            for rows in self._snapshot.pages(column.table, self._batch):
                yield from self._copy_page(column, rows)
                yield self.progress(column)

    def _copy_page(self, column: Column, rows: list[StoredRow]) -> Iterator[Event]:
        opened = []
        needs = dict[Need, Cell]()
        for row in rows:
            cell = cell_of(column, row)
            has_value = holds_value(cell)
            self._values += has_value
            try:
                copied, needed = self._open(cell, row)
            except SealpointError as error:
                self.has_failed = True
                yield failure(cell, error)
                continue
            if copied is not None:
                opened.append(copied)
            needs |= dict.fromkeys(needed, cell)
            if has_value:
                self.count(cell)
        if not self.has_failed:
            self._target.insert(column.table, opened)
            for need in self._target.lost([*needs]):
                self.has_failed = True
                yield failure(needs[need], value_missing(need.channel))

    def _open(self, cell: Cell, row: StoredRow) -> Copied:
        column = cell.where.column
        for name, value in row.items():
            if value is None and name not in NULLABLE[column.table]:
                raise RowError(f"column {name!r} of table {column.table!r} is NULL")
        if cell.is_item:
            return row | self.item(cell, self.parts(cell)), ()
        row = row | {"thread_id": self.require_id(row["thread_id"])}
        if column.in_json:
            return self._open_checkpoint(cell, row)
        if not holds_value(cell):
            return row, ()
        parts = self.parts(cell)
        if parts.is_bound and cell.is_sentinel:
            return None, ()
        claims = parts.claims.columns if parts.claims else {}
        row |= {name: claim for name, claim in claims.items() if name in row}
        kind, data = parts.opened.typed
        return row | {"type": kind, column.name: data}, ()

    def _open_checkpoint(self, cell: Cell, row: StoredRow) -> Copied:
        if not holds_value(cell):
            if _QUOTED in row["checkpoint"]:
                checkpoint = parse_json(row["checkpoint"])
                versions = checkpoint.get("channel_versions") if isinstance(checkpoint, dict) else None
                require_never_sealed(row.get("checkpoint_id"), versions)
            return row, ()
        try:
            parts = self.parts(cell)
        except DecodeError:  # another program may have sealed the document
            require_no_frame(row["metadata"])
            raise
        if parts.header is None:
            require_no_frame(row["metadata"])
            raise RowError("the sealed part of the metadata does not belong to a checkpoint")
        header, opened = parts.header, parts.opened
        # JSON cannot express objects of the document.
        document = read_outline(opened.data, lambda *_: object()) if opened.inner == MSGPACK else None
        restored, apart = restore(header, document, row["checkpoint"], row["checkpoint_id"])
        cell.require_same(header, self._tokens)
        row["checkpoint"] = as_json("checkpoint", restored)
        row["metadata"] = as_json("metadata", header["metadata"])
        key = tuple(row[name] for name in cell.where.column.key)
        return row, tuple(Need(key, *each) for each in apart if each[0] != SENTINEL)
