"""A trial: every value is decoded as an agent would decode it, before agents are switched over.

Unlike all other maintenance it builds the objects that values name, and so runs the code of their classes.
"""

from __future__ import annotations

from collections.abc import Iterator

from sealpoint.base.checkpoint import require_document
from sealpoint.base.coordinates import CHECKPOINT
from sealpoint.crypto.tag import is_sealed
from sealpoint.databases.cells import Cell
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.rows import BATCH, Batch, Event, Progress, RowStore
from sealpoint.errors import DecodeError, SealpointError
from sealpoint.maintenance.bound import take_apart
from sealpoint.maintenance.records import check_records
from sealpoint.maintenance.verify import pages
from sealpoint.serde import EncryptedSerializer
from sealpoint.serde.base import is_opaque


def trial(store: RowStore, serde: EncryptedSerializer, *, batch: Batch = BATCH) -> Iterator[Event]:
    """Decode every value of a database with an agent's serializer. Nothing is written.

    Args:
        store: A database.
        serde: With the ring, the allowlist and the policies of the agent.
        batch: How much to read at a time.

    Yields:
        Progress after each batch, with nothing changed; a failure for each value that raises, and for each
        row of ``checkpoints`` that a saver refuses for its ids or its metadata.
    """
    total = sum(count.rows for count in store.count())
    seen = size = 0
    for column in store.columns:
        for page in pages(store, column, batch=batch):
            for cell in page.cells:
                size += len(cell.value) if isinstance(cell.value, bytes) else 0
                try:
                    _decode(serde, cell)
                except SealpointError as error:
                    yield failure(cell, error)
                except SystemExit:  # else the exit code of the run would be that of a class
                    yield failure(cell, DecodeError("a class in the value ends the program"))
            seen += len(page.cells)
            yield Progress(column.label, seen, total, 0, 0, size, 0.0)
    yield from (found for found in check_records(store) if isinstance(found, Failure))


def _decode(serde: EncryptedSerializer, cell: Cell) -> None:
    cell.where.require_key()
    row = cell.row if is_sealed(cell.tag) else None
    header = None
    if row is None:
        value = serde.loads_typed((cell.tag, cell.value))
    else:
        opened, header, *_ = take_apart(cell, serde.open(cell.tag, cell.value, row=row))
        value = serde.decode(*opened.typed)
    if header and cell.where.column.in_json:
        value = {**value, "channel_values": {}}  # they are in rows of their own
    if (header or cell.where.column.coordinates == CHECKPOINT) and not is_opaque(serde, value):
        require_document(value, cell.where.names["checkpoint_id"])
