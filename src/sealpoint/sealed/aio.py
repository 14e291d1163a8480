"""The async methods of SealedSaver. They differ from the others in ``await`` alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sealpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    RunnableConfig,
)
from sealpoint.base.place import require_place
from sealpoint.errors import SealpointError
from sealpoint.sealed.procedures import Asked, Procedures, listed_ids, thread_config
from sealpoint.sealed.reading import Listing, get_tuple
from sealpoint.sealed.steps import R, Steps, arun
from sealpoint.sealed.tables import Tables
from sealpoint.sealed.transactions import arequire_own_transactions
from sealpoint.sealed.walk import histories
from sealpoint.sealed.writing import copy_thread, delete_for_runs, delete_thread, prune, put, put_writes


class AsyncMethods(BaseCheckpointSaver[Any]):
    """The async half of `SealedSaver`."""

    inner: Any
    _do: Procedures
    _tables: Tables

    async def _arun(self, steps: Steps[R], *, looks: bool = True) -> R:
        """Async version of `SealedSaver._run`."""
        try:
            if looks:
                await self._tables.arequire(self.inner)
            return await arun(steps, self.inner)
        except SealpointError as error:
            self._do.rows.serde.tally.refuse(error)
            raise

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._arun(get_tuple(self._do, await self._aask(config)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        asked = None if config is None else await self._aask(config)
        listing = Listing(self._do, asked, filter, before, limit)
        while listing.is_open:
            for row in await self._arun(listing.page()):
                if (found := await self._arun(listing.checkpoint(row), looks=False)) is not None:
                    yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._arun(histories(self._do, await self._aask(config), channels))

    async def _aask(self, config: RunnableConfig, *, is_new: bool = False) -> Asked:
        place = require_place(config)
        if self._do.heads is not None:
            await arequire_own_transactions(self.inner)
        pseudonyms = self._do.pseudonyms
        column = pseudonyms.known(place, is_new=is_new)
        if column is None:
            column = await self._arun(pseudonyms.find(place, self._do.check, is_new=is_new))
        return self._do.asked(config, place, column)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        asked = await self._aask(config, is_new=True)
        return await self._arun(put(self._do, asked, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        asked = await self._aask(config, is_new=True)
        await self._arun(put_writes(self._do, asked, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._arun(delete_thread(self._do, await self._aask(thread_config(thread_id))))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._arun(delete_for_runs(self._do, run_ids))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async version of `prune`."""
        threads = [await self._aask(thread_config(thread_id)) for thread_id in listed_ids(thread_ids)]
        await self._arun(prune(self._do, threads, strategy))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        source = await self._aask(thread_config(source_thread_id))
        target = await self._aask(thread_config(target_thread_id), is_new=True)
        await self._arun(copy_thread(self._do, source, target))
