"""Copying the writes of a checkpoint: in which calls they are stored again, so that each has its place.

A saver numbers the writes of a call, and a write of a copied thread must have the number that it claims: a
later call of its task would else be stored beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sealpoint.base import WRITES_IDX_MAP
from sealpoint.sealed.calls import Claims
from sealpoint.sealed.rows import Write

Stored = tuple[str, str, list[Write]]
"""A call of ``put_writes``: task, path of the task, and writes with their claims."""


def calls_of(writes: Iterable[Write]) -> Iterator[Stored]:
    """Yield the calls that store writes in their places."""
    tasks = dict[str, list[Write]]()
    for write in writes:
        tasks.setdefault(write.task_id, []).append(write)
    for task_id, found in tasks.items():
        path = next((write.claims.task_path for write in found if write.claims), "")
        special = [_claimed(write, path) for write in found if write.channel in WRITES_IDX_MAP]
        numbered = _numbered([write for write in found if write.channel not in WRITES_IDX_MAP], path)
        if numbered:
            yield task_id, path, [*_filled(numbered, special)]
        if special:
            yield task_id, path, special


def _claimed(write: Write, path: str) -> Write:
    """Return a special write with its claims."""
    return write._replace(claims=write.claims or Claims(path, WRITES_IDX_MAP[write.channel]))


def _numbered(writes: Sequence[Write], path: str) -> Mapping[int, Write]:
    """Return ordinary writes by their numbers.

    If one is not bound, its number is not known: all are numbered in the order of the saver then, and name no
    call, which would name other numbers.
    """
    if all(write.claims for write in writes):
        return {write.claims.idx: write for write in writes if write.claims}
    return {idx: write._replace(claims=Claims(path, idx)) for idx, write in enumerate(writes)}


def _filled(numbered: Mapping[int, Write], special: Sequence[Write]) -> Iterator[Write]:
    """Yield writes at the positions of their numbers: a special write stood where there is none."""
    for idx in range(max(numbered) + 1):
        if idx in numbered:
            yield numbered[idx]
        elif special:
            yield special[0]
