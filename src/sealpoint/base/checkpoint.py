"""Checkpoints: the state of a graph at one moment, and the data stored with it.

Their ids are UUIDs of version 6, which sort by the time of their creation.

Source: RFC 9562, section 5.6. The 60 bits of a timestamp in steps of 100 ns since
1582-10-15 come first, most significant bits first; then 14 bits of sequence number, 48 of node.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from secrets import randbits
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from sealpoint.serde.classes import ChannelProtocol

_GREGORIAN_TO_UNIX: Final = 0x01B21DD213814000  # steps of 100 ns from 1582-10-15 to 1970-01-01
_VARIANT: Final = 0x8000 << 48

_lock = threading.Lock()
_last_timestamp = 0


class UUID(uuid.UUID):
    """A UUID that also supports the versions 6, 7 and 8, with the times that they contain."""

    def __init__(
        self,
        hex: str | None = None,  # noqa: A002 -- names and order of uuid.UUID
        bytes: bytes | None = None,  # noqa: A002
        bytes_le: bytes | None = None,
        fields: tuple[int, int, int, int, int, int] | None = None,
        int: int | None = None,  # noqa: A002
        version: int | None = None,
        *,
        is_safe: uuid.SafeUUID = uuid.SafeUUID.unknown,
    ) -> None:
        """Create a UUID as `uuid.UUID` does, from ``hex``, ``bytes``, ``bytes_le``, ``fields`` or ``int``.

        ``version`` is 1 to 8; ``is_safe`` is as in `uuid.UUID`. Raises as `uuid.UUID` does.
        """
        if int is None or version is None or version < 6:
            super().__init__(hex, bytes, bytes_le, fields, int, version, is_safe=is_safe)
            return
        if not 0 <= int < 1 << 128:
            raise ValueError("int is out of range (need a 128-bit value)")
        if version > 8:
            raise ValueError("illegal version number")
        bits = int & ~(0xC000 << 48) & ~(0xF000 << 64) | _VARIANT | version << 76
        super().__init__(int=bits, is_safe=is_safe)

    @property
    def subsec(self) -> int:
        """The 20 bits below the millisecond of a version 7 or 8 UUID."""
        return (self.int >> 64 & 0x0FFF) << 8 | (self.int >> 54 & 0xFF)

    @property
    def time(self) -> int:
        """The time in the unit of the version: 100 ns for 6, ms for 7, us for 8."""
        if self.version == 6:
            return (self.time_low << 28) | (self.time_mid << 12) | (self.time_hi_version & 0x0FFF)
        if self.version == 7:
            return self.int >> 80
        if self.version == 8:
            return (self.int >> 80) * 10**6 - (-self.subsec * 10**6 // 2**20)  # rounded up
        return super().time


def uuid6(node: int | None = None, clock_seq: int | None = None) -> UUID:
    """Return a UUID of version 6, greater than all UUIDs that this process created before.

    Args:
        node: 48 bits; random if not given.
        clock_seq: 14 bits of sequence number, taken modulo 2^14; random if not given.
    """
    global _last_timestamp  # noqa: PLW0603 -- the one clock of the process
    with _lock:
        now = time.time_ns() // 100 + _GREGORIAN_TO_UNIX
        # A clock can be set back, and two calls can be within 100 ns. A later id must be greater
        # nevertheless: the latest checkpoint of a thread is the one with the greatest id.
        _last_timestamp = timestamp = max(now, _last_timestamp + 1)
    node = randbits(48) if node is None else node & 0xFFFF_FFFF_FFFF
    clock_seq = randbits(14) if clock_seq is None else clock_seq & 0x3FFF
    high, low = timestamp >> 12 & 0xFFFF_FFFF_FFFF, timestamp & 0x0FFF
    return UUID(int=high << 80 | low << 64 | clock_seq << 48 | node, version=6)


V = TypeVar("V", int, float, str)

ChannelVersions = dict[str, str | int | float]
PendingWrite = tuple[str, str, Any]

LATEST_VERSION: Final = 2


class EmptyChannelError(Exception):
    """A channel was read that has never been updated."""


class RunnableConfig(TypedDict, total=False):
    """The configuration of a run. A saver reads ``configurable`` and ``metadata``."""

    tags: list[str]
    metadata: dict[str, Any]
    callbacks: Any
    run_name: str
    max_concurrency: int | None
    recursion_limit: int
    configurable: dict[str, Any]
    run_id: Any


class CheckpointMetadata(TypedDict, total=False):
    """Metadata of a checkpoint. Savers store it as readable JSON, because filters search it.

    Attributes:
        source: Origin of the checkpoint: the input, a step of the loop, an update, or a fork.
        step: -1 for the first input, 0 for the first step of the loop, then counting up.
        parents: Ids of the parent checkpoints by namespace.
        run_id: Id of the run that made the checkpoint.
        counters_since_delta_snapshot: By delta channel, number of updates and of steps since its snapshot.
    """

    source: Literal["input", "loop", "update", "fork"]
    step: int
    parents: dict[str, str]
    run_id: str
    counters_since_delta_snapshot: dict[str, tuple[int, int]]


class Checkpoint(TypedDict):
    """The state of a graph at one moment.

    Attributes:
        v: Version of this format.
        id: Id of the checkpoint, unique; ids of later checkpoints sort after those of earlier ones.
        ts: Time of creation, in ISO 8601.
        channel_values: Values by channel; channels without a value are omitted.
        channel_versions: Version of each channel, increasing with every update.
        versions_seen: By node, the version of each channel that the node has seen.
        updated_channels: Names of the channels that this step updated, if known.
    """

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: ChannelVersions
    versions_seen: dict[str, ChannelVersions]
    updated_channels: list[str] | None


class CheckpointTuple(NamedTuple):
    """A checkpoint with the data stored with it.

    Attributes:
        config: Config with the thread, namespace and id of the checkpoint.
        checkpoint: The checkpoint.
        metadata: Metadata of the checkpoint.
        parent_config: Config of the parent checkpoint, if there is one.
        pending_writes: Writes of tasks to the checkpoint: task id, channel and value of each.
    """

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: RunnableConfig | None = None
    pending_writes: list[PendingWrite] | None = None


class DeltaChannelHistory(TypedDict):
    """The history of one delta channel in the ancestors of a checkpoint.

    Attributes:
        writes: Updates of the channel, oldest first; within a checkpoint in the order of `writes_sort_key`.
        seed: Value of the channel in the nearest ancestor that stores it; absent if no ancestor does.
    """

    writes: list[PendingWrite]
    seed: NotRequired[Any]


def _now() -> str:
    return datetime.now(UTC).isoformat()


def empty_checkpoint() -> Checkpoint:
    """Return the checkpoint of a graph that has not begun.

    Example:
        >>> from sealpoint.base import empty_checkpoint
        >>> empty_checkpoint()["channel_values"]
        {}
    """
    return _checkpoint(
        v=LATEST_VERSION,
        id=str(uuid6(clock_seq=-2)),
        ts=_now(),
        channel_values={},
        channel_versions={},
        versions_seen={},
        pending_sends=[],
        updated_channels=None,
    )


def copy_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy; changes of values and versions in the copy do not change ``checkpoint``."""
    return _checkpoint(
        v=checkpoint["v"],
        ts=checkpoint["ts"],
        id=checkpoint["id"],
        channel_values=checkpoint["channel_values"].copy(),
        channel_versions=checkpoint["channel_versions"].copy(),
        versions_seen={node: seen.copy() for node, seen in checkpoint["versions_seen"].items()},
        pending_sends=list(checkpoint.get("pending_sends", ())),  # type: ignore[call-overload]
        updated_channels=checkpoint.get("updated_channels"),
    )


