"""Whole rows: cells with all columns of their rows, for what must seal or restore several columns at once.

A store of whole rows has the interface of a `RowStore`, with these differences: a cell's locator is a
`Beside`; ``change`` returns a `Replacement`; the cells of a Postgres checkpoint are its row, whether or not
its metadata has a sealed part.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from sealpoint.databases.rows import RowStore

UNSEALED_ROW: Final = "+"
"""In SQL, the tag of a Postgres checkpoint without a sealed part. No cell has it: `Cell.tag` is ``None``.

Neither a serializer nor a saver ever sealed such a row, so it is selected like the sealed values.
"""


class Beside(NamedTuple):
    """What a row holds beside the key, the tag and the value of its cell.

    Attributes:
        locator: Lets the store find the row.
        parent: Id of the parent of a checkpoint.
        metadata: Metadata of a checkpoint, as it is stored.
        document: The JSON of a Postgres checkpoint.
        channels: Channels of a Postgres checkpoint whose values are in rows of their own.
        task_path: Path of the task of a write; empty if the table lacks the column.
    """

    locator: Any = None
    parent: Any = None
    metadata: Any = None
    document: str = ""
    channels: frozenset[str] = frozenset()
    task_path: Any = ""


class Replacement(NamedTuple):
    """What takes the place of a row's columns.

    Attributes:
        tag: The tag; not stored for a Postgres checkpoint.
        value: The sealed bytes; not stored for a Postgres checkpoint.
        parent: Id of the parent of a checkpoint.
        metadata: Metadata of a checkpoint, of the type that was read.
        document: The JSON of a Postgres checkpoint.
    """

    tag: str | None
    value: bytes | None
    parent: str | None = None
    metadata: Any = None
    document: str = ""


class WholeRowStore(RowStore, Protocol):
    """A store of whole rows."""

    def narrowed(self) -> AbstractContextManager[None]:
        """Leave only checkpoints within the context: `columns` has no others."""

    def remove_sentinels(self) -> int:
        """Remove sentinels that no checkpoint of their thread and namespace names; return how many."""
