"""Verification: every value of a database is opened, and every one that does not open is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from sealpoint.crypto import RingCipher
from sealpoint.errors import PlaintextError, SealpointError, excerpt
from sealpoint.maintenance.rows import (
    BATCH,
    EVERYTHING,
    Batch,
    Event,
    Failure,
    Page,
    Progress,
    RowStore,
    Selection,
    StoredValue,
    Table,
)


def verify(
    store: RowStore,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    every: int = 1,
    batch: Batch = BATCH,
) -> Iterator[Event]:
    """Open values where they stand. Nothing is deserialized, and nothing is written.

    Args:
        store: A database.
        cipher: Opens with the keys of its ring.
        allow_plaintext: Let values that are not sealed pass; else each is a failure.
        every: Open only one value of so many; all are read.
        batch: How much to read at a time.

    Yields:
        Progress after each batch, with nothing moved; a failure for each value that does not open.
    """
    total = sum(count.rows for count in store.count())
    seen = size = 0
    numbers = count()
    for table in store.tables:
        for page in pages(store, table, batch=batch):
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


def _try(cipher: RingCipher, value: StoredValue, *, allow_plaintext: bool) -> Iterator[Failure]:
    try:
        open_stored(cipher, value, allow_plaintext=allow_plaintext)
    except SealpointError as error:
        yield Failure(value.table.name, value.place, value.tag, error)


def open_stored(
    cipher: RingCipher, value: StoredValue, *, allow_plaintext: bool = False
) -> tuple[str, bytes]:
    """Open one value: return its inner type and the serializer's bytes.

    Raises:
        PlaintextError: If it is not sealed, and that is not allowed.
        SealpointError: What `RingCipher.open` raises.
    """
    tag = value.tag
    if isinstance(tag, str) and "+" not in tag and isinstance(value.blob, bytes):
        if allow_plaintext:
            return tag, value.blob
        raise PlaintextError(f"value of type {excerpt(tag)} is not sealed")
    return cipher.open(tag, value.blob, row=value.row)
