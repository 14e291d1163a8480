"""RowStore: a database of any kind, as used by maintenance.

A store returns cells, see `cells`, column by column, in batches in the order of the rows' keys. It changes a
cell only if its tag and bytes are unchanged since it read them (compare-and-swap), so an agent never loses an
update.

Whole rows: cells with all columns of their rows, for what must seal or restore several columns at once.

A store of whole rows has the interface of a `RowStore`, with these differences: ``change`` returns a
`Replacement`; the cells of a Postgres checkpoint are its row, whether or not its metadata has a sealed part;
`Where.beside` has all other columns, by these names:

    parent, metadata     of a checkpoint, as they are stored
    document, channels   of one on Postgres: its JSON, and the channels with values in rows of their own
    task_path            of a write; empty if the table lacks the column
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from sealpoint.admin.databases.cells import EVERYTHING, Cell, Column, InlineValue, Record, Selection
from sealpoint.admin.results.events import Failure, Progress, bare
from sealpoint.admin.results.jobs import BATCH
from sealpoint.admin.results.jobs import Batch as Batch  # noqa: PLC0414 -- it is public here
from sealpoint.admin.results.result import Database
from sealpoint.errors import MissingExtraError, RowError, SealpointError

Batch.__module__ = Failure.__module__ = Progress.__module__ = __name__  # where they are documented


def failure(cell: Cell, error: Exception) -> Failure:
    """Return the failure of a cell; one of the installation is raised, for it says nothing of the value."""
    if isinstance(error, MissingExtraError):
        raise error
    return Failure(cell.where.column.label, cell.where.names, cell.tag, bare(error))


class TagCount(NamedTuple):
    """The number of values of a column with one tag, and their size as stored.

    Attributes:
        table: The column.
        tag: The tag.
        rows: How many values.
        size_bytes: Their size.
    """

    table: str  # `Column.label`
    tag: Any
    rows: int
    size_bytes: int


# Maximum number of different tags in a column; an agent writes few.
MAX_TAGS: Final = 100_000


def tag_counts(label: str, found: Iterable[tuple[Any, int, float]]) -> list[TagCount]:
    """Add up tags with their numbers of values and bytes, in the order in which a tag is first found."""
    rows, sizes = Counter[Any](), Counter[Any]()
    for tag, number, size in found:
        rows[tag] += number
        sizes[tag] += int(size)
        if len(rows) > MAX_TAGS:
            raise RowError(f"table {label!r} has over {MAX_TAGS} different tags")
    return [TagCount(label, tag, rows[tag], sizes[tag]) for tag in rows]


class Table(NamedTuple):
    """A table of a database."""

    name: str  # with that of its schema if the saver's tables are in another
    is_read: bool
    may_be_theirs: bool = True  # LangGraph's, by the columns of one that has such a name
    root: str = ""  # of a partition, the table that LangGraph names


class Need(NamedTuple):
    """A value that a checkpoint has in a row of its own, as on Postgres."""

    checkpoint: tuple[str, ...]
    channel: str
    version: str


class Residue(NamedTuple):
    """Parts of a file that no statement reads, and where what was deleted may still be."""

    free_bytes: int  # of free pages
    log_bytes: int
    journal_bytes: int
    slack_bytes: int | None  # bytes that are not zero; ``None`` if the file could not be parsed


# Tables of LangGraph's caches, and of the embeddings of items.
CACHE: Final = "cache"
VECTORS: Final = "store_vectors"


class OwnedRow(NamedTuple):
    """A row of a thread or a namespace, without its value.

    Attributes:
        key: The columns of the primary key; the first is the thread, or the prefix of the namespace.
        tag: Of its value; ``None`` if it has none.
        beside: Of an item when it was last changed, as text in UTC. Of a checkpoint on Postgres, in JSON,
            the versions of its channels, which have rows of their own.
        parent: Of a checkpoint, the id of its parent.
        locator: The row id in SQLite.
    """

    key: tuple[Any, ...]
    tag: Any
    beside: Any = None
    parent: Any = None
    locator: Any = None


class Vectors(NamedTuple):
    """The embeddings that LangGraph's Store keeps of items, which are readable."""

    rows: int
    left: int  # of items that are not there: SqliteStore leaves them behind


