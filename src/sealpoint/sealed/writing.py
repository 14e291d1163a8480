"""Writing: checkpoints stored, copied and deleted, and recorded in the thread store.

A put is recorded after it is stored: a process that is killed between the two leaves a row that the store
does not know. A thread is recorded as deleted before it is. Where a saver chooses the rows itself, it is
recorded first that they may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sealpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, RunnableConfig
from sealpoint.base.place import Place
from sealpoint.sealed.body import digest_of
from sealpoint.sealed.heads import Heads, spot_of
from sealpoint.sealed.pages import Request
from sealpoint.sealed.procedures import Asked, Procedures, named, thread_config
from sealpoint.sealed.reading import Listed, Listing
from sealpoint.sealed.steps import Do, Get, Steps
from sealpoint.threads.store import Head, Kind, Spot


def put(
    do: Procedures,
    asked: Asked,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    """Store a checkpoint, and return the config that names it."""
    claim = yield from _claim(do)
    arguments = do.put(asked, config, checkpoint, metadata, new_versions, claim)
    yield Do("put", (asked.config, *arguments))
    yield from _record(do, asked.place._replace(checkpoint_id=checkpoint["id"]), claim)
    return named(config, checkpoint, asked)


def _claim(do: Procedures) -> Steps[str | None]:
    """Check that heads can be recorded, and return what the checkpoint says of the store."""
    if do.heads is None:
        return None
    yield from do.heads.require_writable()
    return do.heads.make_claim()


def _record(do: Procedures, place: Place, claim: str | None) -> Steps[None]:
    if do.heads is not None:
        spot = Spot(place.thread_id, place.checkpoint_ns, str(place.checkpoint_id))
        yield from do.heads.record(spot, digest_of(claim, "", b""))


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
        claim = yield from _claim(do)
        arguments, writes = do.copied(entry, target, claim)
        yield Do("put", arguments)
        yield from _record(do, entry.place._replace(thread_id=target.place.thread_id), claim)
        for each in writes:
            yield Do("put_writes", each)


def delete_thread(do: Procedures, asked: Asked) -> Steps[None]:
    """Delete all checkpoints and writes of a thread."""
    column = asked.place.thread_id
    if do.heads is not None:
        yield from do.heads.delete_thread(column)
    yield Do("delete_thread", (column,))
    if do.heads is not None:  # what was stored meanwhile is deleted too
        yield from do.heads.delete_thread(column)
    do.pseudonyms.forget(asked.thread_id)


def prune(do: Procedures, threads: Sequence[Asked], strategy: str) -> Steps[None]:
    """Delete older checkpoints, as the wrapped saver does.

    Raises:
        RolledBackError: If one is missing already: it would look like a deleted one afterwards.
    """
    columns = [asked.place.thread_id for asked in threads]
    if do.heads is None:
        yield Do("prune", (columns,), {"strategy": strategy})
        return
    for asked in threads:
        listing = Listing(do, asked, None, None, None)
        while listing.is_open:
            yield from listing.page()
        known = yield from do.heads.of_thread(asked.place.thread_id)
        yield from _leave(do.heads, [] if known is None else list(known.heads.values()))
    try:
        yield Do("prune", (columns,), {"strategy": strategy})
    except Exception:  # refused, or ended early: what is still there must be there from now on
        yield from _settle_threads(do.heads, columns)
        raise
    yield from _settle_threads(do.heads, columns)


def delete_for_runs(do: Procedures, run_ids: Sequence[str]) -> Steps[None]:
    """Delete the checkpoints of runs, as the wrapped saver does."""
    if do.heads is None:
        yield Do("delete_for_runs", (run_ids,))
        return
    heads = list[Head]()
    for run_id in run_ids:
        spots = [spot_of(found) for found in (yield Request(None, {"run_id": run_id}))]
        known = yield from do.heads.find(spots)
        heads += [] if known is None else known.heads.values()
    yield from _leave(do.heads, heads)
    heads = [head._replace(kind=Kind.LEAVING) if head.kind is Kind.PUT else head for head in heads]
    try:
        yield Do("delete_for_runs", (run_ids,))
    except Exception:
        yield from _settle_each(do.heads, heads)
        raise
    yield from _settle_each(do.heads, heads)


def _leave(heads: Heads, which: Sequence[Head]) -> Steps[None]:
    """Record that checkpoints may go."""
    yield from heads.append([head._replace(kind=Kind.LEAVING) for head in which if head.kind is Kind.PUT])


def _settle_threads(heads: Heads, columns: Sequence[str]) -> Steps[None]:
    for column in columns:
        known = yield from heads.of_thread(column)
        found = yield Request(thread_config(column))
        yield from _settle(heads, [] if known is None else known.heads.values(), map(spot_of, found))


def _settle_each(heads: Heads, which: Sequence[Head]) -> Steps[None]:
    left = list[Spot]()
    for head in which:
        left += [spot_of(found) for found in (yield Get(Place(*head.spot).config()))]
    yield from _settle(heads, which, left)


def _settle(heads: Heads, which: Any, left: Any) -> Steps[None]:
    """Record which checkpoints have gone."""
    there = {*left}
    yield from heads.append(
        [
            head._replace(kind=Kind.PUT) if head.spot in there else Head(head.spot, Kind.DELETED, b"")
            for head in which
            if head.kind is Kind.LEAVING or head.spot not in there
        ]
    )
