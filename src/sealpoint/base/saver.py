"""BaseCheckpointSaver: the interface of savers.

An operation that needs several calls is written once for sync and async, as a procedure: a generator that
yields requests and receives the replies.
"""

from __future__ import annotations

import copy
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cached_property
from typing import Any, Generic, TypeVar

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

R = TypeVar("R")

Steps = Generator[Any, Any, R]


def run(steps: Steps[R], reply: Callable[[Any], Any]) -> R:
    """Run a procedure and return its result; each request gets what ``reply(request)`` returns or raises."""
    proceed: Callable[[Any], Any] = steps.send
    value: Any = None
    try:
        while True:
            request, proceed = proceed(value), steps.send
            try:
                value = reply(request)
            except BaseException as error:  # noqa: BLE001 -- the procedure raises it again
                proceed, value = steps.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        del value  # an error would refer to itself


async def arun(steps: Steps[R], reply: Callable[[Any], Awaitable[Any]]) -> R:
    """Async version of `run`."""
    proceed: Callable[[Any], Any] = steps.send
    value: Any = None
    try:
        while True:
            request, proceed = proceed(value), steps.send
            try:
                value = await reply(request)
            except BaseException as error:  # noqa: BLE001 -- as above
                proceed, value = steps.throw, error
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        del value


class BaseCheckpointSaver(Generic[V]):
    """Stores and loads checkpoints. Every method has an async version with the prefix ``a``.

    A config names a thread by ``config["configurable"]["thread_id"]``, and a checkpoint of it by
    ``checkpoint_ns`` and ``checkpoint_id``; without an id, it names the latest checkpoint. Methods that a
    subclass must implement raise NotImplementedError.
    """

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        """Create a saver; ``serde`` is a `JsonPlusSerializer` by default."""
        if serde is not None:
            self.serde = maybe_add_typed_methods(serde)

    @cached_property
    def serde(self) -> SerializerProtocol:
        """The serializer of the saver. Created at first use, so subclasses need not call ``__init__``."""
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
        """Return the checkpoint that ``config`` names with the data stored with it, or ``None``.

        Pending writes come in the order of `writes_sort_key`.
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
            config: Names the thread, and optionally the namespace and the id; ``None`` for all threads.
            filter: Metadata that a checkpoint must have, by key.
            before: Config of a checkpoint; only older checkpoints are yielded.
            limit: Maximum number of checkpoints.
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
            config: Names the thread and namespace, and the parent by ``checkpoint_id``.
            checkpoint: The checkpoint.
            metadata: Metadata of the checkpoint.
            new_versions: Versions of the channels that changed since the parent.
        """
        raise NotImplementedError

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task to a checkpoint.

        Args:
            config: Names the thread, the namespace and the checkpoint.
            writes: Pairs of a channel and a value.
            task_id: Id of the task that made the writes.
            task_path: Place of the task in the graph.
        """
        raise NotImplementedError

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread.

        Args:
            thread_id: Id of the thread.
        """
        raise NotImplementedError

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of the runs, and the writes to them.

        Args:
            run_ids: Ids of runs; the metadata of a checkpoint has the id of its run as ``run_id``.
        """
        raise NotImplementedError

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another thread.

        Args:
            source_thread_id: Id of the thread to copy.
            target_thread_id: Id of the thread to write to.
        """
        raise NotImplementedError

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete older checkpoints.

        Args:
            thread_ids: Ids of the threads.
            strategy: ``keep_latest`` keeps the latest checkpoint of each namespace, and the ancestors that
                its delta channels need; ``delete`` keeps nothing.
        """
        raise NotImplementedError

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the histories of delta channels in the ancestors of a checkpoint, by channel.

        Follows ``parent_config``, so only the ancestors on the checkpoint's own branch count. For each
        channel the walk ends at the nearest ancestor that stores its value.

        Args:
            config: Names the checkpoint; the writes to it are not part of the history.
            channels: Names of the channels to collect.
        """
        return run(_histories(config, channels), self.get_tuple)

    async def aget(self, config: RunnableConfig) -> Checkpoint | None:
        """Async version of `get`."""
        value = await self.aget_tuple(config)
        return value.checkpoint if value else None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        raise NotImplementedError

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        raise NotImplementedError
        yield  # makes this an asynchronous generator

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        raise NotImplementedError

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        raise NotImplementedError

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        raise NotImplementedError

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        raise NotImplementedError

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        raise NotImplementedError

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async version of `prune`."""
        raise NotImplementedError

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await arun(_histories(config, channels), self.aget_tuple)

    def get_next_version(self, current: V | None, channel: None) -> V:
        """Return a version that is greater than ``current``: ``current + 1``, or 1 for the first version.

        Args:
            current: The current version, if there is one.
            channel: Unused.

        Raises:
            NotImplementedError: If ``current`` is text; a saver with text versions overrides this method.
        """
        if isinstance(current, str):
            raise NotImplementedError
        return 1 if current is None else current + 1  # type: ignore[return-value]

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[V]:
        """Return a copy whose serializer allows ``extra_allowlist``, or this saver if its own allows it."""
        extend = getattr(self.serde, "with_msgpack_allowlist", None)
        if extend is None:  # LangGraph's encrypting serializer, which LangGraph's saver supports
            inherited = getattr(super(), "with_allowlist", None)
            return self if inherited is None else inherited(extra_allowlist)
        serde = extend(extra_allowlist)
        if serde is self.serde:
            return self
        # Several graphs may share the saver, and each graph has its own allowlist.
        clone = copy.copy(self)
        clone.serde = serde
        return clone


def _histories(config: RunnableConfig, channels: Sequence[str]) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """Return histories of channels. Each request is a config; the reply is the config's checkpoint."""
    walk = DeltaWalk(channels)
    current: CheckpointTuple | None = (yield config) if walk.open else None
    while walk.open and current and current.parent_config:
        current = yield current.parent_config
        if current:
            walk.visit(current.checkpoint["channel_values"], current.pending_writes or ())
    return walk.histories()
