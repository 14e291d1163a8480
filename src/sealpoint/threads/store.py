"""ThreadStore: a log of what was stored in a database, and kept apart from it.

The log is only appended to. The last event of a checkpoint says what the database must have:

    PUT       the checkpoint, with the content that the event names
    LEAVING   that checkpoint, or none: its deletion began, and may have been interrupted
    DELETED   none; a row that is there was put back

A checkpoint without an event is newer than the last head, or older than the store. Next to the log of
checkpoints there is one of special writes; DELETED ends those before it.

Formats. A record of a special write is what the statements of the stores return, in hex where it says so;
records are separated by commas. Over the lines of all events there is one root, see `sealpoint.merkle`.

record  number, index, since, call in hex and task in hex, separated by spaces
line    JSON in ASCII without spaces: [seq, kind, MAC in hex, thread, namespace, checkpoint, time]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sealpoint.seal.heads import Head, Special
from sealpoint.seal.places import Spot

SEPARATOR: Final = ","


def parse_specials(records: str | None) -> list[Special]:
    """Return the events of records; none for ``None``."""
    found = []
    for record in records.split(SEPARATOR) if records else ():
        seq, idx, since, call, task = record.split(" ")
        found.append(
            Special(int(seq), bytes.fromhex(task).decode(), int(idx), bytes.fromhex(call), int(since))
        )
    return found


TIMEOUT_SECONDS: Final = 1.0  # how long a call may take by default

# How many rows of a long result are read or written at a time: other calls can run between two pages
PAGE_ROWS: Final = 1000

# How many earlier contents of one checkpoint are compared: LangGraph stores each id once
REPLACED: Final = 64


class Event(NamedTuple):
    """One line of the log.

    Attributes:
        seq: Its number: greater than that of every line before it.
        head: What it says.
        at: When it was written, in seconds since 1970.
    """

    seq: int
    head: Head
    at: int


class Answer(NamedTuple):
    """What a store knows.

    Attributes:
        heads: The heads that were asked for.
        clock: How far the log was when it was read. It never decreases.
        specials: The events of special writes to these checkpoints, for those that have any.
    """

    heads: Sequence[Head]
    clock: int
    specials: Sequence[tuple[Spot, Sequence[Special]]] = ()


@runtime_checkable
class ThreadStore(Protocol):
    """A log of checkpoints. Safe to share between threads, and after a fork.

    Every method raises `ThreadStoreError`, each subclass for one cause, and nothing else.

    Attributes:
        identity: Names this store in what is sealed: 32 hex digits.
        identities: All that were names of it: `adopt` adds those of other stores.
        claim: A clock that no power failure makes greater than that of the store; 0 if none is known.
    """

    @property
    def identity(self) -> str:
        """See the class."""

    @property
    def identities(self) -> frozenset[str]:
        """See the class. Read again each time."""

    @property
    def claim(self) -> int:
        """See the class."""

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        """Return the head with the greatest id of those whose kind is PUT, or none. One round trip.

        Args:
            thread_id: The thread, as the database has it: a pseudonym, if there are any.
            checkpoint_ns: The namespace.
        """

    def find(self, spots: Sequence[Spot]) -> Answer:
        """Return the heads of those of ``spots`` that have one, in any order. One round trip.

        Special writes are returned also for those that have no head.
        """

    def between(
        self, thread_id: str, checkpoint_ns: str | None, least: str | None, below: str | None
    ) -> Answer:
        """Return the heads of a thread whose kind is not DELETED, in any order. One round trip.

        Args:
            thread_id: The thread.
            checkpoint_ns: Its namespace; ``None`` for all.
            least: Least id; ``None`` for no limit.
            below: Id that is greater than all; ``None`` for no limit.
        """

    def has_live(self, thread_id: str) -> bool:
        """Whether a thread has a head whose kind is not DELETED. One round trip.

        Args:
            thread_id: The thread, as the database has it: a pseudonym, if there are any.
        """

    def replaced(self, spot: Spot) -> Sequence[bytes]:
        """Return the MACs of the earlier contents of a checkpoint: at most the last `REPLACED`.

        Args:
            spot: The checkpoint.
        """

    def require_writable(self) -> None:
        """Check that heads can be appended now."""

    def append(self, heads: Sequence[Head]) -> None:
        """Append events in one transaction, and update `claim`.

        Args:
            heads: What the events say, in their order.
        """

    def last_special(self) -> int:
        """Return the number of the last event of a special write, or 0. One round trip.

        Raises:
            ThreadStoreError: Also if others cannot be appended.
        """

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        """Append events of special writes to a checkpoint, in one transaction. Their numbers are not used.

        Args:
            spot: The checkpoint.
            specials: The writes.
        """

    def specials(self) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield the events of special writes by checkpoint, in the order of `heads`."""

    def delete_thread(self, thread_id: str) -> None:
        """Append DELETED for each checkpoint of a thread whose last event is another.

        Args:
            thread_id: The thread, as the database has it: a pseudonym, if there are any.
        """

    def heads(self) -> Iterator[Head]:
        """Yield the head of each checkpoint, by thread, namespace and id, in the order of their bytes."""

    def end(self) -> int:
        """Return the number of the last event: events with a smaller number that come later are excluded."""

    def events(self, until: int) -> Iterator[Event]:
        """Yield the events up to a number, in their order.

        Args:
            until: The number of the last one.
        """

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        """Take what a database has as true, in one transaction.

        Args:
            heads: Events to append.
            identities: More names of this store.
            clock: A clock that the store reaches with this, at least.
            reason: Why, for the record.
            specials: Events of special writes to append, by checkpoint.
        """

    def trim(self, before: int) -> int:
        """Remove the events of checkpoints that were deleted before a time.

        The last event of the log is kept, so that numbers are not used again.

        Args:
            before: The time, in seconds since 1970.

        Returns:
            How many checkpoints are forgotten.
        """

    def trimmed(self) -> int:
        """Return how many checkpoints `trim` has made it forget so far."""

    def close(self) -> None:
        """Close the store's connection."""


def line_of(event: Event) -> bytes:
    """Return the line of an event."""
    (spot, kind, mac), seq, at = event.head, event.seq, event.at
    return json.dumps([seq, int(kind), mac.hex(), *spot, at], separators=(",", ":")).encode()
