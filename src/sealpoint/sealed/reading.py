"""Reads checkpoints: the latest, by id, listings, and histories; compares them with the thread store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from sealpoint.base.checkpoint import CheckpointTuple, DeltaChannelHistory, DeltaWalk, RunnableConfig
from sealpoint.base.place import Place, configurable_of, optional_text, place_of, require_place
from sealpoint.errors import ConfigKeyError, RolledBackError, RowError, SealpointError, excerpt, located
from sealpoint.seal.calls import Write
from sealpoint.seal.carrier import Sealed
from sealpoint.seal.entry import Entry
from sealpoint.seal.heads import Head, Kind, Standing, not_last
from sealpoint.seal.layouts import Rows
from sealpoint.seal.places import KEY, Spot
from sealpoint.sealed.heads import LOOKS, Heads, Known, missing
from sealpoint.sealed.search import search_of
from sealpoint.sealed.steps import OWN, Call, Request, Steps, call, get_at, spot_of

if TYPE_CHECKING:
    from sealpoint.sealed.pseudonyms import Pseudonyms
    from sealpoint.serde import EncryptedSerializer


_REMEMBERED: Final = 1_000  # the number of checkpoints whose calls are kept


class Acknowledged(OrderedDict[tuple[Any, ...], list[tuple[str, bytes]]]):
    """Calls of ``put_writes`` that this process stored, by checkpoint: a delta graph continues with them.

    The calls are removed when a child of their checkpoint is stored: its header lists the writes.
    """

    def add(self, spot: Spot, task_id: str, call: bytes) -> None:
        """Remember that a call of ``put_writes`` to a checkpoint was stored."""
        self.setdefault(spot, []).append((task_id, call))
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def forget_thread(self, thread_id: str) -> None:
        """Forget the calls of a thread that is being deleted."""
        for spot in [spot for spot in [*self] if spot[0] == thread_id]:
            self.pop(spot, None)


def stored_bytes(found: CheckpointTuple) -> int:
    """Return the number of bytes of values that were read from the database for a checkpoint."""
    checkpoint: Any = found.checkpoint
    values: list[Any] = [value for _, _, value in found.pending_writes or ()]
    if isinstance(checkpoint, dict):
        values += checkpoint.get("channel_values", {}).values()
    blobs = [value.blob for value in (checkpoint, *values) if type(value) is Sealed]
    frame: Any = found.metadata.get(KEY) if isinstance(found.metadata, dict) else None
    if isinstance(frame, dict):
        blobs.append(frame.get("value"))
    return sum(len(blob) for blob in blobs if isinstance(blob, bytes | str))  # else it is refused later


def size_of(entry: Entry) -> int:
    """Return an estimate of the bytes of an entry to decode: the stored bytes, and those opened so far."""
    return stored_bytes(entry.found) + entry.opened_bytes


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that the procedures of one saver share."""

    rows: Rows
    pseudonyms: Pseudonyms | None  # if threads have pseudonyms
    heads: Heads | None  # if there is a thread store
    pass_through: Sequence[str]  # keys of ``configurable`` that the wrapped saver gets
    acknowledged: Acknowledged = field(default_factory=Acknowledged)

    @property
    def serde(self) -> EncryptedSerializer:
        """The sealing serializer of the saver."""
        return cast("EncryptedSerializer", self.rows.serde)

    def forget(self, asked: Asked) -> None:
        """Forget a deleted thread: its calls of ``put_writes``, and its name in the database."""
        self.acknowledged.forget_thread(asked.place.thread_id)
        if self.pseudonyms is not None:
            self.pseudonyms.forget(asked.thread_id)


class Asked(NamedTuple):
    """The thread or checkpoint that a caller of the saver requests."""

    place: Place  # in the database
    thread_id: str  # the database may have a pseudonym for it
    has_ns: bool  # whether the config names a namespace
    more: Mapping[str, Any]  # further keys of ``configurable`` for the wrapped saver

    @property
    def config(self) -> RunnableConfig:
        """The config for the wrapped saver: thread, namespace and id, and the caller's further keys."""
        return self.place.config(self.more)

    def name(self, error: SealpointError) -> None:
        """Put the real thread id into an error; if the error names no row, name the requested row."""
        if isinstance(error, RowError):
            located(error, "checkpoints", self.place)
        if error.place.get("thread_id") == self.place.thread_id:
            error.thread_id = self.thread_id

    def at(self, checkpoint_id: str, checkpoint_ns: str | None = None) -> Asked:
        """Return the request for another checkpoint of this thread, by default in the same namespace."""
        ns = self.place.checkpoint_ns if checkpoint_ns is None else checkpoint_ns
        return self._replace(place=Place(self.place.thread_id, ns, checkpoint_id), has_ns=True)

    def __enter__(self) -> None:
        """Add thread and row to the errors of a ``with`` block, see `name`."""

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, SealpointError):
            self.name(error)


