"""Verification: every value of a database is opened, and every one that does not open is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sealpoint.crypto import RingCipher
from sealpoint.databases.cells import open_cell
from sealpoint.databases.rows import (
    BATCH,
    EVERYTHING,
    Batch,
    Cell,
    Event,
    Failure,
    Page,
    Progress,
    RowStore,
    Selection,
    Table,
    failure,
)
from sealpoint.errors import SealpointError


def verify(
    store: RowStore,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    selection: Selection = EVERYTHING,
    every: int = 1,
    batch: Batch = BATCH,
) -> Iterator[Event]:
    """Open values where they stand. Nothing is deserialized, and nothing is written.

    Args:
        store: A database.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Let values that are not sealed pass; else each is a failure.
        selection: Which values to read.
        every: Open only one value of so many; all of the selection are read.
        batch: How much to read at a time.

    Yields:
        Progress after each batch, with nothing changed; a failure for each value that does not open.
    """
    total = sum(count.rows for count in store.count() if selection.takes(count.tag))
    seen = size = 0
    numbers = count()
    for table in store.tables:
        for page in pages(store, table, selection, batch):
            for value in page.values:
                size += len(value.blob) if isinstance(value.blob, bytes) else 0
                if next(numbers) % every == 0:
                    yield from _try(cipher, value, allow_plaintext=allow_plaintext)
            seen += len(page.values)
            yield Progress(table.name, seen, total, 0, 0, size, 0.0)


def pages(
    store: RowStore, table: Table, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> Iterator[Page]:
    """Yield a table's selected values page by page."""
    page = store.read(table, None, selection, batch)
    yield page
    while page.last is not None:
        page = store.read(table, page.last, selection, batch)
        yield page


def _try(cipher: RingCipher, value: Cell, *, allow_plaintext: bool) -> Iterator[Failure]:
    try:
        open_cell(cipher, value, allow_plaintext=allow_plaintext)
    except SealpointError as error:
        yield failure(value, error)
