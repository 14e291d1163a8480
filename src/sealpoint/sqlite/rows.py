"""Rows to checkpoints: what a row holds is checked against what its key says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sealpoint.base import Checkpoint, CheckpointTuple, PendingWrite, RunnableConfig
from sealpoint.base.checkpoint import require_document
from sealpoint.base.metadata import decode_metadata
from sealpoint.errors import RowError, excerpt
from sealpoint.serde.base import SerializerProtocol, is_opaque
from sealpoint.serde.outline import Outline

Key = tuple[str, str, str]
"""thread_id, checkpoint_ns and checkpoint_id of a row."""

_SORT_KEY: Final = itemgetter(-6, -5, -4)  # what `writes_sort_key` returns for a row, without a call
_NAMES: Final = (str, str, int, str)  # task_path, task_id, idx and channel of a write
_KEY_NAMES: Final = (str, str, str, *_NAMES)
WRITE_NAMES: Final = (str, str, *_NAMES)
"""Types of what stands before type and value in a write of `schema.SELECT_TUPLE`."""


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

    def require_parent(self) -> str | None:
        """Return the id of the parent, if there is one.

        Raises:
            RowError: If it or the key is something else than text.
        """
        thread_id, ns, checkpoint_id, parent, *_ = self
        is_named = type(thread_id) is type(ns) is type(checkpoint_id) is str
        if not is_named or not (parent is None or type(parent) is str):
            raise RowError(f"row {excerpt(checkpoint_id)} is not named by text")
        if not checkpoint_id:  # a config that names it would mean the latest
            raise RowError("the id of a checkpoint is empty")
        return parent

    def decode(self, serde: SerializerProtocol) -> Checkpoint:
        """Return the checkpoint of the row, or the opaque value that a carrier returns in its place.

        Raises:
            RowError: If it is not a mapping with the id of the row and the three mappings of
                every checkpoint. An opaque value is not checked.
            SealpointError: What the serializer raises.
        """
        checkpoint = serde.loads_typed((self.type, self.checkpoint))
        if isinstance(checkpoint, dict) or not is_opaque(serde, checkpoint):
            require_document(checkpoint, self.checkpoint_id)
        return checkpoint  # type: ignore[no-any-return]

    def decode_values(
        self, serde: SerializerProtocol, outline: Outline | None = None
    ) -> Mapping[str, Any] | None:
        """Return the channel values of the row's checkpoint; ``None`` if that is opaque.

        Args:
            serde: Decodes the checkpoint.
            outline: Decodes it with nothing in place of its objects, if that is enough.

        Raises:
            RowError: As `decode`.
            SealpointError: What the serializer raises; with ``outline`` except where it builds objects.
        """
        try:
            if outline is not None:
                document = outline(self.type, self.checkpoint)
                require_document(document, self.checkpoint_id)
                return document["channel_values"]  # type: ignore[no-any-return]
        except RowError:
            # The checkpoint may be right: an outline has None in place of an object that is a dict, and
            # what a carrier hands on has no outline.
            outline = None
        checkpoint = self.decode(serde)
        return None if is_opaque(serde, checkpoint) else checkpoint["channel_values"]

    def decode_tuple(
        self, serde: SerializerProtocol, writes: list[PendingWrite], config: RunnableConfig | None = None
    ) -> CheckpointTuple:
        """Return the checkpoint with all that is stored beside it; ``config`` if the caller named it by one.

        Raises:
            RowError: If the row is not what its columns say.
            SealpointError: What the serializer raises.
        """
        parent = self.require_parent()
        return _make_tuple(
            (
                config or config_of(*self.key),
                self.decode(serde),
                decode_metadata(self.metadata),
                config_of(self.thread_id, self.checkpoint_ns, parent) if parent else None,
                writes,
            )
        )


# `CheckpointRow(...)` and `CheckpointTuple(...)` without their Python constructors.
make_row: Final[Callable[[tuple[Any, ...]], CheckpointRow]] = partial(tuple.__new__, CheckpointRow)
_make_tuple: Final[Callable[[tuple[Any, ...]], CheckpointTuple]] = partial(tuple.__new__, CheckpointTuple)


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
    rows: Sequence[tuple[Any, ...]], page: Sequence[Key], serde: SerializerProtocol
) -> dict[Key, list[PendingWrite]]:
    """Return the pending writes on top of the checkpoints of a page, by checkpoint.

    Rows are those of `schema.select_writes`: they hold the key of their checkpoint if the page has several.

    Raises:
        RowError: If one is not named by text and a number.
        SealpointError: What the serializer raises.
    """
    if len(page) == 1:
        return {page[0]: decode_pending(rows, serde)} if rows else {}
    _require_names(rows, _KEY_NAMES)
    grouped: dict[Key, list[PendingWrite]] = {}
    for row in sorted(rows, key=_SORT_KEY):
        thread_id, ns, checkpoint_id, _, task_id, _, channel, kind, value = row
        write = task_id, channel, serde.loads_typed((kind, value))
        grouped.setdefault((thread_id, ns, checkpoint_id), []).append(write)
    return grouped


def decode_pending(
    rows: Sequence[tuple[Any, ...]], serde: SerializerProtocol, names: tuple[type, ...] = _NAMES
) -> list[PendingWrite]:
    """Return the pending writes on top of one checkpoint, in the order of `writes_sort_key`.

    Rows end with task_path, task_id, idx, channel, type and value; ``names`` are the types of all columns but
    the last two. Errors are those of `decode_writes`.
    """
    _require_names(rows, names)
    ordered = rows if len(rows) == 1 else sorted(rows, key=_SORT_KEY)
    return [(row[-5], row[-3], serde.loads_typed(row[-2:])) for row in ordered]


def _require_names(rows: Sequence[tuple[Any, ...]], types: tuple[type, ...]) -> None:
    """Check what stands before type and value in each row of a write."""
    for row in rows:
        if tuple(map(type, row[:-2])) != types:  # SQLite stores a BLOB in any column
            raise RowError("a write is not named by text and a number")