# `Asked(...)` without its Python constructor.
_asked: Final[Callable[[tuple[Any, ...]], Asked]] = partial(tuple.__new__, Asked)


def asking(parts: Parts, config: RunnableConfig, *, is_new: bool = False) -> Steps[Asked]:
    """Return what ``config`` requests; ``is_new`` says that its thread is about to be written."""
    place = require_place(config)
    if parts.heads is not None:
        yield OWN
    thread_id = place.thread_id
    if parts.pseudonyms is not None:
        column = yield from parts.pseudonyms.find(place, partial(_authenticate, parts.rows), is_new=is_new)
        place = place._replace(thread_id=column)
    configurable = config["configurable"]
    more = {key: configurable[key] for key in parts.pass_through if key in configurable}
    has_ns = configurable.get("checkpoint_ns") is not None
    return _asked((place, thread_id, has_ns, more))


def _authenticate(rows: Rows, found: CheckpointTuple, spot: Spot) -> None:
    entry = Entry(rows, found, spot)
    if not entry.is_bound:  # an unbound checkpoint is authenticated only when it is decoded
        entry.document()


def _are_last(heads: Heads, entry: Entry, known: Known, *, is_before: bool) -> Steps[bool]:
    """Whether a checkpoint's special writes are the latest; if not, read the checkpoint again, by its id.

    With ``is_before``, the thread store was read before the checkpoint, so a contradiction is final.
    """
    events = known.specials.get(entry.spot)
    if not events:
        return True
    error = yield Call(lambda: not_last(events, entry.stored_writes()), (), partial(size_of, entry))
    if error is None or not is_before:
        return error is None
    now = yield from heads.find([entry.spot])
    head = now and now.heads.get(entry.spot)
    if now is not None and (head is None or head.kind is Kind.PUT):  # else the row is deleted, or may be
        heads.report(error, entry.spot, entry.thread_id)
    return True


