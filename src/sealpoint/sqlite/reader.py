"""Reads checkpoints by pages of rows, with one query for all writes of a page.

The contents of a row are checked against its primary key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from sealpoint.base import Checkpoint, CheckpointTuple, DeltaChannelHistory, PendingWrite, RunnableConfig
from sealpoint.base.checkpoint import DeltaWalk
from sealpoint.base.metadata import decode_metadata
from sealpoint.base.place import Place, place_of
from sealpoint.errors import ConfigError, RowError, SealpointError, excerpt, located
from sealpoint.guards.limits import Budget
from sealpoint.seal.rows import require_document
from sealpoint.seal.tag import BOUND_MARK
from sealpoint.serde.base import SerializerProtocol, is_opaque
from sealpoint.serde.inert import Outline, make_outline
from sealpoint.sqlite import schema
from sealpoint.sqlite.database import READ, Database, Session

Key = tuple[str, str, str]  # thread_id, checkpoint_ns and checkpoint_id of a row

_TEXT: Final = {str}
_SORT_KEY: Final = itemgetter(-6, -5, -4)  # what `writes_sort_key` returns for a row, without a call
_NAMES: Final = (str, str, int, str)  # task_path, task_id, idx and channel of a write
_KEY_NAMES: Final = (str, str, str, *_NAMES)
# Types of the columns before type and value in a write of `schema.SELECT_TUPLE`
WRITE_NAMES: Final = (str, str, *_NAMES)


class CheckpointRow(NamedTuple):
    """A row of ``checkpoints``."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    type: str
    checkpoint: bytes
    metadata: bytes | str | None

    @property
    def key(self) -> Key:
        """The primary key."""
        return self[:3]

    def require_parent(self) -> str | None:
        """Return the id of the parent checkpoint, or ``None``; refuse a row with an id that is not text."""
        parent = self.parent_checkpoint_id
        if {*map(type, self[:3])} != _TEXT or not (parent is None or type(parent) is str):
            raise RowError(f"the key of row {excerpt(self.checkpoint_id)} is not text")
        if not self.checkpoint_id:  # a config that names it would mean the latest
            raise RowError("the id of a checkpoint is empty")
        return parent

    def decode(self, serde: SerializerProtocol) -> Checkpoint:
        """Return the decoded checkpoint, or the sealed value if the saver is wrapped by a SealedSaver."""
        checkpoint = serde.loads_typed((self.type, self.checkpoint))
        if isinstance(checkpoint, dict) or not is_opaque(serde, checkpoint):
            require_document(checkpoint, self.checkpoint_id)
        return checkpoint  # type: ignore[no-any-return]

    def decode_values(
        self, serde: SerializerProtocol, outline: Outline | None = None
    ) -> Mapping[str, Any] | None:
        """Return the channel values of the row's checkpoint; ``None`` if the checkpoint is not decoded."""
        try:
            if outline is not None:
                # If it is refused, the checkpoint may be right: an outline has None in place of an object
                # that is a dict, and what a carrier hands on has no outline.
                with suppress(RowError):
                    document = outline(self.type, self.checkpoint)
                    require_document(document, self.checkpoint_id)
                    return document["channel_values"]  # type: ignore[no-any-return]
            checkpoint = self.decode(serde)
        except SealpointError as error:
            located(error, "checkpoints", self.key)
            raise
        return None if is_opaque(serde, checkpoint) else checkpoint["channel_values"]

    def decode_tuple(
        self, serde: SerializerProtocol, writes: list[PendingWrite], config: RunnableConfig | None = None
    ) -> CheckpointTuple:
        """Return the checkpoint with the data stored with it; ``config``, if given, becomes its config."""
        try:
            parent = self.require_parent()
            is_bound = type(self.type) is str and BOUND_MARK in self.type
            return _make_tuple(
                (
                    config or place_of(self[:3]).config(),
                    self.decode(serde),
                    decode_metadata(self.metadata, strict=is_bound),
                    # An empty parent id counts as none, but is not the id that was sealed.
                    place_of((*self[:2], parent)).config() if parent or (is_bound and parent == "") else None,
                    writes,
                )
            )
        except SealpointError as error:
            located(error, "checkpoints", self.key)
            raise


