"""Deleting checkpoints and their writes, in one transaction: by thread, by run, or all but the latest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sealpoint.base.metadata import decode_metadata
from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import schema
from sealpoint.sqlite.database import Session
from sealpoint.sqlite.reader import read_ancestors
from sealpoint.sqlite.rows import CheckpointRow, Key


def run_all(session: Session, statements: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Run each of ``statements`` for each of ``rows``."""
    for statement in statements:
        session.run(statement, rows)


def delete_runs(session: Session, run_ids: Sequence[str]) -> None:
    """Delete the checkpoints whose metadata names one of the runs, and their writes."""
    for run_id in run_ids:
        run_all(session, schema.DELETE_ONE, session.read(schema.SELECT_OF_RUN, (run_id,)))


def keep_latest(session: Session, serde: SerializerProtocol, thread_id: str) -> None:
    """Delete all checkpoints of a thread but the latest of each namespace and what those need."""
    keys: list[Any] = session.read(schema.SELECT_OF_THREAD, (thread_id,))
    needed = _needed(session, serde, keys)
    run_all(session, schema.DELETE_ONE, [key for key in keys if key not in needed])


def _needed(session: Session, serde: SerializerProtocol, keys: Sequence[Key]) -> set[Key]:
    """Return the latest key of each namespace, and the ancestors that its delta channels need."""
    latest = {key[1]: key for key in reversed(keys)}  # keys come latest first
    return {needed for key in latest.values() for needed in _chain_to_snapshots(session, serde, key)}


def _chain_to_snapshots(session: Session, serde: SerializerProtocol, key: Key) -> Iterator[Key]:
    """Yield a checkpoint and its ancestors, until every delta channel has met a stored value."""
    row = CheckpointRow(*session.read(schema.SELECT_ONE, key)[0])
    open_channels = set(decode_metadata(row.metadata).get("counters_since_delta_snapshot") or {})
    for ancestor in read_ancestors(session, key):
        yield ancestor
        if open_channels:
            row = CheckpointRow(*session.read(schema.SELECT_ONE, ancestor)[0])
            # What an opaque checkpoint holds is not known: nothing that may be needed is deleted.
            open_channels -= (row.decode_values(serde) or {}).keys()
        if not open_channels:
            return
