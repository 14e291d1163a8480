"""Cleartext: what a saver stores readable beside the values, which no serializer can seal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol


class InlineValue(NamedTuple):
    """Readable values that a database stores besides the sealed ones: channel, kind and count."""

    channel: str
    kind: str
    rows: int


class Record(NamedTuple):
    """What stands beside the value of a checkpoint.

    Attributes:
        table: The table.
        place: The columns of the row's key by name; the id of the checkpoint is the last.
        parent: The id of the parent, or what stands in its column.
        metadata: As it stands in the column.
        flaw: What is wrong with a checkpoint that is readable in the row itself, as on Postgres.
        is_readable: Whether the checkpoint is readable in the row itself, and not sealed in its metadata.
    """

    table: str
    place: dict[str, Any]
    parent: Any
    metadata: Any
    flaw: str | None = None
    is_readable: bool = False


class Cleartext(Protocol):
    """What is readable in one database beside its values."""

    def names(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield the readable text of key columns: each column with each of its distinct texts, by table.

        With ``only``, from that column.
        """

    def records(self) -> Iterator[Record]:
        """Yield what stands beside the value of each checkpoint."""

    def inline(self) -> Iterator[InlineValue]:
        """Yield the readable values besides the sealed ones. SQLite has none."""
