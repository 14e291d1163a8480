"""Coordinates: what a value with the flag ``.row`` is bound to, as part of its context.

They are logical: the same for every kind of database and its names of tables. All are text. After a value
has been sealed with them, they never change.

    checkpoint   table=checkpoints column=checkpoint thread_id checkpoint_ns checkpoint_id
    metadata     table=checkpoints column=metadata   thread_id checkpoint_ns checkpoint_id
    value        table=values                        thread_id checkpoint_ns channel version
    write        table=writes                        thread_id checkpoint_ns checkpoint_id task_id channel
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sealpoint.crypto.context import Row
from sealpoint.errors import RowError


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The coordinates of one kind of value.

    Attributes:
        kind: Names and texts that all values of this kind share.
        columns: Columns of the row that complete them.
    """

    kind: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]

    def row(self, columns: Mapping[str, Any]) -> Row:
        """Return the coordinates of one value.

        Args:
            columns: The columns of its row by name; additional columns are ignored.

        Raises:
            RowError: If a column is missing, or does not contain text.
        """
        row = dict(self.kind)
        for name in self.columns:
            text = columns.get(name)
            if not isinstance(text, str):
                raise RowError(f"column {name!r} of {row['table']!r} is missing or does not hold text")
            row[name] = text
        return row


_THREAD: Final = ("thread_id", "checkpoint_ns")
_CHECKPOINT: Final = (*_THREAD, "checkpoint_id")

CHECKPOINT: Final = Coordinates((("table", "checkpoints"), ("column", "checkpoint")), _CHECKPOINT)
METADATA: Final = Coordinates((("table", "checkpoints"), ("column", "metadata")), _CHECKPOINT)
VALUE: Final = Coordinates((("table", "values"),), (*_THREAD, "channel", "version"))
WRITE: Final = Coordinates((("table", "writes"),), (*_CHECKPOINT, "task_id", "channel"))
