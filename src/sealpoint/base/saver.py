"""BaseCheckpointSaver: what a saver must do."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic

from sealpoint.base.checkpoint import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    DeltaWalk,
    RunnableConfig,
    V,
)
from sealpoint.serde.base import SerializerProtocol, maybe_add_typed_methods
from sealpoint.serde.jsonplus import JsonPlusSerializer


class BaseCheckpointSaver(Generic[V]):
    """Stores and loads checkpoints. Every method has a twin with an ``a`` in front, to be awaited.

    A config names a thread by ``config["configurable"]["thread_id"]``, and in it one
    checkpoint by ``checkpoint_ns`` and ``checkpoint_id``, or else the latest.
    """

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        """Make a saver; ``serde`` is a `JsonPlusSerializer` if none is given."""
        if serde is not None:
            self.serde = maybe_add_typed_methods(serde)

    @cached_property
    def serde(self) -> SerializerProtocol:
        """Turns values into bytes and back. Made at first use, so that subclasses need no ``__init__``."""
        return JsonPlusSerializer()

    @property
    def config_specs(self) -> list[Any]:
        """Fields that a config may have for this saver."""
        return []

    def get(self, config: RunnableConfig) -> Checkpoint | None:
        """Return the checkpoint that ``config`` names, or ``None``."""
        value = self.get_tuple(config)
        return value.checkpoint if value else None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that ``config`` names with all that is stored beside it, or ``None``.

        Pending writes come in the order of `writes_sort_key`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, latest first.

        Args:
            config: Thread, and perhaps namespace and id, to which they belong; ``None`` for all.
            filter: Metadata they must have.
            before: A checkpoint they must be older than.
            limit: How many at the most.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint and return the config that names it.

        Args:
            config: Names its thread and namespace, and its parent by ``checkpoint_id``.
            checkpoint: The checkpoint.
            metadata: What is known about it.
            new_versions: Versions of the channels that changed since the parent.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote on top of a checkpoint, as (channel, value) pairs.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def delete_thread(self, thread_id: str) -> None:
        """Delete all that is stored for a thread.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that the runs made, and the writes on top of them.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all that is stored for a thread to another.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete older checkpoints.

        Args:
            thread_ids: The threads.
            strategy: ``keep_latest`` keeps the latest of each namespace, with the ancestors
                that its delta channels are rebuilt from; ``delete`` keeps nothing.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint hold for delta channels, by channel.

        Follows ``parent_config``, so that only the ancestors on a fork's own path count.
        For each channel the walk ends at the nearest ancestor that stores its value.

        Args:
            config: Names the checkpoint; its own writes are not part of the history.
            channels: The channels to gather.
        """
        walk = DeltaWalk(channels)
        current = self.get_tuple(config) if walk.open else None
        while walk.open and current and current.parent_config:
            current = self.get_tuple(current.parent_config)
            if current:
                walk.visit(current.checkpoint["channel_values"], current.pending_writes or ())
        return walk.histories()

    async def aget(self, config: RunnableConfig) -> Checkpoint | None:
        """Async version of `get`."""
        value = await self.aget_tuple(config)
        return value.checkpoint if value else None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`.

        Raises:
            NotImplementedError: If it is not overridden, at the first iteration.
        """
        raise NotImplementedError
        yield  # makes this an asynchronous generator

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async version of `prune`.

        Raises:
            NotImplementedError: If it is not overridden.
        """
        raise NotImplementedError

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        walk = DeltaWalk(channels)
        current = await self.aget_tuple(config) if walk.open else None
        while walk.open and current and current.parent_config:
            current = await self.aget_tuple(current.parent_config)
            if current:
                walk.visit(current.checkpoint["channel_values"], current.pending_writes or ())
        return walk.histories()

    def get_next_version(self, current: V | None, channel: None) -> V:
        """Return a version that is greater than ``current``: numbers counting up from 1.

        Args:
            current: The version so far, if there is one.
            channel: Not used any more.

        Raises:
            NotImplementedError: If ``current`` is text; a saver that uses text says how it grows.
        """
        if isinstance(current, str):
            raise NotImplementedError
        return 1 if current is None else current + 1  # type: ignore[return-value]

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[V]:
        """Return a shallow copy whose serializer also allows ``extra_allowlist``; itself, if it does."""
        extend = getattr(self.serde, "with_msgpack_allowlist", None)
        if extend is None:  # LangGraph's encrypting serializer, which LangGraph's saver knows how to ask
            inherited = getattr(super(), "with_allowlist", None)
            return self if inherited is None else inherited(extra_allowlist)
        serde = extend(extra_allowlist)
        if serde is self.serde:
            return self
        # The saver may be shared by several graphs, and each graph brings an allowlist of its own.
        clone = copy.copy(self)
        clone.serde = serde
        return clone
