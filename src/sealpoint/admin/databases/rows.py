"""RowStore: a database of any kind, as used by maintenance.

A row store returns values as cells (see `cells`), column by column, in batches in the order of the rows'
keys. It changes a cell only if tag and bytes are unchanged since they were read (compare-and-swap), so that
no update of an agent is lost.

Whole rows are cells with all columns of their rows, for code that seals or restores several columns at once.

A store of whole rows has the interface of a `RowStore`, with these differences: ``change`` returns a
`Replacement`; every Postgres checkpoint is a cell, whether or not its metadata has a sealed part; and
`Where.beside` has all other columns, by these names:

    parent, metadata     of a checkpoint, as stored
    document, channels   of a Postgres checkpoint: its JSON, and the channels with values in rows of their own
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

Batch.__module__ = Failure.__module__ = Progress.__module__ = (
    __name__  # the documented module of these classes
)


def failure(cell: Cell, error: Exception) -> Failure:
    """Return the error to report for a value, with its row; errors of the installation are raised instead."""
    if isinstance(error, MissingExtraError):
        raise error
    return Failure(cell.where.column.label, cell.where.names, cell.tag, bare(error))


class TagCount(NamedTuple):
    """Number and size of the values in a column that have the same tag.

    Attributes:
        table: Label of the column: the table's name, or ``checkpoints.metadata``.
        tag: The tag.
        rows: Number of values.
        size_bytes: Stored size of the values.
    """

    table: str  # `Column.label`
    tag: Any
    rows: int
    size_bytes: int


# Maximum number of different tags in a column; agents write few.
MAX_TAGS: Final = 100_000


def tag_counts(label: str, found: Iterable[tuple[Any, int, float]]) -> list[TagCount]:
    """Sum up numbers and sizes of values by type tag, in the order of first occurrence of the tag."""
    rows, sizes = Counter[Any](), Counter[Any]()
    for tag, number, size in found:
        rows[tag] += number
        sizes[tag] += int(size)
        if len(rows) > MAX_TAGS:
            raise RowError(f"table {label!r} has over {MAX_TAGS} different tags")
    return [TagCount(label, tag, rows[tag], sizes[tag]) for tag in rows]


class Table(NamedTuple):
    """A table of a database."""

    name: str  # with the schema's name if it is not the saver's schema
    is_read: bool
    may_be_theirs: bool = True  # whether the columns are those of LangGraph's table of this name
    root: str = ""  # for a partition, the table that LangGraph names


class Need(NamedTuple):
    """A value that a checkpoint needs, and that Postgres stores in a row of its own."""

    checkpoint: tuple[str, ...]
    channel: str
    version: str


class Residue(NamedTuple):
    """Sizes of the parts of a file that no statement reads, and that may contain deleted content."""

    free_bytes: int  # in free pages
    log_bytes: int
    journal_bytes: int
    slack_bytes: int | None  # nonzero bytes; ``None`` if the file could not be parsed


# Tables of LangGraph's caches, and of the embeddings of items.
CACHE: Final = "cache"
VECTORS: Final = "store_vectors"


class OwnedRow(NamedTuple):
    """A row of a thread or a namespace, without the row's value.

    Attributes:
        key: Columns of the primary key; the first is the thread, or the prefix of the namespace.
        tag: Tag of the value; ``None`` without a tag.
        beside: For an item, the time of its last change, as text in UTC. For a checkpoint on Postgres, the
            versions of its channels as JSON.
        parent: For a checkpoint, the id of its parent.
        locator: Row id in SQLite.
    """

    key: tuple[Any, ...]
    tag: Any
    beside: Any = None
    parent: Any = None
    locator: Any = None


class Vectors(NamedTuple):
    """Numbers of embeddings of items in LangGraph's Store. Embeddings are readable."""

    rows: int
    left: int  # embeddings of deleted items: SqliteStore leaves them behind


class Page(NamedTuple):
    """A batch of values that were read, as cells."""

    cells: Sequence[Cell]
    last: Any  # position after which the next page begins; ``None`` for the last page


class Rewritten(NamedTuple):
    """The result of `RowStore.rewrite` for one batch."""

    seen: int  # values passed to ``change``
    changed: int = 0
    raced: int = 0  # values not replaced, because a writer changed them meanwhile
    size_bytes: int = 0  # size of the seen values
    lock_seconds: float = 0.0  # longest time in the write lock since the last batch
    last: Any = None  # position after which the next batch begins; ``None`` for the last batch


