"""RowStore: what a database's values look like to maintenance, whichever database it is.

A value is its tag and its bytes, and the key of its row; nothing here knows what the bytes mean.
A store hands out batches in the order of its keys, and changes a value only if it is still what
was read (compare-and-swap), so a live writer never loses an update.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from sealpoint.crypto import Row
from sealpoint.crypto.prepared import parse_tag
from sealpoint.errors import RowError
from sealpoint.keys.ids import LEGACY


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the column of it that holds values.

    Attributes:
        name: As the database calls it.
        value: The column with the bytes; their tags stand in ``type``.
        key: Columns that tell one row from all others, primary key first.
        logical: What the context of a row-bound value begins with: the names under which every
            kind of database knows this table.
        coordinates: The columns of ``key`` that such a context goes on with.
    """

    name: str
    value: str
    key: tuple[str, ...]
    logical: tuple[tuple[str, str], ...]
    coordinates: tuple[str, ...]


class Unreadable:
    """Stands for the bytes of a value that the database itself cannot read."""


class Cell(NamedTuple):
    """One value, as it stands in its row.

    Attributes:
        table: Where it stands.
        key: The row's columns, in the order of ``table.key``.
        tag: The `type` column: text, unless somebody put something else there.
        blob: The value column: bytes, unless somebody put something else there; `Unreadable` if
            they are lost.
        locator: Where the store finds the row again without a search, if it has such a thing.
    """

    table: Table
    key: tuple[Any, ...]
    tag: Any
    blob: Any
    locator: Any = None

    @property
    def place(self) -> dict[str, Any]:
        """The row's columns by name, for people."""
        return dict(zip(self.table.key, self.key, strict=True))

    @property
    def row(self) -> Row | None:
        """The logical coordinates of a value that is bound to its row; ``None`` for any other.

        Raises:
            TagError: If its tag is none.
            RowError: If a column of the key holds bytes, which is what text comes as that is not UTF-8.
        """
        if bytes in map(type, self.key):
            raise RowError(f"a key column of table {self.table.name!r} does not hold text")
        return self.coordinates if "row" in parse_tag(self.tag).flags else None

    @property
    def coordinates(self) -> Row:
        """The logical coordinates of the row, whether the value is bound to it or not.

        Raises:
            RowError: If a column of the key does not hold text.
        """
        place = self.place
        row = dict(self.table.logical) | {name: place[name] for name in self.table.coordinates}
        if not all(isinstance(column, str) for column in row.values()):
            raise RowError(f"a key column of table {self.table.name!r} does not hold text")
        return row


class TagCount(NamedTuple):
    """How many values of a table carry one tag, and how many bytes they have."""

    table: str
    tag: Any
    rows: int
    size_bytes: int


MAX_TAGS: Final = 100_000
"""How many different tags a table may have; an agent's has a handful."""


def require_few_tags(table: Table, found: Sequence[object]) -> None:
    """Refuse a table whose tags would fill memory.

    Raises:
        RowError: If there are over `MAX_TAGS`.
    """
    if len(found) > MAX_TAGS:
        raise RowError(f"table {table.name!r} has over {MAX_TAGS} different tags; a forger made them")


