"""Writing: checkpoints stored, copied and deleted, and recorded in the thread store.

A put is recorded after it is stored: a process that is killed between the two leaves a row that the store
does not know. A thread is recorded as deleted before it is. Where a saver chooses the rows itself, it is
recorded first that they may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sealpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    RunnableConfig,
)
from sealpoint.base.checkpoint import NULL_TASK_ID
from sealpoint.base.place import Place
from sealpoint.errors import RolledBackError
from sealpoint.sealed.body import digest_of
from sealpoint.sealed.calls import ID_BYTES, new_call, places_of
from sealpoint.sealed.entry import Entry
from sealpoint.sealed.heads import Heads, Known, spot_of
from sealpoint.sealed.made import MARK
from sealpoint.sealed.pages import Request
from sealpoint.sealed.procedures import Asked, Procedures, named, thread_config
from sealpoint.sealed.reading import Listed, Listing, compared
from sealpoint.sealed.steps import Call, Do, Get, Steps
from sealpoint.threads.specials import NOTHING_REPLACED, Special
from sealpoint.threads.store import Head, Kind, Spot

_KEEP_LATEST: Final = "keep_latest"
_DELETE: Final = "delete"


def put(
    do: Procedures,
    asked: Asked,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Store a checkpoint, and return the config that names it."""
    claim = None if do.heads is None else (yield from _claim(do.heads))
    made = (yield from _made(do, asked)) if MARK in metadata else None
    arguments = do.put(asked, config, checkpoint, metadata, new_versions, claim, made)
    # All is computed before: after a wait for the disk, the caches of the processor are cold.
    record = _record(do, asked.place, checkpoint["id"], claim)
    stored = named(config, checkpoint, asked)
    yield Do("put", (asked.config, *arguments))
    do.acknowledged.forget(asked.place)
    yield from record
    return stored


def _made(do: Procedures, asked: Asked) -> Steps[str | None]:
    """Return what a checkpoint says of the writes to its parent.

    LangGraph stores a checkpoint of a delta graph when all writes to delta channels are stored.
    """
    if not asked.place.checkpoint_id:
        return None
    found = yield Get(asked.config)
    return (yield Call(do.made, (found[0], asked), found[0])) if found else None


