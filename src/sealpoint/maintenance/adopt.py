"""Adoption: a thread store takes what its database has as true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sealpoint.crypto import Opened
from sealpoint.databases.cells import Cell
from sealpoint.databases.failures import Failure
from sealpoint.maintenance.bound import Parts
from sealpoint.maintenance.headrows import UNBOUND, CheckpointRows, spot_of
from sealpoint.maintenance.lastwrites import LastWrites
from sealpoint.sealed.storeclaim import parse_claim
from sealpoint.threads.specials import Special
from sealpoint.threads.store import Head, Kind, Spot, ThreadStore


@dataclass(slots=True)
class Adoption:
    """An `Observer` of a verification of all checkpoints: finds what is to be recorded.

    Holds about 600 bytes for each checkpoint.

    Attributes:
        rows: The checkpoints of the database.
        stored: The checkpoints to record as stored.
        deleted: Those to record as deleted.
        unfinished: Those of ``deleted`` whose deletion had begun.
        same: How many are recorded already.
        unbound: How many are not bound to their rows, and are not recorded: the store has no head of them.
        identities: The thread stores that checkpoints name.
        clock: The greatest clock that they name.
    """

    rows: CheckpointRows
    stored: list[Head] = field(default_factory=list)
    deleted: list[Head] = field(default_factory=list)
    unfinished: int = 0
    same: int = 0
    unbound: int = 0
    identities: set[str] = field(default_factory=set)
    clock: int = 0
    _macs: dict[Spot, bytes] = field(default_factory=dict)
    _writes: LastWrites = field(default_factory=LastWrites)
    _specials: list[tuple[Spot, Sequence[Special]]] = field(default_factory=list)

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Take a checkpoint or a write; see `Observer`.

        Raises:
            DecodeError: If it names its thread store in another form.
        """
        self._writes.add(cell, parts)
        spot = spot_of(cell.where.names)
        if parts.header is not None and "store" in parts.header:
            identity, clock = parse_claim(parts.header["store"])
            self.identities.add(identity)
            self.clock = max(self.clock, clock)
        if spot is not None:
            self._macs[spot] = self.rows.mac(spot, opened, parts)

    def add_failure(self, failed: Failure) -> None:
        """Do nothing: with a failure, nothing may be adopted."""

    def findings(self) -> Iterator[Failure]:
        """Yield nothing."""
        yield from ()

    def finish(self) -> Iterator[Failure]:
        """Take the checkpoints that are sealed in no column, and yield nothing."""
        for spot in self.rows.readable():
            self._macs.setdefault(spot, UNBOUND)
        yield from ()

    def compare(self, store: ThreadStore) -> None:
        """Find what a store lacks, after all checkpoints were read.

        Raises:
            ThreadStoreError: If it cannot be read.
        """
        known = {spot: events for spot, events in store.specials() if spot in self._macs}
        self._specials += self._writes.to_adopt(known, store.last_special())
        gone = dict[Spot, Head]()
        for head in store.heads():
            mac = self._macs.pop(head.spot, None)
            if mac is None:
                if head.kind is not Kind.DELETED:
                    gone[head.spot] = head
                continue
            mac = self.rows.adopted_mac(head.spot, mac)
            if head.kind is Kind.PUT and head.mac == mac:
                self.same += 1
            else:
                self.stored.append(Head(head.spot, Kind.PUT, mac))
        for spot, mac in self._macs.items():
            if mac == UNBOUND:
                self.unbound += 1
            else:
                self.stored.append(Head(spot, Kind.PUT, mac))
        self._macs.clear()
        there = self.rows.find(gone) if gone else {}  # stored since the database was read
        left = [head for spot, head in gone.items() if spot not in there]
        self.deleted = [Head(head.spot, Kind.DELETED, b"") for head in left]
        self.unfinished = sum(head.kind is Kind.LEAVING for head in left)

    def carry_out(self, store: ThreadStore, reason: str) -> None:
        """Record it.

        Raises:
            ThreadStoreError: If the store cannot be written to.
        """
        heads, identities = [*self.stored, *self.deleted], frozenset(self.identities)
        store.adopt(heads, identities, self.clock, reason, self._specials)

    def counts(self, store: ThreadStore) -> dict[str, Any]:
        """Return what was counted, as JSON, before it is carried out."""
        return {
            "stored": len(self.stored),
            "deleted": len(self.deleted),
            "same": self.same,
            "unbound": self.unbound,
            "other_stores": sorted(self.identities - store.identities),
            "clock": self.clock,
        }