def get(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    """Return the requested checkpoint, or the latest of the requested thread, or ``None``."""
    asked = asked if asked.has_ns else asked._replace(has_ns=True)  # by default the root's namespace
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
        if entry is not None and (want is None or want.spot <= entry.spot):
            # The checkpoint may be newer than all heads that were requested.
            now = known if entry.spot in known.heads else (yield from heads.find([entry.spot])) or known
            standing = yield from heads.compare(entry, now)
            want = now.heads.get(entry.spot)
            if standing is Standing.PRESENT:
                # The store knew ``known`` when the checkpoint was read, and ``now`` afterwards.
                is_before = entry.spot in known.specials
                specials = known if is_before else now
                if (yield from _are_last(heads, entry, specials, is_before=is_before)):
                    return entry
                found = yield from get(parts, asked.at(entry.spot.checkpoint_id))
                return found if found or asked.place.checkpoint_id else (yield from _latest(parts, asked))
            if standing is Standing.ABSENT:
                return None if asked.place.checkpoint_id else (yield from _latest(parts, asked))
        elif want is None or want.kind is not Kind.PUT:  # the row is deleted, or may be
            return entry
        looks = looks + 1 if want == suspect else 1
        if want is not None and looks == LOOKS:  # it was in the store each time the database was read
            return (yield from _require(parts, heads, asked, entry, known, want))
        suspect = want


def _get(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    found = yield get_at(asked.config)
    return None if found is None else (yield opening(parts, found, asked))


def opening(parts: Parts, found: CheckpointTuple, asked: Asked | None) -> Call:
    """Return the request that authenticates a row, on a worker thread if the row is large."""
    return call((_open, (parts.rows, found, asked), partial(stored_bytes, found)))


def _open(rows: Rows, found: CheckpointTuple, asked: Asked | None) -> Entry:
    """Authenticate a row, and check that it is the requested row: a wrong index may lead to another row."""
    try:
        entry = Entry(rows, found, spot_of(found))
    except SealpointError as error:
        if asked is not None:
            asked.name(error)
        raise
    if asked is not None:
        ns = asked.place.checkpoint_ns if asked.has_ns else None
        try:
            entry.require_asked(asked.thread_id, asked.place.thread_id, ns, asked.place.checkpoint_id)
        except RowError as error:
            located(error, "checkpoints", asked.place, {"thread_id": asked.thread_id})
            raise
    return entry


def _latest(parts: Parts, asked: Asked) -> Steps[Entry | None]:
    """Return the latest checkpoint in the database, except those that the thread store knows as deleted."""
    listing = Listing(parts, asked, limit=1)
    while listing.is_open:
        for row in (yield from listing.page()):
            if (found := (yield from listing.take(row))) is not None:
                return found
    return None


def _require(
    parts: Parts, heads: Heads, asked: Asked, entry: Entry | None, known: Known, want: Head
) -> Steps[Entry | None]:
    """Read the checkpoint that the thread store has as latest, if the database returned another as latest.

    The database may sort ids in another order than the thread store, and so have another latest checkpoint.
    """
    if not asked.place.checkpoint_id:
        named = asked.at(want.spot.checkpoint_id, want.spot.checkpoint_ns)
        found = yield from _get(parts, named)
        if found is not None and (yield from heads.compare(found, known)) is Standing.PRESENT:
            return (yield from get(parts, named))
    elif entry is None and (yield from heads.may_be_pruned(want, ())):
        return None
    have = None if entry is None else entry.spot.checkpoint_id
    lost = RolledBackError(want.spot.thread_id, have, want.spot.checkpoint_id)
    heads.report(lost, want.spot, asked.thread_id)
    return entry


# A row of a listing, not opened, and the thread store's heads for its page, if there is a thread store
Listed = tuple[CheckpointTuple, Known | None]


def open_listed(parts: Parts, asked: Asked | None, row: Listed) -> Steps[Entry | None]:
    """Open a row of a page, and compare it with its head; ``None`` if the head says that it was deleted.

    The row is read again if it, or a special write to it, was stored again after the page was read.
    """
    found, known = row
    entry: Entry = yield opening(parts, found, asked)
    if parts.heads is None or known is None:
        return entry
    standing = yield from parts.heads.compare(entry, known)
    if standing is Standing.ABSENT:
        return None
    if standing is Standing.PRESENT and (yield from _are_last(parts.heads, entry, known, is_before=False)):
        return entry
    column, ns, checkpoint_id = entry.spot
    asked = asked or Asked(Place(column, ns, None), entry.thread_id, True, {})
    return (yield from get(parts, asked.at(checkpoint_id, ns)))


def get_tuple(parts: Parts, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    """Return the result of `get` as a ``CheckpointTuple``."""
    asked = yield from asking(parts, config)
    try:
        if parts.heads is not None:
            entry = yield from get(parts, asked)
        elif (found := (yield get_at(asked.place.config(asked.more)))) is None:
            return None
        else:
            asked = asked if asked.has_ns else asked._replace(has_ns=True)
            read = yield call((_read, (parts.rows, found, asked), partial(stored_bytes, found)))
            if type(read) is not Entry:
                return read  # type: ignore[no-any-return]
            entry = read
        return None if entry is None else (yield from _decoded(parts, entry, asked, {}))
    except SealpointError as error:
        asked.name(error)
        raise


def _read(rows: Rows, found: CheckpointTuple, asked: Asked) -> CheckpointTuple | Entry:
    """Authenticate and decode a row; a row that needs the writes to its parent is not decoded yet."""
    entry = _open(rows, found, asked)
    return entry if entry.parent and entry.needs_sends else _decode(entry, asked, ())


def _decoded(
    parts: Parts, entry: Entry, asked: Asked | None, rows: Mapping[Spot, CheckpointTuple]
) -> Steps[CheckpointTuple]:
    """Return a checkpoint as a ``CheckpointTuple``; ``rows`` were read, perhaps with the parent's row."""
    sends: Sequence[Write] = ()
    if entry.parent and entry.needs_sends:
        parent = entry.spot._replace(checkpoint_id=entry.parent)
        found = rows.get(parent) or (yield get_at(Place(*parent).config()))
        if found is not None:
            size = partial(stored_bytes, found)
            sends = yield Call(lambda: Entry(parts.rows, found, parent).writes(), (), size)
    made: CheckpointTuple = yield Call(_decode, (entry, asked, sends), partial(size_of, entry))
    return made


def _decode(entry: Entry, asked: Asked | None, sends: Sequence[Write]) -> CheckpointTuple:
    place, more = place_of((entry.thread_id, *entry.spot[1:])), asked and asked.more
    decoded: CheckpointTuple = type(entry.found)(
        place.config(more),
        entry.document(sends),
        entry.metadata,
        place_of((*place[:2], entry.parent)).config(more) if entry.parent else None,
        [write[1:] for write in entry.writes()],
    )
    return decoded


# --- listings: read in pages of bounded size ------------------------------------------------------

FIRST_ROWS: Final = 16
MAX_ROWS: Final = 128
# Approximate bytes of values in a page that has more than one checkpoint
MAX_BYTES: Final = 16 * 1024 * 1024


class Pages:
    """Divides one listing into pages, each read at once as a list: some savers hold a lock while they list.

    Checkpoints come latest first. Checkpoints in different namespaces, or in copies of a thread, may have the
    same id; these are never divided between pages, because the next page begins below an id.

    Attributes:
        request: The next request; ``None`` at the end.
    """

    __slots__ = ("_has_unique_ids", "_is_sorted", "_is_whole", "_taken", "request")

    def __init__(self, request: Request, *, is_paged: bool, is_sorted: bool, first: int) -> None:
        """Begin a listing; ``request.limit`` is ``None`` if the number of needed rows is not known.

        ``is_paged`` says that the saver lists by id, over all threads and namespaces. With ``is_sorted``,
        rows are sorted here, because the saver may neither sort them nor apply ``before``.
        """
        config, limit = request.config, request.limit
        self._has_unique_ids = config is not None and config["configurable"].get("checkpoint_ns") is not None
        self._is_sorted = is_sorted
        self._is_whole = limit is not None and (limit <= MAX_ROWS or not is_paged)
        self._taken = frozenset[Spot]()
        size = limit if self._is_whole else first if is_paged else None
        self.request: Request | None = request._replace(limit=size)

    def take(self, found: list[CheckpointTuple]) -> list[CheckpointTuple]:
        """Return the rows of a reply that belong to the complete page, and determine the next request."""
        request, spots = self.request, [*map(spot_of, found)]
        is_named = all(type(ns) is type(checkpoint_id) is str for _, ns, checkpoint_id in spots)
        if is_named and (len({*spots}) < len(spots) or not self._taken.isdisjoint(spots)):
            raise RowError("the database lists a checkpoint twice")
        # A row that is not named by text is refused when it is opened, and has no order.
        is_all = self._is_whole or not is_named
        if request is None or request.limit is None or is_all or len(found) < request.limit:
            self.request = None
            if not (is_named and self._is_sorted):
                return found
            before = request and request.before  # the last rows have the order that they have in full pages
            rows = [item for item in found if before is None or spot_of(item).checkpoint_id < before]
            return sorted(rows, key=lambda item: spot_of(item).checkpoint_id, reverse=True)
        ids = [spot.checkpoint_id for spot in spots]
        is_below = not self._taken or request.before is None or ids[0] < request.before
        if not is_below or any(one < other for one, other in pairwise(ids)):
            self.request = request._replace(limit=None)  # the saver has another order: all at once
            return []
        end = len(ids) if self._has_unique_ids else ids.index(ids[-1])
        # A page of large checkpoints is shorter. If all have one id, it must still become longer.
        largest = max(1, MAX_BYTES * len(found) // max(1, sum(map(stored_bytes, found))))
        size = min(request.limit * 2, MAX_ROWS, largest) if end else request.limit * 2
        before = ids[end - 1] if end else request.before
        self.request = request._replace(before=before, limit=size)
        self._taken = frozenset(spots[:end]) or self._taken
        return found[:end]


class Listing:
    """One call of ``list`` of a SealedSaver, page by page."""

    def __init__(
        self,
        parts: Parts,
        asked: Asked | None,
        wanted: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> None:
        """Begin a listing of a thread, or of all threads; the other arguments are those of ``list``."""
        self._parts, self._asked, self._left = parts, asked, limit
        self._page: list[Listed] = []
        self._by_spot: dict[Spot, CheckpointTuple] = {}
        self._search = search_of(parts.rows)
        self._wanted = {key: self._search.wanted(value) for key, value in (wanted or {}).items()}
        stored, is_exact = self._search.divide(wanted or {})
        older = None if before is None else optional_text(configurable_of(before), "checkpoint_id")
        if before is not None and older is None:
            raise ConfigKeyError("'before' must name a 'checkpoint_id'")
        config = None if asked is None else asked.config
        if config is not None and asked is not None and not asked.has_ns:
            del config["configurable"]["checkpoint_ns"]
        # All rows of a thread are needed to find missing ones, and some rows may count as absent.
        is_compared = parts.heads is not None and asked is not None
        exact = limit if is_exact and parts.heads is None else None
        request = Request(config, {} if is_compared else stored, older, exact)
        first = limit if is_compared and limit and not wanted else FIRST_ROWS
        first = FIRST_ROWS if first < 0 else min(first, FIRST_ROWS)  # a negative limit is no limit in SQLite
        is_paged = self._search.lists_by_id
        self._pages = Pages(request, is_paged=is_paged, is_sorted=is_compared and is_paged, first=first)

    @property
    def is_open(self) -> bool:
        """Whether there may be further rows."""
        return self._pages.request is not None and self._left != 0

    def page(self) -> Steps[list[Listed]]:
        """Return the rows of the next page."""
        self._page, self._by_spot = [], {}  # before the next page is read: memory holds one
        with self._asked or nullcontext():
            self._page = yield from self._next()
        return self._page

    def _next(self) -> Steps[list[Listed]]:
        request, heads, asked = self._pages.request, self._parts.heads, self._asked
        if request is None:
            return []
        if heads is None or asked is None:
            found = self._pages.take((yield request))
            known = None if heads is None else (yield from heads.find(_spots(found)))
            return [(item, known) for item in found]
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
                return [(item, None) for item in found]
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
            return [(item, known) for item in found]

    def take(self, row: Listed) -> Steps[Entry | None]:
        """Open a row of a page; return it if it matches the filter, else ``None``."""
        found, known = row
        head = known and known.heads.get(spot_of(found))
        if self._left == 0 or (head and head.kind is Kind.DELETED):
            return None
        entry = yield from open_listed(self._parts, self._asked, row)
        # Also the part that the saver applies: an index, an operator or a duplicate key in the readable
        # metadata may lead the saver to another row.
        if entry is None or not all(
            self._search.matches(entry.metadata, key, value) for key, value in self._wanted.items()
        ):
            return None
        self._left = None if self._left is None else self._left - 1
        return entry

    def checkpoint(self, row: Listed) -> Steps[CheckpointTuple | None]:
        """Return the result of `take` as a ``CheckpointTuple``."""
        entry = yield from self.take(row)
        if entry is None:
            return None
        if entry.parent and entry.needs_sends and not self._by_spot:
            self._by_spot = {spot_of(found): found for found, _ in self._page}
        return (yield from _decoded(self._parts, entry, self._asked, self._by_spot))


def _spots(found: Sequence[CheckpointTuple]) -> list[Spot]:
    spots = [spot_of(item) for item in found]
    if any(type(part) is not str for spot in spots for part in spot):
        raise RowError("the key of a checkpoint's row is not text")
    return spots


# --- histories ------------------------------------------------------------------------------------

_FIRST_ANCESTORS: Final = 2
_MAX_ANCESTORS: Final = 128


def histories(
    parts: Parts, config: RunnableConfig, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return the history of each of the delta channels, read from the ancestors of a checkpoint."""
    asked = yield from asking(parts, config)
    with asked:
        walk = DeltaWalk(channels)
        entry = (yield from get(parts, asked)) if walk.open else None
        seen, size = set[str](), _FIRST_ANCESTORS
        page: dict[str, Listed] = {}
        made: object = None
        while walk.open and entry is not None:
            checkpoint_id = entry.spot.checkpoint_id
            if seen:  # writes to the checkpoint itself are pending, and no part of the history
                yield Call(_visit, (walk, entry, made), partial(size_of, entry))
            seen.add(checkpoint_id)
            parent = entry.parent
            if not parent or not walk.open:
                break
            if parent in seen:
                raise RowError(f"the parents of checkpoint {excerpt(parent)} form a cycle")
            if parent not in page:
                # Ids of ancestors are usually the next lower ones; each page costs as much as one row.
                page = yield from _page_below(parts, asked.place, checkpoint_id, size)
                size = min(size * 2, _MAX_ANCESTORS)
            made, named = entry.made, asked.at(parent)
            entry = yield from (
                open_listed(parts, named, page[parent]) if parent in page else get(parts, named)
            )
            if entry is None:
                raise RowError(f"checkpoint {excerpt(parent)}, an ancestor, is missing")
        return walk.histories()


def _visit(walk: DeltaWalk, entry: Entry, made: object) -> None:
    """Add a checkpoint to a walk, with the writes that ``made`` lists, or all writes if it is ``None``."""
    writes = entry.writes(walk.open, made)
    walk.visit(entry.values(walk.open), [write[1:] for write in writes])


def _page_below(parts: Parts, place: Place, before: str, size: int) -> Steps[dict[str, Listed]]:
    found: list[CheckpointTuple] = yield Request(
        place._replace(checkpoint_id=None).config(), None, before, size
    )
    known = (yield from parts.heads.find([*map(spot_of, found)])) if parts.heads is not None else None
    return {spot_of(item).checkpoint_id: (item, known) for item in found}
