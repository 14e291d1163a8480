"""Destroying a key: its entry is marked first, then its key file is removed, then the removal is recorded.

Until the file is removed, the entry says ``material = "left"``: an interrupted command can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from sealpoint.errors import KeyRingError, KeyTransitionError
from sealpoint.errors.maintenance import stopped_by
from sealpoint.keys import files, leftovers
from sealpoint.keys.change import LockedRing, find_key, lock_ring, now_in_seconds
from sealpoint.keys.entry import (
    DATABASE_CHECK,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RingEntry,
    require_entry,
)
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import check_value
from sealpoint.keys.material import parse_material
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.sources import FileSource, InlineSource
from sealpoint.keys.state import COMMANDS, KeyState

Check = Callable[[RingFile, RingEntry], Sequence[str]]


def destroy_key(path: str | PathLike[str] | None, key_id: str, require: Check | None = None) -> Path | None:
    """Mark a key as destroyed and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory may have copies that a
    program cannot reach. Material from other sources is not removed; the entry records the source. For a
    destroyed key, this removes what an interrupted run has left.

    Args:
        path: The ring file; ``None`` for the one in the usual place.
        key_id: The key.
        require: Refuses while the key is in use, and returns the checks that it waived. Without it the check
            of databases counts as waived. Its entry in the ring says so.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, or another key has the same file.
        StoppedError: If the file cannot be removed.
    """
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not KeyState.DESTROYED:
            entry.require_transition(COMMANDS[KeyState.DESTROYED])
            waived = [DATABASE_CHECK] if require is None else require(ring.parsed, entry)
            return _destroy(ring, entry, waived)
        leftovers.remove_second_name(ring.file, key_id)
        file = _own_file(ring, entry) if entry.material == MATERIAL_LEFT else None
        if file is None:
            return None
        if os.path.lexists(file):
            _require_holds(file, entry)
        return _remove(ring, key_id, file)


def _destroy(ring: LockedRing, entry: RingEntry, waived: Sequence[str]) -> Path | None:
    file, now = _own_file(ring, entry), now_in_seconds()
    is_gone = file is not None and not os.path.lexists(file)
    outcome = MATERIAL_GONE if is_gone else MATERIAL_LEFT
    # Marked before the file is removed: in the other order a crash could leave a usable entry without
    # material, and a ring with such an entry does not load.
    marked = ring.replace(lambda tree, _: _mark_destroyed(tree, entry.id, outcome, waived, now))
    # The second name is a hard link: the material is on the disk as long as either name is.
    leftovers.remove_second_name(ring.file, entry.id)
    return None if file is None or is_gone else _remove(marked, entry.id, file)


def _remove(ring: LockedRing, key_id: str, file: Path) -> Path | None:
    """Remove the key file of a destroyed key, and record that. Until then ``material`` is ``left``."""
    is_there = os.path.lexists(file)
    try:
        with suppress(FileNotFoundError):  # perhaps with its folder
            file.unlink(missing_ok=True)
            files.fsync_path(file.parent)
    except OSError as error:
        hint = "the key is destroyed, its material is still there: run the same command again"
        raise stopped_by(error, f"{file} cannot be removed", hint) from None
    ring.replace(lambda tree, _: find_key(tree, key_id).update(material=MATERIAL_REMOVED))
    return file if is_there else None


def _require_holds(file: Path, entry: RingEntry) -> None:
    """Refuse to remove a file that may have been replaced: it does not match the key's check value."""
    with suppress(KeyRingError):
        raw = files.read_private(file)
        material = raw if entry.suite == LEGACY else parse_material(raw, str(file))
        if entry.check == check_value(material):
            return
    raise KeyTransitionError(
        f"{file} is not known to hold the key {entry.id!r}",
        hint=f"remove it if it was the key's, then set material = \"{MATERIAL_REMOVED}\" in the key's entry",
    )


def _mark_destroyed(tree: Any, key_id: str, outcome: str, waived: Sequence[str], now: datetime) -> None:
    """Record where the material was, and what was not checked. Material in the ring itself is removed."""
    key = find_key(tree, key_id)
    if KeyState(key["state"]) is KeyState.COMPROMISED:
        key.setdefault("compromised", now)
    key["state"] = KeyState.DESTROYED.value
    key["destroyed"] = now
    if InlineSource.kind in key["source"]:
        del key["source"]
    else:
        key["material"] = outcome
    if waived:
        key["waived"] = list(waived)


def _own_file(ring: LockedRing, entry: RingEntry) -> Path | None:
    """Return the file of a key, if no other entry has the same file."""
    if entry.source != FileSource.kind or entry.location is None:
        return None
    others = {
        repr(one.id): one.location
        for one in ring.entries
        if one.source == FileSource.kind and one.id != entry.id and one.state is not KeyState.DESTROYED
    }
    if isinstance(ring.parsed.index_source, FileSource):
        index_id = ring.parsed.index_id
        others["the [[index]]" if index_id is None else repr(index_id)] = ring.parsed.index_source.location
    folder = ring.file.parent
    own = folder / entry.location
    for name, location in others.items():
        if os.path.realpath(own) == os.path.realpath(folder / str(location)):
            raise KeyTransitionError(
                f"cannot destroy {entry.id!r}: its file is also that of {name}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    return own
