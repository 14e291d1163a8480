"""Rows to checkpoints: what a row holds is checked against what its key says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sealpoint.base import Checkpoint, CheckpointTuple, PendingWrite, RunnableConfig, writes_sort_key
from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import RowError, excerpt
from sealpoint.serde import SerializerProtocol

Key = tuple[str, str, str]
"""thread_id, checkpoint_ns and checkpoint_id of a row."""

_MAPPINGS: Final = ("channel_values", "channel_versions", "versions_seen")
_NAMES: Final = (str, str, str, str, str, int, str)  # key, task_path, task_id, idx and channel of a write


class CheckpointRow(NamedTuple):
    """A row of ``checkpoints``."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    type: str
    checkpoint: bytes
    metadata: bytes | str | None

    @property
    def key(self) -> Key:
        """The primary key."""
        return self[:3]

    def decode(self, serde: SerializerProtocol) -> Checkpoint:
        """Return the checkpoint of the row.

        Raises:
            RowError: If it is not a mapping with the id of the row and the three mappings of
                every checkpoint.
            SealpointError: What the serializer raises.
        """
        checkpoint: Any = serde.loads_typed((self.type, self.checkpoint))
        if not isinstance(checkpoint, dict) or checkpoint.get("id") != self.checkpoint_id:
            raise RowError(f"row {excerpt(self.checkpoint_id)} does not hold the checkpoint of that id")
        if not all(isinstance(checkpoint.get(name), dict) for name in _MAPPINGS):
            raise RowError(f"checkpoint {excerpt(self.checkpoint_id)} lacks one of {', '.join(_MAPPINGS)}")
        return checkpoint  # type: ignore[return-value]

    def decode_tuple(
        self, serde: SerializerProtocol, writes: list[PendingWrite], config: RunnableConfig | None = None
    ) -> CheckpointTuple:
        """Return the checkpoint with all that is stored beside it; ``config`` if the caller named it by one.

        Raises:
            RowError: If the row is not what its columns say.
            SealpointError: What the serializer raises.
        """
        parent = self.parent_checkpoint_id
        if not all(isinstance(text, str) for text in (*self.key, parent or "")):
            raise RowError(f"row {excerpt(self.checkpoint_id)} is not named by text")
        return CheckpointTuple(
            config or config_of(*self.key),
            self.decode(serde),
            decode_metadata(self.metadata),
            config_of(self.thread_id, self.checkpoint_ns, parent) if parent else None,
            writes,
        )


def config_of(thread_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names one checkpoint."""
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def decode_writes(
    rows: Iterable[tuple[Any, ...]], serde: SerializerProtocol
) -> dict[Key, list[PendingWrite]]:
    """Return the pending writes by checkpoint, each list in the order of `writes_sort_key`.

    Rows hold key, task_path, task_id, idx, channel, type and value.

    Raises:
        RowError: If one is not named by text and a number.
        SealpointError: What the serializer raises.
    """
    grouped: dict[Key, list[PendingWrite]] = {}
    rows = list(rows)
    if any(tuple(map(type, row[:7])) != _NAMES for row in rows):  # SQLite stores a BLOB in any column
        raise RowError("a write is not named by text and a number")
    for row in sorted(rows, key=lambda row: writes_sort_key(*row[3:6])):
        task_id, channel, kind, value = row[4], row[6], row[7], row[8]
        grouped.setdefault(row[:3], []).append((task_id, channel, serde.loads_typed((kind, value))))
    return grouped
