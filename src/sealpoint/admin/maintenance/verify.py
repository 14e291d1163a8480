"""Verification: opens every value of a database, and checks that a saver would accept every row.

`trial` decodes every value as an agent would, before agents change to sealpoint. Unlike all other
maintenance, it builds the objects that values name, and so runs code of their classes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealpoint.admin.databases.cells import (
    EVERYTHING,
    Cell,
    Column,
    Opener,
    Record,
    Selection,
    require_readable,
)
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.databases.rows import Need, RowStore, failure, pages
from sealpoint.admin.maintenance.calls import WriteCheck
from sealpoint.admin.maintenance.documents import versions_apart
from sealpoint.admin.maintenance.items import read_item
from sealpoint.admin.maintenance.names import DATED_ID
from sealpoint.admin.results.events import Event, Failure, Progress
from sealpoint.admin.results.jobs import BATCH, Batch
from sealpoint.admin.results.reasons import Reason, applying
from sealpoint.base.checkpoint import CheckpointMetadata
from sealpoint.base.metadata import decode_metadata
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import DatabaseCorruptError, DecodeError, RowError, SealpointError
from sealpoint.seal.cipher import Opened
from sealpoint.seal.places import CHECKPOINT, WRITE
from sealpoint.seal.rows import Header, require_document, value_missing
from sealpoint.seal.tag import MSGPACK, is_legacy, is_sealed
from sealpoint.seal.tokens import Tokens
from sealpoint.serde.base import is_opaque
from sealpoint.serde.inert import Inert, decode_inert, read_outline
from sealpoint.serde.jsontext import parse_item
from sealpoint.serde.limits import DEFAULT_LIMITS, WRITTEN_LIMITS, Limits

if TYPE_CHECKING:
    from sealpoint.serde.encrypted import EncryptedSerializer

MAX_PLACES: Final = 100


def verify(
    store: RowStore,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    selection: Selection = EVERYTHING,
    every: int = 1,
    examine: Callable[[Cell, Opened], object] | None = None,
    columns: Sequence[Column] | None = None,
    batch: Batch = BATCH,
) -> Iterator[Event]:
    """Open values. No value is deserialized, and nothing is written.

    Args:
        store: A database.
        cipher: Opens sealed values.
        allow_plaintext: Accept unsealed values; otherwise each is a failure.
        selection: Which values to read.
        every: Open only every n-th value; all selected values are read.
        examine: Function called with each value that opens; its errors are failures of the value.
        columns: Columns to read, including those that `examine` needs; default: all columns.
        batch: Maximum number of rows and bytes to read at a time.

    Yields:
        Progress after each batch; a failure for each value that does not open.

    Raises:
        DatabaseCorruptError: If the database is damaged; the values before the damage have been opened.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint import KeyRing, RingCipher
        >>> from sealpoint.admin.maintenance import Failure, SqliteRows
        >>> from sealpoint.admin.maintenance.verify import verify
        >>> with closing(SqliteRows("agent.db")) as store:
        ...     events = list(verify(store, RingCipher(KeyRing.load("keys.toml"))))
        >>> [event for event in events if isinstance(event, Failure)]
        []
    """
    total, damage = 0, None
    try:
        total = sum(count.rows for count in store.count() if selection.takes(count.tag))
    except DatabaseCorruptError as error:  # the values before the damage are opened first
        damage = error
    numbers, opener = count(), Opener(cipher, allow_plaintext)

    def look(cell: Cell) -> None:
        if next(numbers) % every == 0:
            opened = opener.open(cell)
            if examine is not None:
                examine(cell, opened)

    yield from walk(store, look, total, store.columns if columns is None else columns, selection, batch)
    if damage is not None:
        raise damage


def walk(
    store: RowStore,
    look: Callable[[Cell], object],
    total: int,
    columns: Sequence[Column],
    selection: Selection = EVERYTHING,
    batch: Batch = BATCH,
) -> Iterator[Event]:
    """Call ``look`` with each value; yield a failure if ``look`` raises, and progress after each batch."""
    seen = size = 0
    for column in columns:
        for page in pages(store, column, selection, batch):
            for cell in page.cells:
                size += len(cell.value) if isinstance(cell.value, bytes) else 0
                try:
                    look(cell)
                except SealpointError as error:
                    yield failure(cell, error)
            seen += len(page.cells)
            yield Progress(column.label, seen, total, 0, 0, size, 0.0)


def require_own_document(cell: Cell, opened: Opened, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Check that an opened checkpoint belongs to its row, as a saver does when it reads the row.

    An object in place of a dict is accepted, because only the saver's serializer can decode it.
    """
    if opened.inner == MSGPACK and opened.authenticated:
        end = os.urandom(8)  # appended as a marker: ormsgpack ignores bytes after a value
        data = b"\x92%b\xc4\x08%b" % (opened.data, end)
        document, behind = read_outline(data, lambda *_: Inert("", "", "", None))
        if behind != end:
            raise DecodeError("the value has extra or missing bytes at its end")
    else:
        document = decode_inert(*opened.typed, WRITTEN_LIMITS if opened.authenticated else limits)
    if cell.where.column.in_json and isinstance(document, dict):
        document = {**document, "channel_values": {}}
    if not isinstance(document, Inert):
        require_document(document, cell.where.names["checkpoint_id"], lambda value: isinstance(value, Inert))
    return document


