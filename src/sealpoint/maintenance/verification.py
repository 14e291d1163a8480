"""A whole database verified: every value opens, and every row is one that a saver would read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from sealpoint.base.coordinates import CHECKPOINT, WRITE
from sealpoint.crypto import Opened, RingCipher
from sealpoint.crypto.tag import is_legacy
from sealpoint.databases.cells import Cell, Column, SecretOf, open_cell
from sealpoint.databases.cleartext import Record
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.rows import Event, Need, Progress, RowStore
from sealpoint.errors import RowError, SealpointError, excerpt
from sealpoint.maintenance.bound import Parts, needs_of, require_same_row, take_apart, widened
from sealpoint.maintenance.calls import CallCheck, WriteRows
from sealpoint.maintenance.records import Places, check_records, require_own_document
from sealpoint.maintenance.result import Reason
from sealpoint.maintenance.verify import pages, verify
from sealpoint.sealed.calls import Claims
from sealpoint.sealed.tokens import Tokens

DATED_ID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""The id of a checkpoint that LangGraph made: a UUID of version 6. Such texts sort by their times."""


class Observer(Protocol):
    """Receives what a verification opens."""

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Receive a value that opened, and whose row a saver would accept.

        Raises:
            SealpointError: If it is a failure nevertheless.
        """

    def add_failure(self, failed: Failure) -> None:
        """Receive a value or a row that is refused."""

    def findings(self) -> Iterator[Failure]:
        """Yield what was found since the last call; called after each event."""

    def finish(self) -> Iterator[Failure]:
        """Yield what is found when the whole database was read."""


class Verification:
    """One run over a database, and what it has counted.

    Attributes:
        covered: How many sealed values opened, by the label of their column and their key.
        newest: The greatest id of a checkpoint with a value that opened, by key. A UUID of version 6, which
            names its time; it is the writer's.
        accepted: How many values were accepted although no key authenticates them or their type.
        legacy: How many of these are under LANGGRAPH_AES_KEY, the type of which is not authenticated.
        bound: How many of the values are bound to their rows.
        orphans: Checkpoints whose parent is not there.
    """

    def __init__(
        self,
        store: RowStore,
        cipher: RingCipher,
        *,
        allow_plaintext: bool = False,
        secret_of: SecretOf | None = None,
        observer: Observer | None = None,
        columns: Sequence[Column] | None = None,
        require_bound: bool = False,
    ) -> None:
        """Prepare a run; all arguments but the last and the observer are those of `verify`.

        With ``require_bound`` every value and checkpoint must be bound to its row, also if none is.
        """
        self.covered = Counter[tuple[str, str]]()
        self.newest = dict[str, str]()
        self.accepted = self.legacy = self.bound = 0
        self.orphans = Places()
        self._unbound = Places()
        self._require_bound = require_bound
        self._needs: dict[Need, Cell] = {}
        self._writes = _Writes(store, cipher, secret_of)
        read = store.columns if columns is None else columns
        has_writes = any(column.coordinates == WRITE for column in read)
        self._calls = CallCheck(WriteRows(store, cipher, secret_of)) if has_writes else None
        self._store = store
        self._tokens = Tokens(lambda: cipher.ring)
        self._observer = observer
        self._values = verify(
            store,
            cipher,
            allow_plaintext=allow_plaintext,
            secret_of=secret_of,
            examine=self._examine,
            columns=[*map(widened, read)],
        )

    @property
    def opened(self) -> Counter[str]:
        """How many sealed values opened under which key."""
        found = Counter[str]()
        for (_, key_id), values in self.covered.items():
            found[key_id] += values
        return found

    @property
    def unbound(self) -> Places:
        """The values and checkpoints that are not bound to their rows, if others are or all must be."""
        return self._unbound if self.bound or self._require_bound else Places()

    def events(self) -> Iterator[Event]:
        """Run: yield progress, and a failure for each value and row that a saver would refuse.

        Raises:
            DatabaseCorruptError: If the database is damaged; the values before the damage have been opened.
            ThreadStoreError: If the thread store cannot be read.
        """
        observer = self._observer
        for event in self._database_events():
            if observer is not None and isinstance(event, Failure):
                observer.add_failure(event)
            yield event
            if observer is not None:
                yield from observer.findings()
        if observer is not None:
            yield from observer.finish()

    def _database_events(self) -> Iterator[Event]:
        for event in self._values:
            yield event
            if isinstance(event, Progress):
                yield from self._find_lost()
        yield from self._writes.find_copies()
        if self._calls is not None:
            yield from self._calls.findings()
        for found in check_records(self._store, self._examine_record):
            if isinstance(found, Places):
                self.orphans = found
            else:
                yield found

    def counts(self) -> dict[str, Any]:
        """Return what was counted, as JSON."""
        return {
            "opened": [{"key": key, "values": values} for key, values in sorted(self.opened.items())],
            "accepted": self.accepted,
            "legacy": self.legacy,
            "bound": self.bound,
            "unbound": self.unbound.rows,
            "unbound_places": list(self.unbound.places),
            "orphans": self.orphans.rows,
            "orphan_places": list(self.orphans.places),
        }

    def reasons(self) -> Iterator[Reason]:
        """Yield why the run shows less than that all is as it was written."""
        yield from self.accepted_reasons()
        if self.orphans.rows:
            yield Reason.PARENTS_MISSING
        if self.unbound.rows:
            yield Reason.NOT_BOUND if self._require_bound else Reason.UNBOUND

    def accepted_reasons(self) -> Iterator[Reason]:
        """Yield why values were accepted that are not authenticated."""
        if self.accepted > self.legacy:
            yield Reason.PLAINTEXT_ALLOWED
        if self.legacy:
            yield Reason.LEGACY_ALLOWED

    def _examine(self, cell: Cell, opened: Opened) -> None:
        parts = take_apart(cell, opened)
        coordinates = cell.where.column.coordinates
        if coordinates == CHECKPOINT or parts.header is not None:
            document = require_own_document(cell, parts.opened)
            if parts.header is not None:
                require_same_row(cell, parts.header, self._tokens)
                if cell.where.column.in_json:
                    self._needs |= dict.fromkeys(needs_of(cell, parts.header, document), cell)
                if self._calls is not None:
                    self._calls.add_checkpoint(cell, parts.header)
        if self._observer is not None:
            self._observer.add(cell, opened, parts)
        if parts.claims is not None:
            self._writes.add(cell, parts.claims)
            if self._calls is not None:
                self._calls.add(cell, parts.claims)
        if parts.is_bound:
            self.bound += 1
        else:
            self._unbound = self._unbound.plus(cell.where.names)
        if opened.key_id is None:
            self.accepted += 1
            self.legacy += is_legacy(cell.tag)
        else:
            self.covered[cell.where.column.label, opened.key_id] += 1
            self._date(opened.key_id, cell.where.names.get("checkpoint_id"))

    def _date(self, key_id: str, checkpoint_id: Any) -> None:
        is_later = isinstance(checkpoint_id, str) and checkpoint_id > self.newest.get(key_id, "")
        if is_later and DATED_ID.fullmatch(checkpoint_id):
            self.newest[key_id] = checkpoint_id

    def _examine_record(self, record: Record) -> None:
        if record.is_readable:
            self._unbound = self._unbound.plus(record.place)

    def _find_lost(self) -> Iterator[Failure]:
        """Yield a failure for each value that a checkpoint of the batch needs, and that is not there."""
        needs, self._needs = self._needs, {}
        for need in self._store.lost([*needs]):
            error = RowError(f"the value of channel {excerpt(need.channel)} is missing")
            yield failure(needs[need], error)


class _Writes:
    """Finds writes that claim the same place.

    Two of one place cannot both stand in the row of that place, so only those in other rows are remembered:
    nearly none, because a saver changes the numbers of writes only when it copies a thread.
    """

    def __init__(self, store: RowStore, cipher: RingCipher, secret_of: SecretOf | None) -> None:
        self._store, self._cipher, self._secret_of = store, cipher, secret_of
        self._claimed = dict[tuple[Any, ...], Cell]()
        self._copies = list[Cell]()

    def add(self, cell: Cell, claims: Claims) -> None:
        """Add a write that has opened."""
        place = _claimed_place(cell, claims)
        if place == cell.where.key[:-1]:
            return
        if place in self._claimed:
            self._copies.append(cell)
        self._claimed[place] = cell._replace(value=None)

    def find_copies(self) -> Iterator[Failure]:
        """Yield a failure for each write whose place another one has."""
        error = "a write of a task is stored twice"
        for cell in self._copies:
            yield failure(cell, RowError(error))
        columns = [column for column in self._store.columns if column.coordinates == WRITE]
        for column in columns if self._claimed else ():
            for page in pages(self._store, column):
                for cell in page.cells:
                    if (found := self._claimed.get(cell.where.key[:-1])) and self._stands_there(cell):
                        yield failure(found, RowError(error))

    def _stands_there(self, cell: Cell) -> bool:
        """Whether a write claims the place where it stands."""
        try:
            claims = take_apart(cell, open_cell(self._cipher, cell, secret_of=self._secret_of)).claims
        except SealpointError:  # it has been named
            return False
        return claims is not None and _claimed_place(cell, claims) == cell.where.key[:-1]


def _claimed_place(cell: Cell, claims: Claims) -> tuple[Any, ...]:
    """Return the primary key of the row of a write: that of the cell with the number that was sealed."""
    *task, _, _ = cell.where.key
    return (*task, claims.idx)
