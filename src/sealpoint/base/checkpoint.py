"""Checkpoints: the state of a graph at one moment, and the data stored beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

from sealpoint.base.id import uuid6
from sealpoint.errors import RowError, excerpt
from sealpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED, ChannelProtocol

V = TypeVar("V", int, float, str)

ChannelVersions = dict[str, str | int | float]
PendingWrite = tuple[str, str, Any]

LATEST_VERSION: Final = 2

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
"""The task of what the user stores, by ``Command``: no node runs again to store it anew."""

WRITES_IDX_MAP: Final = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4}
"""Index of the special writes of a task: they sort before its other writes and may be replaced."""


class EmptyChannelError(Exception):
    """The value of a channel was read that was never updated."""


empty_channel_errors: set[type[Exception]] = {EmptyChannelError}
"""The exceptions of a channel without a value. The bridge adds LangGraph's own."""


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
    """Metadata of a checkpoint. Stored as JSON in the clear, because filters search it.

    Attributes:
        source: What made the checkpoint: the input, a step of the loop, an update, or a fork.
        step: -1 for the first input, 0 for the first step of the loop, then counting up.
        parents: Ids of the parent checkpoints by namespace.
        run_id: The run that made it.
        counters_since_delta_snapshot: By delta channel, updates and steps since its last snapshot.
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
        id: Unique, and later ids sort after earlier ones.
        ts: When it was created, ISO 8601.
        channel_values: Values by channel; channels without a value are omitted.
        channel_versions: Version of each channel, increasing with every update.
        versions_seen: By node, the version of each channel it has seen.
        updated_channels: Channels that this step updated, if known.
    """

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: ChannelVersions
    versions_seen: dict[str, ChannelVersions]
    updated_channels: list[str] | None


class CheckpointTuple(NamedTuple):
    """A checkpoint with the data stored beside it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: RunnableConfig | None = None
    pending_writes: list[PendingWrite] | None = None


class DeltaChannelHistory(TypedDict):
    """The history of one delta channel in the ancestors of a checkpoint.

    Attributes:
        writes: Its updates, oldest first; those of one checkpoint in the order of `writes_sort_key`.
        seed: The value stored at the nearest ancestor that has one; absent if none has.
    """

    writes: list[PendingWrite]
    seed: NotRequired[Any]


DOCUMENT_MAPPINGS: Final = ("channel_values", "channel_versions", "versions_seen")


def require_document(
    document: Any, checkpoint_id: str, is_object: Callable[[Any], bool] = lambda _: False
) -> None:
    """Check that a stored value is the checkpoint of its row.

    Args:
        document: What was decoded.
        checkpoint_id: Of the row.
        is_object: Whether a value stands for an object that was not built; it is accepted as a mapping.

    Raises:
        RowError: If it is not a mapping with the id of the row and the three mappings of every checkpoint.
    """
    if type(document) is dict:  # nearly always, and without a loop
        get = document.get
        values, versions, seen = get("channel_values"), get("channel_versions"), get("versions_seen")
        if get("id") == checkpoint_id and type(values) is type(versions) is type(seen) is dict:
            return
    if not isinstance(document, dict) or document.get("id") != checkpoint_id:
        raise RowError(f"row {excerpt(checkpoint_id)} does not hold the checkpoint of that id")
    for name in DOCUMENT_MAPPINGS:
        part = document.get(name)
        if not (isinstance(part, dict) or is_object(part)):
            wanted = ", ".join(DOCUMENT_MAPPINGS)
            raise RowError(f"checkpoint {excerpt(checkpoint_id)} lacks one of {wanted}")


def _now() -> str:
    return datetime.now(UTC).isoformat()


def empty_checkpoint() -> Checkpoint:
    """Return the checkpoint of a graph that has not begun."""
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
    """Return a copy; changing its values and versions does not change ``checkpoint``."""
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
        channels: The channels with the new values; without them the values are copied.
        step: Number of the step; ids made within the same 100 ns sort by it.
        id: The id; a new one by default.
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
    values = {}
    for name, channel in channels.items():
        # LangGraph gives a channel a version at its first update: one without a version has no value.
        if name in checkpoint["channel_versions"]:
            try:
                value = channel.checkpoint()
            except tuple(empty_channel_errors):
                continue
            if type(value) is not object:  # newer channels mark a missing value so
                values[name] = value
    return values


def _checkpoint(**fields: Any) -> Checkpoint:
    """Create a checkpoint with the field ``pending_sends``, which LangGraph still writes."""
    return fields  # type: ignore[return-value]


def writes_sort_key(task_path: str, task_id: str = "", idx: int = 0) -> tuple[str, str, int]:
    """Return the sort key of the writes of one step: the order in which a run applies them."""
    return task_path, task_id, idx


def get_checkpoint_id(config: RunnableConfig) -> str | None:
    """Return the id of the checkpoint that ``config`` names, if it names one."""
    return config["configurable"].get("checkpoint_id")


class DeltaWalk:
    """Collects the histories of delta channels on the path from a checkpoint to its root.

    Attributes:
        open: The channels without a stored value so far.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        """Begin a walk for ``channels``."""
        self.open = set(channels)
        self._writes: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
        self._seeds: dict[str, Any] = {}

    def visit(self, values: Mapping[str, Any], writes: Sequence[PendingWrite]) -> None:
        """Add the next ancestor: its channel values, and its writes in their order."""
        # Ancestors come latest first, so writes are collected in reverse. They were applied to the
        # ancestor's value, so they are collected before that value ends the channel's walk.
        for write in reversed(writes):
            if write[1] in self.open:
                self._writes[write[1]].append(write)
        for channel in self.open.intersection(values):
            self._seeds[channel] = values[channel]
            self.open.discard(channel)

    def histories(self) -> dict[str, DeltaChannelHistory]:
        """Return the histories by channel."""
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, writes in self._writes.items():
            histories[channel] = {"writes": writes[::-1]}
            if channel in self._seeds:
                histories[channel]["seed"] = self._seeds[channel]
        return histories
