"""Destroying a key: its entry is marked first, then its key file is removed, then the removal is recorded.

The file is compared with the key before the entry is marked. Until the file is removed, the entry says
``material = "left"``: an interrupted command can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import KeyTransitionError
from sealpoint.keys import leftovers
from sealpoint.keys.change import LockedRing, find_key, lock_ring, now_in_seconds
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RingEntry,
    require_entry,
)
from sealpoint.keys.keyfile import left_file, own_file
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.ringtext import removed_text
from sealpoint.keys.sources import InlineSource
from sealpoint.keys.state import COMMANDS, KeyState
from sealpoint.keys.wrapped import WrappedSource

Check = Callable[[RingFile, RingEntry], Sequence[str]]

_IN_RING: Final = (InlineSource.kind, WrappedSource.kind)


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    require: Check | None = None,
    *,
    leave_material: bool = False,
) -> Path | None:
    """Mark a key as destroyed and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory may have copies that a
    program cannot reach. A wrapped key is removed from the ring file; copies of the file still have it. Its
    service is not asked, not even if the file that it was wrapped from is still there: that is removed too.
    Material from other sources is not removed; the entry records the source. For a
    destroyed key, this removes what an interrupted run or ``leave_material`` has left.

    Args:
        path: The ring file; ``None`` for the one in the usual place.
        key_id: The key.
        require: Refuses while the key is in use, and returns the checks that it waived. Without it the check
            of databases counts as waived. Its entry in the ring says so.
        leave_material: Do not look at the key file, and record that the material is left.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, another key has the same file, the file is
            not known to hold the key, or material in the ring file itself is to be left.
        FileLinkError: If the file has links.
        KeyRingError: Another of its subclasses, if the file cannot be read.
        StoppedError: If the file cannot be removed.
    """
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is KeyState.DESTROYED:
            return None if leave_material else _remove(ring, entry)
        entry.require_transition(COMMANDS[KeyState.DESTROYED])
        waived = [DATABASE_CHECK] if require is None else require(ring.parsed, entry)
        if not leave_material:
            return _destroy(ring, entry, waived)
        if entry.source in _IN_RING:
            hint = "run the command without --leave-material (leave_material=False)"
            problem = f"the material of {key_id!r} cannot be left: it is in the ring file"
            raise KeyTransitionError(problem, hint=hint)
        _mark(ring, entry, MATERIAL_LEFT, waived)
        return None


def _destroy(ring: LockedRing, entry: RingEntry, waived: Sequence[str]) -> Path | None:
    if (file := own_file(ring, entry.id, "destroy")) is not None:
        file.require_removable()
    left = left_file(ring, entry.id)
    if left is not None and not left.remove():
        left = None
    # Marked after the file of a wrapped key is removed: the entry names that file until it is marked. Marked
    # before any other file is removed: in the other order a crash could leave a usable entry without
    # material, and a ring with such an entry does not load.
    outcome = MATERIAL_REMOVED if entry.source == WrappedSource.kind else MATERIAL_LEFT
    marked = _mark(ring, entry, outcome, waived)
    removed = _remove(marked, require_entry(marked.entries, entry.id))
    return removed if left is None else left.path


def _remove(ring: LockedRing, entry: RingEntry) -> Path | None:
    """Remove the key file of a destroyed key, and record that. Until then ``material`` is ``left``."""
    # A hard link: the material is on the disk as long as either name is.
    leftovers.remove_second_name(ring.file, entry.id)
    file = own_file(ring, entry.id, "destroy") if entry.material == MATERIAL_LEFT else None
    if file is None:
        return None
    is_removed = file.remove()
    outcome = MATERIAL_REMOVED if is_removed else MATERIAL_GONE
    ring.replace(lambda tree, _: find_key(tree, entry.id).update(material=outcome))
    return file.path if is_removed else None


def _mark(ring: LockedRing, entry: RingEntry, outcome: str, waived: Sequence[str]) -> LockedRing:
    now = now_in_seconds()
    return ring.replace(lambda tree, parse: _mark_destroyed(tree, parse, entry, outcome, waived, now))


def _mark_destroyed(
    tree: Any,
    parse: Callable[[str], Any],
    entry: RingEntry,
    outcome: str,
    waived: Sequence[str],
    now: datetime,
) -> None:
    """Record where the material was, and what was not checked. Material in the ring itself is removed."""
    key = find_key(tree, entry.id)
    if KeyState(key["state"]) is KeyState.COMPROMISED:
        key.setdefault("compromised", now)
    key["state"] = KeyState.DESTROYED.value
    key["destroyed"] = now
    if InlineSource.kind in key["source"]:
        del key["source"]
    else:
        key["material"] = outcome
    if WrappedSource.kind in key.get("source", ()):
        key["source"] = parse(removed_text(entry.wrapper or ""))["source"]
    if waived:
        key["waived"] = list(waived)