# `CheckpointRow(...)` and `CheckpointTuple(...)` without their Python constructors.
make_row: Final[Callable[[tuple[Any, ...]], CheckpointRow]] = partial(tuple.__new__, CheckpointRow)
_make_tuple: Final[Callable[[tuple[Any, ...]], CheckpointTuple]] = partial(tuple.__new__, CheckpointTuple)


def decode_writes(
    rows: Sequence[tuple[Any, ...]], page: Sequence[Key], serde: SerializerProtocol
) -> dict[Key, list[PendingWrite]]:
    """Return the pending writes to the checkpoints of a page, by key of the checkpoint.

    Rows are those of `schema.select_writes`: they begin with the checkpoint's key if the page has several.
    """
    if len(page) == 1:
        return {page[0]: decode_pending(rows, serde, page[0])} if rows else {}
    grouped: dict[Key, list[tuple[Any, ...]]] = {}
    for row in rows:
        grouped.setdefault(row[:3], []).append(row)
    return {key: decode_pending(found, serde, key, _KEY_NAMES) for key, found in grouped.items()}


def decode_pending(
    rows: Sequence[tuple[Any, ...]],
    serde: SerializerProtocol,
    key: Sequence[str | None],
    names: tuple[type, ...] = _NAMES,
) -> list[PendingWrite]:
    """Return the pending writes to the checkpoint with ``key``, in the order of `writes_sort_key`.

    Rows end with task_path, task_id, idx, channel, type and value; ``names`` are the types of all columns but
    the last two. Raises as `decode_writes` does.
    """
    row: Sequence[Any] = (None,) * 6
    try:
        _require_names(rows, names)
        writes: list[PendingWrite] = []
        for row in rows if len(rows) == 1 else sorted(rows, key=_SORT_KEY):
            writes.append((row[-5], row[-3], serde.loads_typed(row[-2:])))
        return writes
    except SealpointError as error:
        located(error, "writes", key, task_id=row[-5], channel=row[-3])
        raise


def _require_names(rows: Sequence[tuple[Any, ...]], types: tuple[type, ...]) -> None:
    """Check the types of the columns before type and value in each row of a write."""
    for row in rows:
        if tuple(map(type, row[:-2])) != types:  # SQLite stores a BLOB in any column
            refused = RowError("the key of a write is not text and a number")
            raise located(refused, "writes", task_id=row[-5], channel=row[-3])


FIRST_PAGE_ROWS: Final = 10
PAGE_ROWS: Final = 50  # how many checkpoints are in memory at a time, whatever the length of a listing

PAGE_BYTES: Final = 16 * 1024 * 1024  # bytes of a page, if it has more than one checkpoint

# How far a delta channel is followed. LangGraph stores a snapshot every 5,000 steps at least.
MAX_ANCESTORS: Final = 100_000

# Maximum number of writes to one checkpoint that are read, and of their bytes
MAX_WRITES: Final = 200_000
MAX_WRITES_BYTES: Final = 256 * 1024 * 1024


def read_one(
    database: Database, serde: SerializerProtocol, place: Place, config: RunnableConfig
) -> CheckpointTuple | None:
    """Return the checkpoint at ``place`` with its pending writes, or ``None``."""
    try:
        found = database.run(READ, _read_one, place, is_alone=True)
    except RowError as error:
        located(error, "checkpoints", place)
        raise
    if found is None:
        return None
    row, writes = found
    pending = decode_pending(writes, serde, row.key, WRITE_NAMES) if writes else []
    return row.decode_tuple(serde, pending, config if place.checkpoint_id else None)


def _read_one(session: Session, place: Place) -> tuple[CheckpointRow, list[tuple[Any, ...]]] | None:
    thread_id, ns, checkpoint_id = place
    is_latest = not checkpoint_id
    statement = schema.SELECT_TUPLE[is_latest, session.database.has_task_path]
    budget = Budget(MAX_WRITES, MAX_WRITES_BYTES, uncounted=1)  # the checkpoint
    found = session.read(statement, place[:2] * 4 if is_latest else place * 2, budget)
    if not found or found[0][0] != "checkpoint":
        return None
    if budget.spent:
        raise _too_many_writes()
    first, *writes = found
    row = make_row(first[1:])
    if is_latest:
        checkpoint_id = row.checkpoint_id
    if first[1:4] != (thread_id, ns, checkpoint_id) or (
        is_latest and writes and any(write[1] != checkpoint_id for write in writes)
    ):
        raise RowError("the index of the table leads to the row of another checkpoint")
    return row, writes