class Page(NamedTuple):
    """A batch that was read."""

    cells: Sequence[Cell]
    last: Any  # the next page begins after it; ``None`` for the last page


class Rewritten(NamedTuple):
    """A batch that was changed."""

    seen: int  # passed to ``change``
    changed: int = 0
    raced: int = 0  # changed by a writer meanwhile, whose value is kept
    size_bytes: int = 0  # of the values that were seen
    lock_seconds: float = 0.0  # since the last batch
    last: Any = None  # the next batch begins after it; ``None`` for the last batch


# Returns the new tag and bytes of a value, or `None` to leave it unchanged. For a store of whole rows it
# returns a `sealpoint.admin.databases.rows.Replacement`.
Change = Callable[[Cell], tuple[Any, ...] | None]


class RowStore(Database, Protocol):
    """The values of one database."""

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
        """Return the selected values after a position.

        At least one value is read, regardless of its size.

        Args:
            column: The column with the values.
            after: The position, as the page before it gives it; ``None`` at the start.
            selection: Which values to read.
            batch: How much to read, at most.
        """

    def rewrite(
        self,
        column: Column,
        after: Any,
        change: Change,
        selection: Selection = EVERYTHING,
        batch: Batch = BATCH,
    ) -> Rewritten:
        """Pass the selected values after a position to a function, and store the results.

        In one transaction: an exception of ``change`` is passed on, and nothing of the batch is stored.

        Args:
            column: The column with the values.
            after: The position, as the result before it gives it; ``None`` at the start.
            change: Returns the new value of a cell, or ``None`` to leave it.
            selection: Which values to read.
            batch: How much to read, at most.
        """

    def key_texts(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield the readable text of key columns: each column with each of its distinct texts, by table.

        With ``only``, from that column.
        """

    def records(self) -> Iterator[Record]:
        """Yield what stands next to the value of each checkpoint."""

    def inline(self) -> Iterator[InlineValue]:
        """Yield the readable values besides the sealed ones. SQLite has none."""

    @property
    def owned_tables(self) -> tuple[str, ...]:
        """The tables with rows of threads and namespaces, in the order in which they are to be deleted.

        What a checkpoint names is before it, and what belongs to an item before the item.
        """

    def owned(self, table: str, names: Sequence[str]) -> Iterator[OwnedRow]:
        """Yield the rows of some threads, or of some namespaces and all below them, which may be deleted.

        The order is that of the table.

        Args:
            table: One of `owned_tables`.
            names: Thread ids, or prefixes of namespaces.
        """

    def delete(self, table: str, rows: Sequence[OwnedRow]) -> int:
        """Delete rows in one transaction, except those that other sessions have locked; return how many.

        Args:
            table: One of `owned_tables`.
            rows: What `owned` gave.
        """

    def cached(self) -> list[TagCount]:
        """Return how many values of LangGraph's `SqliteCache` have which tag. Postgres has none."""

    def vectors(self) -> Vectors | None:
        """Return how many embeddings there are; ``None`` if there is no table of them."""

    def lost(self, needs: Sequence[Need]) -> Sequence[Need]:
        """Return those of the values that are not there, though their checkpoints are.

        Args:
            needs: The values that checkpoints name.
        """

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


# In SQL, the tag of a Postgres checkpoint without a sealed part. No cell has it: `Cell.tag` is `None`.
# Neither a serializer nor a saver ever sealed such a row, so it is selected like the sealed values.
UNSEALED_ROW: Final = "+"


class Replacement(NamedTuple):
    """What takes the place of a row's columns."""

    tag: str | None  # not stored for a Postgres checkpoint, and neither is the value
    value: bytes | None
    parent: str | None = None
    metadata: Any = None  # of the type that was read
    document: str = ""  # JSON of a Postgres checkpoint


def pages(
    store: RowStore, column: Column, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> Iterator[Page]:
    """Yield the selected cells of a column page by page."""
    page = store.read(column, None, selection, batch)
    yield page
    while page.last is not None:
        page = store.read(column, page.last, selection, batch)
        yield page
