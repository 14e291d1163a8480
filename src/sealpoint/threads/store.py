"""ThreadStore: a log, kept apart from a database, of the checkpoints that were stored there or deleted.

Events are appended to the log. The last event of a checkpoint, its head, says what the database must have:

    PUT       the checkpoint, with the content of which the event has a MAC
    LEAVING   that checkpoint, or no row: the deletion began, and may have been interrupted
    DELETED   no row; if there is a row, a deleted row was put back

A checkpoint without an event is newer than the last head, or older than the store. A second log has events of
special writes: pending writes that must exist, until a DELETED event of their checkpoint.

Formats. The stores' SQL statements return each event of a special write as a record; commas separate records.
The lines of all events are the leaves of a hash tree, whose root a pin contains, see `sealpoint.merkle`.

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
    """Parse the records of special writes that a statement returned; return an empty list for ``None``."""
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
        seq: Number of the event, greater than the numbers of all events before it.
        head: The checkpoint, what happened to it, and the MAC of its content.
        at: When the event was appended, in seconds since 1970.
    """

    seq: int
    head: Head
    at: int


class Answer(NamedTuple):
    """Answer of a thread store to a query for heads.

    Attributes:
        heads: The heads that match the query.
        clock: Number that grows with every event appended to the log, and never decreases.
        specials: Pairs of a checkpoint and the events of its special writes.
    """

    heads: Sequence[Head]
    clock: int
    specials: Sequence[tuple[Spot, Sequence[Special]]] = ()


@runtime_checkable
class ThreadStore(Protocol):
    """A log of checkpoints. Safe to share between threads, and after a fork.

    Every method raises only `ThreadStoreError` or a subclass; each subclass is for one cause.

    Attributes:
        identity: Identifier of this store in sealed checkpoints: 32 hex digits.
        identities: This identifier, and those of the stores whose databases `adopt` took over.
        claim: Clock up to which all events are flushed to the disk, to seal in a checkpoint; 0 if unknown.
    """

    @property
    def identity(self) -> str:
        """See the class."""

    @property
    def identities(self) -> frozenset[str]:
        """See the class. Each access reads the set from the store again."""

    @property
    def claim(self) -> int:
        """See the class."""

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        """Return the head of kind PUT with the greatest checkpoint id, if there is one. One round trip.

        Args:
            thread_id: Id of the thread as in the database: its pseudonym, if pseudonyms are used.
            checkpoint_ns: The checkpoint namespace.
        """

    def find(self, spots: Sequence[Spot]) -> Answer:
        """Return the heads of the checkpoints ``spots``, in any order. One round trip.

        A checkpoint without a head is omitted from the heads, but its special writes are returned.
        """

    def between(
        self, thread_id: str, checkpoint_ns: str | None, least: str | None, below: str | None
    ) -> Answer:
        """Return the heads of a thread whose kind is not DELETED, in any order. One round trip.

        Args:
            thread_id: Id of the thread.
            checkpoint_ns: Checkpoint namespace; ``None`` for all namespaces of the thread.
            least: Return only checkpoint ids from this one on; ``None`` for no limit.
            below: Return only checkpoint ids before this one; ``None`` for no limit.
        """

    def has_live(self, thread_id: str) -> bool:
        """Whether a thread has a head whose kind is not DELETED. One round trip.

        Args:
            thread_id: Id of the thread as in the database: its pseudonym, if pseudonyms are used.
        """

    def replaced(self, spot: Spot) -> Sequence[bytes]:
        """Return the MACs of the contents that a checkpoint had earlier, at most `REPLACED`, newest first.

        Args:
            spot: The checkpoint.
        """

    def require_writable(self) -> None:
        """Check that heads can be appended now."""

    def append(self, heads: Sequence[Head]) -> None:
        """Append events in one transaction, and update `claim`.

        Args:
            heads: The head that each event makes, in the order of the events.
        """

    def last_special(self) -> int:
        """Return the number of the last event of a special write, or 0 without events. One round trip.

        Raises:
            ThreadStoreError: Also if no further events of special writes can be appended.
        """

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        """Append events of special writes to a checkpoint, in one transaction.

        Args:
            spot: The checkpoint.
            specials: The special writes; the store gives them new numbers.
        """

    def specials(self) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield each checkpoint with the events of its special writes, in the order of `heads`."""

    def delete_thread(self, thread_id: str) -> None:
        """Append a DELETED event for each checkpoint of a thread whose head is not DELETED.

        Args:
            thread_id: Id of the thread as in the database: its pseudonym, if pseudonyms are used.
        """

    def heads(self) -> Iterator[Head]:
        """Yield the head of each checkpoint, sorted by the bytes of thread, namespace and checkpoint id."""

    def end(self) -> int:
        """Return the number of the last event. No event with this number or a smaller one is added later."""

    def events(self, until: int) -> Iterator[Event]:
        """Yield the events up to a number, in the order of their numbers.

        Args:
            until: Number of the last event to yield.
        """

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        """Append events so that the store agrees with the present contents of a database, in one transaction.

        Args:
            heads: The head that each appended event makes.
            identities: Identifiers of other stores in checkpoints of the database, to add to `identities`.
            clock: Raise the clock of the store to this number, if it is lower.
            reason: The operator's reason, kept in the store.
            specials: Special writes to append, as pairs of a checkpoint and its special writes.
        """

    def trim(self, before: int) -> int:
        """Remove the events of checkpoints that were deleted before a time.

        The last event of the log is kept, so that no event number is used twice.

        Args:
            before: The time, in seconds since 1970.

        Returns:
            Number of checkpoints whose events were removed.
        """

    def trimmed(self) -> int:
        """Return the number of checkpoints whose events `trim` has removed from this store so far."""

    def close(self) -> None:
        """Close the store's connection."""


def line_of(event: Event) -> bytes:
    """Return the log line of an event: a JSON array in ASCII, without a newline."""
    (spot, kind, mac), seq, at = event.head, event.seq, event.at
    return json.dumps([seq, int(kind), mac.hex(), *spot, at], separators=(",", ":")).encode()
