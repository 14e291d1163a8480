"""Heads in a thread store: compares them with all checkpoints of a database, adopts checkpoints, makes pins.

Agents run meanwhile. The database is read first, then the thread store. A checkpoint may change between the
two readings, so a checkpoint that differs from its head is read again: the difference is a finding only if
neither the checkpoint nor the head has changed.

If a thread store and its database are both restored to an earlier state, they agree with each other. But the
thread store then lacks events of a pin that is kept elsewhere. A pin is a file with one JSON object:

    pin        1, the version of this format
    store      identity of the thread store

    until      number of the last event
    events     number of events
    trimmed    number of checkpoints removed by `trim`
    root       Merkle root over the events (`sealpoint.merkle`, `sealpoint.threads.store`), in hex
    time       when the pin was made, UTC
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.cells import Cell
from sealpoint.admin.databases.parts import Parts
from sealpoint.admin.keys.files import write_whole
from sealpoint.admin.maintenance.calls import UNBOUND, UNOPENED, CheckpointRows, LastWrites, spot_of
from sealpoint.admin.maintenance.verify import Observer
from sealpoint.admin.results.events import Failure
from sealpoint.admin.results.reasons import Reason, applying
from sealpoint.errors import (
    DeletedCheckpointError,
    MaintenanceError,
    ParentLostError,
    RolledBackError,
    RowError,
    SealpointError,
    WrongThreadStoreError,
)
from sealpoint.merkle import Tree
from sealpoint.seal.cipher import Opened
from sealpoint.seal.heads import (
    Head,
    Kind,
    Special,
    Standing,
    claim_error,
    pack_spot,
    parent_lost,
    parse_claim,
    standing_of,
)
from sealpoint.seal.places import Spot
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.steps import reply
from sealpoint.threads.store import ThreadStore, line_of
from sealpoint.utc import now

# Number of differences read again in one pass over the database; each takes about 700 bytes.
MAX_SUSPECTS: Final = 100_000
# Number of times that a checkpoint is read again if its head keeps changing because an agent stores it.
ROUNDS: Final = 5
# Seconds that a run waits, once, for deletions that have begun.
DELETION_SECONDS: Final = 0.5
# Number of heads in one query, because a query to a store has a time limit.
FIND: Final = 500
_HINT: Final = (
    "restore the checkpoint from a backup. If a backup was restored on purpose, or a process without threads="
    " wrote or deleted it (correct it first), accept the present checkpoints:"
    " `sealpoint heads adopt DB --reason TEXT`"
)


class Difference(StrEnum):
    """How a checkpoint differs from its record in the thread store. All values but LEAVING are findings."""

    MISSING = "missing"
    EARLIER = "earlier"
    PUT_BACK = "put_back"
    OTHER_STORE = "other_store"
    BEHIND = "behind"
    LEAVING = "leaving"


class RemovedParents(list[tuple[Spot, Spot]]):
    """Parents that a checkpoint's sealed header names, but its row does not: each must have been deleted."""

    def add(self, spot: Spot, cell: Cell, parts: Parts) -> None:
        """Note the parent of an opened checkpoint; ``cell`` is from a `Column.widened`."""
        parent = parts.header and parts.header.get("parent")
        if parent and not cell.where.beside["parent_checkpoint_id"]:
            self.append((spot._replace(checkpoint_id=parent), spot))

    def findings(self, rows: CheckpointRows, store: ThreadStore) -> Iterator[tuple[Spot, RowError]]:
        """After reading all, yield place and error of each checkpoint that a saver refuses for its parent."""
        if not self:
            return
        from sealpoint.base.saver import run

        heads = Heads(store, rows.cipher.ring.index_key, "require", lambda _: None)
        for parent, spot in self:
            try:
                run(heads.require_deleted(parent, spot), partial(reply, None))
            except ParentLostError as error:
                yield spot, error.with_traceback(None)


