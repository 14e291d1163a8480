"""Writing: stores, copies and deletes checkpoints, and records these changes in the thread store.

A checkpoint is recorded after it is stored: a process that is killed in between leaves a row that the thread
store does not know. A thread is recorded as deleted before it is deleted. If the saver itself chooses rows to
delete, the thread store first records which rows may disappear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sealpoint.base.checkpoint import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    RunnableConfig,
)
from sealpoint.base.metadata import get_checkpoint_metadata, get_serializable_checkpoint_metadata
from sealpoint.base.place import Place, require_channels
from sealpoint.crypto.cipher import UNBOUND
from sealpoint.errors import ConfigError, RolledBackError
from sealpoint.seal.calls import (
    ID_BYTES,
    NULL_TASK_ID,
    WRITES_IDX_MAP,
    Claims,
    Write,
    new_call,
    pack_made,
    places_of,
    require_calls,
)
from sealpoint.seal.entry import Entry, require_names
from sealpoint.seal.heads import NOTHING_REPLACED, Head, Kind, Special
from sealpoint.seal.layouts import Inline, Rows
from sealpoint.seal.places import Spot, require_unicode
from sealpoint.seal.rows import MARK, Header, digest_of
from sealpoint.sealed.heads import Heads, Known
from sealpoint.sealed.reading import Asked, Listed, Listing, Parts, asking, open_listed, opening, stored_bytes
from sealpoint.sealed.steps import Call, Do, Request, Steps, get_at, spot_of
from sealpoint.sealed.tables import Wrapping

_KEEP_LATEST: Final = "keep_latest"
_DELETE: Final = "delete"


def put(
    parts: Parts,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Store a checkpoint, and return the config that names it."""
    if parts.rows.before is not None:
        done: RunnableConfig = yield _as_before(parts, "put", config, checkpoint, metadata, new_versions)
        return done
    asked = yield from asking(parts, config, is_new=True)
    rows, heads, (column, checkpoint_ns, parent) = parts.rows, parts.heads, asked.place
    claim = None if heads is None else (yield from heads.claim())
    made = (yield from _made(parts, asked)) if MARK in metadata else None
    spot = Spot(column, checkpoint_ns, checkpoint["id"])
    if not require_unicode("the id of the checkpoint", spot.checkpoint_id):
        raise ConfigError("the id of the checkpoint is empty")
    merge = get_serializable_checkpoint_metadata if isinstance(rows, Inline) else get_checkpoint_metadata
    header: Header = {
        "metadata": merge(config, metadata),
        "parent": parent or None,
        "thread": None if asked.thread_id == column else asked.thread_id,
        "store": claim,
        "made": made,
    }
    _require_names(rows, checkpoint["channel_values"])
    sealed = rows.seal_checkpoint(spot, header, checkpoint, new_versions)
    # Everything is computed first: after a wait for the disk, the caches of the processor are cold.
    record = None if heads is None else heads.record(spot, digest_of(claim, "", b""))
    stored: RunnableConfig = {
        "configurable": {
            **asked.more,
            "thread_id": config["configurable"]["thread_id"],  # of the caller's type
            "checkpoint_ns": checkpoint_ns,
            "checkpoint_id": spot.checkpoint_id,
        }
    }
    yield Do("put", (asked.place.config(asked.more), *sealed))
    parts.acknowledged.pop(asked.place, None)
    if record is not None:
        yield record
    return stored


def _as_before(parts: Parts, method: str, *arguments: Any) -> Do:
    """Return the request to store unbound values by ``allow_write_with``'s serializer, and count the call."""
    parts.serde.tally.add(UNBOUND, "")
    return Do(method, arguments)


def _require_names(rows: Rows, channels: Collection[Any], *task: Any) -> None:
    """Refuse a name that a database would refuse, perhaps after it has stored values of other channels."""
    require_channels(channels, *task)
    if isinstance(rows, Inline) and any("\0" in channel for channel in channels):
        raise ConfigError("the name of a channel contains a NUL, which Postgres cannot store")


def _made(parts: Parts, asked: Asked) -> Steps[str | None]:
    """Return the text for a new checkpoint's header that lists the writes to its parent.

    LangGraph stores a checkpoint with delta channels after all writes to these channels are stored.
    """
    if not asked.place.checkpoint_id:
        return None
    spot = Spot(*asked.place[:2], asked.place.checkpoint_id)
    calls = [*parts.acknowledged.get(spot, ())]  # copied before the search: others may be stored meanwhile

    def made(found: CheckpointTuple) -> str:
        require_names(found, spot)
        writes = parts.rows.open_writes(spot, found.pending_writes or ())
        if not parts.rows.allow_partial:
            require_calls(calls, writes)
        return pack_made(writes)

    with asked:
        found = yield get_at(asked.config)
        return (yield Call(made, (found,), partial(stored_bytes, found))) if found else None


