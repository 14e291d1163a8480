"""SealedSaver: wraps a saver, and seals everything that it stores."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Final, Literal, Self

from sealpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    RunnableConfig,
)
from sealpoint.base.metadata import names_of
from sealpoint.errors import ConfigError, PlaintextError, SealpointError, excerpt
from sealpoint.forks import reset_in_child
from sealpoint.seal.layouts import Rows
from sealpoint.seal.places import KEY
from sealpoint.seal.rows import PLAIN
from sealpoint.seal.tag import is_sealed
from sealpoint.seal.tokens import Tokens
from sealpoint.sealed.drivers import decoding_late, saver_row
from sealpoint.sealed.heads import Heads, Policy
from sealpoint.sealed.layout import CODEC, layout_of, require_ring
from sealpoint.sealed.reading import Listing, Parts, asking, get_tuple, histories
from sealpoint.sealed.steps import watch
from sealpoint.sealed.tables import tables_of
from sealpoint.sealed.writing import Deleting, Maintenance, put, put_writes
from sealpoint.serde import EncryptedSerializer, SerializerProtocol
from sealpoint.threads.store import ThreadStore

logger: Final = logging.getLogger("sealpoint.sealed")


_OPTIONAL: Final = tuple(name for name in vars(Deleting) if not name.startswith("_"))


@cache
def _without(kind: Any, names: tuple[str, ...]) -> Any:
    """Return a subclass whose methods ``names`` are those of LangGraph's base class of savers."""
    # Older releases of LangGraph lack some of these methods.
    missing = {name: getattr(kind._absent, name, getattr(BaseCheckpointSaver, name)) for name in names}
    return type(kind.__name__, (kind,), {**missing, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _lacks(saver: Any, name: str) -> bool:
    """Whether a saver does not implement a method: it is missing, or that of LangGraph's base class."""
    owner = next((base for base in type(saver).__mro__ if name in vars(base)), None)
    return owner is None or owner.__name__ == "BaseCheckpointSaver"


UnboundPolicy = Literal["refuse", "allow"]


class SealedSaver(Maintenance, BaseCheckpointSaver[Any]):
    """A saver that seals checkpoints, writes and metadata, each bound to its row; another saver stores them.

    The wrapped saver is not changed: a copy of it is used, whose serializer has no key. Every method raises a
    `SealpointError` if a row that it reads was changed, moved or exchanged, or the wrapped saver's own error
    if that saver cannot read the row. See docs/savers.md for what remains visible on each saver.

    Attributes:
        inner: The copy of the wrapped saver.

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from sealpoint.langgraph import EncryptedSerializer, SealedSaver, require_sealing
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> saver = SealedSaver(InMemorySaver(), serde=serde)
        >>> require_sealing(saver)  # raises if a value would not be sealed
        {'saver': 'SealedSaver'}

        A graph uses it like any other saver: ``builder.compile(checkpointer=saver)``.
    """

    __module__ = "sealpoint.sealed"

    # The base class whose methods replace those that a saver lacks
    _absent: ClassVar[type] = BaseCheckpointSaver

    def __new__(cls, saver: Any = None, *_: Any, **__: Any) -> Self:
        """Create an object without the methods that ``saver`` lacks: tools look for methods in the class."""
        kind: Any = cls
        if saver is not None:  # `copy.copy` passes no argument
            kind = _without(kind, tuple(name for name in _OPTIONAL if _lacks(saver, name)))
        made: Self = super().__new__(kind)
        reset_in_child(made)
        return made

    def __init__(
        self,
        saver: Any,
        serde: EncryptedSerializer,
        *,
        plain_metadata: Collection[str] = (),
        indexed_metadata: Collection[str] = (),
        pseudonyms: bool = False,
        pass_through: Collection[str] = (),
        unbound: UnboundPolicy = "refuse",
        layout: str = "auto",
        threads: ThreadStore | None = None,
        heads: Policy = "require",
        allow_write_with: SerializerProtocol | None = None,
        allow_partial_writes: bool = False,
        allow_schema: bool = False,
        allow_shared_role: bool = False,
    ) -> None:
        """Wrap a saver.

        Args:
            saver: A LangGraph saver, or one of sealpoint's. It is not changed.
            serde: Serializer that seals, whose cipher is a `RingCipher`.
            plain_metadata: Keys of metadata that stay readable, besides those that savers need.
            indexed_metadata: Keys of metadata that filters find by token. Equal values have equal tokens,
                which anybody can compare. Needs an index key in the ring.
            pseudonyms: Whether new threads get a pseudonym in the database. Needs an index key.
            pass_through: Keys of ``configurable`` for the wrapped saver, which may store them readable.
            unbound: ``refuse``, or ``allow`` to read rows that were stored without this wrapper, and so are
                not bound, during a migration. New rows are always bound.
            layout: How the saver stores a checkpoint; ``auto`` knows LangGraph's and sealpoint's savers.
            threads: Thread store, which remembers outside of the database which checkpoints the database must
                have. Needs an index key.
            heads: ``require``, or ``warn`` to continue if the thread store is not available or the database
                lacks a checkpoint; each such error is logged, and counted in `warnings`.
            allow_write_with: During a migration, the serializer of the processes that have no `SealedSaver`
                yet: it writes rows exactly as the wrapped saver alone writes them, so that those processes
                can read them. **Nothing is bound, and nothing is sealed unless that serializer seals.**
                Needs ``unbound="allow"``. See docs/migration.md.
            allow_partial_writes: Whether to read an incomplete result of a task, for a saver or a connection
                that stores writes one by one. If on, deleted writes are not detected.
            allow_schema: Whether tables may have additions that LangGraph does not create, such as triggers.
            allow_shared_role: Whether the saver's role may write a thread store on the same Postgres server.

        Raises:
            ConfigError: If an argument is invalid, or the saver cannot be sealed.
            SealingError: If the cipher cannot bind values to rows.
            SealpointError: If ``serde`` cannot read values that ``allow_write_with`` writes.
            UnknownKeyError: If an index key is needed, and the ring lacks it.
        """
        if isinstance(saver, SealedSaver):
            raise ConfigError("the saver is a SealedSaver already")
        if unbound not in ("refuse", "allow"):
            raise ConfigError(f"unbound must be 'refuse' or 'allow', not {excerpt(str(unbound))}")
        if heads not in ("require", "warn"):
            raise ConfigError(f"heads must be 'require' or 'warn', not {excerpt(str(heads))}")
        plain, indexed = names_of(plain_metadata), names_of(indexed_metadata)
        if KEY in plain or plain & indexed:
            raise ConfigError("a key is both in plain_metadata and in indexed_metadata, or is reserved")
        tokens = Tokens(lambda: require_ring(self._parts.serde))
        rows = layout_of(saver, layout, serde)(
            serde=serde,
            **CODEC,
            plain=plain | frozenset(PLAIN),
            indexed=indexed,
            tokens=tokens,
            allow_unbound=unbound == "allow",
            is_remembered=threads is not None,
            allow_partial=allow_partial_writes,
            before=allow_write_with,
        )
        if allow_write_with is not None:
            if unbound != "allow" or pseudonyms or threads is not None:
                raise ConfigError(
                    "allow_write_with writes rows that are not bound: it cannot be combined with pseudonyms,"
                    " a thread store or unbound='refuse'",
                    hint='pass unbound="allow", and add the others after allow_write_with is removed',
                )
            _require_reads(serde, allow_write_with, rows)
            logger.warning(
                "SealedSaver with allow_write_with: rows are written as %s alone writes them, and not bound",
                type(allow_write_with).__name__,
            )
        compared = None if threads is None else Heads(threads, tokens.key, heads, self._tolerate)
        named = None
        if pseudonyms:
            from sealpoint.sealed.pseudonyms import Pseudonyms  # only for a saver with this option

            named = Pseudonyms(tokens, None if compared is None else compared.has_live)
        self._parts = Parts(rows, named, compared, sorted(names_of(pass_through)))
        if indexed or pseudonyms or compared is not None:
            require_ring(serde).index_key("metadata")  # raises now, not at the first write
        self._tables = tables_of(
            saver,
            compared,
            allow_partial=allow_partial_writes,
            allow_schema=allow_schema,
            allow_shared_role=allow_shared_role,
        )
        self.inner = decoding_late(saver)
        self.inner.serde = rows.carrier()
        watch(self.inner, saver_row, notes=compared is not None)

    @property
    def serde(self) -> SerializerProtocol:
        """The serializer that seals."""
        return self._parts.serde

    @serde.setter
    def serde(self, serde: Any) -> None:
        require_ring(serde)
        self._parts = replace(self._parts, rows=replace(self._parts.rows, serde=serde))

    @property
    def allow_write_with(self) -> SerializerProtocol | None:
        """The serializer that writes unbound rows during a migration; ``None`` if rows are bound."""
        before: SerializerProtocol | None = self._parts.rows.before
        return before

    @property
    def warnings(self) -> Mapping[str, int]:
        """Number of errors that ``heads="warn"`` did not raise, by class of the error."""
        return {} if self._parts.heads is None else dict(self._parts.heads.warnings)

    def _tolerate(self, error: SealpointError) -> None:
        self._parts.serde.tally.tolerate(error)

    def __repr__(self) -> str:
        before = self.allow_write_with
        more = "" if before is None else f", allow_write_with={type(before).__name__}"
        return f"{type(self).__name__}({type(self.inner).__name__}, {self._parts.rows.layout}{more})"

    @property
    def config_specs(self) -> list[Any]:
        """Fields that a config may have for the wrapped saver."""
        return self.inner.config_specs  # type: ignore[no-any-return]

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version that the wrapped saver gives to a channel after ``current``."""
        return self.inner.get_next_version(current, channel)

    # --- reading ------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that ``config`` names, or the latest of its thread, or ``None``.

        Raises:
            ConfigError: If ``config`` does not name a thread.
            SealpointError: If the row was changed, moved or exchanged.
        """
        return self._run(get_tuple(self._parts, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, latest first.

        The wrapped saver applies the plain and indexed keys of a filter. Values of other keys are compared
        after opening, so a search for them opens every checkpoint of the thread.

        Args:
            config: Names the thread, and optionally the namespace and the id; ``None`` for all threads.
            filter: Metadata that a checkpoint must have, by key.
            before: Config of a checkpoint; only older checkpoints are yielded.
            limit: Maximum number of checkpoints.

        Raises:
            SealpointError: If a row was changed, moved or exchanged.
        """
        asked = None if config is None else self._run(asking(self._parts, config))
        listing = Listing(self._parts, asked, filter, before, limit)
        while listing.is_open:
            for row in self._run(listing.page()):
                if (found := self._run(listing.checkpoint(row), looks=False)) is not None:
                    yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the histories of delta channels in the ancestors of a checkpoint, by channel.

        Raises:
            RowError: If an ancestor is missing.
            SealpointError: If a row was changed, moved or exchanged.
        """
        return self._run(histories(self._parts, config, channels))

    # --- writing ------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and return the config that names it.

        Raises:
            ConfigError: If ``config`` does not name a thread, or the checkpoint has no id.
            SealpointError: If the serializer raises it; in that case nothing is stored.
        """
        return self._run(put(self._parts, config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task to a checkpoint.

        Raises:
            ConfigError: If ``config`` does not name a checkpoint.
            SealpointError: If the serializer raises it; in that case nothing is stored.
        """
        self._run(put_writes(self._parts, config, writes, task_id, task_path))

    # --- async ---------------------------------------------------------------------------------

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._arun(get_tuple(self._parts, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        asked = None if config is None else await self._arun(asking(self._parts, config))
        listing = Listing(self._parts, asked, filter, before, limit)
        while listing.is_open:
            for row in await self._arun(listing.page()):
                if (found := await self._arun(listing.checkpoint(row), looks=False)) is not None:
                    yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._arun(histories(self._parts, config, channels))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return await self._arun(put(self._parts, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""
        await self._arun(put_writes(self._parts, config, writes, task_id, task_path))


def _require_reads(serde: EncryptedSerializer, before: SerializerProtocol, rows: Rows) -> None:
    """Check that ``serde`` can read rows that ``before`` writes, with a sample that is not stored."""
    if isinstance(before, type) or not isinstance(before, SerializerProtocol):
        raise ConfigError(
            f"allow_write_with is {type(before).__name__}, not a serializer",
            hint="pass the serializer that the saver had without SealedSaver, such as JsonPlusSerializer()",
        )
    if rows.keeps_types:
        raise ConfigError(f"allow_write_with does not support savers with layout {rows.layout!r}")
    tag, blob = before.dumps_typed({"id": ""})
    opened = serde.open(tag, blob) if is_sealed(tag) else None
    if opened is None and serde.plaintext == "refuse":
        raise PlaintextError(
            f"{type(before).__name__} writes rows that are not sealed, but serde= refuses to read them",
            hint='create serde= with plaintext="allow" for the time of the migration',
        )
    inner = getattr(before, "serde", before)  # that of a serializer that encrypts
    if getattr(inner, "pickle_fallback", False) and (opened is None or not opened.authenticated):
        raise ConfigError(
            "allow_write_with could write unsealed pickles, which are never read",
            hint="see docs/migration.md#rows-of-pickle",
        )


# `__new__` hides the arguments, and a subclass with `__init__` of its own has others.
SealedSaver.__new__.__signature__ = inspect.signature(SealedSaver.__init__)  # type: ignore[attr-defined]