class HeadCheck(Observer):
    """An `Observer` that collects the checkpoints of a database, then compares them with a thread store.

    Until it compares them, it keeps about 200 bytes per checkpoint: a hash of the key columns, and the MAC.
    """

    def __init__(self, rows: CheckpointRows, store: ThreadStore) -> None:
        self.recorded = self.not_recorded = 0
        self.is_empty = False  # whether the database was read and has no checkpoint
        self.found = Counter[Difference]()
        self._rows, self._store = rows, store
        self._labels = {label for column in rows.columns for label in (column.label, column.table)}
        self._seen = dict[bytes, bytes]()
        # An attacker may choose ids: without a secret, two ids could have the same hash.
        self._salt = os.urandom(16)
        self._failures = list[Failure]()
        self._clock = store.find([]).clock
        self._identity, self._identities = store.identity, store.identities
        self._has_waited = False
        self._removed = RemovedParents()
        self._writes = LastWrites()

    # --- the database -------------------------------------------------------------------------

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Note an opened checkpoint or write; skip other values."""
        self._writes.add(cell, parts)
        spot = spot_of(cell.where.names)
        if spot is None:
            return
        self._seen[self._mark(spot)] = self._rows.mac(spot, opened, parts)
        self._removed.add(spot, cell, parts)
        if parts.header is not None and "store" in parts.header:
            self._check_claim(spot, parts.header["store"])

    def add_failure(self, failed: Failure) -> None:
        """Note a value that did not open: the value exists, and its failure has been reported."""
        self._writes.add_failure(failed)
        spot = spot_of(failed.place)
        if spot is not None and failed.table in self._labels:
            self._seen.setdefault(self._mark(spot), UNOPENED)

    def _mark(self, spot: Spot) -> bytes:
        return blake2b(pack_spot(spot), digest_size=16, key=self._salt).digest()

    def _check_claim(self, spot: Spot, claim: object) -> None:
        named = parse_claim(claim)
        if claim_error(named, self._identity, self._identities, self._clock):
            # `adopt` may have added the name meanwhile, or the database is newer than the clock read before.
            self._identities, self._clock = self._store.identities, self._store.find([]).clock
        if error := claim_error(named, self._identity, self._identities, self._clock):
            kind = Difference.OTHER_STORE if isinstance(error, WrongThreadStoreError) else Difference.BEHIND
            self._failures.append(self._finding(kind, spot, error))

    def findings(self) -> Iterable[Failure]:
        """Return failures for checkpoints that name another thread store, or a later state of this store."""
        found, self._failures = self._failures, []
        return found

    # --- the store ----------------------------------------------------------------------------

    def finish(self) -> Iterator[Failure]:
        """Yield a finding for each head that differs from the database, after the database was read."""
        for spot in self._rows.readable():
            self._seen.setdefault(self._mark(spot), UNBOUND)
        self.is_empty = not self._seen
        suspects = dict[Spot, Head]()
        for head in self._store.heads():
            self.recorded += bool(head.spot.checkpoint_id)  # no id: a prune has begun
            state = self._seen.pop(self._mark(head.spot), None)
            if self._difference(head, state) is not None:
                suspects[head.spot] = head
            elif state not in (None, UNOPENED, UNBOUND, head.mac):
                self.not_recorded += 1
            if len(suspects) >= MAX_SUSPECTS:
                yield from self._resolve(suspects)
                suspects = {}
        yield from self._resolve(suspects)
        self.not_recorded += sum(state != UNOPENED for state in self._seen.values())
        for late in (self._removed, self._writes):
            for spot, error in late.findings(self._rows, self._store):
                yield self._finding(Difference.EARLIER, spot, error)

    def _difference(self, head: Head, state: bytes | None) -> Difference | None:
        """Compare a head with its checkpoint's MAC (``None`` if missing); return ``None`` if they agree."""
        if state is not None:
            # A checkpoint that does not open exists, and was reported: its content cannot be compared.
            mac = head.mac if state == UNOPENED else self._rows.adopted_mac(head.spot, state)
            standing = standing_of(head, mac, is_bound=state != UNBOUND)
            if standing is Standing.UNKNOWN:
                standing = standing_of(head, mac, is_bound=True, replaced=self._store.replaced(head.spot))
            if standing is not Standing.PRESENT:
                return Difference.PUT_BACK if standing is Standing.ABSENT else Difference.EARLIER
        if head.kind is Kind.LEAVING:
            return Difference.LEAVING
        return Difference.MISSING if state is None and head.kind is Kind.PUT else None

    def _resolve(self, suspects: Mapping[Spot, Head]) -> Iterator[Failure]:
        for left in range(ROUNDS, -1, -1):
            if not suspects:
                return
            states, spots = self._rows.find(suspects), [*suspects]
            parts = [spots[start : start + FIND] for start in range(0, len(spots), FIND)]
            later = {head.spot: head for part in parts for head in self._store.find(part).heads}
            again, may_end = dict[Spot, Head](), False
            for spot, head in suspects.items():
                kind = self._difference(head, states.get(spot))
                # A checkpoint that has changed at each reading is reported, not ignored.
                if left and later.get(spot) != head:
                    again |= {spot: later[spot]} if spot in later else {}
                elif left and kind in (Difference.PUT_BACK, Difference.LEAVING) and not self._has_waited:
                    again[spot], may_end = head, True
                elif kind is not None:
                    yield from self._report(kind, spot)
            if may_end:
                self._has_waited = True
                time.sleep(DELETION_SECONDS)
            suspects = again

    def _report(self, kind: Difference, spot: Spot) -> Iterator[Failure]:
        thread_id, _, checkpoint_id = spot
        if kind is Difference.LEAVING:
            self.found[kind] += 1
        elif kind is Difference.PUT_BACK:
            yield self._finding(kind, spot, DeletedCheckpointError(thread_id, checkpoint_id))
        else:
            have = checkpoint_id if kind is Difference.EARLIER else None
            yield self._finding(kind, spot, RolledBackError(thread_id, have, checkpoint_id, hint=_HINT))

    def _finding(self, kind: Difference, spot: Spot, error: SealpointError) -> Failure:
        self.found[kind] += 1
        return Finding("checkpoints", spot._asdict(), None, error)

    # --- results ------------------------------------------------------------------------------

    def counts(self) -> dict[str, Any]:
        """Return the counts as a dict, the members of a JSON object."""
        return {
            "identity": self._identity,
            "recorded": self.recorded,
            "not_recorded": self.not_recorded,
            **{kind.value: self.found[kind] for kind in Difference},
        }

    def reasons(self) -> list[Reason]:
        """Return the reasons why the database is not shown to agree with the thread store."""
        return applying(
            {
                Reason.HEADS_DIFFER: self.found.total() > self.found[Difference.LEAVING],
                Reason.NO_ROWS: self.is_empty,
                Reason.NO_HEADS: not self.recorded,
                Reason.DELETIONS_INTERRUPTED: self.found[Difference.LEAVING],
            }
        )


