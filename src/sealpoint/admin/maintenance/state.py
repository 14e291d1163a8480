"""The state of a thread: one checkpoint with its values by channel. No object is imported or built.

On SQLite the values are in the checkpoint's row, on Postgres partly in rows of their own. The value of a
delta channel is computed by a function of the graph from earlier writes: only a stored snapshot is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sealpoint.admin.databases.cells import Cell, Opener, Selection
from sealpoint.admin.databases.kinds import WholeRowStore
from sealpoint.admin.databases.rows import failure
from sealpoint.admin.maintenance.calls import cells_of
from sealpoint.admin.maintenance.documents import parse_json, restore
from sealpoint.admin.maintenance.inspect import Readable, opener_of, plain
from sealpoint.admin.maintenance.names import stored_ids, two_histories
from sealpoint.admin.results.events import Failure
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import RowError, SealpointError, UnknownTypeError
from sealpoint.seal.cipher import Opened
from sealpoint.seal.places import CHECKPOINT, KEY, METADATA, VALUE, WRITE, Coordinates
from sealpoint.seal.rows import (
    MARK,
    SENTINEL,
    is_bound,
    require_document,
    require_never_sealed,
    value_missing,
)
from sealpoint.seal.tag import PICKLE
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits


@dataclass(slots=True)
class State:
    """The state of a thread.

    Attributes:
        checkpoint: The checkpoint as a cell, with its row; ``None`` if there is no checkpoint.
        metadata: Metadata of the checkpoint; the sealed copy, if the checkpoint is bound to its row.
        values: Values by channel, as `decode_inert` returns them.
        writes: Pending writes of the checkpoint.
        not_shown: Names of delta channels without a stored value in the checkpoint.
        failures: Errors of values that did not open, each with its row.
    """

    checkpoint: Cell | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    writes: list[Readable] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def read_state(
    store: WholeRowStore,
    cipher: RingCipher | None,
    thread_id: str,
    place: tuple[str, str | None],
    channel: str | None,
    limit: int,
    limits: Limits = DEFAULT_LIMITS,
) -> State:
    """Return the state at the checkpoint ``place``: its namespace and id; without an id, the latest.

    Returns at most ``limit`` + 1 pending writes; if ``channel`` is given, only writes to this channel.
    ``limits`` are the limits for decoding a value.

    Raises:
        RowError: If the thread has checkpoints under its id and under a pseudonym.
    """
    reader = _Reader(store, opener_of(cipher)._replace(limits=limits))
    with store.one_state():
        found = [reader.find(stored, *place) for stored in stored_ids(reader.opener.cipher.ring, thread_id)]
        if len(cells := [cell for cell in found if cell]) > 1:
            raise two_histories()
        for cell in cells:
            reader.state.checkpoint = cell
            try:
                reader.read(cell, channel, limit)
            except SealpointError as error:
                reader.state.failures.append(failure(cell, error))
    return reader.state


class _Reader:
    def __init__(self, store: WholeRowStore, opener: Opener) -> None:
        self.opener, self.state = opener, State()
        self._store, self._tokens = store, Tokens(lambda: opener.cipher.ring)

    def _cells(self, stored: str, *kinds: Coordinates) -> Iterator[Cell]:
        wanted = [each for each in self._store.columns if each.coordinates in kinds]
        return cells_of(self._store, wanted, Selection(thread_id=stored))

    def find(self, stored: str, ns: str, checkpoint_id: str | None) -> Cell | None:
        """Return the checkpoint with the given id, or the namespace's latest; ids are compared as bytes."""
        best: Cell | None = None
        for cell in self._cells(stored, CHECKPOINT, METADATA):
            try:
                cell.where.require_key()
            except RowError as error:  # a saver may read this row as the latest checkpoint
                self.state.failures.append(failure(cell, error))
                continue
            _, found_ns, found_id = cell.where.key
            if found_ns != ns or checkpoint_id not in (None, found_id):
                continue
            if best is None or best.where.key[2].encode() < found_id.encode():
                best = cell
        return best

    def read(self, cell: Cell, channel: str | None, limit: int) -> None:
        """Open the checkpoint, its values, and its pending writes."""
        state, beside, (stored, ns, checkpoint_id) = self.state, cell.where.beside, cell.where.key
        is_apart, header = cell.where.column.coordinates == METADATA, None
        apart: Iterable[tuple[str, str]] = ()
        state.metadata = decode_metadata(beside["metadata"], strict=is_bound(cell.tag))
        if is_apart and cell.tag is None and KEY not in state.metadata:
            document = parse_json(beside["document"])
        else:
            parts = self.opener.parts(cell)
            document, header = _document(parts.opened, self.opener.limits), parts.header
        if header:
            cell.require_same(header, self._tokens)
            state.metadata = header["metadata"]
        if is_apart and header:
            document, apart = restore(header, document, beside["document"], checkpoint_id)
        require_document(document, checkpoint_id, lambda value: isinstance(value, Inert))
        found, versions = document["channel_values"], document["channel_versions"]
        if is_apart and not header:
            require_never_sealed(checkpoint_id, found, versions)
            apart = [(channel, str(versions[channel])) for channel in beside["channels"]]
        if isinstance(found, Inert) or not all(isinstance(name, str) for name in found):
            raise RowError("the channel values are not a dict with text keys")
        state.values = {name: _snapshot(value) for name, value in found.items()}
        self._read_apart(cell, {name: version for name, version in apart if name != SENTINEL})
        if isinstance(counters := state.metadata.get(MARK), dict):
            state.not_shown = [name for name in counters if name not in state.values]
        for write in self._cells(stored, WRITE):
            if write.where.key[1:3] == (ns, checkpoint_id):
                table, names = write.where.column.label, write.where.names
                is_kept = channel in (None, names["channel"]) and len(state.writes) <= limit
                for value in self._open(write):
                    state.writes += [Readable(table, names, write.tag, plain(value))] * is_kept

    def _read_apart(self, cell: Cell, wanted: dict[str, str]) -> None:
        for name in wanted:  # a placeholder in the checkpoint
            self.state.values.pop(name, None)
        stored, ns, _ = cell.where.key
        for value in self._cells(stored, VALUE) if wanted else ():
            _, value_ns, channel, version = value.where.key
            if value_ns == ns and wanted.get(channel) == version:
                del wanted[channel]
                for opened in self._open(value, require_bound=cell.tag is not None):
                    self.state.values[channel] = _snapshot(opened)
        self.state.failures += [failure(cell, value_missing(channel)) for channel in wanted]

    def _open(self, cell: Cell, *, require_bound: bool = False) -> list[Any]:
        """Return a list with the opened value of a cell; if it does not open, add a failure and return []."""
        try:
            parts = self.opener.parts(cell)
            if require_bound and not is_bound(cell.tag):  # only a bound checkpoint has a tag on Postgres
                raise RowError("the checkpoint is bound to its row, but this value is not")
            return [decode_inert(*parts.opened.typed, self.opener.limits)]
        except SealpointError as error:
            self.state.failures.append(failure(cell, error))
            return []


def _document(opened: Opened, limits: Limits) -> Any:
    if opened.inner == PICKLE:
        raise UnknownTypeError("pickles are not decoded", hint="see docs/migration.md#rows-of-pickle")
    return decode_inert(*opened.typed, limits)


def _snapshot(value: Any) -> Any:
    """Return the value inside the snapshot of a delta channel; return other values unchanged."""
    return value.payload if isinstance(value, Inert) and value.kind == "delta-snapshot" else value