# Returns the new tag and bytes of a value, or `None` to leave it unchanged. For a store of whole rows,
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
        """Count the values by column and tag.

        Args:
            damage: List that receives errors of metadata that cannot be counted; other values are counted.

        Raises:
            RowError: If a column has over `MAX_TAGS` different tags.
            DatabaseCorruptError: If a column is damaged, except metadata if ``damage`` is given.
        """

    def read(
        self, column: Column, after: Any, selection: Selection = EVERYTHING, batch: Batch = BATCH
    ) -> Page:
        """Return the selected values after a position.

        At least one value is read, regardless of its size.

        Args:
            column: The column with the values.
            after: Position from the previous page; ``None`` at the start.
            selection: Which values to read.
            batch: Maximum rows and bytes to read.
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

        Runs in one transaction: if ``change`` raises, no change of the batch is stored.

        Args:
            column: The column with the values.
            after: Position from the previous result; ``None`` at the start.
            change: Returns the new value of a cell, or ``None`` to leave the cell unchanged.
            selection: Which values to read.
            batch: Maximum rows and bytes to read.
        """

    def key_texts(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield the readable texts of key columns: pairs of column and distinct text, by table.

        With ``only``, yields texts of this column only.
        """

    def records(self) -> Iterator[Record]:
        """Yield each row of ``checkpoints``, without the checkpoint itself."""

    def inline(self) -> Iterator[InlineValue]:
        """Yield numbers of readable values in rows of checkpoints, by channel and type; nothing on SQLite."""

    @property
    def owned_tables(self) -> tuple[str, ...]:
        """The tables with rows of threads and namespaces, in the order for deletion.

        Values come before the checkpoints that name them, and embeddings before their items.
        """

    def owned(self, table: str, names: Sequence[str]) -> Iterator[OwnedRow]:
        """Yield the rows of some threads, or of some namespaces and all namespaces below them, for deletion.

        Rows come in the order of the table.

        Args:
            table: One of `owned_tables`.
            names: Thread ids, or prefixes of namespaces.
        """

    def delete(self, table: str, rows: Sequence[OwnedRow]) -> int:
        """Delete rows in one transaction, except rows locked by other sessions; return the number deleted.

        Args:
            table: One of `owned_tables`.
            rows: Rows from `owned`.
        """

    def cached(self) -> list[TagCount]:
        """Count the values of LangGraph's `SqliteCache` by tag. Postgres has no cache."""

    def vectors(self) -> Vectors | None:
        """Count the embeddings; return ``None`` if there is no table of embeddings."""

    def lost(self, needs: Sequence[Need]) -> Sequence[Need]:
        """Return the values that are missing although their checkpoints exist.

        Args:
            needs: The values that checkpoints name.
        """

    def one_state(self) -> AbstractContextManager[None]:
        """Read one snapshot of the database within the context, regardless of writers.

        On SQLite, writers continue in WAL mode, and the WAL grows until the end; otherwise, writers wait.
        On Postgres, writers continue.

        Raises:
            StoppedError: If the database did not keep the snapshot until the end.
            SchemaError: If the tables have changed.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Exclude other maintenance runs on this database within the context, also in other processes.

        Raises:
            HeldError: If another run holds the database.
        """

    def residue(self) -> Residue | None:
        """Return the numbers of bytes in the file that no statement reads; ``None`` for Postgres."""

    def close(self) -> None:
        """Close the connection to the database."""


# In SQL, the tag of a Postgres checkpoint without a sealed part; in cells, `Cell.tag` is `None` instead.
# Such a row contains no value of a serializer, so it is selected like the sealed values.
UNSEALED_ROW: Final = "+"


class Replacement(NamedTuple):
    """New values for the columns of a row."""

    tag: str | None  # tag and value are not stored for a Postgres checkpoint
    value: bytes | None
    parent: str | None = None
    metadata: Any = None  # of the same type as read
    document: str = ""  # JSON of a Postgres checkpoint


def pages(
    store: RowStore, column: Column, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> Iterator[Page]:
    """Yield the selected values of a column, as cells, page by page."""
    page = store.read(column, None, selection, batch)
    yield page
    while page.last is not None:
        page = store.read(column, page.last, selection, batch)
        yield page