class Places(NamedTuple):
    """A number of rows, and the key columns of the first few of these rows.

    Attributes:
        rows: Number of rows.
        places: Key columns, by name, of the first rows, at most `MAX_PLACES`.
    """

    rows: int = 0
    places: tuple[dict[str, Any], ...] = ()

    def plus(self, place: dict[str, Any]) -> Places:
        """Return a copy with one more row."""
        return Places(self.rows + 1, self.places if self.rows >= MAX_PLACES else (*self.places, place))


def check_records(
    store: RowStore, examine: Callable[[Record], object] = lambda _: None
) -> Generator[Failure, None, Places]:
    """Check all columns of ``checkpoints`` except the values; return the rows whose parent is missing.

    Hashes of ids are kept in memory, about 100 bytes per checkpoint. If a parent is missing, rows are read
    again.
    """
    ids, waiting = set[int](), Counter[int]()
    for record in store.records():
        try:
            if record.flaw is not None:
                raise RowError(record.flaw)
            require_beside(record.table, record.place, record.parent, record.metadata)
        except SealpointError as error:
            yield Failure(record.table, record.place, None, error.with_traceback(None))
            continue
        examine(record)
        own, parent = _marks(record)
        ids.add(own)
        waiting.pop(own, None)
        if parent is not None and parent not in ids:
            waiting[parent] += 1
    again = store.records() if waiting else ()
    orphans = (record.place for record in again if _marks(record)[1] in waiting)
    return Places(waiting.total(), tuple(islice(orphans, MAX_PLACES)))


def _marks(record: Record) -> tuple[int, int | None]:
    """Return a hash of a checkpoint's id, and a hash of its parent's id."""
    *thread, _ = record.place.values()
    return hash((*record.place.values(),)), hash((*thread, record.parent)) if record.parent else None


def require_beside(table: str, names: Mapping[str, Any], parent: object, metadata: Any) -> CheckpointMetadata:
    """Check the ids, the parent and the metadata of a checkpoint as a saver does; return the metadata."""
    for name, part in names.items():
        if type(part) is not str:
            raise RowError(f"key column {name!r} of table {table!r} holds {type(part).__name__}, not str")
    if names.get("checkpoint_id") == "":
        raise RowError("the id of a checkpoint is empty")
    if parent is not None and type(parent) is not str:
        raise RowError(f"the id of the parent is {type(parent).__name__}, not text")
    return decode_metadata(metadata, strict=False)  # a bound row is compared with its sealed metadata


