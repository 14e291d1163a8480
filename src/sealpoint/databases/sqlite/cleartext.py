"""What is readable in a SQLite file beside the values: names in key columns, and metadata."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sealpoint.databases.cleartext import InlineValue, Record
from sealpoint.databases.rows import BATCH, Batch
from sealpoint.databases.sqlite.checked import CheckedFile
from sealpoint.databases.sqlite.columns import CHECKPOINTS, NAMED
from sealpoint.databases.sqlite.scan import as_bytes, require_rising

LOWEST: Final = -(2**63)
_TEXTS: Final = Batch(100_000, 64 * 1024 * 1024)  # each batch of names needs a walk over the whole table

GivePage = Callable[[str, tuple[Any, ...], Batch], tuple[list[tuple[Any, ...]], bool]]
"""Returns as many rows of a query as fit into a batch, and whether there are more."""


class SqliteCleartext:
    """A `Cleartext` of one SQLite file."""

    def __init__(self, file: CheckedFile, page: GivePage, require_order: Callable[[str], None]) -> None:
        """Take the file, and from its store how pages are read and the order of a table is checked."""
        self._file, self._page, self._require_order = file, page, require_order

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield what is readable in key columns. See `Cleartext.names`."""
        for table in sorted(self._file.tables):
            for column in NAMED[table]:
                has_it = column != "task_path" or self._file.has_task_path
                if has_it and only in (None, column):
                    yield from ((column, text) for text in self._texts(table, column))

    def _texts(self, table: str, column: str) -> Iterator[str]:
        statement = f"""
            SELECT DISTINCT {column} FROM main.{table} NOT INDEXED
            WHERE typeof({column}) = 'text' AND {column} {{}} CAST(? AS TEXT) ORDER BY {column}"""
        last, operator, more = b"", ">=", True
        while more:
            found, more = self._page(statement.format(operator), (last,), _TEXTS)
            yield from (text for (text,) in found if isinstance(text, str))
            if more:
                last, operator = as_bytes(found[-1][0], self._file.encoding), ">"

    def records(self) -> Iterator[Record]:
        """Yield what stands beside the value of each checkpoint. See `Cleartext.records`."""
        statement = f"""
            SELECT {", ".join(CHECKPOINTS.key)}, parent_checkpoint_id, metadata, rowid
            FROM main.checkpoints NOT INDEXED WHERE rowid >= ? ORDER BY rowid"""
        first, more = LOWEST, CHECKPOINTS.table in self._file.tables
        while more:
            found, more = self._page(statement, (first,), BATCH)
            require_rising(first, [row[-1] for row in found])
            for *key, parent, metadata, _ in found:
                yield Record("checkpoints", dict(zip(CHECKPOINTS.key, key, strict=True)), parent, metadata)
            if more:
                self._require_order(CHECKPOINTS.table)
                first = found[-1][-1] + 1

    def inline(self) -> Iterator[InlineValue]:
        """Yield nothing: in SQLite all channel values are in the checkpoint."""
        yield from ()
