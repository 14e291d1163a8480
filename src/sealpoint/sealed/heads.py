"""Heads: compares the checkpoints of a database with what a thread store remembers of them.

The thread store is written after the database, and read before it. So a bound row that the store does not
know is newer than the last head, and is accepted. A row that the store knows and the database lacks counts
as missing only if the store has its head before and after the database is read.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sealpoint.base.place import Place
from sealpoint.errors import (
    ConfigError,
    RolledBackError,
    SealpointError,
    ThreadStoreError,
    located,
)
from sealpoint.seal.heads import (
    UNBOUND_DIGEST,
    Head,
    Kind,
    Special,
    Standing,
    claim_error,
    mac_of,
    parent_lost,
    parse_claim,
    standing_of,
)
from sealpoint.seal.keys import KeyedHash
from sealpoint.seal.places import Spot
from sealpoint.seal.tokens import cached
from sealpoint.sealed.steps import Call, Steps
from sealpoint.threads.store import Answer, ThreadStore

if TYPE_CHECKING:
    from sealpoint.seal.entry import Entry

_RANDOM_BYTES: Final = 12
Policy = Literal["require", "warn"]

PURPOSE: Final = "heads"  # purpose of the key that is derived from the index key

# How often store and database are read before a row is missing. Twice is proof, but for rows that were stored
# and pruned since a prune began: it records them when it ends.
LOOKS: Final = 5

_MACS: Final = 1024  # how many MACs are remembered

logger: Final = logging.getLogger("sealpoint.heads")


class Known(NamedTuple):
    """What a thread store remembered of some rows when they were read from the database."""

    heads: Mapping[Spot, Head]
    clock: int  # number of the last event in the log of the store
    specials: Mapping[Spot, Sequence[Special]]  # by row; only rows whose special writes were all read


class Heads:
    """Compares and records heads for one saver."""

    def __init__(
        self,
        store: ThreadStore,
        key: Callable[[str], bytes],
        policy: Policy,
        count: Callable[[SealpointError], object],
    ) -> None:
        """Make an object; ``key`` derives the key for a purpose, ``count`` receives each counted error."""
        if not hasattr(store, "require_writable"):
            hint = "open it: threads=SqliteThreadStore(PATH), or PostgresThreadStore(URL)"
            raise ConfigError(f"threads is {type(store).__name__}, not a thread store", hint=hint)
        self.store, self._policy, self._also_count = store, policy, count
        keyed = cache(lambda: KeyedHash(key(PURPOSE)))  # the index key never changes
        # A cache: a checkpoint that was put is usually read soon.
        self.mac = cached(_MACS, lambda digest, *spot: mac_of(keyed(), Spot(*spot), digest))
        self.warnings = Counter[str]()  # how often each error was only counted, by its class

    def call(self, function: Callable[..., Any], *arguments: Any) -> Call:
        """Return the request to call a method of the store; the reply is ``None`` after a counted error."""
        if self._policy == "require":
            return Call(function, arguments)
        return Call(self._try, (function, *arguments))

    def _try(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ThreadStoreError as error:
            self._count(error)
            return None

    def claim(self) -> Steps[str]:
        """Check that heads can be recorded; return the member ``store`` of a new checkpoint's header."""
        yield self.call(self.store.require_writable)
        return f"{self.store.identity}:{self.store.claim}:{os.urandom(_RANDOM_BYTES).hex()}"

    # --- reading ------------------------------------------------------------------------------

    def look(self, place: Place) -> Steps[Known | None]:
        """Return the head of a checkpoint, or of the latest; ``None`` if the store is not available."""
        thread_id, checkpoint_ns, checkpoint_id = place
        if checkpoint_id:
            return (yield from self.find([Spot(thread_id, checkpoint_ns, checkpoint_id)]))
        return _known((yield self.call(self.store.newest, thread_id, checkpoint_ns)))

    def find(self, spots: Sequence[Spot]) -> Steps[Known | None]:
        """Return the heads of the rows ``spots``; ``None`` if the store is not available."""
        return _known((yield self.call(self.store.find, spots)), spots)

    def has_live(self, thread_id: str) -> Steps[bool]:
        """Whether the store remembers a checkpoint of a thread that was not deleted."""
        return bool((yield self.call(self.store.has_live, thread_id)))

    def compare(self, entry: Entry, known: Known) -> Steps[Standing]:
        """Compare a checkpoint with what the store remembered when the checkpoint was read.

        First check ``store`` in its header, and, if the parent column is empty, that the parent was deleted.
        """
        spot = entry.spot
        if entry.claim is not None:
            claim = parse_claim(entry.claim)
            if claim[0] != self.store.identity or claim[1] > known.clock:
                yield from self._require_claim(claim, entry)
        if entry.removed_parent:
            yield from self.require_deleted(spot._replace(checkpoint_id=entry.removed_parent), spot, entry)
        head = known.heads.get(spot)
        if head is None:
            return Standing.PRESENT
        mac, is_bound = self.mac(entry.digest or UNBOUND_DIGEST, *spot), entry.digest is not None
        standing = standing_of(head, mac, is_bound=is_bound)
        if standing is Standing.UNKNOWN:
            replaced = yield self.call(self.store.replaced, spot)
            standing = standing_of(head, mac, is_bound=is_bound, replaced=replaced or ())
        return standing

    def require(self, lost: Sequence[Head], spots: Sequence[Spot], thread_id: str) -> Steps[None]:
        """Raise if a row of ``lost``, which the store had at each reading of the database, was not pruned."""
        for head in lost:
            if not (yield from self.may_be_pruned(head, spots)):
                self.report(
                    RolledBackError(head.spot.thread_id, None, head.spot.checkpoint_id), head.spot, thread_id
                )
                return  # if errors are only counted, one is counted for all rows

    def may_be_pruned(self, head: Head, spots: Sequence[Spot]) -> Steps[bool]:
        """Whether a prune may have deleted a row that was the latest when it began; the rows ``spots`` exist.

        A prune does not change the head of the latest checkpoint, whose row is still required; see `prune`.
        """
        thread_id, checkpoint_ns, _ = head.spot
        if checkpoint_ns or (known := (yield from self.of_thread(thread_id, checkpoint_ns))) is None:
            return False
        earlier = {other.kind for other in known.heads.values() if other.spot < head.spot}
        later = [other.spot for other in known.heads.values() if other.kind is Kind.PUT]
        later += [spot for spot in spots if spot[:2] == head.spot[:2]]
        return earlier == {Kind.LEAVING} and max(later, default=head.spot) > head.spot

    def page(
        self, place: Place, has_ns: bool, spots: Sequence[Spot], least: str | None, below: str | None
    ) -> Steps[tuple[Known, Known] | None]:
        """Return what the store remembers of the rows of a page, and of all rows that must be in the page.

        The page has all rows with ids from ``least`` on and less than ``below``; ``None`` means no bound.
        """
        if place.checkpoint_id:
            least, next_id = place.checkpoint_id, f"{place.checkpoint_id}\0"  # no other id is between them
            below = next_id if below is None else min(below, next_id)
        arguments = (place.thread_id, place.checkpoint_ns if has_ns else None, least, below)
        required = _known((yield self.call(self.store.between, *arguments)))
        if required is None:
            return None
        others = [spot for spot in spots if spot not in required.heads]
        if not others:
            return required, required
        more = yield from self.find(others)
        if more is None:
            return None
        heads, specials = {**required.heads, **more.heads}, {**required.specials, **more.specials}
        return Known(heads, more.clock, specials), required

    def require_deleted(self, parent: Spot, child: Spot, entry: Entry | None = None) -> Steps[None]:
        """Check that a parent was deleted: savers that prune remove the parent's id from its children."""
        for _ in range(LOOKS):
            known = yield from self.find([parent])
            head = known and known.heads.get(parent)
            if not head or head.kind is not Kind.PUT:
                return
        if head and not (yield from self.may_be_pruned(head, [child])):
            self.report(parent_lost(parent), *((child, entry.thread_id) if entry else ()))

    def _require_claim(self, claim: tuple[str, int], entry: Entry) -> Steps[None]:
        """Check a header that names another thread store, or a later event than was read from this store."""
        own = self.store.identity
        if claim[0] == own:
            now = yield from self.find([])
            error = now and claim_error(claim, own, (own,), now.clock)
        else:
            names = yield self.call(getattr, self.store, "identities")
            error = None if names is None else claim_error(claim, own, names, 0)
        if error:
            self.report(error, entry.spot, entry.thread_id)

    # --- writing ------------------------------------------------------------------------------

    def record(self, spot: Spot, digest: bytes) -> Call:
        """Return the request that records a checkpoint in the store, to be made after storing it."""
        return self.call(self.store.append, [Head(spot, Kind.PUT, self.mac(digest, *spot))])

    def append(self, heads: Sequence[Head]) -> Steps[None]:
        """Record heads in the thread store."""
        if heads:
            yield self.call(self.store.append, heads)

    def of_thread(self, thread_id: str, checkpoint_ns: str | None = None) -> Steps[Known | None]:
        """Return the heads of a thread, or of one namespace, except those of deleted checkpoints."""
        return _known((yield self.call(self.store.between, thread_id, checkpoint_ns, None, None)))

    def report(self, error: SealpointError, spot: Sequence[str] = (), thread_id: str | None = None) -> None:
        """Raise an error, or only count it with heads='warn'. The error is about the row ``spot``."""
        if spot:
            located(error, "checkpoints", spot, {"thread_id": thread_id})
        if self._policy == "require":
            raise error
        self._count(error)

    def _count(self, error: SealpointError) -> None:
        self.warnings[type(error).__name__] += 1
        self._also_count(error)
        logger.warning("%s: continuing because of heads='warn': %s", type(error).__name__, error)


def missing(required: Known, spots: Sequence[Spot]) -> list[Head]:
    """Return the heads whose rows must be in the database and are not, the greatest id first."""
    there = {*spots}
    heads = [head for head in required.heads.values() if head.kind is Kind.PUT and head.spot not in there]
    return sorted(heads, key=lambda head: head.spot.checkpoint_id, reverse=True)


def _known(answer: Answer | None, spots: Sequence[Spot] = ()) -> Known | None:
    """Return the store's answer about ``spots`` as `Known`, also for rows that the store lacks."""
    if answer is None:
        return None
    heads = {head.spot: head for head in answer.heads}
    return Known(heads, answer.clock, dict.fromkeys((*spots, *heads), ()) | dict(answer.specials))
