"""RowStore: a database as maintenance sees it, whichever kind it is.

A store hands out cells (`sealpoint.databases.cells`) column by column, in batches in the order of the
rows' keys. It changes a cell only if its tag and bytes are still those that were read
(compare-and-swap), so a live writer never loses an update.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from sealpoint.databases.cells import EVERYTHING, Cell, Column, Selection
from sealpoint.databases.failures import Failure
from sealpoint.errors import DatabaseCorruptError, RowError, SealpointError


class TagCount(NamedTuple):
    """How many values of a column carry one tag, and how many bytes they have as they are stored.

    Attributes:
        table: The label of the column, see `Column.label`.
        tag: The tag.
        rows: How many values.
        size_bytes: How many bytes.
    """

    table: str
    tag: Any
    rows: int
    size_bytes: int


MAX_TAGS: Final = 100_000
"""How many different tags a column may have; an agent writes a handful."""


def require_few_tags(column: Column, found: Sequence[object]) -> None:
    """Refuse a column whose tags would fill memory.

    Raises:
        RowError: If there are over `MAX_TAGS`.
    """
    if len(found) > MAX_TAGS:
        raise RowError(f"table {column.label!r} has over {MAX_TAGS} different tags; they are forged")


@contextmanager
def noting_damage(column: Column, damage: list[SealpointError] | None) -> Iterator[None]:
    """Add why metadata cannot be read to ``damage``, or raise it; of no other column is the value counted."""
    try:
        yield
    except (DatabaseCorruptError, RowError) as error:
        if damage is None or not column.in_json:
            raise
        damage.append(error)


class InlineValue(NamedTuple):
    """Values that a database keeps readable beside the sealed ones: their channel, kind and count."""

    channel: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True)
class Batch:
    """How much is read, or changed in one transaction: at most ``rows``, and about ``size_bytes``."""

    rows: int = 1000
    size_bytes: int = 8 * 1024 * 1024


BATCH: Final = Batch()


class Page(NamedTuple):
    """A batch that was read.

    Attributes:
        cells: In the order of the store's keys.
        last: Where the next page begins; ``None`` if this was the last one.
    """

    cells: Sequence[Cell]
    last: Any


class Rewritten(NamedTuple):
    """A batch that was changed.

    Attributes:
        seen: Values that were handed to ``change``.
        changed: Values that were changed.
        raced: Values that a writer had changed meanwhile; theirs stands.
        size_bytes: Of the values that were seen.
        lock_seconds: How long the write lock was held since the last batch.
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
        """Its name for people: a path, or a URL without a password."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with values, of those tables that the database has."""

    def count(self, damage: list[SealpointError] | None = None) -> list[TagCount]:
        """Return how many values carry which tag, by column and tag.

        Args:
            damage: Receives why metadata cannot be counted, if it cannot; then all other values are counted.

        Raises:
            RowError: If a column has over `MAX_TAGS` different ones.
            DatabaseCorruptError: If a column is damaged, unless it is metadata and ``damage`` is given.
        """

    def read(
        self, column: Column, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH
    ) -> Page:
        """Return the selected values after the position ``after``, which is ``None`` at the start.

        At least one value is read, whatever its size.
        """

    def rewrite(
        self,
        column: Column,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Hand the selected values after ``after`` to ``change``, and store what it gives.

        One transaction. What ``change`` raises goes on to the caller, and nothing of the batch is stored.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Exclude other runs for as long as the context lasts, also those of other processes.

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
        """Close the connection to the database."""


class Progress(NamedTuple):
    """A run has done another batch.

    Attributes:
        table: The one it is at.
        rows: Values looked at so far in this pass, over all tables.
        total: Values that there were to look at when the pass began.
        changed: Values changed so far in the run.
        raced: Values that writers had changed meanwhile, so far in the run.
        size_bytes: Of the values looked at so far in the run.
        lock_seconds: How long the write lock was held since the last batch.
    """

    table: str
    rows: int
    total: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float


Event = Progress | Failure
Events = Generator[Event, None, None]
"""A run: it goes on while its events are asked for, and ends when it is closed."""