class InlineValue(NamedTuple):
    """Values that a database keeps readable beside the sealed ones: their channel, kind and count."""

    channel: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which values a batch is made of.

    Attributes:
        without_key: Leave out what is under this key already.
        plaintext: Take values that are not sealed.
        legacy: Take values under LANGGRAPH_AES_KEY.
        thread_id: Take this thread's values alone.
        with_key: Of the sealed values, take those under this key alone.
    """

    without_key: str | None = None
    plaintext: bool = True
    legacy: bool = True
    thread_id: str | None = None
    with_key: str | None = None

    def takes(self, tag: Any) -> bool:
        """Whether a value with ``tag`` is taken, whatever its thread; no tag counts as not sealed."""
        text = tag.decode("latin-1") if isinstance(tag, bytes) else str(tag or "")
        if "+" not in text:
            return self.plaintext
        if text.endswith(f"+{LEGACY}"):
            return self.legacy
        if self.with_key is not None and not text.endswith(f"@{self.with_key}"):
            return False
        return self.without_key is None or not text.endswith(f"@{self.without_key}")


@dataclass(frozen=True, slots=True)
class Batch:
    """How much is read, or changed in one transaction: at most ``rows``, and about ``size_bytes``."""

    rows: int = 1000
    size_bytes: int = 8 * 1024 * 1024


EVERYTHING: Final = Selection()
BATCH: Final = Batch()


class Page(NamedTuple):
    """A batch that was read.

    Attributes:
        values: In the order of the store's keys.
        last: Where the next page begins; ``None`` if this was the last one.
    """

    values: Sequence[Cell]
    last: Any


class Rewritten(NamedTuple):
    """A batch that was changed.

    Attributes:
        seen: Values that were handed to ``change``.
        changed: Values that were changed.
        raced: Values that a writer had changed meanwhile; theirs stands.
        size_bytes: Of the values that were seen.
        lock_seconds: How long the write lock was held since the last batch was told of.
        last: Where the next batch begins; ``None`` if this was the last one.
    """

    seen: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float
    last: Any


Change = Callable[[Cell], tuple[str, bytes] | None]
"""Gives the new tag and bytes of a value, or ``None`` to leave it."""


class RowStore(Protocol):
    """The values of one database."""

    @property
    def name(self) -> str:
        """What people call it: a path, or a URL without a password."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Those of the known tables that the database has."""

    def count(self) -> list[TagCount]:
        """Return how many values carry which tag, by table and tag. Reads no value.

        Raises:
            RowError: If a table has over `MAX_TAGS` different ones.
        """

    def read(self, table: Table, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH) -> Page:
        """Return the selected values after the position ``after``, which is ``None`` at the start.

        At least one value is read, whatever its size.
        """

    def rewrite(
        self,
        table: Table,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Hand the selected values after ``after`` to ``change``, and store what it gives.

        One transaction. What ``change`` raises goes on to the caller, and nothing of the batch is stored.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Keep other runs away for as long as the context lasts, also those of other processes.

        Raises:
            HeldError: If another run holds the database.
        """

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield what is readable in key columns: each column with each distinct text of it, by table.

        With ``only``, of that column alone.
        """

    def metadata(self) -> Iterator[Any]:
        """Yield the metadata of each checkpoint, as it stands in the column."""

    def inline(self) -> Iterator[InlineValue]:
        """Yield what is kept readable beside the values. SQLite keeps nothing there."""

    def close(self) -> None:
        """Let go of the database."""


class Progress(NamedTuple):
    """A run has done another batch.

    Attributes:
        table: The one it is at.
        rows: Values looked at so far in this pass, over all tables.
        total: Values that there were to look at when the pass began.
        changed: Values changed so far in the run.
        raced: Values that writers had changed meanwhile, so far in the run.
        size_bytes: Of the values looked at so far in the run.
        lock_seconds: How long the write lock was held since the last batch was told of.
    """

    table: str
    rows: int
    total: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float


class Failure(NamedTuple):
    """A value did not open; it was left as it is.

    Attributes:
        table: Where it stands.
        place: The row's columns by name.
        tag: Its `type` column.
        error: Why.
    """

    table: str
    place: dict[str, Any]
    tag: Any
    error: Exception


def failure(value: Cell, error: Exception) -> Failure:
    """Return the failure of a value, with an error that keeps no frame alive, and so no bytes of it."""
    error.__cause__ = error.__context__ = None
    return Failure(value.table.name, value.place, value.tag, error.with_traceback(None))


def mark(failed: Failure) -> int:
    """Return what tells the failures of two values apart."""
    return hash(repr((failed.table, failed.place)))  # of -1 and -2 alone hash() makes the same


Event = Progress | Failure
Events = Generator[Event, None, None]
"""A run: it goes on while somebody asks for its events, and ends when it is closed."""
