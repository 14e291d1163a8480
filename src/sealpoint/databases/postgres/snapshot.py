"""One state of all rows of a Postgres saver, with every column."""

# ruff: noqa: S608 -- statements are put together from constants and checked names only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sealpoint.databases.cells import Cell
from sealpoint.databases.postgres.columns import access_to, column_of
from sealpoint.databases.postgres.connection import translate_errors
from sealpoint.databases.postgres.scan import size_of
from sealpoint.databases.postgres.schema import Found
from sealpoint.databases.postgres.tables import CheckedTables
from sealpoint.databases.rows import BATCH, Batch
from sealpoint.sealed.tokens import PSEUDONYM_START
from sealpoint.sqlite.failures import MAX_VALUE_BYTES, oversized

if TYPE_CHECKING:
    from psycopg import Connection

StoredRow = dict[str, Any]
"""A row: its columns by name, JSON as text."""

_COUNT: Final = "sealpoint_count_{}"
_SIZES: Final = "sealpoint_sizes_{}"
_ROWS: Final = "sealpoint_rows_{}"
_PSEUDONYMS: Final = "sealpoint_pseudonyms_{}"


class Snapshot:
    """Reads one state of the tables of a saver; see `snapshot_of`."""

    def __init__(self, connection: Connection[Any], found: Found) -> None:
        """Take a session with the cursors of `snapshot_of`."""
        self._connection = connection
        self._found = found

    def count(self) -> int:
        """Return the number of values."""
        return sum(rows for table in self._found.oids for (rows,) in self._fetch(_COUNT, table, 1))

    def pseudonyms(self) -> Iterator[Cell]:
        """Yield one value in JSON of each thread that seems to have a pseudonym."""
        for table, layout in self._found.layouts.items():
            while column_of(layout).in_json and (rows := self._fetch(_PSEUDONYMS, table, 1)):
                yield from access_to(column_of(layout)).cells(rows)

    def pages(self, table: str, batch: Batch = BATCH) -> Iterator[list[StoredRow]]:
        """Yield the rows of a table in batches. A batch has at least one row, regardless of its size.

        Raises:
            RowError: If a row has over `MAX_VALUE_BYTES` bytes.
        """
        columns = self._found.columns[table]
        while sizes := self._fetch(_SIZES, table, batch.rows):
            if max(sizes) > (MAX_VALUE_BYTES,):
                raise oversized()
            for rows in _groups([size for (size,) in sizes], batch.size_bytes):
                found = self._fetch(_ROWS, table, rows)
                yield [dict(zip(columns, row, strict=True)) for row in found]

    def _fetch(self, cursor: str, table: str, rows: int) -> list[tuple[Any, ...]]:
        statement = f"FETCH {rows:d} FROM {cursor.format(table)}".encode()
        with translate_errors(), self._connection.cursor(binary=True) as fetching:
            return fetching.execute(statement).fetchall()


@contextmanager
def snapshot_of(checked: CheckedTables) -> Iterator[Snapshot]:
    """Read one state of the tables within the context.

    Raises:
        SchemaError: If the tables have changed since they were checked.
        StoppedError: If they were not available in time.
    """
    cursors = {
        form.format(table): (table, statement)
        for table in checked.found.oids
        for form, statement in _statements(checked.found, table).items()
    }
    with checked.snapshot(cursors) as connection:
        yield Snapshot(connection, checked.found)


def _statements(found: Found, table: str) -> dict[str, str]:
    """Return the SELECT of each cursor. Two of them return the same rows in the order of the table."""
    layout = found.layouts[table]
    texts = [f"{name}::text" if layout.types.get(name) == "jsonb" else name for name in found.columns[table]]
    sizes = [f"coalesce(octet_length({text}), 0)::bigint" for text in texts if text != "idx"]
    access = access_to(column_of(layout))
    statements = {
        _COUNT: f"SELECT count(*) FROM ONLY {{}} WHERE {access.holds}",
        _SIZES: f"SELECT {' + '.join(sizes)} FROM ONLY {{}}",
        _ROWS: f"SELECT {', '.join(texts)} FROM ONLY {{}}",
    }
    if column_of(layout).in_json:
        first = f"SELECT DISTINCT ON (thread_id) {access.read} FROM ONLY {{}} WHERE {access.holds}"
        has_start = f"left(thread_id, {len(PSEUDONYM_START)}) = '{PSEUDONYM_START}'"
        statements[_PSEUDONYMS] = f"{first} AND {has_start} AND {size_of(access)} <= {MAX_VALUE_BYTES}"
    return statements


def _groups(sizes: Sequence[int], most: int) -> Iterator[int]:
    """Yield how many of the next rows together have about ``most`` bytes, so that no row is left."""
    rows = room = 0
    for size in sizes:
        if rows and size > room:
            yield rows
            rows = 0
        room = (room if rows else most) - size
        rows += 1
    if rows:
        yield rows