class Finding(Failure):
    """A difference from a thread store, counted by `HeadCheck`; not a failure to open a value."""

    __slots__ = ()


@dataclass(slots=True)
class Adoption(Observer):
    """An `Observer` that collects the checkpoints of a database, to record them in a thread store.

    Keeps about 600 bytes per checkpoint.
    """

    rows: CheckpointRows
    stored: list[Head] = field(default_factory=list)
    deleted: list[Head] = field(default_factory=list)
    # Number of checkpoints in `deleted` whose deletion the thread store has as begun.
    unfinished: int = 0
    same: int = 0
    # Number of checkpoints that are not bound and have no head in the store; they are not recorded.
    unbound: int = 0
    identities: set[str] = field(default_factory=set)
    # Greatest clock of the thread store that a checkpoint names.
    clock: int = 0
    _macs: dict[Spot, bytes] = field(default_factory=dict)
    _removed: RemovedParents = field(default_factory=RemovedParents)
    _writes: LastWrites = field(default_factory=LastWrites)
    _specials: list[tuple[Spot, Sequence[Special]]] = field(default_factory=list)

    def add(self, cell: Cell, opened: Opened, parts: Parts) -> None:
        """Note an opened checkpoint or write; see `Observer`."""
        self._writes.add(cell, parts)
        spot = spot_of(cell.where.names)
        if parts.header is not None and "store" in parts.header:
            identity, clock = parse_claim(parts.header["store"])
            self.identities.add(identity)
            self.clock = max(self.clock, clock)
        if spot is not None:
            self._macs[spot] = self.rows.mac(spot, opened, parts)
            self._removed.add(spot, cell, parts)

    def finish(self) -> Iterator[Failure]:
        """Note checkpoints without a sealed column; yield a failure if a removed parent still exists."""
        for spot in self.rows.readable():
            self._macs.setdefault(spot, UNBOUND)
        for parent, spot in self._removed:
            if self._macs.get(parent, UNBOUND) != UNBOUND:
                yield Failure("checkpoints", spot._asdict(), None, parent_lost(parent))

    def compare(self, store: ThreadStore) -> None:
        """Find the checkpoints that differ from a thread store's heads, after all checkpoints were read."""
        known = {spot: events for spot, events in store.specials() if spot in self._macs}
        self._specials += self._writes.to_adopt(known, store.last_special())
        gone = dict[Spot, Head]()
        for head in store.heads():
            mac = self._macs.pop(head.spot, None)
            if mac is None:
                if head.kind is not Kind.DELETED:
                    gone[head.spot] = head
                continue
            now_is = Head(head.spot, Kind.PUT, self.rows.adopted_mac(head.spot, mac))
            if head == now_is:
                self.same += 1
            else:
                self.stored.append(now_is)
        for spot, mac in self._macs.items():
            if mac == UNBOUND:
                self.unbound += 1
            else:
                self.stored.append(Head(spot, Kind.PUT, mac))
        self._macs.clear()
        there = self.rows.find(gone) if gone else {}  # stored after the database was read
        left = [head for spot, head in gone.items() if spot not in there]
        self.deleted = [Head(head.spot, Kind.DELETED, b"") for head in left]
        self.unfinished = sum(head.kind is Kind.LEAVING for head in left)

    def carry_out(self, store: ThreadStore, reason: str) -> None:
        """Record in the thread store the differences that `compare` found."""
        heads, identities = [*self.stored, *self.deleted], frozenset(self.identities)
        store.adopt(heads, identities, self.clock, reason, self._specials)

    def counts(self, store: ThreadStore) -> dict[str, Any]:
        """Return the counts as a dict, the members of a JSON object; call this before `carry_out`."""
        return {
            "stored": len(self.stored),
            "deleted": len(self.deleted),
            "same": self.same,
            "unbound": self.unbound,
            "other_stores": sorted(self.identities - store.identities),
            "clock": self.clock,
        }


