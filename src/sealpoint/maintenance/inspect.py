"""Inspection: the values of one thread as JSON data. Nothing is imported or built.

Types that JSON lacks are objects whose first key begins with ``$``. A dict that could be mistaken for such
an object, or has keys other than text, is a ``$map``.

    {"$bytes": 3, "hex": "010203"}             bytes: how many, and the first of them
    {"$text": 9000, "start": "..."}            text that is too long to be shown: its length and beginning
    {"$record": "module.Name", "kind": "...",
     "arguments": ...}                         what would be an object of that type
    {"$map": [[key, value], ...]}              a dict
    {"$float": "nan"}                          a number that JSON does not have
    {"$cut": 7}                                the last of a list or a map: so many members are not shown
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.databases.cells import Selection, open_cell
from sealpoint.databases.failures import Failure, failure
from sealpoint.databases.rows import BATCH, Batch, RowStore
from sealpoint.errors import KeyRingError, SealpointError
from sealpoint.maintenance.bound import is_sentinel, take_apart
from sealpoint.maintenance.verify import pages
from sealpoint.sealed.tokens import Tokens
from sealpoint.serde.inert import Inert, decode_inert
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

MAX_MEMBERS: Final = 2_000
MAX_CHARS: Final = 2_000
MAX_BYTES: Final = 64


class Readable(NamedTuple):
    """A value that was opened.

    Attributes:
        table: The label of its column, see `Column.label`.
        place: The columns of the row's key by name.
        tag: Its tag.
        value: The value as plain data.
        sealed_with: What `SealedSaver` has sealed with it, as plain data; ``None`` if there is nothing.
    """

    table: str
    place: dict[str, Any]
    tag: str
    value: Any
    sealed_with: Any = None


def threads(store: RowStore) -> Iterator[str]:
    """Yield the id of each thread once, table by table in their order."""
    seen = set[str]()
    for _, thread_id in store.cleartext.names("thread_id"):
        if thread_id not in seen:
            seen.add(thread_id)
            yield thread_id


def inspect(
    store: RowStore,
    cipher: RingCipher | None,
    thread_id: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    batch: Batch = BATCH,
) -> Iterator[Readable | Failure]:
    """Yield the values of a thread, column by column in the order of the store.

    Args:
        store: A database.
        cipher: Opens sealed values; without it each of them is a failure.
        thread_id: The thread, or the pseudonym that stands for it.
        limits: Limits of a value; exceeding them is a failure.
        batch: How much to read at a time.
    """
    opener = RingCipher(KeyRing([])) if cipher is None else cipher
    for column in store.columns:
        selections = [Selection(thread_id=stored) for stored in _stored_ids(opener, thread_id)]
        for page in (page for selection in selections for page in pages(store, column, selection, batch)):
            for cell in page.cells:
                if is_sentinel(cell):
                    continue
                try:
                    parts = take_apart(cell, open_cell(opener, cell, allow_plaintext=True))
                    shown = plain(decode_inert(*parts.opened.typed, limits))
                except SealpointError as error:
                    yield failure(cell, error)
                else:
                    yield Readable(column.label, cell.where.names, cell.tag, shown, plain(parts.sealed_with))


def _stored_ids(cipher: RingCipher, thread_id: str) -> Iterator[str]:
    """Yield what may stand for a thread: its id, and if the ring has an index key its pseudonym."""
    yield thread_id
    with suppress(KeyRingError):
        yield Tokens(lambda: cipher.ring).pseudonym(thread_id)


def plain(value: Any) -> Any:
    """Return a value of `decode_inert` as JSON data, truncated where it is very long."""
    return _Plain().show(value)


class _Plain:
    """Converts one value; the number of shown members is limited for the whole value."""

    def __init__(self) -> None:
        self._left = MAX_MEMBERS

    def show(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes | bytearray):
            return {"$bytes": len(value), "hex": value[:MAX_BYTES].hex()}
        if isinstance(value, Inert):
            named = self._text(f"{value.module}.{value.name}" if value.module else value.name)
            return {"$record": named, "kind": value.kind, "arguments": self.show(value.payload)}
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, list | tuple):
            return self._list(value)
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": str(value)}
        return value

    def _text(self, text: str) -> Any:
        if len(text) <= MAX_CHARS:
            return text
        return {"$text": len(text), "start": text[:MAX_CHARS]}

    def _take(self, members: int) -> int:
        """Return how many of ``count`` members may be shown."""
        taken = min(members, self._left)
        self._left -= taken
        return taken

    def _list(self, items: list[Any] | tuple[Any, ...]) -> list[Any]:
        taken = self._take(len(items))
        shown = [self.show(item) for item in islice(items, taken)]
        return shown if taken == len(items) else [*shown, {"$cut": len(items) - taken}]

    def _dict(self, table: dict[Any, Any]) -> Any:
        taken = self._take(len(table))
        members = islice(table.items(), taken)
        ordinary = taken == len(table) and all(map(_is_ordinary, table))
        if ordinary:
            return {key: self.show(value) for key, value in members}
        pairs: list[Any] = [[self.show(key), self.show(value)] for key, value in members]
        return {"$map": pairs if taken == len(table) else [*pairs, {"$cut": len(table) - taken}]}


def _is_ordinary(key: object) -> bool:
    return isinstance(key, str) and len(key) <= MAX_CHARS and not key.startswith("$")