def create_checkpoint(
    checkpoint: Checkpoint,
    channels: Mapping[str, ChannelProtocol[Any, Any, Any]] | None,
    step: int,
    *,
    id: str | None = None,  # noqa: A002 -- LangGraph's name
) -> Checkpoint:
    """Return the checkpoint that follows ``checkpoint`` after a step.

    Args:
        checkpoint: The previous checkpoint; its versions are copied.
        channels: The channels with the new values; if ``None``, the previous values are copied.
        step: Number of the step; ids made within the same 100 ns sort by it.
        id: Id of the new checkpoint; generated by default.
    """
    values = checkpoint["channel_values"] if channels is None else _values(checkpoint, channels)
    return _checkpoint(
        v=LATEST_VERSION,
        ts=_now(),
        id=str(uuid6(clock_seq=step)) if id is None else id,
        channel_values=values,
        channel_versions=checkpoint["channel_versions"],
        versions_seen=checkpoint["versions_seen"],
        pending_sends=list(checkpoint.get("pending_sends", ())),  # type: ignore[call-overload]
        updated_channels=None,
    )


def _values(checkpoint: Checkpoint, channels: Mapping[str, ChannelProtocol[Any, Any, Any]]) -> dict[str, Any]:
    # LangGraph's own error, too, if a channel can raise it
    theirs = getattr(sys.modules.get("langgraph.checkpoint.base"), "EmptyChannelError", EmptyChannelError)
    values = {}
    for name, channel in channels.items():
        # LangGraph gives a channel a version at its first update: one without a version has no value.
        if name in checkpoint["channel_versions"]:
            try:
                value = channel.checkpoint()
            except (EmptyChannelError, theirs):
                continue
            if type(value) is not object:  # newer channels return a bare object() for a missing value
                values[name] = value
    return values


def _checkpoint(**fields: Any) -> Checkpoint:
    """Return a checkpoint of these fields and ``pending_sends``, a field which LangGraph still writes."""
    return fields  # type: ignore[return-value]


def writes_sort_key(task_path: str, task_id: str = "", idx: int = 0) -> tuple[str, str, int]:
    """Return the sort key of the writes of one step: the order in which a run applies them.

    Args:
        task_path: Place of the task in the graph.
        task_id: Id of the task.
        idx: Index of the write among the writes of the task.
    """
    return task_path, task_id, idx


def get_checkpoint_id(config: RunnableConfig) -> str | None:
    """Return the checkpoint id in ``config``, or ``None``."""
    return config["configurable"].get("checkpoint_id")


class DeltaWalk:
    """Collects the histories of delta channels on the path from a checkpoint to its root."""

    def __init__(self, channels: Sequence[str]) -> None:
        self.open = set(channels)  # channels for which no stored value was found so far
        self._writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        self._seeds: dict[str, Any] = {}

    def visit(self, values: Mapping[str, Any], writes: Sequence[PendingWrite]) -> None:
        """Add the next ancestor: its channel values, and the sorted writes to it."""
        # Ancestors come latest first, so writes are collected in reverse. They were applied to the
        # ancestor's value, so they are collected before that value ends the channel's walk.
        for write in reversed(writes):
            if write[1] in self.open:
                self._writes[write[1]].append(write)
        for channel in self.open.intersection(values):
            self._seeds[channel] = values[channel]
            self.open.discard(channel)

    def histories(self) -> dict[str, DeltaChannelHistory]:
        """Return the history of each delta channel, by name of the channel."""
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, writes in self._writes.items():
            histories[channel] = {"writes": writes[::-1]}
            if channel in self._seeds:
                histories[channel]["seed"] = self._seeds[channel]
        return histories
