"""The columns of LangGraph's Postgres savers with values, and the SQL that reads and replaces them."""

# ruff: noqa: S608 -- statements are put together from constants and placeholders only

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Final

from sealpoint.base import coordinates, frame
from sealpoint.base.coordinates import Coordinates
from sealpoint.crypto.tag import LEGACY_END, SEALED_MARK
from sealpoint.databases.cells import Cell, Column, Where
from sealpoint.postgres.layout import CHECKPOINT, THREAD, Layout

METADATA: Final = Column("checkpoints", "metadata", CHECKPOINT, coordinates.METADATA, in_json=True)
# The shallow savers store neither checkpoint ids nor versions, so values cannot be bound to them.
SHALLOW_METADATA: Final = Column(
    "checkpoints", "metadata", THREAD, Coordinates(coordinates.METADATA.kind, THREAD), in_json=True
)
BLOBS: Final = Column("checkpoint_blobs", "blob", (*THREAD, "channel", "version"), coordinates.VALUE)
SHALLOW_BLOBS: Final = Column(
    "checkpoint_blobs",
    "blob",
    (*THREAD, "channel"),
    Coordinates(coordinates.VALUE.kind, (*THREAD, "channel")),
)
WRITES: Final = Column(
    "checkpoint_writes", "blob", (*CHECKPOINT, "task_id", "idx", "channel"), coordinates.WRITE
)
_COLUMNS: Final = (METADATA, SHALLOW_METADATA, BLOBS, SHALLOW_BLOBS, WRITES)


def column_of(layout: Layout) -> Column:
    """Return the column with values of a table."""
    of_table = (each for each in _COLUMNS if each.table == layout.name)
    return next(each for each in of_table if each is WRITES or each.key == layout.primary)


_JSON_CHARS: Final = 16 * 1024 * 1024 + 1  # one more than is read
_NAME_CHARS: Final = 10_000  # more than a key has in an index
_BESIDE: Final = {
    "parent_checkpoint_id": "parent_checkpoint_id",
    "metadata": f"left((metadata - '{frame.KEY}')::text, {_JSON_CHARS})",
    "channel_versions": f"left((checkpoint -> 'channel_versions')::text, {_JSON_CHARS})",
}
"""In SQL, what stands beside a value: JSON as text, metadata without the sealed part."""


def _cut(text: str) -> str:
    return f"left({text}, {_NAME_CHARS})"


@dataclass(frozen=True, slots=True)
class Access:
    """How the cells of a column are found, read and replaced.

    Attributes:
        column: The column.
        holds: In SQL, whether a row has a cell in this column.
        tag: In SQL, the tag of a cell.
        value: In SQL, the columns from which `cells` builds the value.
        size: In SQL, the number of its bytes sent to the client.
        new: In SQL, the assignments of an UPDATE, from ``new.new_type`` and ``new.new_value``.
        same: In SQL, whether a row is unchanged since it was read: ``new.type`` and ``new.digest``.
        value_type: The type of ``new_value``.
    """

    column: Column
    holds: str
    tag: str
    value: str
    size: str
    new: str
    same: str
    value_type: str

    @property
    def beside(self) -> list[str]:
        """In SQL, the columns beside the value."""
        return [_BESIDE[name] for name in self.column.beside]

    @property
    def read(self) -> str:
        """In SQL, the columns of a cell."""
        return ", ".join((*self.column.key, *self.beside, self.tag, self.value))

    @property
    def name(self) -> str:
        """In SQL, the same columns with NULL for the value and what stands beside it, and texts cut."""
        key = (name if name == "idx" else _cut(name) for name in self.column.key)
        return ", ".join((*key, *("NULL" for _ in self.beside), _cut(self.tag), "NULL"))

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for row in rows:
            yield Cell(row[-1], row[-2], self._where(row))

    def _where(self, row: tuple[Any, ...], locator: Any = None) -> Where:
        end = len(self.column.key)
        return Where(self.column, row[:end], locator, row[end:-2])

    def replacement(self, cell: Cell, tag: str, value: bytes) -> tuple[Any, ...]:
        """Return a row of ``new``: new tag and value, key, old tag, and the digest of the old value.

        The digest replaces the old value, which would otherwise appear in the server's log.
        """
        digest = None if cell.value is None else sha256(cell.value).digest()
        return tag, value, *cell.where.key, cell.tag, digest

    def update(self, layout: Layout) -> str:
        """Return the UPDATE of rows of ``new`` whose key, tag and value have not changed."""
        key = self.column.key
        types = ["text", self.value_type, *(layout.types.get(name, "text") for name in key), "text", "bytea"]
        same_key = " AND ".join(f"old.{name} = new.{name}" for name in layout.primary)
        return f"""
            UPDATE ONLY {{}} AS old SET {self.new}
            FROM unnest({", ".join(f"%b::{kind}[]" for kind in types)})
                AS new(new_type, new_value, {", ".join(key)}, type, digest)
            WHERE {same_key} AND {self.same}"""


@dataclass(frozen=True, slots=True)
class JsonAccess(Access):
    """The same for values in JSON. The locator of a cell is the base64 text of its value."""

    def cells(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Cell]:
        """Yield the cells of rows that were read."""
        for row in rows:
            yield Cell(frame.decode_value(row[-1]), row[-2], self._where(row, row[-1]))

    def replacement(self, cell: Cell, tag: str, value: bytes) -> tuple[Any, ...]:
        """Return a row of ``new``; the digest is that of the base64 text."""
        text = cell.where.locator
        digest = None if text is None else sha256(text.encode()).digest()
        return tag, frame.encode_value(value), *cell.where.key, cell.tag, digest


@cache
def access_to(column: Column) -> Access:
    """Return how the cells of a column are found, read and replaced."""
    if not column.in_json:
        return Access(
            column,
            holds="(type IS DISTINCT FROM 'empty' OR blob IS NOT NULL)",  # such a channel has no value
            tag="type",
            value="blob",
            size="octet_length(blob)",
            new="type = new.new_type, blob = new.new_value",
            same="old.type IS NOT DISTINCT FROM new.type"
            " AND sha256(old.blob) IS NOT DISTINCT FROM new.digest",
            value_type="bytea",
        )
    found = f"metadata -> '{frame.KEY}'"
    tag = f"({found} ->> 'type')"
    old_value = f"old.metadata -> '{frame.KEY}' ->> 'value'"
    return JsonAccess(
        column,
        holds=f"jsonb_exists(metadata, '{frame.KEY}')",
        tag=f"(CASE WHEN strpos({tag}, '{SEALED_MARK}') > 0"
        f" AND right({tag}, {len(LEGACY_END)}) <> '{LEGACY_END}' THEN {tag} END)",
        value=f"({found} ->> 'value')",
        size=f"octet_length({found} ->> 'value')",
        new=f"metadata = jsonb_set(old.metadata, '{{{{{frame.KEY}}}}}', old.metadata -> '{frame.KEY}'"
        " || jsonb_build_object('type', new.new_type, 'value', new.new_value))",
        same=f"old.metadata -> '{frame.KEY}' ->> 'type' = new.type"
        f" AND sha256(convert_to({old_value}, 'UTF8')) = new.digest",
        value_type="text",
    )
