"""Special writes in the log of a thread store: interrupts, answers and errors, which later ones replace.

A record, as the statements of the stores return it: number, index, since, call and task, these two in hex,
separated by spaces; records are separated by commas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SEPARATOR: Final = ","
NOTHING_REPLACED: Final = -1
"""`Special.since` of a write that may have replaced nothing."""


Calls = dict[tuple[str, int | None], bytes]
"""Ids of the calls of writes, by task and index; empty for those without one. A write of the user that is not
bound to its row has no index: it may be in any place."""


class Special(NamedTuple):
    """One event: a call of ``put_writes`` has stored a special write of a task, or a write of the user.

    Attributes:
        seq: Its number among these events: greater than that of every one before it. 0 if it has none yet.
        task_id: The task.
        idx: The fixed index of the write; of the user's its position.
        call: Identifies the call: 8 bytes. Empty if `adopt` found no write there.
        since: Number of the last event before the call began: those up to it are replaced.
    """

    seq: int
    task_id: str
    idx: int
    call: bytes
    since: int


def parse_specials(records: str | None) -> list[Special]:
    """Return the events of records; none for ``None``.

    Raises:
        ValueError: If they have another form.
    """
    found = []
    for record in records.split(SEPARATOR) if records else ():
        seq, idx, since, call, task = record.split(" ")
        found.append(
            Special(int(seq), bytes.fromhex(task).decode(), int(idx), bytes.fromhex(call), int(since))
        )
    return found


def contradiction(events: Sequence[Special], rows: Calls) -> tuple[str, bool] | None:
    """Compare the special writes of a checkpoint with the events that were read before them.

    A write of a call that has no event is newer: its process ended before it was recorded.

    Args:
        events: The events of the checkpoint.
        rows: Its writes.

    Returns:
        The task of a write that is not the last one, and whether it is missing; ``None`` if there is none.
    """
    standing = standing_calls(events)
    known = {(event.task_id, event.idx, event.call) for event in events}
    for place, calls in standing.items():
        call = rows.get(place, rows.get((place[0], None)) if place[1] >= 0 else None)
        if call is None and any(calls):
            return place[0], True
        if call and call not in calls and (*place, call) in known:
            return place[0], False
    return None


def standing_calls(events: Sequence[Special]) -> dict[tuple[str, int], set[bytes]]:
    """Return the calls that no later one has replaced, by task and index."""
    last = dict[tuple[str, int], int]()
    for _, task_id, idx, _, since in events:
        last[task_id, idx] = max(last.get((task_id, idx), NOTHING_REPLACED), since)
    standing = dict[tuple[str, int], set[bytes]]()
    for seq, task_id, idx, call, _ in events:
        calls = standing.setdefault((task_id, idx), set())
        if seq > last[task_id, idx]:
            calls.add(call)
    return standing
