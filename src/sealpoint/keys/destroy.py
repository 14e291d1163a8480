"""Destroying a key: its entry is marked first, then its key file is removed, then the removal is recorded.

Until the file is removed, the entry says ``material = "left"``: an interrupted command can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

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
from sealpoint.keys.keyfile import own_file, remove_key_file, remove_left_file, require_own_key
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.ringtext import removed_text
from sealpoint.keys.sources import InlineSource
from sealpoint.keys.state import COMMANDS, KeyState
from sealpoint.keys.wrapped import WrappedSource

Check = Callable[[RingFile, RingEntry], Sequence[str]]


def destroy_key(path: str | PathLike[str] | None, key_id: str, require: Check | None = None) -> Path | None:
    """Mark a key as destroyed and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory may have copies that a
    program cannot reach. A wrapped key is removed from the ring file; copies of the file still have it. Its
    service is not asked, not even if the file that it was wrapped from is still there: that is removed too.
    Material from other sources is not removed; the entry records the source. For a
    destroyed key, this removes what an interrupted run has left.

    Args:
        path: The ring file; ``None`` for the one in the usual place.
        key_id: The key.
        require: Refuses while the key is in use, and returns the checks that it waived. Without it the check
            of databases counts as waived. Its entry in the ring says so.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, another key has the same file, or the file
            of an interrupted command is not known to hold the key.
        StoppedError: If the file cannot be removed.
    """
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not KeyState.DESTROYED:
            entry.require_transition(COMMANDS[KeyState.DESTROYED])
            waived = [DATABASE_CHECK] if require is None else require(ring.parsed, entry)
            return _destroy(ring, entry, waived)
        leftovers.remove_second_name(ring.file, key_id)
        file = own_file(ring, key_id, "destroy") if entry.material == MATERIAL_LEFT else None
        if file is None:
            return None
        require_own_key(file, key_id, entry.suite, entry.check)
        return _remove(ring, key_id, file)


def _destroy(ring: LockedRing, entry: RingEntry, waived: Sequence[str]) -> Path | None:
    file, now = own_file(ring, entry.id, "destroy"), now_in_seconds()
    is_gone = file is not None and not os.path.lexists(file)
    outcome = MATERIAL_GONE if is_gone else MATERIAL_LEFT
    # Before it is marked: its entry has the wrapped key, so that the ring loads without the file.
    left = remove_left_file(ring, entry.id)
    if entry.source == WrappedSource.kind:
        outcome = MATERIAL_REMOVED  # the blob, by the change below
    # Marked before the file is removed: in the other order a crash could leave a usable entry without
    # material, and a ring with such an entry does not load.
    marked = ring.replace(lambda tree, parse: _mark_destroyed(tree, parse, entry, outcome, waived, now))
    # The second name is a hard link: the material is on the disk as long as either name is.
    leftovers.remove_second_name(ring.file, entry.id)
    return left if file is None or is_gone else _remove(marked, entry.id, file)


def _remove(ring: LockedRing, key_id: str, file: Path) -> Path | None:
    """Remove the key file of a destroyed key, and record that. Until then ``material`` is ``left``."""
    is_there = os.path.lexists(file)
    remove_key_file(file, "the key is destroyed, its material is still there: run the same command again")
    ring.replace(lambda tree, _: find_key(tree, key_id).update(material=MATERIAL_REMOVED))
    return file if is_there else None


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
