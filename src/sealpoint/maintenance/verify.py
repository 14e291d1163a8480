"""Verification: every value of a database is opened, and every one that does not open is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from sealpoint.crypto import Opened, RingCipher
from sealpoint.databases.cells import EVERYTHING, Cell, Column, SecretOf, Selection, open_cell
from sealpoint.databases.failures import failure
from sealpoint.databases.rows import BATCH, Batch, Event, Page, Progress, RowStore
from sealpoint.errors import DatabaseCorruptError, SealpointError


def verify(
    store: RowStore,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    secret_of: SecretOf | None = None,
    selection: Selection = EVERYTHING,
    every: int = 1,
    examine: Callable[[Cell, Opened], object] | None = None,
    columns: Sequence[Column] | None = None,
    batch: Batch = BATCH,
) -> Iterator[Event]:
    """Open values. Nothing is deserialized or written.

    Args:
        store: A database.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Accept values that are not sealed; else each is a failure.
        secret_of: Gives the secrets of values that have one in their key; without it these are failures.
        selection: Which values to read.
        every: Open only one in this many values; all of the selection are read.
        examine: Called with each value that opens; what it raises is a failure of the value.
        columns: What to read, with what `examine` needs beside the values; all columns without it.
        batch: How much to read at a time.

    Yields:
        Progress after each batch, with nothing changed; a failure for each value that does not open.

    Raises:
        DatabaseCorruptError: If the database is damaged; the values before the damage have been opened.
    """
    total, damage = 0, None
    try:
        total = sum(count.rows for count in store.count() if selection.takes(count.tag))
    except DatabaseCorruptError as error:  # values before the damage are opened nevertheless
        damage = error
    seen = size = 0
    numbers = count()
    for column in store.columns if columns is None else columns:
        for page in pages(store, column, selection, batch):
            for cell in page.cells:
                size += len(cell.value) if isinstance(cell.value, bytes) else 0
                if next(numbers) % every:
                    continue
                try:
                    opened = open_cell(cipher, cell, allow_plaintext=allow_plaintext, secret_of=secret_of)
                    if examine is not None:
                        examine(cell, opened)
                except SealpointError as error:
                    yield failure(cell, error)
            seen += len(page.cells)
            yield Progress(column.label, seen, total, 0, 0, size, 0.0)
    if damage is not None:
        raise damage


def pages(
    store: RowStore, column: Column, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> Iterator[Page]:
    """Yield the selected cells of a column page by page."""
    page = store.read(column, None, selection, batch)
    yield page
    while page.last is not None:
        page = store.read(column, page.last, selection, batch)
        yield page
