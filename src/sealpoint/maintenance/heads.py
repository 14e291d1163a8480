"""All heads of a thread store compared with all checkpoints of its database, while agents run.

The database is read first, and then the store. What differs may have changed between the two, so it is looked
at again: it is a finding only if it is the same in the database, and the head is the same before and after.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from sealpoint.crypto import Opened
from sealpoint.databases.cells import Cell
from sealpoint.databases.failures import Failure
from sealpoint.errors import (
    DeletedCheckpointError,
    EarlierWriteError,
    RolledBackError,
    SealpointError,
    ThreadStoreBehindError,
    WritesLostError,
    WrongThreadStoreError,
)
from sealpoint.maintenance.bound import Parts
from sealpoint.maintenance.headrows import UNBOUND, UNOPENED, CheckpointRows, spot_of
from sealpoint.maintenance.lastwrites import LastWrites
from sealpoint.maintenance.result import Reason
from sealpoint.sealed.storeclaim import parse_claim
from sealpoint.threads.store import Head, Kind, Spot, ThreadStore

MAX_SUSPECTS: Final = 100_000
"""How many differences are looked at again in one pass over the database; each takes about 700 bytes."""

ROUNDS: Final = 5
"""How often a checkpoint is looked at again whose head changes each time: an agent is storing it."""

DELETION_SECONDS: Final = 0.5
"""How long a run waits, once, for deletions that have begun."""

FIND: Final = 500
"""How many heads are asked for at once: a call of a store has a time limit."""

_HINT: Final = (
    "restore it from a backup; or, if a backup was restored on purpose, take what is there:"
    " `sealpoint heads adopt DB --reason TEXT`"
)


class Difference(StrEnum):
    """How a checkpoint is not as its thread store remembers it. All but LEAVING are findings."""

    MISSING = "missing"
    EARLIER = "earlier"
    PUT_BACK = "put_back"
    OTHER_STORE = "other_store"
    BEHIND = "behind"
    LEAVING = "leaving"


class HeadCheck:
    """An `Observer` of a verification: takes the checkpoints of a database, then reads the store.

    Holds about 200 bytes for each checkpoint until then: a hash of its row, and its MAC.

    Attributes:
        recorded: How many checkpoints the store has a head of.
        not_recorded: How many checkpoints are there without a head, or with a content that never had one.
        found: How many differences of each kind.
    """

    def __init__(self, rows: CheckpointRows, store: ThreadStore) -> None:
        """Begin.

        Args:
            rows: The checkpoints of the database.
            store: The thread store.
        """
        self.recorded = self.not_recorded = 0
        self.found = Counter[Difference]()
        self._rows, self._store = rows, store
        self._coordinates = {column.coordinates for column in rows.columns}
        self._labels = {label for column in rows.columns for label in (column.label, column.table)}
        self._seen = dict[bytes, bytes]()
        # Ids may be chosen by an attacker: without a secret two could have the same hash.
        self._salt = os.urandom(16)
        self._failures = list[Failure]()
        self._clock = store.find([]).clock
        self._identity, self._identities = store.identity, store.identities
        self._has_waited = False
        self._writes = LastWrites()

    # --- the database -------------------------------------------------------------------------

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Add a value that was opened; one that is neither a checkpoint nor a write is skipped.

        Raises:
            DecodeError: If it names its thread store in another form.
        """
        self._writes.add(cell, parts)
        spot = spot_of(cell.where.names) if cell.where.column.coordinates in self._coordinates else None
        if spot is None:
            return
        self._seen[self._mark(spot)] = self._rows.mac(spot, opened, parts)
        if parts.header is not None and "store" in parts.header:
            self._check_claim(spot, parts.header["store"])

    def add_failure(self, failed: Failure) -> None:
        """Add a value that did not open: it is there, and has been named."""
        self._writes.add_failure(failed)
        spot = spot_of(failed.place)
        if spot is not None and failed.table in self._labels:
            self._seen.setdefault(self._mark(spot), UNOPENED)

    def _mark(self, spot: Spot) -> bytes:
        names = [part.encode("utf-8", "surrogatepass") for part in spot]
        packed = b"".join(len(name).to_bytes(8, "big") + name for name in names)
        return blake2b(packed, digest_size=16, key=self._salt).digest()

    def _check_claim(self, spot: Spot, claim: object) -> None:
        identity, at = parse_claim(claim)
        if identity not in self._identities:
            self._identities = self._store.identities  # `adopt` may have added it meanwhile
        if identity not in self._identities:
            error: SealpointError = WrongThreadStoreError("it was stored beside another thread store")
            self._failures.append(self._finding(Difference.OTHER_STORE, spot, error))
        elif identity == self._identity and at > self._clock:
            self._clock = self._store.find([]).clock
            if at > self._clock:
                error = ThreadStoreBehindError(f"the thread store is at {self._clock}; it was at {at}")
                self._failures.append(self._finding(Difference.BEHIND, spot, error))

    def findings(self) -> Iterator[Failure]:
        """Yield a finding for each checkpoint added since that names another store, or a later state."""
        yield from self._failures
        self._failures.clear()

    # --- the store ----------------------------------------------------------------------------

    def finish(self) -> Iterator[Failure]:
        """Yield a finding for each head that the database differs from; all of it was read.

        Raises:
            ThreadStoreError: If the store cannot be read.
        """
        for spot in self._rows.readable():
            self._seen.setdefault(self._mark(spot), UNBOUND)
        suspects = dict[Spot, Head]()
        for head in self._store.heads():
            self.recorded += bool(head.spot.checkpoint_id)  # a prune records that it began without one
            state = self._accepted(head, self._seen.pop(self._mark(head.spot), None))
            if self._difference(head, state) is not None:
                suspects[head.spot] = head
            elif state not in (None, UNOPENED, head.mac):
                self.not_recorded += 1
            if len(suspects) >= MAX_SUSPECTS:
                yield from self._settle(suspects)
                suspects = {}
        yield from self._settle(suspects)
        self.not_recorded += sum(state != UNOPENED for state in self._seen.values())
        for spot, error in self._writes.findings(self._rows, self._store):
            yield self._finding(Difference.EARLIER, spot, error)

    def _accepted(self, head: Head, state: bytes | None) -> bytes | None:
        """Return the MAC of a row, also if it is not bound and was adopted as such."""
        is_adopted = state == UNBOUND and head.mac == self._rows.adopted_mac(head.spot, UNBOUND)
        return head.mac if is_adopted else state

    def _difference(self, head: Head, state: bytes | None) -> Difference | None:
        """Compare a head with the MAC of its row, or what stands for it; ``None`` if there is no row."""
        if head.kind is Kind.DELETED:
            return None if state is None else Difference.PUT_BACK
        # A content that was never recorded is newer than the head.
        if state not in (None, UNOPENED, head.mac) and (
            state == UNBOUND or state in self._store.replaced(head.spot)
        ):
            return Difference.EARLIER
        if head.kind is Kind.LEAVING:
            return Difference.LEAVING
        return Difference.MISSING if state is None else None

    def _settle(self, suspects: Mapping[Spot, Head]) -> Iterator[Failure]:
        """Look at differences again, and yield those that are found."""
        for _ in range(ROUNDS):
            if not suspects:
                return
            states = self._rows.find(suspects)
            later = self._find([*suspects])
            again, may_end = dict[Spot, Head](), False
            for spot, head in suspects.items():
                kind = self._difference(head, self._accepted(head, states.get(spot)))
                if later.get(spot) != head:
                    again |= {spot: later[spot]} if spot in later else {}
                elif kind in (Difference.PUT_BACK, Difference.LEAVING) and not self._has_waited:
                    again[spot], may_end = head, True
                elif kind is not None:
                    yield from self._report(kind, spot)
            if may_end:
                self._has_waited = True
                time.sleep(DELETION_SECONDS)
            suspects = again
        states = self._rows.find(suspects) if suspects else {}
        for spot, head in suspects.items():  # changed at each look: named rather than passed by
            if (kind := self._difference(head, self._accepted(head, states.get(spot)))) is not None:
                yield from self._report(kind, spot)

    def _find(self, spots: Sequence[Spot]) -> dict[Spot, Head]:
        parts = [spots[start : start + FIND] for start in range(0, len(spots), FIND)]
        return {head.spot: head for part in parts for head in self._store.find(part).heads}

    def _report(self, kind: Difference, spot: Spot) -> Iterator[Failure]:
        if kind is Difference.LEAVING:
            self.found[kind] += 1
            return
        thread_id, _, checkpoint_id = spot
        error: SealpointError
        if kind is Difference.PUT_BACK:
            error = DeletedCheckpointError(thread_id, checkpoint_id)
        else:
            have = checkpoint_id if kind is Difference.EARLIER else None
            error = RolledBackError(thread_id, have, checkpoint_id, hint=_HINT)
        yield self._finding(kind, spot, error)

    def _finding(self, kind: Difference, spot: Spot, error: SealpointError) -> Failure:
        self.found[kind] += 1
        return Failure("checkpoints", spot._asdict(), None, error)

    # --- results ------------------------------------------------------------------------------

    def counts(self) -> dict[str, Any]:
        """Return what was counted, as JSON."""
        return {
            "identity": self._identity,
            "recorded": self.recorded,
            "not_recorded": self.not_recorded,
            **{kind.value: self.found[kind] for kind in Difference},
        }

    def reasons(self) -> Iterator[Reason]:
        """Yield why the database is not shown to be as the store remembers it."""
        if any(number and kind is not Difference.LEAVING for kind, number in self.found.items()):
            yield Reason.HEADS_DIFFER
        if not self.recorded:
            yield Reason.NO_HEADS
        if self.found[Difference.LEAVING]:
            yield Reason.DELETIONS_INTERRUPTED


def is_finding(failed: Failure) -> bool:
    """Whether a failure is a difference from a thread store, and not a value that does not open."""
    kinds = (
        RolledBackError,
        DeletedCheckpointError,
        WrongThreadStoreError,
        ThreadStoreBehindError,
        EarlierWriteError,
        WritesLostError,
    )
    return isinstance(failed.error, kinds)