def put_writes(
    do: Procedures, asked: Asked, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Steps[None]:
    """Store the writes of a task to a checkpoint.

    A special write that is stored alone replaces the one before it, which the thread store remembers then. It
    remembers, too, what the user has stored.
    """
    call = new_call(writes)
    arguments = do.put_writes(asked, writes, task_id, task_path, call)
    ordinary, special = places_of(call)
    kept = [*special, *(ordinary if task_id == NULL_TASK_ID else ())]
    since = (yield do.heads.last_special) if do.heads is not None and kept else None
    yield Do("put_writes", (asked.config, *arguments))
    if ordinary:
        do.acknowledged.add(asked.place, task_id, call)
    if do.heads is not None and since is not None:
        if ordinary:
            since = NOTHING_REPLACED  # a saver may have ignored it
        events = [Special(0, task_id, idx, call[:ID_BYTES], since) for idx in kept]
        yield do.heads.record_specials(asked.place, events)


def _claim(heads: Heads) -> Steps[str | None]:
    """Check that heads can be recorded, and return what the checkpoint says of the store."""
    yield heads.require_writable
    return heads.make_claim()


def _record(do: Procedures, place: Place, checkpoint_id: str, claim: str | None) -> Sequence[Call]:
    """Return what records a checkpoint, once it is stored."""
    if do.heads is None:
        return ()
    spot = Spot(place.thread_id, place.checkpoint_ns, checkpoint_id)
    return (do.heads.record(spot, digest_of(claim, "", b"")),)


def copy_thread(do: Procedures, source: Asked, target: Asked) -> Steps[None]:
    """Copy all checkpoints and writes of a thread to another.

    Raises:
        SealpointError: If a row of the source is not what was stored there.
    """
    listing, rows = Listing(do, source, None, None, None), list[Listed]()
    while listing.is_open:
        rows += yield from listing.page()
    for row in reversed(rows):
        if (entry := (yield from listing.take(row))) is None:
            continue
        claim = None if do.heads is None else (yield from _claim(do.heads))
        arguments, writes = do.copied(entry, target, claim)
        place = entry.place._replace(thread_id=target.place.thread_id)
        record = _record(do, place, str(place.checkpoint_id), claim)
        yield Do("put", arguments)
        yield from record
        for each in writes:
            yield Do("put_writes", each)
        if do.heads is not None and (events := _specials(entry)):
            yield do.heads.record_specials(place, events)


def _specials(entry: Entry) -> list[Special]:
    """Return events for the special writes of a copy, and for those of the user."""
    return [
        Special(0, write.task_id, write.claims.idx, write.claims.call_id, NOTHING_REPLACED)
        for write in entry.stored_writes()
        if write.is_kept and write.claims and write.claims.call
    ]


def delete_thread(do: Procedures, asked: Asked) -> Steps[None]:
    """Delete all checkpoints and writes of a thread."""
    column = asked.place.thread_id
    for each in (column, *do.pseudonyms.others(asked.thread_id, column)):
        yield from _delete_column(do, each)
    do.pseudonyms.forget(asked.thread_id)


def _delete_column(do: Procedures, column: str) -> Steps[None]:
    do.acknowledged.forget_thread(column)
    if do.heads is not None:
        yield from do.heads.delete_thread(column)
    yield Do("delete_thread", (column,))
    if do.heads is not None and (yield from do.heads.has_live(column)):
        # What was stored meanwhile is deleted too: its row may be from before the deletion, or from after.
        yield from do.heads.delete_thread(column)
        yield Do("delete_thread", (column,))
        yield from do.heads.delete_thread(column)


def prune(do: Procedures, threads: Sequence[Asked], strategy: str) -> Steps[None]:
    """Delete older checkpoints, as the wrapped saver does.

    Raises:
        RolledBackError: If one is missing already: it would look like a deleted one afterwards.
    """
    if strategy == _DELETE:
        threads = _with_others(do, threads)
    columns = [asked.place.thread_id for asked in threads]
    for column in columns if strategy == _DELETE else ():
        do.acknowledged.forget_thread(column)
    if do.heads is None:
        yield Do("prune", (columns,), {"strategy": strategy})
        return
    for asked in threads:
        listing = Listing(do, asked, None, None, None)
        while listing.is_open:
            yield from listing.page()
        known = yield from do.heads.of_thread(asked.place.thread_id)
        yield from do.heads.append([] if known is None else _leaving(asked, known, strategy))
    try:
        yield Do("prune", (columns,), {"strategy": strategy})
    except Exception:  # refused, or ended early: what is still there must be there from now on
        yield from _settle_threads(do, do.heads, threads, strategy)
        raise
    if strategy == _DELETE:
        for column in columns:
            yield from do.heads.delete_thread(column)
        return
    yield from _settle_threads(do, do.heads, threads, strategy)


def _with_others(do: Procedures, threads: Sequence[Asked]) -> Sequence[Asked]:
    """Return threads that are to be deleted, with all that may stand for them in the database."""
    found = [*threads]
    for asked in threads:
        others = do.pseudonyms.others(asked.thread_id, asked.place.thread_id)
        found += [asked._replace(place=asked.place._replace(thread_id=column)) for column in others]
        do.pseudonyms.forget(asked.thread_id)
    return found


def delete_for_runs(do: Procedures, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints of runs, as the wrapped saver does."""
    if do.heads is None:
        yield Do("delete_for_runs", (run_ids,))
        return
    heads = list[Head]()
    for run_id in run_ids:
        heads += yield from _of_run(do, do.heads, run_id)
    yield from do.heads.append(heads)
    try:
        yield Do("delete_for_runs", (run_ids,))
    except Exception:
        yield from _settle_each(do.heads, heads)
        raise
    yield from do.heads.append([Head(head.spot, Kind.DELETED, b"") for head in heads])


def _of_run(do: Procedures, heads: Heads, run_id: str) -> Steps[list[Head]]:
    """Return the heads of the checkpoints of a run, as they are when their deletion begins.

    Raises:
        SealpointError: If a row is not what was stored there: the database may name it for any run.
    """
    found: list[CheckpointTuple] = yield Request(None, {"run_id": run_id})
    known = yield from heads.find([*map(spot_of, found)])
    which = list[Head]()
    for item in found if known is not None else ():
        head = known and known.heads.get(spot_of(item))
        if not head or head.kind is Kind.DELETED:
            continue
        entry = yield from do.opened(item, None)
        if known is None or (yield from compared(do, None, entry, known)) is None:
            continue
        if str(entry.metadata.get("run_id")) == str(run_id):
            which.append(head._replace(kind=Kind.LEAVING))
    return which


def _leaving(asked: Asked, known: Known, strategy: str) -> list[Head]:
    """Return the heads of the checkpoints that may be pruned, as they are from now on."""
    heads = [head for head in known.heads.values() if head.kind is Kind.PUT]
    newest = _newest(known) if strategy == _KEEP_LATEST else None
    leaving = [head._replace(kind=Kind.LEAVING) for head in heads if head is not newest]
    # If another checkpoint is stored now, the newest is pruned: `Heads.may_be_pruned` looks for the others.
    if newest is not None and not any(head.spot[:2] == newest.spot[:2] for head in leaving):
        leaving.append(Head(Spot(asked.place.thread_id, "", ""), Kind.LEAVING, b""))
    return leaving


def _newest(known: Known) -> Head | None:
    """Return the head that keeping the latest must keep: of other namespaces, savers delete all."""
    heads = [head for head in known.heads.values() if head.kind is Kind.PUT and not head.spot.checkpoint_ns]
    return max(heads, default=None)


def _settle_threads(do: Procedures, heads: Heads, threads: Sequence[Asked], strategy: str) -> Steps[None]:
    """Record what has gone.

    Raises:
        RolledBackError: If the latest has gone that should have been kept.
    """
    for asked in threads:
        column = asked.place.thread_id
        known = yield from heads.of_thread(column)
        if known is None:
            continue
        there = {spot_of(found) for found in (yield Request(thread_config(column)))}
        lost = _newest(known) if strategy == _KEEP_LATEST else None
        if lost is not None and (lost.spot in there or (yield from _may_go(do, heads, asked, lost))):
            lost = None
        kept = yield from _settle(heads, [head for head in known.heads.values() if head is not lost], there)
        yield from _settle(heads, kept, map(spot_of, (yield Request(thread_config(column)))))
        if lost is not None:
            heads.report(RolledBackError(asked.thread_id, None, lost.spot.checkpoint_id))


def _may_go(do: Procedures, heads: Heads, asked: Asked, head: Head) -> Steps[bool]:
    """Whether a later checkpoint is the latest, not recorded yet, or another process has deleted this one."""
    known = yield from heads.find([head.spot])
    if known is None or head not in known.heads.values():
        return True
    asked = asked._replace(place=Place(asked.place.thread_id, "", None), has_ns=True)
    found = yield Get(asked.config)
    return bool(found) and spot_of((yield from do.opened(found[0], asked)).found) > head.spot


def _settle_each(heads: Heads, which: Iterable[Head]) -> Steps[None]:
    for _ in range(2):
        left = list[Spot]()
        for head in which:
            left += [spot_of(found) for found in (yield Get(Place(*head.spot).config()))]
        which = yield from _settle(heads, which, left)


def _settle(heads: Heads, which: Iterable[Head], left: Iterable[Spot]) -> Steps[list[Head]]:
    """Record which checkpoints have gone.

    Returns:
        Those that were recorded as kept. A deletion may have ended meanwhile, so they are looked for again.
    """
    there = {*left}
    gone = [Head(head.spot, Kind.DELETED, b"") for head in which if head.spot not in there]
    kept = [
        head._replace(kind=Kind.PUT) for head in which if head.spot in there and head.kind is Kind.LEAVING
    ]
    yield from heads.append(gone + kept)
    return kept
