"""Reading: the latest checkpoint, one by its id, and listings, each compared with the thread store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

from sealpoint.base import CheckpointTuple, RunnableConfig
from sealpoint.base.place import Place, configurable_of, optional_text
from sealpoint.errors import ConfigKeyError, RolledBackError, RowError
from sealpoint.sealed.entry import Entry, open_entry
from sealpoint.sealed.filters import Filter
from sealpoint.sealed.heads import LOOKS, Content, Heads, Known, Standing, missing, spot_of
from sealpoint.sealed.layout import Layout
from sealpoint.sealed.pages import FIRST_ROWS, Pages
from sealpoint.sealed.procedures import Asked, Procedures
from sealpoint.sealed.rows import Write
from sealpoint.sealed.specials import are_last
from sealpoint.sealed.steps import Call, Get, Steps
from sealpoint.threads.store import Head, Kind, Spot


def get(do: Procedures, asked: Asked) -> Steps[Entry | None]:
    """Return the checkpoint that is asked for, or the latest of its thread, or ``None``.

    Raises:
        RolledBackError: If the database lacks it, or has an earlier state of it.
        SealpointError: If the row is not what was stored there.
    """
    if not asked.has_ns:
        asked = asked._replace(has_ns=True)  # no namespace is that of the root
    if do.heads is None:
        return (yield from _get(do, asked))
    suspect: Head | None = None
    looks = 0
    while True:
        known = yield from do.heads.look(asked.place)
        entry = yield from _get(do, asked)
        if known is None:
            return entry
        want = next(iter(known.heads.values()), None)
        content = None if entry is None else content_of(entry)
        if content is not None and (want is None or want.spot <= content.spot):
            standing, now = yield from _compare(do.heads, content, known)
            want = now.heads.get(content.spot)
            if entry is not None and standing is Standing.PRESENT:
                return (yield from _with_last_writes(do, do.heads, asked, entry, known, now))
            if standing is Standing.ABSENT:
                return None if asked.place.checkpoint_id else (yield from _latest(do, asked))
        elif want is None or want.kind is not Kind.PUT:  # it may go, or has gone
            return entry
        looks = looks + 1 if want == suspect else 1
        if want is not None and looks == LOOKS:  # it was in the store each time the database was read
            return (yield from _require(do, do.heads, asked, entry, known, want))
        suspect = want


def _with_last_writes(
    do: Procedures, heads: Heads, asked: Asked, entry: Entry, before: Known, now: Known
) -> Steps[Entry | None]:
    """Return a checkpoint whose special writes are the last ones, which may need another look at it.

    Args:
        do: What all methods share.
        heads: Compares with the thread store.
        asked: What the caller asked for.
        entry: The checkpoint.
        before: What the store knew before it was read.
        now: What it knew afterwards.
    """
    is_before = spot_of(entry.found) in before.specials
    if (yield from are_last(heads, entry, before if is_before else now, is_before=is_before)):
        return entry
    found = yield from get(do, asked._replace(place=entry.place))
    return found if found or asked.place.checkpoint_id else (yield from _latest(do, asked))


def _get(do: Procedures, asked: Asked) -> Steps[Entry | None]:
    found = yield Get(asked.config)
    return (yield from do.opened(found[0], asked)) if found else None


def _compare(heads: Heads, content: Content, known: Known) -> Steps[tuple[Standing, Known]]:
    """Compare a checkpoint, which may be newer than all heads that were asked for, with its head."""
    if content.spot not in known.heads:
        known = (yield from heads.find([content.spot])) or known
    return (yield from heads.compare(content, known)), known


def _latest(do: Procedures, asked: Asked) -> Steps[Entry | None]:
    """Return the latest checkpoint that does not count as absent."""
    listing = Listing(do, asked, None, None, 1)
    while listing.is_open:
        for row in (yield from listing.page()):
            if (found := (yield from listing.take(row))) is not None:
                return found
    return None


def _require(
    do: Procedures, heads: Heads, asked: Asked, entry: Entry | None, known: Known, want: Head
) -> Steps[Entry | None]:
    """Return the checkpoint of a head that the database has not returned.

    A database may have another order of ids, so that another checkpoint is its latest.
    """
    if not asked.place.checkpoint_id:
        named = asked._replace(place=Place(*want.spot))
        found = yield from _get(do, named)
        if found is not None and (yield from heads.compare(content_of(found), known)) is Standing.PRESENT:
            return (yield from get(do, named))
    elif entry is None and (yield from heads.may_be_pruned(want, ())):
        return None
    have = None if entry is None else str(entry.place.checkpoint_id)
    heads.report(RolledBackError(asked.thread_id, have, want.spot.checkpoint_id))
    return entry


def compared(do: Procedures, asked: Asked | None, entry: Entry, known: Known) -> Steps[Entry | None]:
    """Compare a checkpoint of a page, and return it; ``None`` if it counts as absent.

    It is read again if it was stored again after the page was read, or a special write to it was.

    Raises:
        RolledBackError: If it is an earlier state of the checkpoint.
        RowError: If a special write to it is missing, or an earlier one.
    """
    if do.heads is None:
        return entry
    standing = yield from do.heads.compare(content_of(entry), known)
    if standing is Standing.ABSENT:
        return None
    if standing is Standing.PRESENT and (yield from are_last(do.heads, entry, known, is_before=False)):
        return entry
    if asked is None:
        asked = Asked(entry.place, entry.thread_id, True, {})
    return (yield from get(do, asked._replace(place=entry.place)))


def content_of(entry: Entry) -> Content:
    """Return what is compared with the thread store."""
    return Content(entry.thread_id, spot_of(entry.found), entry.digest, entry.claim, entry.removed_parent)


def get_tuple(do: Procedures, asked: Asked) -> Steps[CheckpointTuple | None]:
    """Return what `get` returns, as a saver returns it."""
    entry = yield from get(do, asked)
    return None if entry is None else (yield from _decoded(do, entry, asked, {}))


def _decoded(
    do: Procedures, entry: Entry, asked: Asked | None, rows: Mapping[Spot, CheckpointTuple]
) -> Steps[CheckpointTuple]:
    """Return a checkpoint as a saver returns it.

    Args:
        do: What all methods share.
        entry: The checkpoint.
        asked: What the caller asked for; ``None`` for all threads.
        rows: Rows that were read already, among which its parent may be.
    """
    sends = (yield from _sends(do, entry, rows)) if entry.needs_sends else ()
    made: CheckpointTuple = yield Call(do.decode, (entry, asked, sends), entry.found)
    return made


def _sends(do: Procedures, entry: Entry, rows: Mapping[Spot, CheckpointTuple]) -> Steps[Sequence[Write]]:
    """Return the writes to the parent, for `Entry.needs_sends`."""
    parent = entry.place._replace(checkpoint_id=entry.parent)
    found = rows.get(Spot(*parent[:2], str(entry.parent)))
    found = found or next(iter((yield Get(parent.config()))), None)
    return [] if found is None else open_entry(do.rows, found, parent).writes()


class Listed(NamedTuple):
    """A row of a listing, not opened.

    Attributes:
        found: What the wrapped saver returned.
        known: What the thread store knows of its page; ``None`` if that is not compared.
    """

    found: CheckpointTuple
    known: Known | None


class Listing:
    """One listing, page by page."""

    def __init__(
        self,
        do: Procedures,
        asked: Asked | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        """Begin.

        Args:
            do: What all methods share.
            asked: The thread; ``None`` for all.
            wanted: The filter.
            before: Names what they must be older than.
            limit: How many at most.

        Raises:
            ConfigError: If ``before`` names no checkpoint.
        """
        self._do, self._asked, self._left = do, asked, limit
        self._page: list[Listed] = []
        self._by_spot: dict[Spot, CheckpointTuple] = {}
        self._filter = Filter(do.rows, wanted)
        older = None if before is None else optional_text(configurable_of(before), "checkpoint_id")
        if before is not None and older is None:
            raise ConfigKeyError("'before' names no 'checkpoint_id', so it is before nothing")
        config = None if asked is None else asked.config
        if config is not None and asked is not None and not asked.has_ns:
            del config["configurable"]["checkpoint_ns"]
        # To see what is missing, all rows of a thread are needed, and some may count as absent.
        is_compared = do.heads is not None and asked is not None
        exact = limit if self._filter.is_exact and do.heads is None else None
        stored = {} if is_compared else self._filter.stored
        first = limit if is_compared and limit and not wanted else FIRST_ROWS
        is_paged = do.rows.layout is not Layout.VALUES
        first = FIRST_ROWS if first < 0 else min(first, FIRST_ROWS)  # a negative limit is none in SQLite
        self._pages = Pages(
            config, stored, older, exact, is_paged=is_paged, is_sorted=is_compared and is_paged, first=first
        )

    @property
    def is_open(self) -> bool:
        """Whether there may be more."""
        return self._pages.request is not None and self._left != 0

    def page(self) -> Steps[list[Listed]]:
        """Return the rows of the next page.

        Raises:
            RolledBackError: If one is missing.
        """
        self._page, self._by_spot = [], {}  # before the next page is read: memory holds one
        self._page = yield from self._next()
        return self._page

    def _next(self) -> Steps[list[Listed]]:
        request, heads, asked = self._pages.request, self._do.heads, self._asked
        if request is None:
            return []
        if heads is None or asked is None:
            found = self._pages.take((yield request))
            known = None if heads is None else (yield from heads.find(_spots(found)))
            return [Listed(item, known) for item in found]
        begun, earlier, reach, looks = copy(self._pages), None, None, 0
        while True:
            found = self._pages.take((yield request))
            is_last = self._pages.request is None
            if not (found or is_last):
                return []
            spots = _spots(found)
            least = None if is_last else spots[-1].checkpoint_id
            both = yield from heads.page(asked.place, asked.has_ns, spots, least, request.before)
            if both is None:
                return [Listed(item, None) for item in found]
            known, required = both
            lost = missing(required, spots)
            if earlier is not None and (reach is None or (least is not None and least >= reach)):
                lost = [head for head in lost if earlier.heads.get(head.spot) == head]  # others are new
                looks += 1
            if lost and looks < LOOKS:
                # They were stored meanwhile, or removed: another reply shows it, now that the store was read.
                earlier, reach, self._pages = required, least, copy(begun)
                continue
            gone = {spot for spot, head in known.heads.items() if head.kind is Kind.DELETED}
            yield from heads.require(lost, [spot for spot in spots if spot not in gone], asked.thread_id)
            return [Listed(item, known) for item in found]

    def take(self, row: Listed) -> Steps[Entry | None]:
        """Open a row, and return it if it is wanted.

        Raises:
            SealpointError: If it is not what was stored there.
        """
        found, known = row
        head = known and known.heads.get(spot_of(found))
        if self._left == 0 or (head and head.kind is Kind.DELETED):
            return None
        entry = yield from self._do.opened(found, self._asked)
        if known is not None:
            current = yield from compared(self._do, self._asked, entry, known)
            if current is None:
                return None
            entry = current
        if not self._filter.takes(entry.metadata):
            return None
        self._left = None if self._left is None else self._left - 1
        return entry

    def checkpoint(self, row: Listed) -> Steps[CheckpointTuple | None]:
        """Return what `take` returns, as a saver returns it."""
        entry = yield from self.take(row)
        if entry is None:
            return None
        if entry.needs_sends and not self._by_spot:
            self._by_spot = {spot_of(listed.found): listed.found for listed in self._page}
        return (yield from _decoded(self._do, entry, self._asked, self._by_spot))


def _spots(found: Sequence[CheckpointTuple]) -> list[Spot]:
    """Return the rows of a reply.

    Raises:
        RowError: If a row is not named by text.
    """
    spots = [spot_of(item) for item in found]
    if any(type(part) is not str for spot in spots for part in spot):
        raise RowError("the row of a checkpoint is not named by text")
    return spots
