"""What SealedSaver makes of the arguments and the rows of the wrapped saver, apart from calling it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sealpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    RunnableConfig,
    get_checkpoint_metadata,
    get_serializable_checkpoint_metadata,
)
from sealpoint.base.place import Place
from sealpoint.errors import ConfigError, RowError, excerpt
from sealpoint.sealed.acknowledged import Acknowledged
from sealpoint.sealed.copying import calls_of
from sealpoint.sealed.entry import Entry, open_entry, open_writes, require_names
from sealpoint.sealed.heads import Heads
from sealpoint.sealed.layout import Layout
from sealpoint.sealed.made import pack_made
from sealpoint.sealed.pseudonyms import Pseudonyms
from sealpoint.sealed.rows import Put, Rows, Write
from sealpoint.sealed.steps import Call, Steps


class Asked(NamedTuple):
    """What a caller asks for.

    Attributes:
        place: The place in the database.
        thread_id: The thread; the database may have a pseudonym for it.
        has_ns: Whether the config names a namespace.
        more: What the wrapped saver gets of ``configurable``, beside the place.
    """

    place: Place
    thread_id: str
    has_ns: bool
    more: Mapping[str, Any]

    @property
    def config(self) -> RunnableConfig:
        """The config for the wrapped saver: nothing of the caller's but the place, and what is passed on."""
        return self.place.config(self.more)