class Observer:
    """Receives opened values and failures of a verification. This base class ignores them."""

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Receive a value that opened, and whose row a saver would accept."""

    def add_failure(self, failed: Failure) -> None:
        """Receive a refused value or row."""

    def findings(self) -> Iterable[Failure]:
        """Return findings since the last call; called after each event."""
        return ()

    def finish(self) -> Iterable[Failure]:
        """Return the remaining findings, after the whole database was read."""
        return ()


class Verification:
    """A verification of one database, and its counts.

    Attributes:
        opened: Number of sealed values that opened, by key.
        covered: Number of sealed values that opened, by column and key.
        newest: By key, the greatest id of a checkpoint with a value that opened. Such an id is a UUID of
            version 6, which contains the writer's time.
        accepted: Number of accepted values of which no key authenticates the bytes, or the type.
        legacy: Number of accepted values under LANGGRAPH_AES_KEY, which does not authenticate types.
        bound: Number of values that are bound to their rows.
        orphans: Number of checkpoints whose parent is missing, with the key columns of a few.
    """

    def __init__(
        self,
        store: RowStore,
        cipher: RingCipher,
        *,
        allow_plaintext: bool = False,
        observer: Observer | None = None,
        columns: Sequence[Column] | None = None,
        require_bound: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Prepare a run. For ``store``, ``cipher``, ``allow_plaintext`` and ``columns`` see `verify`.

        With ``require_bound``, every value and checkpoint must be bound to its row, even if none is bound.
        ``limits`` are the decoding limits for unauthenticated checkpoints.
        """
        self.opened = Counter[str]()
        self.covered = Counter[tuple[str, str]]()
        self.newest = dict[str, str]()
        self.accepted = self.legacy = self.bound = 0
        self.orphans = Places()
        self._unbound = Places()
        self._require_bound, self._limits = require_bound, limits
        self._needs: dict[Need, Cell] = {}
        read = store.columns if columns is None else columns
        has_writes = any(column.coordinates == WRITE for column in read)
        self._writes = WriteCheck(store, cipher) if has_writes else None
        self._store = store
        self._tokens = Tokens(lambda: cipher.ring)
        self._observer = Observer() if observer is None else observer
        self._values = verify(
            store,
            cipher,
            allow_plaintext=allow_plaintext,
            examine=self._examine,
            columns=[column.widened for column in read],
        )

    @property
    def unbound(self) -> Places:
        """Unbound values and checkpoints, if other rows are bound or ``require_bound`` is set."""
        return self._unbound if self.bound or self._require_bound else Places()

    def events(self) -> Iterator[Event]:
        """Verify: yield progress, and a failure for each value or row that a saver would refuse."""
        for event in self._database_events():
            if isinstance(event, Failure):
                self._observer.add_failure(event)
            yield event
            yield from self._observer.findings()
        yield from self._observer.finish()

    def _database_events(self) -> Iterator[Event]:
        for event in self._values:
            yield event
            if isinstance(event, Progress):
                needs, self._needs = self._needs, {}  # for the checkpoints of this batch
                for need in self._store.lost([*needs]):
                    yield failure(needs[need], value_missing(need.channel))
        if self._writes is not None:
            yield from self._writes.find_copies()
            yield from self._writes.find_lost()
        self.orphans = yield from check_records(self._store, self._examine_record)

    def counts(self, *, of_range: bool = False) -> dict[str, Any]:
        """Return the counts as a dict for JSON; ``of_range`` counts unbound rows even if no row is bound."""
        unbound = self._unbound if of_range else self.unbound
        return {
            "opened": [{"key": key, "values": values} for key, values in sorted(self.opened.items())],
            "accepted": self.accepted,
            "legacy": self.legacy,
            "bound": self.bound,
            "unbound": unbound.rows,
            "unbound_places": list(unbound.places),
            "orphans": self.orphans.rows,
            "orphan_places": list(self.orphans.places),
        }

    def reasons(self) -> list[Reason]:
        """Return the reasons why ``ok`` is not true."""
        unbound = Reason.NOT_BOUND if self._require_bound else Reason.UNBOUND
        more = applying({Reason.PARENTS_MISSING: self.orphans.rows, unbound: self.unbound.rows})
        return [*self.accepted_reasons(), *more]

    def accepted_reasons(self) -> list[Reason]:
        """Return the reasons why ``ok`` is not true that are due to accepted, unauthenticated values."""
        plaintext = self.accepted > self.legacy
        return applying({Reason.PLAINTEXT_ALLOWED: plaintext, Reason.LEGACY_ALLOWED: self.legacy})

    def _examine(self, cell: Cell, opened: Opened) -> None:
        parts = cell.parts(opened)
        if parts.header is not None:
            document = require_own_document(cell, parts.opened, self._limits)
            self._examine_header(cell, parts.header, document)
        elif cell.where.column.coordinates == CHECKPOINT:
            require_own_document(cell, parts.opened, self._limits)
        elif cell.is_item:
            read_item(cell, parts, self._tokens)
        self._observer.add(cell, opened, parts)
        if parts.claims is not None and self._writes is not None:
            self._writes.add(cell, parts.claims)
        if parts.is_bound:
            self.bound += 1
        else:
            self._unbound = self._unbound.plus(cell.where.names)
        if opened.key_id is None:
            self.accepted += 1
            self.legacy += is_legacy(cell.tag)
        else:
            self.opened[opened.key_id] += 1
            self.covered[cell.where.column.label, opened.key_id] += 1
            checkpoint_id = cell.where.names.get("checkpoint_id", "")
            if checkpoint_id > self.newest.get(opened.key_id, "") and DATED_ID.fullmatch(checkpoint_id):
                self.newest[opened.key_id] = checkpoint_id

    def _examine_header(self, cell: Cell, header: Header, document: Any) -> None:
        cell.require_same(header, self._tokens)
        if cell.where.column.in_json:
            needs = versions_apart(header, document, decode_metadata(cell.where.beside["channel_versions"]))
            self._needs |= {Need(cell.where.key, *need): cell for need in needs}
        if self._writes is not None:
            self._writes.add_checkpoint(cell, header)

    def _examine_record(self, record: Record) -> None:
        if record.is_readable:
            self._unbound = self._unbound.plus(record.place)


