"""What SealedSaver does with the wrapped saver, apart from calling it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sealpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    RunnableConfig,
    get_checkpoint_metadata,
    get_serializable_checkpoint_metadata,
)
from sealpoint.base.place import Place, configurable_of, optional_text, require_place, require_thread_id
from sealpoint.errors import ConfigError, RowError, excerpt
from sealpoint.sealed.body import Claims
from sealpoint.sealed.entry import Entry, open_entry
from sealpoint.sealed.filters import Filter
from sealpoint.sealed.layout import Layout
from sealpoint.sealed.pages import Pages
from sealpoint.sealed.rows import Put, Rows, Write
from sealpoint.sealed.steps import Get, Steps
from sealpoint.sealed.threads import Threads
from sealpoint.sealed.walk import histories


@dataclass(frozen=True, slots=True)
class Procedures:
    """The steps and the arguments of each method.

    Attributes:
        rows: Seals and opens rows.
        threads: Finds the ids of threads in the database.
        pass_through: Keys of ``configurable`` that the wrapped saver gets.
    """

    rows: Rows
    threads: Threads
    pass_through: tuple[str, ...]

    def check(self, found: CheckpointTuple, place: Place) -> None:
        """Authenticate a row."""
        open_entry(self.rows, found, place)

    def get(self, config: RunnableConfig) -> Steps[Entry | None]:
        """Return the checkpoint that a config names, authenticated."""
        place = require_place(config)
        column = yield from self.threads.find(place.thread_id, self.check)
        found = yield Get(self.config(config, column, place))
        return self.entry(found[0], config) if found else None

    def pages(
        self, config: RunnableConfig | None, wanted: Filter, before: RunnableConfig | None, limit: int | None
    ) -> Steps[Pages]:
        """Return the pages of a listing."""
        older = None if before is None else optional_text(configurable_of(before), "checkpoint_id")
        inner: RunnableConfig | None = None
        if config is not None:
            place = require_place(config)
            column = yield from self.threads.find(place.thread_id, self.check)
            inner = self.config(config, column, place)
            if config["configurable"].get("checkpoint_ns") is None:
                del inner["configurable"]["checkpoint_ns"]
        exact = limit if wanted.is_exact else None
        is_paged = self.rows.layout is not Layout.VALUES
        return Pages(inner, wanted.stored, older, exact, is_paged=is_paged)

    def histories(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Steps[Mapping[str, DeltaChannelHistory]]:
        """Return the histories of delta channels."""
        place = require_place(config)
        column = yield from self.threads.find(place.thread_id, self.check)
        return (yield from histories(self.rows, place._replace(thread_id=column), channels))

    def entry(self, found: CheckpointTuple, config: RunnableConfig | None) -> Entry:
        """Authenticate a row, and check that it is what was asked for: an index may lead to another.

        Args:
            found: What the wrapped saver returned.
            config: What the caller asked for; ``None`` for all threads.

        Raises:
            RowError: If it is the row of another thread, namespace or checkpoint.
        """
        configurable = found.config["configurable"]
        ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
        entry = open_entry(self.rows, found, Place(str(configurable["thread_id"]), ns, checkpoint_id))
        if config is not None:
            asked = require_place(config)
            wants_ns = config["configurable"].get("checkpoint_ns") is not None
            if (
                entry.thread_id != asked.thread_id
                or (wants_ns and ns != asked.checkpoint_ns)
                or (asked.checkpoint_id and checkpoint_id != asked.checkpoint_id)
            ):
                raise RowError(f"the database returned another row than that of {excerpt(str(asked[:]))}")
        return entry

    def sends(self, entry: Entry) -> Steps[Sequence[Write] | None]:
        """Return the writes to the parent, if the saver has added them to the checkpoint."""
        if not entry.needs_sends:
            return None
        parent = entry.place._replace(checkpoint_id=entry.parent)
        found = yield Get(parent.config())
        return open_entry(self.rows, found[0], parent).writes() if found else None

    def decode(
        self, entry: Entry, sends: Sequence[Write] | None, config: RunnableConfig | None
    ) -> CheckpointTuple:
        """Return a checkpoint as a saver returns it."""
        more = {} if config is None else self.passed(config["configurable"])
        own = entry.place._replace(thread_id=entry.thread_id)
        return entry.found._replace(
            config=own.config(more),
            checkpoint=entry.document(sends),
            metadata=entry.metadata,
            parent_config=own._replace(checkpoint_id=entry.parent).config(more) if entry.parent else None,
            pending_writes=entry.pending(),
        )

    def column(self, config: RunnableConfig) -> Steps[str]:
        """Return the id in the database of a thread that is about to be written."""
        thread_id = require_thread_id(configurable_of(config).get("thread_id"))
        return (yield from self.threads.find(thread_id, self.check, is_new=True))

    def put(
        self,
        config: RunnableConfig,
        column: str,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[RunnableConfig, Any, Any, Any]:
        """Return the arguments of the wrapped saver's ``put``."""
        place = require_place(config)
        complete = _complete(self.rows.layout, config, metadata)
        own = Place(column, place.checkpoint_ns, checkpoint["id"])
        sealed: Put = self.rows.seal_checkpoint(
            own, place.thread_id, place.checkpoint_id or None, checkpoint, complete, new_versions
        )
        return self.config(config, column, place), *sealed

    def put_writes(
        self,
        config: RunnableConfig,
        column: str,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> tuple[RunnableConfig, Any, str, str]:
        """Return the arguments of the wrapped saver's ``put_writes``."""
        place = require_place(config, "checkpoint_id")
        if not place.checkpoint_id:
            raise ConfigError("checkpoint_id is empty")
        own = place._replace(thread_id=column)
        sealed = self.rows.seal_writes(own, task_id, task_path, writes)
        return self.config(config, column, place), sealed, task_id, task_path

    def config(self, config: RunnableConfig, column: str, place: Place) -> RunnableConfig:
        """Return the config for the wrapped saver: nothing of the caller's but the place."""
        return place._replace(thread_id=column).config(self.passed(config["configurable"]))

    def passed(self, configurable: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the wrapped saver gets of the caller's ``configurable``, beside the place."""
        return {key: configurable[key] for key in self.pass_through if key in configurable}

    def named(self, config: RunnableConfig, checkpoint: Checkpoint) -> RunnableConfig:
        """Return the config that names a stored checkpoint."""
        configurable = config["configurable"]
        return {
            "configurable": {
                **self.passed(configurable),
                "thread_id": configurable["thread_id"],
                "checkpoint_ns": configurable.get("checkpoint_ns", ""),
                "checkpoint_id": checkpoint["id"],
            }
        }

    def found(self, thread_id: str) -> Steps[str]:
        """Return the id of a thread in the database."""
        return (yield from self.threads.find(require_thread_id(thread_id), self.check))

    def copied(
        self, entry: Entry, sends: Sequence[Write] | None, column: str, thread_id: str
    ) -> tuple[tuple[Any, ...], Sequence[tuple[Any, ...]]]:
        """Return the arguments of ``put``, and those of each ``put_writes``, for a copy of a checkpoint."""
        checkpoint = entry.document(sends)
        place = entry.place._replace(thread_id=column)
        versions = checkpoint["channel_versions"]
        sealed = self.rows.seal_checkpoint(
            place, require_thread_id(thread_id), entry.parent, checkpoint, entry.metadata, versions
        )
        tasks = dict[tuple[str, str], list[Write]]()
        for number, write in enumerate(entry.writes()):
            claims = write.claims or Claims("", number)
            tasks.setdefault((write.task_id, claims.task_path), []).append(write._replace(claims=claims))
        named = place._replace(checkpoint_id=entry.parent).config()
        target = place.config()
        writes = [
            (target, self.rows.seal_claimed(place, group), task_id, task_path)
            for (task_id, task_path), group in tasks.items()
        ]
        return (named, *sealed), writes


def _complete(layout: Layout, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return the metadata that a saver with this layout stores."""
    if layout is Layout.INLINE:
        return get_serializable_checkpoint_metadata(config, metadata)
    return get_checkpoint_metadata(config, metadata)