@dataclass(frozen=True, slots=True)
class Procedures:
    """What all methods share.

    Attributes:
        rows: Seals and opens rows.
        pseudonyms: Finds the ids of threads in the database.
        pass_through: Keys of ``configurable`` that the wrapped saver gets.
        heads: Compares rows with a thread store; ``None`` if there is none.
        acknowledged: What this process has stored.
    """

    rows: Rows
    pseudonyms: Pseudonyms
    pass_through: tuple[str, ...]
    heads: Heads | None
    acknowledged: Acknowledged = field(default_factory=Acknowledged)

    def asked(self, config: RunnableConfig, place: Place, column: str) -> Asked:
        """Return what a config asks for.

        Args:
            config: The caller's config.
            place: The place that it names.
            column: The id of its thread in the database.
        """
        thread_id, checkpoint_ns, checkpoint_id = place
        configurable = config["configurable"]
        more: dict[str, Any] = {}
        if self.pass_through:
            more = {key: configurable[key] for key in self.pass_through if key in configurable}
        has_ns = configurable.get("checkpoint_ns") is not None
        if column != thread_id:
            place = Place(column, checkpoint_ns, checkpoint_id)
        return Asked(place, thread_id, has_ns, more)

    def check(self, found: CheckpointTuple, place: Place) -> None:
        """Authenticate a row; what is not bound is only authenticated when it is decoded."""
        entry = open_entry(self.rows, found, place)
        if not entry.is_bound:
            entry.document()

    def entry(self, found: CheckpointTuple, asked: Asked | None) -> Entry:
        """Authenticate a row, and check that it is what was asked for: an index may lead to another.

        Args:
            found: What the wrapped saver returned.
            asked: What the caller asked for; ``None`` for all threads.

        Raises:
            RowError: If it is the row of another thread, namespace or checkpoint.
        """
        configurable = found.config["configurable"]
        ns, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
        entry = open_entry(self.rows, found, Place(str(configurable["thread_id"]), ns, checkpoint_id))
        if asked is not None and (
            (entry.thread_id, entry.place.thread_id) != (asked.thread_id, asked.place.thread_id)
            or (asked.has_ns and ns != asked.place.checkpoint_ns)
            or (asked.place.checkpoint_id and checkpoint_id != asked.place.checkpoint_id)
        ):
            raise RowError(f"the database returned the row of another checkpoint, {excerpt(checkpoint_id)}")
        return entry

    def opened(self, found: CheckpointTuple, asked: Asked | None) -> Steps[Entry]:
        """Return `entry`, opened on a worker thread if it is large."""
        entry: Entry = yield Call(self.entry, (found, asked), found)
        return entry

    def decode(self, entry: Entry, asked: Asked | None, sends: Sequence[Write] = ()) -> CheckpointTuple:
        """Return a checkpoint as a saver returns it."""
        _, ns, checkpoint_id = entry.place
        more = None if asked is None else asked.more
        parent = Place(entry.thread_id, ns, entry.parent).config(more) if entry.parent else None
        make: Callable[..., CheckpointTuple] = type(entry.found)
        return make(
            Place(entry.thread_id, ns, checkpoint_id).config(more),
            entry.document(sends),
            entry.metadata,
            parent,
            entry.pending(),
        )

    def put(
        self,
        asked: Asked,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        claim: str | None,
        made: str | None,
    ) -> Put:
        """Return the arguments of ``put`` after the config; the last two are for `Rows.seal_checkpoint`."""
        is_inline = self.rows.layout is Layout.INLINE
        merge = get_serializable_checkpoint_metadata if is_inline else get_checkpoint_metadata
        column, checkpoint_ns, parent = asked.place
        return self.rows.seal_checkpoint(
            Place(column, checkpoint_ns, checkpoint["id"]),
            asked.thread_id,
            parent or None,
            checkpoint,
            merge(config, metadata),
            new_versions,
            claim,
            made,
        )

    def made(self, found: CheckpointTuple, asked: Asked) -> str:
        """Return what a child says of the writes to its parent, as the database has them."""
        require_names(found, asked.place)
        writes = open_writes(self.rows, found, asked.place)
        if not self.rows.allow_partial:
            self.acknowledged.require(asked.place, writes)
        return pack_made(writes)

    def put_writes(
        self, asked: Asked, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str, call: bytes
    ) -> tuple[Any, str, str]:
        """Return the arguments of the wrapped saver's ``put_writes`` after the config."""
        if not asked.place.checkpoint_id:
            raise ConfigError("the config has no 'checkpoint_id' in 'configurable'")
        return self.rows.seal_writes(asked.place, task_id, task_path, writes, call), task_id, task_path

    def copied(
        self, entry: Entry, target: Asked, claim: str | None
    ) -> tuple[tuple[Any, ...], Sequence[tuple[Any, ...]]]:
        """Return the arguments of ``put``, and those of each ``put_writes``, for a copy of a checkpoint.

        Args:
            entry: The checkpoint.
            target: The thread of the copy.
            claim: As for `Rows.seal_checkpoint`.
        """
        checkpoint = entry.document()  # messages to an old one are copied with the writes to its parent
        place = entry.place._replace(thread_id=target.place.thread_id)
        # A saver that is given a version without a value would forget the value that is there already.
        versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
        sealed = self.rows.seal_checkpoint(
            place,
            target.thread_id,
            entry.parent,
            checkpoint,
            entry.metadata,
            {name: version for name, version in versions.items() if name in values},
            claim,
            entry.made,
        )
        writes = [
            (place.config(target.more), self.rows.seal_claimed(place, group), task_id, task_path)
            for task_id, task_path, group in calls_of(entry.writes())
        ]
        return (place._replace(checkpoint_id=entry.parent).config(target.more), *sealed), writes


def thread_config(thread_id: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def named(config: RunnableConfig, checkpoint: Checkpoint, asked: Asked) -> RunnableConfig:
    """Return the config that names a stored checkpoint."""
    return {
        "configurable": {
            **asked.more,
            "thread_id": config["configurable"]["thread_id"],  # of the caller's type
            "checkpoint_ns": asked.place.checkpoint_ns,
            "checkpoint_id": checkpoint["id"],
        }
    }


def listed_ids(thread_ids: Sequence[str]) -> Sequence[str]:
    """Return thread ids.

    Raises:
        TypeError: If they are one string.
    """
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids is one string, not a sequence of thread ids")
    return thread_ids
