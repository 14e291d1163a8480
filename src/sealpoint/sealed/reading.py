"""Reading: the latest checkpoint, one by its id, listings, and histories, compared with the thread store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sealpoint.base import CheckpointTuple, DeltaChannelHistory, RunnableConfig
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.base.place import Place, configurable_of, optional_text
from sealpoint.errors import ConfigKeyError, RolledBackError, RowError, excerpt
from sealpoint.sealed.calls import Acknowledged
from sealpoint.sealed.entry import Entry, Made, error_of, is_named, open_entry, require_made, special_calls
from sealpoint.sealed.heads import LOOKS, Heads, Known, Standing, missing, spot_of
from sealpoint.sealed.pages import FIRST_ROWS, Pages, Request
from sealpoint.sealed.rows import Rows, Write
from sealpoint.sealed.steps import Asked, Call, Get, Steps
from sealpoint.sealed.tokens import Pseudonyms
from sealpoint.threads.store import Head, Kind, Special, Spot, contradiction


@dataclass(frozen=True, slots=True)
class Parts:
    """What the procedures of one saver share."""

    rows: Rows
    pseudonyms: Pseudonyms | None  # if threads have them
    heads: Heads | None  # if there is a thread store
    acknowledged: Acknowledged = field(default_factory=Acknowledged)


class Filter:
    """A filter, divided between the wrapped saver and this process."""

    __slots__ = ("_rows", "_wanted", "is_exact", "stored")

    def __init__(self, rows: Rows, wanted: Mapping[str, Any] | None) -> None:
        """Divide a filter."""
        self._rows = rows
        self._wanted = {key: rows.wanted(value) for key, value in (wanted or {}).items()}
        self.stored = dict[str, Any]()  # what the wrapped saver can apply: plain keys, and tokens
        self.is_exact = True  # whether that is the whole filter, so that a limit may be passed on too
        for key, value in (wanted or {}).items():
            if rows.applies(key):
                self.stored[key] = value
                continue
            is_indexed = key in rows.indexed and not rows.has_equals(value)
            token = rows.tokens.token(key, value) if is_indexed else None
            # Rows from before the index, and rows that are not bound, have no tokens.
            if token is None or rows.allow_unbound or value is None:
                self.is_exact = False
            else:
                self.stored[token] = 1
                self.is_exact &= rows.is_searched_by_json

    def takes(self, metadata: Mapping[str, Any]) -> bool:
        """Whether metadata matches, as it would match in the database.

        The part that the saver applies too: an index, an operator or a key that stands twice in the readable
        metadata may lead it to another row.
        """
        return all(self._rows.matches(metadata, key, value) for key, value in self._wanted.items())


def are_last(heads: Heads, entry: Entry, known: Known, *, is_before: bool) -> Steps[bool]:
    """Whether the special writes of a checkpoint are the last ones; else it is to be read again by its id.

    With ``is_before``, what the store knew was read before the checkpoint, so that a contradiction is final.
    """
    spot = spot_of(entry.found)
    events = known.specials.get(spot)
    if not events:
        return True
    error = yield Call(_contradiction, (events, entry), entry.found)
    if error is None:
        return True
    if not is_before:
        return False
    now = yield from heads.find([spot])
    head = now and now.heads.get(spot)
    if now is not None and (head is None or head.kind is Kind.PUT):  # else it may go, or has gone
        heads.report(error)
    return True


def _contradiction(events: Sequence[Special], entry: Entry) -> RowError | None:
    return error_of(contradiction(events, special_calls(entry.stored_writes())))


def get(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    """Return the checkpoint that is asked for, or the latest of its thread, or ``None``."""
    if not asked.has_ns:
        asked = asked._replace(has_ns=True)  # no namespace is that of the root
    heads = parts.heads
    if heads is None:
        return (yield from _get(parts, asked))
    suspect: Head | None = None
    looks = 0
    while True:
        known = yield from heads.look(asked.place)
        entry = yield from _get(parts, asked)
        if known is None:
            return entry
        want = next(iter(known.heads.values()), None)
        spot = None if entry is None else spot_of(entry.found)
        if entry is not None and spot is not None and (want is None or want.spot <= spot):
            # It may be newer than all heads that were asked for.
            now = known if spot in known.heads else (yield from heads.find([spot])) or known
            standing = yield from heads.compare(entry, now)
            want = now.heads.get(spot)
            if standing is Standing.PRESENT:
                return (yield from _with_last_writes(parts, heads, asked, entry, known, now))
            if standing is Standing.ABSENT:
                return None if asked.place.checkpoint_id else (yield from _latest(parts, asked))
        elif want is None or want.kind is not Kind.PUT:  # it may go, or has gone
            return entry
        looks = looks + 1 if want == suspect else 1
        if want is not None and looks == LOOKS:  # it was in the store each time the database was read
            return (yield from _require(parts, heads, asked, entry, known, want))
        suspect = want


def _with_last_writes(
    parts: Parts, heads: Heads, asked: Asked, entry: Entry, before: Known, now: Known
) -> Steps[Entry | None]:
    """Return a checkpoint whose special writes are the last ones, which may need another look at it.

    The store knew ``before`` when the checkpoint was read, and ``now`` afterwards.
    """
    is_before = spot_of(entry.found) in before.specials
    if (yield from are_last(heads, entry, before if is_before else now, is_before=is_before)):
        return entry
    found = yield from get(parts, asked._replace(place=entry.place))
    return found if found or asked.place.checkpoint_id else (yield from _latest(parts, asked))


def _get(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    found = yield Get(asked.config)
    return (yield opening(parts, found[0], asked)) if found else None


def opening(parts: Parts, found: CheckpointTuple, asked: Asked | None) -> Call:
    """Return the call that authenticates a row, on a worker thread if it is large."""
    return Call(_open, (parts.rows, found, asked), found)


def _open(rows: Rows, found: CheckpointTuple, asked: Asked | None) -> Entry:
    """Authenticate a row, and check that it is what was asked for: an index may lead to another."""
    configurable = found.config["configurable"]
    ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
    entry = open_entry(rows, found, Place(str(configurable["thread_id"]), ns, checkpoint_id))
    if asked is not None and (
        (entry.thread_id, entry.place.thread_id) != (asked.thread_id, asked.place.thread_id)
        or (asked.has_ns and ns != asked.place.checkpoint_ns)
        or (asked.place.checkpoint_id and checkpoint_id != asked.place.checkpoint_id)
    ):
        raise RowError(f"the database returned the row of another checkpoint, {excerpt(checkpoint_id)}")
    return entry


def _latest(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    """Return the latest checkpoint that does not count as absent."""
    listing = Listing(parts, asked, None, None, 1)
    while listing.is_open:
        for row in (yield from listing.page()):
            if (found := (yield from listing.take(row))) is not None:
                return found
    return None


def _require(
    parts: Parts, heads: Heads, asked: Asked, entry: Entry | None, known: Known, want: Head
) -> Steps[Entry | None]:
    """Return the checkpoint of a head that the database has not returned.

    A database may have another order of ids, so that another checkpoint is its latest.
    """
    if not asked.place.checkpoint_id:
        named = asked._replace(place=Place(*want.spot))
        found = yield from _get(parts, named)
        if found is not None and (yield from heads.compare(found, known)) is Standing.PRESENT:
            return (yield from get(parts, named))
    elif entry is None and (yield from heads.may_be_pruned(want, ())):
        return None
    have = None if entry is None else str(entry.place.checkpoint_id)
    heads.report(RolledBackError(asked.thread_id, have, want.spot.checkpoint_id))
    return entry


class Listed(NamedTuple):
    """A row of a listing, not opened."""

    found: CheckpointTuple
    known: Known | None  # of its page, if that is compared with the thread store


def open_listed(parts: Parts, asked: Asked | None, row: Listed) -> Steps[Entry | None]:
    """Open a row of a page, and compare it with its head; ``None`` if it counts as absent.

    It is read again if it was stored again after the page was read, or a special write to it was.
    """
    found, known = row
    entry: Entry = yield opening(parts, found, asked)
    if parts.heads is None or known is None:
        return entry
    standing = yield from parts.heads.compare(entry, known)
    if standing is Standing.ABSENT:
        return None
    if standing is Standing.PRESENT and (yield from are_last(parts.heads, entry, known, is_before=False)):
        return entry
    if asked is None:
        asked = Asked(entry.place, entry.thread_id, True, {})
    return (yield from get(parts, asked._replace(place=entry.place)))


def get_tuple(parts: Parts, asked: Asked) -> Steps[CheckpointTuple | None]:
    """Return what `get` returns, as a saver returns it."""
    entry = yield from get(parts, asked)
    return None if entry is None else (yield from _decoded(parts, entry, asked, {}))


def _decoded(
    parts: Parts, entry: Entry, asked: Asked | None, rows: Mapping[Spot, CheckpointTuple]
) -> Steps[CheckpointTuple]:
    """Return a checkpoint as a saver returns it; its parent may be among ``rows``, which are read already."""
    sends = (yield from _sends(parts, entry, rows)) if entry.needs_sends else ()
    made: CheckpointTuple = yield Call(_decode, (entry, asked, sends), entry.found)
    return made


def _decode(entry: Entry, asked: Asked | None, sends: Sequence[Write]) -> CheckpointTuple:
    place, more = entry.place._replace(thread_id=entry.thread_id), asked and asked.more
    return type(entry.found)(
        place.config(more),
        entry.document(sends),
        entry.metadata,
        place._replace(checkpoint_id=entry.parent).config(more) if entry.parent else None,
        entry.pending(),
    )


def _sends(parts: Parts, entry: Entry, rows: Mapping[Spot, CheckpointTuple]) -> Steps[Sequence[Write]]:
    """Return the writes to the parent, for `Entry.needs_sends`."""
    parent = entry.place._replace(checkpoint_id=entry.parent)
    found = rows.get(Spot(*parent[:2], str(entry.parent)))
    found = found or next(iter((yield Get(parent.config()))), None)
    return [] if found is None else open_entry(parts.rows, found, parent).writes()


class Listing:
    """One listing, page by page."""

    def __init__(
        self,
        parts: Parts,
        asked: Asked | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> None:
        """Begin a listing of a thread, or of all; the other arguments are those of ``list``."""
        self._parts, self._asked, self._left = parts, asked, limit
        self._page: list[Listed] = []
        self._by_spot: dict[Spot, CheckpointTuple] = {}
        self._filter = Filter(parts.rows, wanted)
        older = None if before is None else optional_text(configurable_of(before), "checkpoint_id")
        if before is not None and older is None:
            raise ConfigKeyError("'before' names no 'checkpoint_id', so it is before nothing")
        config = None if asked is None else asked.config
        if config is not None and asked is not None and not asked.has_ns:
            del config["configurable"]["checkpoint_ns"]
        # To see what is missing, all rows of a thread are needed, and some may count as absent.
        is_compared = parts.heads is not None and asked is not None
        exact = limit if self._filter.is_exact and parts.heads is None else None
        stored = {} if is_compared else self._filter.stored
        first = limit if is_compared and limit and not wanted else FIRST_ROWS
        is_paged = parts.rows.lists_by_id
        first = FIRST_ROWS if first < 0 else min(first, FIRST_ROWS)  # a negative limit is none in SQLite
        self._pages = Pages(
            config, stored, older, exact, is_paged=is_paged, is_sorted=is_compared and is_paged, first=first
        )

    @property
    def is_open(self) -> bool:
        """Whether there may be more."""
        return self._pages.request is not None and self._left != 0

    def page(self) -> Steps[list[Listed]]:
        """Return the rows of the next page."""
        self._page, self._by_spot = [], {}  # before the next page is read: memory holds one
        self._page = yield from self._next()
        return self._page

    def _next(self) -> Steps[list[Listed]]:
        request, heads, asked = self._pages.request, self._parts.heads, self._asked
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
        """Open a row, and return it if it is wanted."""
        head = row.known and row.known.heads.get(spot_of(row.found))
        if self._left == 0 or (head and head.kind is Kind.DELETED):
            return None
        entry = yield from open_listed(self._parts, self._asked, row)
        if entry is None or not self._filter.takes(entry.metadata):
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
        return (yield from _decoded(self._parts, entry, self._asked, self._by_spot))


def _spots(found: Sequence[CheckpointTuple]) -> list[Spot]:
    """Return the rows of a reply, which must be named by text."""
    spots = [spot_of(item) for item in found]
    if any(type(part) is not str for spot in spots for part in spot):
        raise RowError("the row of a checkpoint is not named by text")
    return spots


# --- histories ------------------------------------------------------------------------------------

_FIRST_ANCESTORS: Final = 2
_MAX_ANCESTORS: Final = 128


def histories(
    parts: Parts, asked: Asked, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return the histories of delta channels in the ancestors of a checkpoint."""
    walk = DeltaWalk(channels)
    entry = (yield from get(parts, asked)) if walk.open else None
    seen, size = set[str](), _FIRST_ANCESTORS
    page: dict[str, Listed] = {}
    of_child: Made | None = None
    while walk.open and entry is not None:
        checkpoint_id = str(entry.place.checkpoint_id)
        if seen:  # writes to the checkpoint itself are pending, and no part of the history
            writes = entry.writes(walk.open)
            if of_child is not None:
                writes = [write for write in writes if is_named(of_child, write.task_id, write.claims)]
            walk.visit(entry.values(walk.open), [write[1:] for write in writes])
        seen.add(checkpoint_id)
        parent = entry.parent
        if not parent or not walk.open:
            break
        if parent in seen:
            raise RowError(f"the parents of checkpoint {excerpt(parent)} go in a circle")
        if parent not in page:
            # Ids of ancestors are usually the next lower ones; each page costs as much as one row.
            page = yield from _page_below(parts, asked.place, checkpoint_id, size)
            size = min(size * 2, _MAX_ANCESTORS)
        made = entry.made
        named = asked._replace(place=asked.place._replace(checkpoint_id=parent), has_ns=True)
        entry = yield from (open_listed(parts, named, page[parent]) if parent in page else get(parts, named))
        if entry is None:
            raise RowError(f"checkpoint {excerpt(parent)}, an ancestor, is missing")
        of_child = None if made is None else require_made(made, entry.stored_writes())
    return walk.histories()


def _page_below(parts: Parts, place: Place, before: str, size: int) -> Steps[dict[str, Listed]]:
    """Return the next checkpoints below an id, by their ids."""
    found: list[CheckpointTuple] = yield Request(
        place._replace(checkpoint_id=None).config(), None, before, size
    )
    known = (yield from parts.heads.find([*map(spot_of, found)])) if parts.heads is not None else None
    return {spot_of(item).checkpoint_id: Listed(item, known) for item in found}
