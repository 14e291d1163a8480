"""What reading checks of a row beside opening its value: its document, its metadata, and its parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from sealpoint.base.checkpoint import require_document
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto import Opened
from sealpoint.crypto.kinds import MSGPACK
from sealpoint.databases.cells import Cell
from sealpoint.databases.cleartext import Record
from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import RowStore
from sealpoint.errors import RowError, SealpointError
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.outline import read_outline

MAX_PLACES: Final = 100


def require_own_document(cell: Cell, opened: Opened) -> Any:
    """Check that an opened checkpoint is the one of its row, as a saver does that reads it.

    Where an object stands in the place of a dict, only the saver's serializer can tell: it is accepted.

    Args:
        cell: The cell.
        opened: The checkpoint alone; one from metadata lacks its values.

    Returns:
        Its outline: an `Inert` in place of each object.

    Raises:
        RowError: If it is no checkpoint, or one with another id.
        SealpointError: If it is not authenticated, and a strict serializer would refuse it.
    """
    if opened.inner == MSGPACK and opened.authenticated:
        document = read_outline(opened.data, lambda *_: _OBJECT)
    else:
        document = decode_inert(opened.inner, opened.data)
    if cell.where.column.in_json and isinstance(document, dict):
        document = {**document, "channel_values": {}}
    if not _is_object(document):
        require_document(document, cell.where.names["checkpoint_id"], _is_object)
    return document


_OBJECT: Final = Inert("", "", "", None)


def _is_object(value: Any) -> bool:
    return isinstance(value, Inert)


class Places(NamedTuple):
    """Rows of which something is to be said.

    Attributes:
        rows: How many.
        places: Of the first of them, at most `MAX_PLACES`.
    """

    rows: int = 0
    places: tuple[dict[str, Any], ...] = ()

    def plus(self, place: dict[str, Any]) -> Places:
        """Return them with another row."""
        return Places(self.rows + 1, self.places if self.rows >= MAX_PLACES else (*self.places, place))


def check_records(
    store: RowStore, examine: Callable[[Record], object] = lambda _: None
) -> Iterator[Failure | Places]:
    """Check the rows of ``checkpoints`` beside their values.

    The ids are held as numbers, about 100 bytes for each checkpoint. If one is missing, rows are read again.

    Args:
        store: A database.
        examine: Called with each row that a saver does not refuse.

    Yields:
        A failure for each row that a saver refuses, and at the end the checkpoints whose parents are missing:
        a pruned thread has such rows, and so has one from which rows were removed.
    """
    ids, waiting = set[int](), Counter[int]()
    for record in store.cleartext.records():
        try:
            _require_readable(record)
        except SealpointError as error:
            yield Failure(record.table, record.place, None, error.with_traceback(None))
            continue
        examine(record)
        own, parent = _marks(record)
        ids.add(own)
        waiting.pop(own, None)
        if parent is not None and parent not in ids:
            waiting[parent] += 1
    yield Places(waiting.total(), tuple(islice(_orphans(store, waiting), MAX_PLACES)))


def _orphans(store: RowStore, missing: Collection[int]) -> Iterator[dict[str, Any]]:
    """Yield the places of checkpoints whose parent is one of these."""
    for record in store.cleartext.records() if missing else ():
        if _marks(record)[1] in missing:
            yield record.place


def _marks(record: Record) -> tuple[int, int | None]:
    """Return a number for a checkpoint, and one for its parent."""
    *thread, _ = record.place.values()
    own = hash((*record.place.values(),))
    return own, hash((*thread, record.parent)) if record.parent else None


def _require_readable(record: Record) -> None:
    """Check a row as a saver does that reads it.

    Raises:
        RowError: If its columns do not hold what a saver writes there.
        MetadataError: If its metadata is not strict JSON.
    """
    if record.flaw is not None:
        raise RowError(record.flaw)
    for name, part in record.place.items():
        if type(part) is not str:
            raise RowError(
                f"key column {name!r} of table {record.table!r} holds {type(part).__name__}, not str"
            )
    if record.place.get("checkpoint_id") == "":
        raise RowError("the id of a checkpoint is empty")
    if record.parent is not None and type(record.parent) is not str:
        raise RowError(f"the id of the parent is {type(record.parent).__name__}, not text")
    decode_metadata(record.metadata)