def read_many(
    database: Database, serde: SerializerProtocol, keys: Sequence[Key]
) -> Iterator[CheckpointTuple]:
    """Yield the checkpoints of ``keys`` in this order, without those that were deleted meanwhile.

    Pages double in size: the first is often enough.
    """
    position, size = 0, FIRST_PAGE_ROWS
    while position < len(keys):
        rows, found, page = database.run(READ, _read_page, keys[position : position + size])
        writes = decode_writes(found, page, serde)
        for key in page:
            if key in rows:
                yield rows[key].decode_tuple(serde, writes.get(key, []))
        position, size = position + len(page), min(size * 2, PAGE_ROWS)


def _read_page(
    session: Session, page: Sequence[Key]
) -> tuple[dict[Key, CheckpointRow], list[tuple[Any, ...]], Sequence[Key]]:
    """Return the rows by key, their writes, and the keys that were read: fewer if the rows are large."""
    budget = Budget(PAGE_ROWS, PAGE_BYTES)
    found = session.read(schema.select_page(len(page)), [part for key in page for part in key], budget)
    rows = {row.key: row for row in map(make_row, found)}
    if budget.spent:
        page = page[: page.index(found[-1][:3]) + 1]
    writes, page = _find_writes(session, page)
    return rows, writes, page


