"""Values that are bound to their rows: what `SealedSaver` seals with them, and the checks of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sealpoint.base.coordinates import CHECKPOINT, METADATA, VALUE, WRITE
from sealpoint.base.metadata import decode_metadata, encode_metadata
from sealpoint.crypto import Opened
from sealpoint.databases.cells import Cell, Column
from sealpoint.databases.rows import Need
from sealpoint.errors import RowError, excerpt
from sealpoint.sealed.body import (
    SENTINEL,
    SENTINEL_VERSION,
    Header,
    require_same_kind,
    require_same_metadata,
    split_claims,
    split_header,
)
from sealpoint.sealed.calls import Claims
from sealpoint.sealed.rows import is_bound
from sealpoint.sealed.tokens import Tokens

BESIDE: Final = {
    CHECKPOINT: ("parent_checkpoint_id", "metadata"),
    METADATA: ("parent_checkpoint_id", "metadata", "channel_versions"),
}
"""What `require_same_row` compares, by the coordinates of the value with the header."""


class Parts(NamedTuple):
    """A value that was opened, taken apart.

    Attributes:
        opened: The bytes of the serializer alone.
        header: Of a bound checkpoint.
        claims: Of a bound write.
        is_bound: Whether the value is bound to its row.
    """

    opened: Opened
    header: Header | None = None
    claims: Claims | None = None
    is_bound: bool = True

    @property
    def sealed_with(self) -> dict[str, Any] | None:
        """What is sealed in front of the bytes of the serializer, as JSON."""
        if self.claims is not None:
            return self.claims.columns | ({"call": self.claims.call_id.hex()} if self.claims.call else {})
        return dict(self.header) if self.header else None


def take_apart(cell: Cell, opened: Opened) -> Parts:
    """Take apart what is sealed in a cell.

    Raises:
        DecodeError: If a bound value lacks what a saver seals in front of it.
        RowError: If a value in metadata is not bound, or a write was of another kind when it was sealed.
    """
    coordinates = cell.where.column.coordinates
    if not is_bound(cell.tag):
        if cell.where.column.in_json:
            raise RowError(f"the sealed part of {excerpt(cell.where.names.get('checkpoint_id'))} is not one")
        return Parts(opened, is_bound=False)
    if coordinates == WRITE:
        claims, data = split_claims(opened.data)
        require_same_kind(cell.where.names["channel"], claims)
        return Parts(opened._replace(data=data), claims=claims)
    if coordinates in BESIDE:
        header, data = split_header(opened.data)
        return Parts(opened._replace(data=data), header)
    return Parts(opened)


def is_sentinel(cell: Cell) -> bool:
    """Whether a value is not the user's: it makes other savers fail on a checkpoint that is bound."""
    return cell.where.column.coordinates == VALUE and cell.where.names["channel"] == SENTINEL


def widened(column: Column) -> Column:
    """Return a column with all that `require_same_row` needs beside its values."""
    return replace(column, beside=BESIDE.get(column.coordinates, ()))


def require_same_row(cell: Cell, header: Header, tokens: Tokens) -> None:
    """Check what is readable beside a bound checkpoint, as `SealedSaver` does that reads it.

    Savers set the column of the parent to NULL when they prune.

    Args:
        cell: The checkpoint, of a `widened` column.
        header: Its header.
        tokens: Computes the tokens that may be readable.

    Raises:
        MetadataError: If its metadata is not strict JSON.
        RowError: If a readable part is not what was sealed.
    """
    beside = cell.where.beside
    require_same_metadata(decode_metadata(beside["metadata"]), header["metadata"], tokens)
    if beside["parent_checkpoint_id"] not in (None, header["parent"]):
        raise RowError("the id of the parent is not what was sealed")


def needs_of(cell: Cell, header: Header, document: Any) -> Iterator[Need]:
    """Yield the values that a bound checkpoint of Postgres needs.

    Raises:
        RowError: If the readable part of the row has another version for one of them, so that a saver
            would not find it.
    """
    readable = decode_metadata(cell.where.beside["channel_versions"])
    versions = {**document["channel_versions"], SENTINEL: SENTINEL_VERSION}
    inline = header.get("inline", {})
    for channel in (SENTINEL, *header.get("channels", ())):
        if channel in inline:
            continue
        version = str(versions.get(channel))
        if str(readable.get(channel)) != version:
            raise RowError(f"the row has another version for channel {excerpt(channel)} than was sealed")
        yield Need(cell.where.key, channel, version)


class ThreadIds:
    """The ids that threads have in a copy: their own in place of pseudonyms.

    Holds about 100 bytes for each thread.
    """

    def __init__(self) -> None:
        """Begin without any thread."""
        self._ids = dict[str, str]()  # by pseudonym: only checkpoints have them
        self._columns = dict[str, str]()  # what stands for each in the database

    def learn(self, column: str, header: Header) -> None:
        """Remember the thread that a checkpoint names."""
        if "thread" in header:
            self._ids[column] = str(header["thread"])

    def require_id(self, column: str) -> str:
        """Return the id of a thread.

        Args:
            column: What stands for it in the database.

        Raises:
            RowError: If something else stands for it too: in the copy, two histories would be one.
        """
        thread_id = self._ids.get(column, column)
        if self._columns.setdefault(thread_id, column) != column:
            raise RowError(
                "the thread has rows under its id and under a pseudonym: two histories",
                hint="a process began it anew without pseudonyms: delete one of the two through such a saver",
            )
        return thread_id


class Restoring:
    """Turns rows back into what a saver stores without `SealedSaver`. Checkpoints come before writes."""

    def __init__(self, tokens: Tokens) -> None:
        """Begin without any thread; ``tokens`` is as for `require_same_row`."""
        self._threads, self._tokens = ThreadIds(), tokens

    def restore(self, cell: Cell, parts: Parts) -> dict[str, Any]:
        """Return all columns of a row.

        Args:
            cell: A value of SQLite, with all other columns of its row.
            parts: The value.

        Raises:
            SealpointError: What `require_same_row` and `ThreadIds.require_id` raise.
        """
        where = cell.where
        row = where.names | where.beside
        column = row["thread_id"]
        if parts.header is not None:
            require_same_row(cell, parts.header, self._tokens)
            self._threads.learn(column, parts.header)
            row["metadata"] = encode_metadata(parts.header["metadata"])
        if parts.claims is not None:
            row |= parts.claims.columns
        kind, data = parts.opened.typed
        return {**row, "thread_id": self._threads.require_id(column), "type": kind, where.column.name: data}
