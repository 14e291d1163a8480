"""Pages: requests for the items of a search, while other processes save and delete items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

from langgraph.store.base import Item

from sealpoint.seal.items import ItemName
from sealpoint.seal.places import KEY

_FIRST_PAGE: Final = 64

# Pages grow up to this number of characters: a store sorts all items for each page
_PAGE_CHARS: Final = 2**21

# Items are read again at the end of a search; up to this number of characters, in one request
_MAX_CHARS: Final = 2**23

# After this number of pages without a new item, all items are read in one request
_MAX_IDLE: Final = 16


def stored_chars(found: Item) -> int:
    """Return the number of characters of an item's sealed value; 0 for some values that are refused later."""
    frame = found.value.get(KEY) if isinstance(found.value, dict) else None
    sealed = frame.get("value") if isinstance(frame, dict) else None
    return len(sealed) if isinstance(sealed, str) else 0


# Times at which items were saved, by their names in the database
Times = dict[ItemName, datetime]


def name_of(found: Item) -> ItemName:
    """Return the name of an item in the database."""
    return ItemName(tuple(found.namespace), found.key)


def seconds_of(found: Item) -> float:
    """Return the time at which an item was saved; minus infinity if the database has no time."""
    at = found.updated_at
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() if isinstance(at, datetime) else -inf


def times_of(page: Iterable[Item]) -> Times:
    """Return when each item of a page was saved."""
    return {name_of(each): each.updated_at for each in page}


def others(page: Iterable[Item], times: Times) -> list[Item]:
    """Return the items of a page that are not in ``times``, or were saved again since."""
    return [each for each in page if times.get(name_of(each)) != each.updated_at] if times else [*page]


class Pages:
    """Requests that read items, newest first, while other processes save and delete items.

    Items that are not saved again keep their order, but Postgres does not order items of the same time: these
    are all taken from one page. A page begins with the last item that was taken. If a page contains no item
    that was taken, items were deleted, and others may have moved before the offset: the previous page is read
    again. An item that is saved again becomes the newest item, and may be on no page. So the newest items are
    read again in a second walk, until one request returns all of them.

    Attributes:
        size: Number of items to request next; 0 at the end.
        offset: Offset of the next request.
        is_whole: Whether the last reply has all requested items, as the store had them at one time.
    """

    def __init__(self, since: float, is_whole: bool, *, is_ranked: bool, is_ordered: bool) -> None:
        """Begin with the newest items; ``since`` is the time of the oldest items that are needed.

        With ``is_whole``, requests become larger until one request returns all items: for a store that does
        not sort items by time, or if items are saved faster than they are read.
        """
        self.size, self.offset, self.is_whole = _FIRST_PAGE, 0, True
        self._since, self._max_chars = since, inf if is_whole else _MAX_CHARS if since > -inf else 0
        self._is_ranked, self._is_ordered = is_ranked, is_ordered
        self._taken, self._end = Times(), inf  # from the last page; all items that are newer were taken
        self._idle = self._count = 0

    def take(self, page: list[Item]) -> Sequence[Item]:
        """Return the items of a reply that no earlier call returned, and determine the next request."""
        self.is_whole, size = not self.offset, self.size
        if not (self.is_whole or self._is_next(page)):
            self.offset = max(0, self.offset - size)
            self._require_progress(False)
            return []
        end = seconds_of(page[-1]) if page else -inf
        is_last, self._count = (
            len(page) < size and not (self._is_ranked and len(page) > self._count),
            len(page),
        )
        if is_last or end < self._since:
            self.size = 0
            new = others(page, self._taken)
            return [each for each in new if seconds_of(each) >= self._since] if end < self._since else new
        chars, factor = sum(map(stored_chars, page)), 4 if self._is_ranked else 16
        is_growing = self.is_whole and factor * chars < self._max_chars
        if is_growing and self._since > -inf:  # nearly all of them are known
            self.size = factor * size
            return []
        if not (is_growing or self._is_ordered):
            page = [each for each in page if each.updated_at != page[-1].updated_at]
        new, times = others(page, self._taken), times_of(page)
        if end < self._end:
            self._taken = times
        else:
            self._taken |= times
        if is_growing:
            self.size = factor * size
        else:
            self.offset += max(len(page) - 1, 0)
            is_small = not new or 4 * chars < _PAGE_CHARS
            self.size = 4 * size if is_small else 2 * size if chars < _PAGE_CHARS else max(size // 2, 2)
            self._require_progress(bool(new) and end <= self._end)
        self._end = min(end, self._end)
        return new

    def _is_next(self, page: Sequence[Item]) -> bool:
        """Whether a page continues the previous page, so that no item between the two was skipped."""
        if self._is_ordered:
            return any(self._taken.get(name_of(each)) == each.updated_at for each in page)
        return bool(page) and seconds_of(page[0]) > self._end

    def _require_progress(self, is_made: bool) -> None:
        self._idle = 0 if is_made else self._idle + 1
        if self._idle > _MAX_IDLE:
            self._max_chars, self.size, self.offset = inf, 4 * (self.offset + self.size), 0
