"""The columns of LangGraph's Postgres savers with values, and the SQL that reads and replaces them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from time import perf_counter
from typing import Any, Final, NamedTuple

from sealpoint.admin.databases.cells import Cell, Column, Selection, Where
from sealpoint.admin.databases.rows import Rewritten
from sealpoint.base import place as coordinates
from sealpoint.base import place as frame
from sealpoint.base.place import Coordinates
from sealpoint.crypto.tag import BOUND_MARK, LEGACY_END, SEALED_MARK, key_end
from sealpoint.postgres import CHECKPOINT, THREAD, Layout
from sealpoint.sqlitefile.guard import MAX_VALUE_BYTES

# ruff: noqa: S608 -- statements are put together from constants and placeholders only


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
    """How the cells of a column are found, read and replaced."""

    column: Column
    holds: str  # whether a row has a cell in this column
    tag: str
    value: str  # the columns from which `cells` builds the value
    size: str  # bytes sent to the client
    new: str  # assignments of an UPDATE, from ``new.new_type`` and ``new.new_value``
    same: str  # whether a row is unchanged since it was read: ``new.type`` and ``new.digest``
    value_type: str  # of ``new_value``

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


_SEALED: Final = f"%{SEALED_MARK}%"
_LEGACY: Final = f"%{LEGACY_END}"
# What of a text that is too long for a tag shows whether it counts as sealed, and under which key.
SHORT_TAG: Final = f"""CASE WHEN length(tag) <= 100 THEN tag
    ELSE left(tag, 49) || CASE strpos(tag, '{SEALED_MARK}') WHEN 0 THEN ' ' ELSE '{SEALED_MARK}' END
        || right(tag, 50) END"""


class Bound(NamedTuple):
    """The end of a batch."""

    key: tuple[Any, ...]  # the primary key of the last row
    rows: int
    is_last: bool
    is_oversized: bool = False  # one row that is too large to be read

    @property
    def next(self) -> tuple[Any, ...] | None:
        """The key after which the next batch begins."""
        return None if self.is_last else self.key


def bound_of(found: Sequence[tuple[Any, ...]], rows: int, size_bytes: int) -> Bound | None:
    """Return the end of a batch of ``rows``, and about ``size_bytes``, from the next rows' sizes and keys."""
    before: tuple[Any, ...] = ()
    for place, (size, *key) in enumerate(found, 1):
        if size > MAX_VALUE_BYTES:  # it is a batch of its own
            return Bound(before or tuple(key), max(place - 1, 1), is_last=False, is_oversized=not before)
        before = tuple(key)
        size_bytes -= size
        if size_bytes <= 0 or place == rows:
            return Bound(before, place, is_last=False)
    return Bound(before, len(found), is_last=True) if found else None


@dataclass(slots=True)
class Pass:
    """The state of a walk of `rewrite` over all tables."""

    seen: int = 0
    changed: int = 0  # by this run or by others
    locked: int = 0  # by other sessions

    @property
    def is_stuck(self) -> bool:
        """Whether another pass can do nothing until other sessions release their locks."""
        return self.locked > 0 and not self.changed

    def add(self, rows: int, done: Rewritten) -> None:
        """Add a batch; ``rows`` is its number of rows before locking."""
        self.seen += done.seen
        self.changed += done.changed + done.raced
        self.locked += max(0, rows - done.seen)


def condition(access: Access, primary: str, after: Any, selection: Selection) -> tuple[str, tuple[Any, ...]]:
    """Return the condition after WHERE: `Selection.takes` in SQL."""
    tag, parts, parameters = f"coalesce({access.tag}, '')", [access.holds], []
    if after is not None:
        parts.append(f"({primary}) > ({places(after)})")
        parameters.extend(after)
    if selection.bound is not None:
        parts.append(f"{tag} {'' if selection.bound else 'NOT '}LIKE %s")
        parameters.append(f"{_SEALED}{BOUND_MARK}%")
    if not selection.plaintext:
        parts.append(f"{tag} LIKE %s")
        parameters.append(_SEALED)
    if not selection.legacy:
        parts.append(f"{tag} NOT LIKE %s")
        parameters.append(_LEGACY)
    if selection.without_key is not None:
        parts.append(f"{tag} NOT LIKE %s")
        parameters.append(_under(selection.without_key))
    if selection.with_key is not None:
        parts.append(f"({tag} LIKE %s OR {tag} LIKE %s OR {tag} NOT LIKE %s)")
        parameters += [_under(selection.with_key), _LEGACY, _SEALED]
    if selection.thread_id is not None:
        parts.append("thread_id = %s")
        parameters.append(selection.thread_id)
    return " AND ".join(parts), tuple(parameters)


def _under(key_id: str) -> str:
    """Return the LIKE pattern of tags that name a key; ids contain no wildcards."""
    return _SEALED + re.sub(r"([\\%_])", r"\\\1", key_end(key_id))


def size_of(access: Access) -> str:
    """Return the number of bytes sent for a row, in SQL; key and tag may be forged and large."""
    texts = [access.tag, *(column for column in access.column.key if column != "idx"), *access.beside]
    excess = [f"greatest(octet_length({text}) - 1000, 0)" for text in texts]
    return " + ".join([f"coalesce({access.size}, 0)::bigint", *excess])


def places(values: Sequence[Any]) -> str:
    """Return a placeholder for each value."""
    return ", ".join(["%s"] * len(values))


def locked_since(start: float, done: Rewritten) -> Rewritten:
    """Add the time during which rows were locked, until the end of their transaction."""
    return done._replace(lock_seconds=perf_counter() - start) if done.seen else done
