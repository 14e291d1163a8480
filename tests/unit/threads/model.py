"""What a thread store does, written without a database: the other stores are compared with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from sealpoint.seal.heads import Head, Kind, Special
from sealpoint.seal.places import Spot
from sealpoint.threads.store import REPLACED, Answer, Event


class Model:
    """A thread store in dictionaries and lists."""

    def __init__(self) -> None:
        self.identity = os.urandom(16).hex()
        self._identities = frozenset([self.identity])
        self._events: list[Event] = []
        self._threads: dict[str, dict[Spot, Event]] = {}
        self._specials: dict[Spot, list[tuple[Special, int]]] = {}
        self._last_special = 0
        self._raised = 0  # what `adopt` added to the clock
        self._trimmed = 0
        self.adopted: list[str] = []
        self._lock = threading.RLock()

    @property
    def identities(self) -> frozenset[str]:
        """All that were names of this store."""
        return self._identities

    @property
    def claim(self) -> int:
        """The clock."""
        return self._raised + self._last

    @property
    def _last(self) -> int:
        return self._events[-1].seq if self._events else 0

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        """Return the head with the greatest id of those whose kind is PUT. See `ThreadStore`."""
        heads, clock, _ = self.between(thread_id, checkpoint_ns, None, None)
        found = sorted(head for head in heads if head.kind is Kind.PUT)[-1:]
        with self._lock:
            return Answer(found, clock, self._specials_of(head.spot for head in found))

    def find(self, spots: Sequence[Spot]) -> Answer:
        """Return the heads of those of ``spots`` that have one. See `ThreadStore`."""
        with self._lock:
            found = [self._threads.get(spot.thread_id, {}).get(spot) for spot in dict.fromkeys(spots)]
            heads = [event.head for event in found if event]
            return Answer(heads, self.claim, self._specials_of(dict.fromkeys(spots)))

    def between(
        self, thread_id: str, checkpoint_ns: str | None, least: str | None, below: str | None
    ) -> Answer:
        """Return the heads of a thread whose kind is not DELETED. See `ThreadStore`."""
        # Python compares text by code points, which is the order of the bytes of UTF-8.
        with self._lock:
            heads = [
                event.head
                for (_, ns, checkpoint_id), event in self._threads.get(thread_id, {}).items()
                if event.head.kind is not Kind.DELETED
                and checkpoint_ns in (None, ns)
                and (least is None or checkpoint_id >= least)
                and (below is None or checkpoint_id < below)
            ]
            return Answer(heads, self.claim, self._specials_of(head.spot for head in heads))

    def _specials_of(self, spots: Iterable[Spot]) -> list[tuple[Spot, list[Special]]]:
        """Return the events of special writes that no deletion has ended."""
        found = []
        for spot in spots:
            if known := self._specials.get(spot):
                deleted = Head(spot, Kind.DELETED, b"")
                ended = max((event.seq for event in self._events if event.head == deleted), default=0)
                if specials := [special for special, at in known if at >= ended]:
                    found.append((spot, specials))
        return found

    def has_live(self, thread_id: str) -> bool:
        """Whether a thread has a head whose kind is not DELETED."""
        return bool(self.between(thread_id, None, None, None).heads)

    def replaced(self, spot: Spot) -> Sequence[bytes]:
        """Return the MACs of the earlier contents of a checkpoint, the last first. See `ThreadStore`."""
        with self._lock:
            macs = [event.head.mac for event in reversed(self._events) if event.head.spot == spot]
        earlier = dict.fromkeys(mac for mac in macs[1:] if mac and mac != macs[0])
        return [*earlier][:REPLACED]

    def require_writable(self) -> None:
        """Do nothing: memory is writable."""

    def append(self, heads: Sequence[Head]) -> None:
        """Append events. See `ThreadStore`."""
        now = int(time.time())
        with self._lock:
            for head in heads:
                event = Event(self._last + 1, head, now)
                self._events.append(event)
                self._threads.setdefault(head.spot.thread_id, {})[head.spot] = event

    def last_special(self) -> int:
        """Return the number of the last event of a special write. See `ThreadStore`."""
        return self._last_special

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        """Append events of special writes to a checkpoint. See `ThreadStore`."""
        with self._lock:
            for special in specials:
                self._last_special += 1
                numbered = special._replace(seq=self._last_special)
                self._specials.setdefault(spot, []).append((numbered, self._last))

    def specials(self) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield the events of special writes by checkpoint. See `ThreadStore`."""
        with self._lock:
            found = self._specials_of(sorted(self._specials))
        yield from found

    def delete_thread(self, thread_id: str) -> None:
        """Append DELETED for each checkpoint of a thread whose last event is another."""
        with self._lock:
            heads = [event.head for event in self._threads.get(thread_id, {}).values()]
            known = [spot for spot in self._specials if spot.thread_id == thread_id]
            live = {head.spot for head in heads if head.kind is not Kind.DELETED}
            live |= {spot for spot, _ in self._specials_of(known)}
            self.append([Head(spot, Kind.DELETED, b"") for spot in sorted(live)])

    def heads(self) -> Iterator[Head]:
        """Yield the head of each checkpoint, by thread, namespace and id. See `ThreadStore`."""
        with self._lock:
            found = sorted(event.head for spots in self._threads.values() for event in spots.values())
        yield from found

    def end(self) -> int:
        """Return the number of the last event. See `ThreadStore`."""
        return self._last

    def events(self, until: int) -> Iterator[Event]:
        """Yield the events up to a number, in their order."""
        with self._lock:
            found = [event for event in self._events if event.seq <= until]
        yield from found

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        """Take what a database has as true. See `ThreadStore`."""
        taken, also = [*heads], [*specials]
        with self._lock:
            self.append(taken)
            for spot, events in also:
                self.append_specials(spot, events)
            self._identities |= identities
            self._raised = max(self._raised, clock - self._last)
            self.adopted.append(reason)

    def trim(self, before: int) -> int:
        """Remove the events of checkpoints that were deleted before a time. See `ThreadStore`."""
        with self._lock:
            gone = {
                spot
                for spots in self._threads.values()
                for spot, event in spots.items()
                if event.head.kind is Kind.DELETED and event.at < before and event.seq < self._last
            }
            self._events = [event for event in self._events if event.head.spot not in gone]
            for spot in gone:
                del self._threads[spot.thread_id][spot]
                self._specials.pop(spot, None)
            self._trimmed += len(gone)
            return len(gone)

    def trimmed(self) -> int:
        """Return how many checkpoints were forgotten so far."""
        return self._trimmed

    def close(self) -> None:
        """Do nothing: there is no connection."""
