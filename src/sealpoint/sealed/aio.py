"""The async methods of SealedSaver. They differ from the others in ``await`` alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

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
from sealpoint.sealed.entry import Entry
from sealpoint.sealed.filters import Filter
from sealpoint.sealed.pages import stored_bytes
from sealpoint.sealed.procedures import Asked, Procedures, listed_ids, named, thread_config
from sealpoint.sealed.steps import arun
from sealpoint.sealed.walk import histories

LARGE_BYTES: Final = 65_536
"""From this size on, values are opened and decoded on a worker thread."""


class AsyncMethods(BaseCheckpointSaver[Any]):
    """The async half of `SealedSaver`."""

    inner: Any
    _do: Procedures

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        asked = await self._aask(config)
        found = await self.inner.aget_tuple(asked.config)
        return None if found is None else await self._adecode(await self._aopen(found, asked), asked)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        wanted = Filter(self._do.rows, filter)
        asked = None if config is None else await self._aask(config)
        pages, left = self._do.pages(asked, wanted, before, limit), limit
        while (request := pages.request) and left != 0:
            page = [item async for item in self.inner.alist(request.config, **request.arguments)]
            for found in pages.take(page):
                entry = await self._aopen(found, asked)
                if wanted.takes(entry.metadata):
                    yield await self._adecode(entry, asked)
                    left = None if left is None else left - 1
                    if left == 0:
                        break

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        asked = await self._aask(config)
        return await arun(histories(self._do.rows, asked.place, asked.thread_id, channels), self.inner)

    async def _aask(self, config: RunnableConfig, *, is_new: bool = False) -> Asked:
        place = require_place(config)
        threads = self._do.threads
        column = threads.known(place.thread_id)
        if column is None:
            column = await arun(threads.find(place.thread_id, self._do.check, is_new=is_new), self.inner)
        return self._do.asked(config, place, column)

    async def _aopen(self, found: CheckpointTuple, asked: Asked | None) -> Entry:
        """Authenticate a row; a large one on a worker thread, so that the event loop is not blocked."""
        if stored_bytes(found) < LARGE_BYTES:
            return self._do.entry(found, asked)
        return await asyncio.to_thread(self._do.entry, found, asked)

    async def _adecode(self, entry: Entry, asked: Asked | None) -> CheckpointTuple:
        sends = await arun(self._do.sends(entry), self.inner) if entry.needs_sends else None
        if stored_bytes(entry.found) < LARGE_BYTES:
            return self._do.decode(entry, asked, sends)
        return await asyncio.to_thread(self._do.decode, entry, asked, sends)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        asked = await self._aask(config, is_new=True)
        await self.inner.aput(asked.config, *self._do.put(asked, config, checkpoint, metadata, new_versions))
        return named(config, checkpoint, asked)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        asked = await self._aask(config, is_new=True)
        await self.inner.aput_writes(asked.config, *self._do.put_writes(asked, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        asked = await self._aask(thread_config(thread_id))
        await self.inner.adelete_thread(asked.place.thread_id)
        self._do.threads.forget(asked.thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self.inner.adelete_for_runs(run_ids)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async version of `prune`."""
        asked = [await self._aask(thread_config(thread_id)) for thread_id in listed_ids(thread_ids)]
        await self.inner.aprune([each.place.thread_id for each in asked], strategy=strategy)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        source = await self._aask(thread_config(source_thread_id))
        target = await self._aask(thread_config(target_thread_id), is_new=True)
        copied = [item async for item in self.inner.alist(thread_config(source.place.thread_id))]
        for found in reversed(copied):
            entry = self._do.entry(found, source)
            put, writes = self._do.copied(entry, target)
            await self.inner.aput(*put)
            for arguments in writes:
                await self.inner.aput_writes(*arguments)