def put_writes(
    parts: Parts, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Steps[None]:
    """Store the writes of a task to a checkpoint.

    If a call stores only special writes, these replace the previous ones, and the thread store remembers
    them. The thread store also remembers the writes of a user.
    """
    if parts.rows.before is not None:
        yield _as_before(parts, "put_writes", config, writes, task_id, task_path)
        return
    asked = yield from asking(parts, config, is_new=True)
    heads = parts.heads
    _require_names(parts.rows, [channel for channel, _ in writes], task_id, task_path)
    call = new_call(writes)
    if not asked.place.checkpoint_id:
        raise ConfigError("the config has no 'checkpoint_id' in 'configurable'")
    spot = Spot(*asked.place[:2], asked.place.checkpoint_id)
    claimed = [
        (Claims(task_path, WRITES_IDX_MAP.get(channel, idx), call), task_id, channel, value)
        for idx, (channel, value) in enumerate(writes)
    ]
    sealed = parts.rows.seal_writes(spot, claimed)
    ordinary, special = places_of(call)
    kept = [*special, *(ordinary if task_id == NULL_TASK_ID else ())]
    since = (yield heads.call(heads.store.last_special)) if heads is not None and kept else None
    yield Do("put_writes", (asked.config, sealed, task_id, task_path))
    if ordinary:
        parts.acknowledged.add(spot, task_id, call)
    if heads is not None and since is not None:
        if ordinary:
            since = NOTHING_REPLACED  # a saver may have ignored it
        events = [Special(0, task_id, idx, call[:ID_BYTES], since) for idx in kept]
        yield heads.call(heads.store.append_specials, spot, events)


def copy_thread(parts: Parts, source_thread_id: str, target_thread_id: str) -> Steps[None]:
    """Copy all checkpoints and writes of a thread to another."""
    source = yield from asking(parts, _named(source_thread_id))
    target = yield from asking(parts, _named(target_thread_id), is_new=True)
    listing, rows = Listing(parts, source), list[Listed]()
    while listing.is_open:
        rows += yield from listing.page()
    for row in reversed(rows):
        if (entry := (yield from listing.take(row))) is not None:
            yield from _copy(parts, entry, target)


def _copy(parts: Parts, entry: Entry, target: Asked) -> Steps[None]:
    rows, heads = parts.rows, parts.heads
    claim = None if heads is None else (yield from heads.claim())
    checkpoint = entry.document()  # messages to an old one are copied with the writes to its parent
    spot = entry.spot._replace(thread_id=target.place.thread_id)
    # A saver that is given a version without a value would forget the value that is there already.
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    header: Header = {
        "metadata": entry.metadata,
        "parent": entry.parent,
        "thread": None if target.thread_id == spot.thread_id else target.thread_id,
        "store": claim,
        "made": entry.made,
    }
    new_versions = {name: version for name, version in versions.items() if name in values}
    place, calls = Place(*spot), _calls_of(entry.writes())
    config, parent = place.config(target.more), place._replace(checkpoint_id=entry.parent).config(target.more)
    if rows.before is not None:
        yield _as_before(parts, "put", parent, checkpoint, entry.metadata, new_versions)
        for task_id, task_path, group in calls:
            pairs = [(write.channel, write.value) for write in group]
            yield _as_before(parts, "put_writes", config, pairs, task_id, task_path)
        return
    sealed = rows.seal_checkpoint(spot, header, checkpoint, new_versions)
    writes = [(config, rows.seal_writes(spot, group), id_, path) for id_, path, group in calls]
    yield Do("put", (parent, *sealed))
    if heads is not None:
        yield heads.record(spot, digest_of(claim, "", b""))
    for each in writes:
        yield Do("put_writes", each)
    events = [
        Special(0, write.task_id, write.claims.idx, write.claims.call_id, NOTHING_REPLACED)
        for write in entry.stored_writes()
        if write.is_kept and write.claims and write.claims.call
    ]
    if heads is not None and events:
        yield heads.call(heads.store.append_specials, spot, events)


def _calls_of(writes: Sequence[Write]) -> Iterator[tuple[str, str, list[Write]]]:
    """Yield the calls of ``put_writes`` that store copied writes: task id, task path, and writes with claims.

    A saver numbers the writes of a call by position, and a copy must store each write under the number that
    is sealed in it: so the writes of a call are passed together. Savers read tasks in the order of their
    paths, which they do not return. If a write is unbound, without a sealed number, new numbers keep order.
    """
    tasks = dict[str, list[Write]]()
    for write in writes:
        tasks.setdefault(write.task_id, []).append(write)
    has_paths = all(write.claims for write in writes)
    for position, (task_id, group) in enumerate(tasks.items()):
        claims = next((write.claims for write in group if write.claims), None)
        if claims and has_paths:
            path, found = claims.task_path, group
        else:
            path = f"{position:08}" if position else ""  # the first may be the user, whose path is empty
            found = [
                each._replace(claims=each.claims and each.claims._replace(task_path=path)) for each in group
            ]
        special = [
            write._replace(claims=write.claims or Claims(path, WRITES_IDX_MAP[write.channel]))
            for write in found
            if write.channel in WRITES_IDX_MAP
        ]
        numbered = _numbered([write for write in found if write.channel not in WRITES_IDX_MAP], path)
        if numbered:  # a special write stood where there is no number
            places = [idx for idx in range(max(numbered) + 1) if special or idx in numbered]
            yield task_id, path, [numbered[idx] if idx in numbered else special[0] for idx in places]
        if special:
            yield task_id, path, special


def _numbered(writes: Sequence[Write], path: str) -> Mapping[int, Write]:
    """Return ordinary writes by number, the position of a write in its call.

    The number of an unbound write is not known: if there is such a write, all writes are numbered in the
    order of the saver, without their calls, whose descriptions have other numbers.
    """
    if all(write.claims for write in writes):
        return {write.claims.idx: write for write in writes if write.claims}
    return {idx: write._replace(claims=Claims(path, idx)) for idx, write in enumerate(writes)}


def _named(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


def delete_thread(parts: Parts, thread_id: str) -> Steps[None]:
    """Delete all checkpoints and writes of a thread."""
    asked, heads = (yield from asking(parts, _named(thread_id))), parts.heads
    for each in _under_all_names(parts, asked):
        parts.forget(each)
        column = each.place.thread_id
        deletion = Do("delete_thread", (column,))
        if heads is None:
            yield deletion
            continue
        record = heads.call(heads.store.delete_thread, column)
        yield record
        yield deletion
        if (yield from heads.has_live(column)):
            # What was stored meanwhile is deleted too: its row may be from before or after the deletion.
            yield record
            yield deletion
            yield record


def _under_all_names(parts: Parts, asked: Asked) -> list[Asked]:
    """Return requests for a deleted thread, one for each of its possible names in the database."""
    column = asked.place.thread_id
    others = () if parts.pseudonyms is None else parts.pseudonyms.others(asked.thread_id, column)
    return [asked._replace(place=asked.place._replace(thread_id=name)) for name in (column, *others)]


def prune(parts: Parts, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
    """Delete older checkpoints, as the wrapped saver does.

    With a thread store, a checkpoint that is missing already is an error: later it would seem pruned.
    """
    threads = list[Asked]()
    for thread_id in thread_ids:
        threads.append((yield from asking(parts, _named(thread_id))))
    if strategy == _DELETE:
        threads = [each for asked in threads for each in _under_all_names(parts, asked)]
        for asked in threads:
            parts.forget(asked)
    columns = [asked.place.thread_id for asked in threads]
    pruning = Do("prune", (columns,), {"strategy": strategy})
    heads = parts.heads
    if heads is None:
        yield pruning
        return
    for asked in threads:
        listing = Listing(parts, asked)
        while listing.is_open:
            yield from listing.page()
        known = yield from heads.of_thread(asked.place.thread_id)
        yield from heads.append([] if known is None else _leaving(asked, known, strategy))
    try:
        yield pruning
    except Exception:  # refused, or ended early: the checkpoints that are left must exist from now on
        yield from _settle_threads(parts, heads, threads, strategy)
        raise
    if strategy == _DELETE:
        for column in columns:
            yield heads.call(heads.store.delete_thread, column)
    else:
        yield from _settle_threads(parts, heads, threads, strategy)


def delete_for_runs(parts: Parts, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints of runs, as the wrapped saver does."""
    if parts.heads is None:
        yield Do("delete_for_runs", (run_ids,))
        return
    heads = list[Head]()
    for run_id in run_ids:
        heads += yield from _of_run(parts, parts.heads, run_id)
    yield from parts.heads.append(heads)
    try:
        yield Do("delete_for_runs", (run_ids,))
    except Exception:
        yield from _settle_each(parts.heads, heads)
        raise
    yield from parts.heads.append([Head(head.spot, Kind.DELETED, b"") for head in heads])


def _of_run(parts: Parts, heads: Heads, run_id: str) -> Steps[list[Head]]:
    """Return the heads of the checkpoints of a run, marked as about to be deleted.

    Each row is opened, because the readable run id in the database may be wrong.
    """
    found: list[CheckpointTuple] = yield Request(None, {"run_id": run_id})
    known = yield from heads.find([*map(spot_of, found)])
    which = list[Head]()
    for item in found if known is not None else ():
        head = known and known.heads.get(spot_of(item))
        if not head or head.kind is Kind.DELETED:
            continue
        entry = yield from open_listed(parts, None, (item, known))
        if entry is not None and str(entry.metadata.get("run_id")) == str(run_id):
            which.append(head._replace(kind=Kind.LEAVING))
    return which


def _leaving(asked: Asked, known: Known, strategy: str) -> list[Head]:
    """Return the heads of the checkpoints that may be pruned, marked as about to be deleted."""
    heads = [head for head in known.heads.values() if head.kind is Kind.PUT]
    newest = _newest(known) if strategy == _KEEP_LATEST else None
    leaving = [head._replace(kind=Kind.LEAVING) for head in heads if head is not newest]
    # If another checkpoint is stored now, the newest is pruned: `Heads.may_be_pruned` looks for the others.
    if newest is not None and not any(head.spot[:2] == newest.spot[:2] for head in leaving):
        leaving.append(Head(Spot(asked.place.thread_id, "", ""), Kind.LEAVING, b""))
    return leaving


def _newest(known: Known) -> Head | None:
    """Return the head that ``keep_latest`` must keep: in other namespaces savers delete all checkpoints."""
    heads = [head for head in known.heads.values() if head.kind is Kind.PUT and not head.spot.checkpoint_ns]
    return max(heads, default=None)


def _settle_threads(parts: Parts, heads: Heads, threads: Sequence[Asked], strategy: str) -> Steps[None]:
    """Record which checkpoints were deleted; with ``keep_latest`` the latest must not be among them."""
    for asked in threads:
        column = asked.place.thread_id
        known = yield from heads.of_thread(column)
        if known is None:
            continue
        rows = Request({"configurable": {"thread_id": column}})
        there = {spot_of(found) for found in (yield rows)}
        lost = _newest(known) if strategy == _KEEP_LATEST else None
        if lost is not None and (lost.spot in there or (yield from _may_go(parts, heads, asked, lost))):
            lost = None
        kept = yield from _settle(heads, [head for head in known.heads.values() if head is not lost], there)
        yield from _settle(heads, kept, map(spot_of, (yield rows)))
        if lost is not None:
            error = RolledBackError(column, None, lost.spot.checkpoint_id)
            heads.report(error, lost.spot, asked.thread_id)


def _may_go(parts: Parts, heads: Heads, asked: Asked, head: Head) -> Steps[bool]:
    """Whether ``head``'s checkpoint may be missing: a later one exists, or another process deleted it."""
    known = yield from heads.find([head.spot])
    if known is None or head not in known.heads.values():
        return True
    asked = asked._replace(place=Place(asked.place.thread_id, "", None), has_ns=True)
    found = yield get_at(asked.config)
    return found is not None and (yield opening(parts, found, asked)).spot > head.spot


def _settle_each(heads: Heads, which: Iterable[Head]) -> Steps[None]:
    for _ in range(2):
        left = list[Spot]()
        for head in which:
            found = yield get_at(Place(*head.spot).config())
            left += [] if found is None else [spot_of(found)]
        which = yield from _settle(heads, which, left)


def _settle(heads: Heads, which: Iterable[Head], left: Iterable[Spot]) -> Steps[list[Head]]:
    """Record missing checkpoints of ``which`` as deleted, and the others as kept; return the kept ones.

    ``left`` has the checkpoints read from the database. A second reading shows deletions that ended late.
    """
    there = {*left}
    gone = [Head(head.spot, Kind.DELETED, b"") for head in which if head.spot not in there]
    kept = [
        head._replace(kind=Kind.PUT) for head in which if head.spot in there and head.kind is Kind.LEAVING
    ]
    yield from heads.append(gone + kept)
    return kept


class Deleting(Wrapping):
    """The methods of `SealedSaver` that a saver may lack; the saver chooses the rows to delete."""

    _parts: Parts

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints and writes of a thread."""
        self._run(delete_thread(self._parts, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._arun(delete_thread(self._parts, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of the runs, and the writes to them, as the wrapped saver does."""
        self._run(delete_for_runs(self._parts, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._arun(delete_for_runs(self._parts, run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = _KEEP_LATEST) -> None:
        """Delete older checkpoints, as the wrapped saver does."""
        self._run(prune(self._parts, _listed(thread_ids), strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = _KEEP_LATEST) -> None:
        """Async version of `prune`."""
        await self._arun(prune(self._parts, _listed(thread_ids), strategy))


class Maintenance(Deleting):
    """All methods of `SealedSaver` that delete and copy."""

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another, each sealed again for its place.

        All rows of the thread are in memory during the call.

        Raises:
            SealpointError: If a row of the source was changed, moved or exchanged. The older checkpoints are
                already copied in that case.
        """
        self._run(copy_thread(self._parts, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._arun(copy_thread(self._parts, source_thread_id, target_thread_id))


def _listed(thread_ids: Sequence[str]) -> Sequence[str]:
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids is one string, not a sequence of thread ids")
    return thread_ids
