"""SqliteSaver: checkpoints in a SQLite file, in the tables that LangGraph's saver uses."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from itertools import chain, islice
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sealpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    RunnableConfig,
    get_checkpoint_metadata,
)
from sealpoint.base.metadata import encode_metadata
from sealpoint.base.place import Place, require_channels, require_place, require_thread_id
from sealpoint.errors import ConfigError, RowError, SealpointError, excerpt, located
from sealpoint.seal.places import require_unicode
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer, SerializerProtocol
from sealpoint.sqlite import schema
from sealpoint.sqlite.database import WRITE, Database, Session, open_for
from sealpoint.sqlite.reader import (
    delete_runs,
    keep_latest,
    read_histories,
    read_many,
    read_one,
    run_all,
)
from sealpoint.threadpool import ThreadPool

P = ParamSpec("P")
R = TypeVar("R")


def count(saver: SqliteSaver, error: SealpointError) -> None:
    """Count an error in the saver's cipher, if there is a cipher and the error is not counted yet."""
    if isinstance(saver.serde, EncryptedSerializer):
        saver.serde.tally.refuse(error)


def counted(
    method: Callable[Concatenate[SqliteSaver, P], R],
) -> Callable[Concatenate[SqliteSaver, P], R]:
    """Decorate a saver's method so that its errors are counted."""

    @wraps(method)
    def call(self: SqliteSaver, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except SealpointError as error:
            count(self, error)
            raise

    return call


_ASYNC_BATCH: Final = 10  # checkpoints fetched at a time for an asynchronous reader


class SqliteSaver(BaseCheckpointSaver[str]):
    """Stores checkpoints in a SQLite database, in the tables that LangGraph's saver reads and writes.

    One saver serves any number of threads, and one file any number of processes. The
    methods with an ``a`` in front run the same code on a worker thread, for which the
    connection must have been opened with ``check_same_thread=False``, as
    `from_conn_string` does.

    At its first use a saver sets the authorizer of the connection, and a progress handler while
    each of its statements runs. An authorizer or handler of the application is replaced: Python has no
    way to read it. An application that needs its own authorizer sets it after `setup`. Triggers and views
    of its other tables, row factories and text factories keep working for its own statements.

    Attributes:
        conn: The connection.

    Example:
        >>> from sealpoint.langgraph import EncryptedSerializer, SqliteSaver
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> with SqliteSaver.from_conn_string("state.db", serde=serde) as saver:
        ...     print(saver.get_tuple({"configurable": {"thread_id": "1"}}))
        None
    """

    _rolls_back: Final = True  # a failed call rolls back its own transaction; SealedSaver need not

    def __init__(self, conn: sqlite3.Connection, *, serde: SerializerProtocol | None = None) -> None:
        """Create a saver on an open connection; the tables are created or checked at first use.

        Args:
            conn: The connection. The caller closes it.
            serde: An `EncryptedSerializer` to seal every value.
        """
        super().__init__(serde=serde)
        self.conn = conn
        self._database = Database(conn)
        self._pool = ThreadPool()  # its own: a call may wait long for the file, or for the loop of aiosqlite

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str, *, serde: SerializerProtocol | None = None) -> Iterator[Self]:
        """Open a database for a ``with`` block, and close it at the end of the block.

        Args:
            conn_string: Path of the file, or ``:memory:``.
            serde: As for the constructor.
        """
        saver = open_for(partial(cls, serde=serde), conn_string)
        try:
            yield saver
        finally:
            saver._database.close()

    @cached_property
    def jsonplus_serde(self) -> JsonPlusSerializer:
        """A serializer that does not seal: an attribute of LangGraph's saver. This saver does not use it."""
        return JsonPlusSerializer()

    @property
    def lock(self) -> threading.RLock:
        """Held while a statement runs, never while the caller uses its rows.

        Code that uses the connection on other threads holds it, too: otherwise a statement may become part of
        a transaction of the saver.
        """
        return self._database.lock

    @property
    def is_setup(self) -> bool:
        """Whether the tables have been created or checked."""
        return self._database.is_setup

    @counted
    def setup(self) -> None:
        """Create the tables, or check existing ones. Every other method does this if necessary.

        Raises:
            SchemaError: If the tables are not those of LangGraph or of this package.
        """
        self._database.setup()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor, with exclusive use of the connection; ``transaction`` commits or rolls back."""
        try:
            with self._database.cursor(in_transaction=transaction) as cursor:
                yield cursor
        except SealpointError as error:
            count(self, error)
            raise

    @counted
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that ``config`` names, or the latest of its thread, or ``None``.

        Raises:
            ConfigError: If ``config`` does not name a thread.
            RowError: If the row does not hold the checkpoint of its id.
            SealpointError: An error of the serializer.
        """
        return read_one(self._database, self.serde, require_place(config), config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, latest first: those that exist when the first checkpoint is requested.

        No lock is held between two checkpoints, and at most one page of rows is in memory.

        Args:
            config: Names the thread, and optionally the namespace and the id; ``None`` for all threads.
            filter: Metadata that a checkpoint must have, by key; dots in a key form a path into objects.
            before: Config of a checkpoint; only older checkpoints are yielded.
            limit: Maximum number of checkpoints, 0 or more.

        Raises:
            ConfigError: If an argument is invalid.
        """
        try:
            statement, parameters = schema.select_keys(config, filter, before, limit)
            keys: list[Any] = self._database.read(statement, parameters)
            yield from read_many(self._database, self.serde, keys)
        except SealpointError as error:
            count(self, error)
            raise

    @counted
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a complete checkpoint, replacing one with the same id; return the config that names it.

        Raises:
            ConfigError: If ``config`` does not name a thread and a namespace, or the checkpoint has no id.
            MetadataError: If JSON cannot represent the metadata, see `encode_metadata`.
            SealpointError: If the serializer raises it; in that case nothing is stored.
        """
        place = require_place(config, "checkpoint_ns")
        checkpoint_id = require_unicode("the id of the checkpoint", checkpoint["id"])
        if not checkpoint_id:  # a config with an empty id would mean the latest checkpoint
            raise ConfigError("the id of the checkpoint is empty")
        kind, data = self.serde.dumps_typed(checkpoint)
        stored = encode_metadata(get_checkpoint_metadata(config, metadata))
        row = *place[:2], checkpoint_id, place.checkpoint_id, kind, data, stored
        self._database.run(WRITE, Session.run_once, schema.PUT_CHECKPOINT, row, is_alone=True)
        return Place(config["configurable"]["thread_id"], place.checkpoint_ns, checkpoint_id).config()

    @counted
    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task to a checkpoint, all or none.

        Stored writes are not replaced, except if all writes of the call are errors, interrupts and the like.

        Raises:
            ConfigError: If ``config`` does not name a checkpoint.
            SealpointError: If the serializer raises it; in that case nothing is stored.
        """
        place = require_place(config, "checkpoint_ns", "checkpoint_id")
        if not place.checkpoint_id:
            raise ConfigError("checkpoint_id is empty")
        channels = [channel for channel, _ in writes]
        require_channels(channels, task_id, task_path)
        special = WRITES_IDX_MAP.keys() >= {*channels}
        rows = [
            (
                *place,
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, idx),
                channel,
                *self.serde.dumps_typed(value),
            )
            for idx, (channel, value) in enumerate(writes)
        ]
        if 0 < len(rows) <= schema.MAX_WRITES_AT_ONCE:
            statement = schema.put_writes(len(rows), replace=special)
            self._database.run(WRITE, Session.run_once, statement, [*chain(*rows)], is_alone=True)
        else:
            self._database.run(
                WRITE, Session.run, schema.REPLACE_WRITE if special else schema.ADD_WRITE, rows
            )

    @counted
    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        self._database.run(WRITE, run_all, schema.DELETE_THREAD, [(require_thread_id(thread_id),)])

    @counted
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of the runs, and the writes to them."""
        ids = [require_unicode("run id", str(run_id)) for run_id in run_ids]
        self._database.run(WRITE, delete_runs, ids)

    @counted
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another thread."""
        source, target = require_thread_id(source_thread_id), require_thread_id(target_thread_id)
        self._database.run(WRITE, run_all, schema.COPY_THREAD, [(target, source)])

    @counted
    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete older checkpoints and the writes to them.

        Args:
            thread_ids: Ids of the threads.
            strategy: ``keep_latest`` keeps the latest checkpoint of each namespace, and of its
                ancestors those that delta channels are rebuilt from; ``delete`` keeps nothing.

        Raises:
            ConfigError: If ``strategy`` is another text.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ConfigError(f"strategy must be 'keep_latest' or 'delete', not {excerpt(strategy)}")
        for thread_id in map(require_thread_id, thread_ids):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                self._database.run(WRITE, keep_latest, self.serde, thread_id)

    @counted
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the histories of delta channels in the ancestors of a checkpoint, by channel.

        Raises:
            ConfigError: If ``config`` does not name a thread, or the serializer does not decode checkpoints.
            RowError: If the parents form a cycle.
        """
        place = require_place(config)
        try:
            return read_histories(self._database, self.serde, place, channels)
        except RowError as error:
            located(error, "checkpoints", place)
            raise

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._pool.run(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while batch := await self._pool.run(lambda: [*islice(found, _ASYNC_BATCH)]):
            for item in batch:
                yield item

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return await self._pool.run(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        await self._pool.run(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._pool.run(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._pool.run(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._pool.run(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async version of `prune`."""
        await self._pool.run(lambda: self.prune(thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._pool.run(lambda: self.get_delta_channel_history(config=config, channels=channels))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version greater than ``current``: 32 digits that count up, and a random fraction.

        Args:
            current: The current version, if there is one.
            channel: Unused.
        """
        count = 0 if current is None else int(str(current).split(".", 1)[0])
        return f"{count + 1:032}.{random.random():016}"  # noqa: S311 -- distinguishes forks, and is no secret
