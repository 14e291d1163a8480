"""RowStore: a database of any kind, as used by maintenance.

A store returns cells (`sealpoint.databases.cells`) column by column, in batches in the order of the rows'
keys. It changes a cell only if its tag and bytes are unchanged since it read them (compare-and-swap), so an
agent never loses an update.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from sealpoint.databases.cells import EVERYTHING, Cell, Column, Selection
from sealpoint.databases.cleartext import Cleartext
from sealpoint.databases.failures import Failure
from sealpoint.errors import DatabaseCorruptError, RowError, SealpointError


class TagCount(NamedTuple):
    """The number of values of a column with one tag, and their size as stored.

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
"""Maximum number of different tags in a column; an agent writes few."""


def require_few_tags(column: Column, found: Sequence[object]) -> None:
    """Refuse a column with so many tags that they would fill memory.

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


class Table(NamedTuple):
    """A table of a database.

    Attributes:
        name: Its name, with that of its schema if the saver's tables are in another.
        is_read: Whether maintenance reads it.
    """

    name: str
    is_read: bool


class Need(NamedTuple):
    """A value that a checkpoint has in a row of its own, as on Postgres.

    Attributes:
        checkpoint: The key of the row of the checkpoint.
        channel: The channel.
        version: The version of its value.
    """

    checkpoint: tuple[str, ...]
    channel: str
    version: str


class Residue(NamedTuple):
    """Parts of a file that no statement reads, and where what was deleted may still be.

    Attributes:
        free_bytes: Of free pages.
        log_bytes: Of the write-ahead log.
        journal_bytes: Of the rollback journal.
        slack_bytes: Bytes in unused space of other pages that are not zero; ``None`` if the file could not be
            parsed.
    """

    free_bytes: int
    log_bytes: int
    journal_bytes: int
    slack_bytes: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Size of a read, or of a transaction: at most ``rows``, and about ``size_bytes``."""

    rows: int = 1000
    size_bytes: int = 8 * 1024 * 1024


BATCH: Final = Batch()


class Page(NamedTuple):
    """A batch that was read.

    Attributes:
        cells: In the order of the store's keys.
        last: The position after which the next page begins; ``None`` for the last page.
    """

    cells: Sequence[Cell]
    last: Any


class Rewritten(NamedTuple):
    """A batch that was changed.

    Attributes:
        seen: Values that were passed to ``change``.
        changed: Values that were changed.
        raced: Values that a writer has changed meanwhile; the writer's value is kept.
        size_bytes: Bytes of the values that were seen.
        lock_seconds: Time that the write lock was held since the last batch.
        last: The position after which the next batch begins; ``None`` for the last batch.
    """

    seen: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float
    last: Any


Change = Callable[[Cell], tuple[Any, ...] | None]
"""Returns the new tag and bytes of a value, or ``None`` to leave it unchanged.

For a store of whole rows it returns a `sealpoint.databases.whole.Replacement`."""


class RowStore(Protocol):
    """The values of one database."""

    @property
    def name(self) -> str:
        """Its name in messages: a path, or a URL without a password."""

    @property
    def kind(self) -> str:
        """``sqlite`` or ``postgres``."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells it from a copy and from another database of the same name."""

    @property
    def cleartext(self) -> Cleartext:
        """What is readable in it beside its values."""

    @property
    def missing_tables(self) -> tuple[str, ...]:
        """The tables that every saver makes, and that are not there."""

    def tables(self) -> list[Table]:
        """Return all tables of the database that this account can see."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with values in the tables of the database."""

    def count(self, damage: list[SealpointError] | None = None) -> list[TagCount]:
        """Return how many values have which tag, by column and tag.

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

        At least one value is read, regardless of its size.
        """

    def rewrite(
        self,
        column: Column,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Pass the selected values after ``after`` to ``change``, and store the results.

        In one transaction: an exception of ``change`` is passed on, and nothing of the batch is stored.
        """

    def lost(self, needs: Sequence[Need]) -> Sequence[Need]:
        """Return those of the values that are not there, though their checkpoints are."""

    def one_state(self) -> AbstractContextManager[None]:
        """Read one state of the database within the context, whatever writers do meanwhile.

        On SQLite they continue in WAL mode, and the log grows until the end; in other modes they wait. On
        Postgres they continue.

        Raises:
            StoppedError: If the database did not keep the state until the end.
            SchemaError: If the tables have changed.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Exclude other runs within the context, including other processes.

        Raises:
            HeldError: If another run holds the database.
        """

    def residue(self) -> Residue | None:
        """Return how much of the file no statement reads; ``None`` for Postgres, which does not say."""

    def close(self) -> None:
        """Close the connection to the database."""


class Progress(NamedTuple):
    """A run has finished another batch.

    Attributes:
        table: The current table.
        rows: Values examined so far in this pass, over all tables.
        total: Values to examine when the pass began.
        changed: Values changed so far in the run.
        raced: Values that writers have changed meanwhile, so far in the run.
        size_bytes: Bytes of the values examined so far in the run.
        lock_seconds: Time that the write lock was held since the last batch.
        plaintext: Values that were not sealed, and that the run has sealed so far.
        legacy: Values under LANGGRAPH_AES_KEY that it has sealed anew so far.
    """

    table: str
    rows: int
    total: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float
    plaintext: int = 0
    legacy: int = 0


Event = Progress | Failure
Events = Generator[Event, None, None]
"""A run: it continues while its events are consumed, and ends when it is closed."""