def _find_writes(
    session: Session, page: Sequence[Key], channels: Sequence[str] = ()
) -> tuple[list[tuple[Any, ...]], Sequence[Key]]:
    """Return rows of writes, as `decode_writes` takes them, and the checkpoints whose writes were read.

    If ``channels`` is not empty, only writes to these channels are read.
    """
    task_path = "task_path" if session.database.has_task_path else "''"
    while True:
        budget = Budget(MAX_WRITES, PAGE_BYTES if len(page) > 1 else MAX_WRITES_BYTES)
        parameters = page[0] if len(page) == 1 else [part for key in page for part in key]
        statement = schema.select_writes(len(page), task_path, len(channels))
        found = session.read(statement, [*parameters, *channels], budget)
        if not budget.spent:
            return found, page
        if len(page) == 1:
            raise located(_too_many_writes(), "writes", page[0])
        page = page[: len(page) // 2]


def _too_many_writes() -> RowError:
    return RowError(f"a checkpoint has over {MAX_WRITES} writes, or over {MAX_WRITES_BYTES} bytes of writes")


def read_histories(
    database: Database, serde: SerializerProtocol, place: Place, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """Return the histories of delta channels in the ancestors of the checkpoint at ``place``.

    Ancestors are read until a stored value was found for each channel. Sealed values of each ancestor are
    opened and checked, and decoded only where a channel's value is stored.
    """
    walk, outline = DeltaWalk(channels), make_outline(serde)
    if walk.open:
        for row, writes in _read_ancestors(database, serde, place, walk.open):
            values = row.decode_values(serde, outline)
            if values is not None and not walk.open.isdisjoint(values):
                values = row.decode_values(serde)
            if values is None:
                raise ConfigError(
                    "the serializer does not decode checkpoints, so their delta channels are not known",
                    hint="call this method of the saver that wraps this saver",
                )
            walk.visit(values, writes)
            if not walk.open:
                break
    return walk.histories()


def _read_ancestors(
    database: Database, serde: SerializerProtocol, place: Place, channels: Collection[str]
) -> Iterator[tuple[CheckpointRow, list[PendingWrite]]]:
    """Yield the ancestors of a checkpoint, nearest first, with their writes to ``channels``.

    The caller may remove names from ``channels`` during the iteration.
    """
    for line in _read_lines(database, place):
        while line:
            found, page = database.run(READ, _find_writes, [row.key for row in line], sorted(channels))
            writes = decode_writes(found, page, serde)
            for key, row in zip(page, line, strict=False):
                yield row, writes.get(key, [])
            line = line[len(page) :]  # noqa: PLW2901 -- large writes may not all fit


def _read_lines(database: Database, place: Place) -> Iterator[list[CheckpointRow]]:
    """Yield the ancestors of a checkpoint in batches, nearest first.

    Later ids sort after earlier ones, so the rows directly before a checkpoint are its ancestors, except
    for rows of forks between them. One range of rows therefore contains many ancestors, and takes half the
    time of finding the chain first and then each row by its key. If forks interrupt the chain, the ranges
    become shorter, down to one row.
    """
    statement = schema.SELECT_PARENT if place.checkpoint_id else schema.SELECT_LATEST_PARENT
    start = database.read(statement, place if place.checkpoint_id else place[:2])
    seen = {row[0] for row in start}
    wanted, size = start[0][1] if start else None, FIRST_PAGE_ROWS
    while wanted:
        rows = _read_range(database, place, wanted, size)
        line: list[CheckpointRow] = []
        while wanted:
            if wanted in seen:
                raise RowError(f"the parents of checkpoint {excerpt(str(wanted))} form a cycle")
            row = rows.pop(wanted, None)
            if row is None:
                break
            line.append(row)
            seen.add(wanted)
            wanted = row.require_parent()
        if len(seen) > MAX_ANCESTORS:
            raise RowError(f"a checkpoint has over {MAX_ANCESTORS} ancestors")
        if not line:
            return
        yield line
        size = max(1, len(line)) if rows else min(size * 2, PAGE_ROWS)


def _read_range(database: Database, place: Place, first: str, size: int) -> dict[str, CheckpointRow]:
    found = database.read(schema.SELECT_RANGE, (*place[:2], first, size), Budget(size, PAGE_BYTES))
    rows: dict[str, CheckpointRow] = {}
    for kind, data, thread_id, checkpoint_ns, checkpoint_id, parent in found:
        if (thread_id, checkpoint_ns) != place[:2]:
            raise RowError("the index of the table leads to the row of another checkpoint")
        rows[checkpoint_id] = CheckpointRow(thread_id, checkpoint_ns, checkpoint_id, parent, kind, data, None)
    return rows


def run_all(session: Session, statements: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Run each of ``statements`` once with each of ``rows`` as parameters."""
    for statement in statements:
        session.run(statement, rows)


def delete_runs(session: Session, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints whose metadata names one of the runs, and their writes."""
    for run_id in run_ids:
        run_all(session, schema.DELETE_ONE, session.read(schema.SELECT_OF_RUN, (run_id,)))


def keep_latest(session: Session, serde: SerializerProtocol, thread_id: str) -> None:
    """Delete all checkpoints of a thread but the latest of each namespace, and the ancestors these need."""
    keys: list[Any] = session.read(schema.SELECT_OF_THREAD, (thread_id,))
    latest = {key[1]: key for key in reversed(keys)}  # keys come latest first
    needed = {kept for key in latest.values() for kept in _chain_to_snapshots(session, serde, key)}
    run_all(session, schema.DELETE_ONE, [key for key in keys if key not in needed])


def _chain_to_snapshots(session: Session, serde: SerializerProtocol, key: Key) -> Iterator[Key]:
    """Yield a checkpoint and its ancestors, until every delta channel has a stored value."""
    thread_id, checkpoint_ns, checkpoint_id = key
    place = {"thread": thread_id, "ns": checkpoint_ns, "id": checkpoint_id, "most": MAX_ANCESTORS + 1}
    chain = session.read(schema.SELECT_ANCESTORS, place)
    ids = {row[0] for row in chain}
    if len(ids) != len(chain) or (chain and chain[-1][1] in ids):
        error = RowError(f"the parents of checkpoint {excerpt(checkpoint_id)} form a cycle")
        raise located(error, "checkpoints", key)
    if len(chain) > MAX_ANCESTORS:
        error = RowError(f"checkpoint {excerpt(checkpoint_id)} has over {MAX_ANCESTORS} ancestors")
        raise located(error, "checkpoints", key)
    row = CheckpointRow(*session.read(schema.select_page(1), key)[0])
    open_channels = set(
        decode_metadata(row.metadata, strict=False).get("counters_since_delta_snapshot") or {}
    )
    for ancestor_id, _ in chain:
        ancestor = thread_id, checkpoint_ns, ancestor_id
        yield ancestor
        if open_channels:
            row = CheckpointRow(*session.read(schema.select_page(1), ancestor)[0])
            # What an opaque checkpoint holds is not known: nothing that may be needed is deleted.
            open_channels -= (row.decode_values(serde) or {}).keys()
        if not open_channels:
            return