# --- pins ----------------------------------------------------------------------------------------

_PIN_VERSION: Final = 1
_MAX_PIN_BYTES: Final = 4096


class Pin(NamedTuple):
    """A pin of a thread store; the docstring of this module explains each member."""

    store: str
    until: int
    events: int
    trimmed: int
    root: str
    time: str


_PIN_TYPES: Final = {name: int if name in ("until", "events", "trimmed") else str for name in Pin._fields}


def make_pin(store: ThreadStore) -> Pin:
    """Return a new pin over all events of a thread store."""
    made = now()
    until, trimmed = store.end(), store.trimmed()
    root = Tree.of(map(line_of, store.events(until)))
    return Pin(store.identity, until, root.size, trimmed, root.root().hex(), made)


def check_pin(store: ThreadStore, pin: Pin) -> Reason | None:
    """Return the reason why a thread store is not shown to have all events of a pin; ``None`` if it is."""
    if pin.store != store.identity or store.end() < pin.until:
        return Reason.PIN_DIFFERS
    root = Tree.of(map(line_of, store.events(pin.until)))
    if (root.size, root.root().hex()) == (pin.events, pin.root):
        return None if pin.events else Reason.PIN_EMPTY
    # Without the removed events, the root cannot be computed.
    return Reason.PIN_TRIMMED if store.trimmed() > pin.trimmed else Reason.PIN_DIFFERS


def read_pin(path: Path) -> Pin:
    """Read a pin from a file."""
    problem, found = f"{path} is not a pin of version {_PIN_VERSION}", dict[str, Any]()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # do not block on a FIFO
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(_MAX_PIN_BYTES + 1) or b""
        found = json.loads(data) if len(data) <= _MAX_PIN_BYTES else {}
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    except (ValueError, RecursionError):
        pass
    is_pin = isinstance(found, dict) and found.pop("pin", None) == _PIN_VERSION
    if is_pin and found.keys() == _PIN_TYPES.keys():
        wrong = [name for name, kind in _PIN_TYPES.items() if type(found[name]) is not kind]
        if not wrong:
            return Pin(**found)
        problem = f"{path}: the member {wrong[0]!r} of the pin is not valid"
    raise MaintenanceError(problem, hint="name a file that `sealpoint heads seal --pin FILE` wrote")


def write_pin(path: Path, pin: Pin) -> None:
    """Write a pin to a file; if the path is a symbolic link, to the link's target."""
    text = json.dumps({"pin": _PIN_VERSION, **pin._asdict()}, indent=2)
    write_whole(Path(os.path.realpath(path)), f"{text}\n")