def trial(store: RowStore, serde: EncryptedSerializer) -> Iterator[Event]:
    """Decode every value of a database with an agent's serializer. The database is not changed.

    Args:
        store: A database.
        serde: Serializer with the ring, the allowlist and the policies of the agent.

    Yields:
        Progress after each batch; a failure for each value that raises, and for each row of
        ``checkpoints`` that a saver refuses for its ids or its metadata.
    """
    total = sum(count.rows for count in store.count())
    yield from walk(store, partial(_decode, serde), total, store.columns)
    yield from check_records(store)


def _decode(serde: EncryptedSerializer, cell: Cell) -> None:
    cell.where.require_key()
    require_readable(cell)
    row = cell.row if is_sealed(cell.tag) else None
    header = None
    try:
        if cell.is_plain_item:
            value = parse_item(serde.open(cell.tag, cell.value).data)
        elif row is None:
            value = serde.loads_typed((cell.tag, cell.value))
        else:
            opened, header, *_ = cell.parts(serde.open(cell.tag, cell.value, row=row))
            if opened.authenticated:
                value = serde.decode(*opened.typed)
            else:  # under LANGGRAPH_AES_KEY
                value = serde.loads_typed((cell.tag, cell.value))
    except SystemExit:  # otherwise a class in a value would set the exit code
        raise DecodeError("a class in the value raises SystemExit") from None
    if cell.is_item and not isinstance(value, dict):
        raise DecodeError(f"a sealed item is {type(value).__name__}, not a dict")
    if header and cell.where.column.in_json and isinstance(value, dict):
        value = {**value, "channel_values": {}}  # channel values have rows of their own
    if (header or cell.where.column.coordinates == CHECKPOINT) and not is_opaque(serde, value):
        require_document(value, cell.where.names["checkpoint_id"])
