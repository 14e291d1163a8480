"""Special writes of a checkpoint, compared with what a thread store remembers of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sealpoint.errors import EarlierWriteError, RowError, WritesLostError, excerpt
from sealpoint.sealed.calls import StoredWrite
from sealpoint.sealed.entry import Entry
from sealpoint.sealed.heads import Heads, Known, spot_of
from sealpoint.sealed.steps import Call, Steps
from sealpoint.threads.specials import Calls, Special, contradiction
from sealpoint.threads.store import Kind

_HINT = (
    "restore the row from backup; after a backup that was restored on purpose,"
    " `sealpoint heads adopt DB --reason TEXT` takes what is there"
)


def are_last(heads: Heads, entry: Entry, known: Known, *, is_before: bool) -> Steps[bool]:
    """Whether the special writes of a checkpoint are the last ones; else it is to be read again by its id.

    Args:
        heads: Compares with the thread store.
        entry: The checkpoint.
        known: What the store knew.
        is_before: Whether that was read before the checkpoint, so that a contradiction is final.

    Raises:
        WritesLostError: If one is missing, or a part of a call is.
        EarlierWriteError: If one was replaced.
    """
    spot = spot_of(entry.found)
    events = known.specials.get(spot)
    if not events:
        return True
    error = yield Call(_error, (events, entry), entry.found)
    if error is None:
        return True
    if not is_before:
        return False
    now = yield from heads.find([spot])
    head = now and now.heads.get(spot)
    if now is not None and (head is None or head.kind is Kind.PUT):  # else it may go, or has gone
        heads.report(error)
    return True


def _error(events: Sequence[Special], entry: Entry) -> RowError | None:
    return error_of(contradiction(events, special_calls(entry.stored_writes())))


def special_calls(writes: Iterable[StoredWrite]) -> Calls:
    """Return the ids of the calls of the writes that a store remembers; see `contradiction`."""
    return {
        (write.task_id, write.claims.idx if write.claims else write.fixed): (
            write.claims.call_id if write.claims else b""
        )
        for write in writes
        if write.is_kept
    }


def error_of(found: tuple[str, bool] | None) -> RowError | None:
    """Return the error for what `contradiction` returns."""
    if found is None:
        return None
    task, is_missing = excerpt(found[0]), found[1]
    if is_missing:
        what = f"an interrupt, an answer, an error or an update of the user of task {task} is missing"
        return WritesLostError(what, hint=_HINT)
    what = (
        f"an interrupt, an answer or an error of task {task} is an earlier one than the last that was stored"
    )
    return EarlierWriteError(what, hint=_HINT)
