"""Destroying a key: marks its entry, then removes its key file, then records the removal.

The key file is compared with the key before the entry is marked. Until the file is removed, the entry has
``material = "left"``, so that an interrupted command can be repeated. A file is removed only if it contains
the key (the check value matches), and has no other names (hard links). So that the compared file is the file
that is removed, the file is renamed first:

    k1.key  ->  .k1.key.old, compared again  ->  removed, or put back

No other program replaces the file under the hidden name. After an interruption the hidden name remains, and
the next command first renames the file back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.keys.change import LockedRing, find_key, lock_ring, now_in_seconds
from sealpoint.admin.keys.files import fsync_path
from sealpoint.errors import (
    FilePermissionsError,
    KeyMaterialError,
    KeyTransitionError,
    StoppedError,
    stopping,
)
from sealpoint.keys.entry import (
    COMMANDS,
    DATABASE_CHECK,
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RingEntry,
    WrappedSource,
    require_entry,
)
from sealpoint.keys.files import open_private
from sealpoint.keys.material import check_value, parse_material
from sealpoint.keys.ringfile import RingFile
from sealpoint.keys.sources import FileSource, InlineSource
from sealpoint.seal.keys import LEGACY, KeyState

_LEAVE: Final = "; to mark the key as destroyed, but keep the file: --leave-material (leave_material=True)"
_AGAIN: Final = "the key material may still exist: run the same command again"


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The key file of one key, not shared with another entry of the ring."""

    path: Path
    ring: Path
    key_id: str
    suite: str | None
    check: str | None
    way_out: str = ""  # end of the hint of errors about links: an alternative

    @property
    def _hidden(self) -> Path:
        return self.path.parent / f".{self.path.name}.old"

    def require_removable(self) -> bool:
        """Return whether the key file exists. Refuse a file with another key, or with more than one name."""
        self._require_no_link()
        if _is_there(self._hidden):
            with self._compared(self._hidden, most_names=2):  # two names, if `_put_back` was interrupted
                pass
            self._put_back()
        if not _is_there(self.path):
            return False
        with self._compared(self.path):
            return True

    def remove(self) -> bool:
        """Remove the key file, check that the file has no other name, and return whether the file existed."""
        if is_there := self.require_removable():
            with stopping(f"{self.path} cannot be removed", _AGAIN):
                self.path.rename(self._hidden)
            try:
                with self._compared(self._hidden) as descriptor:
                    with stopping(f"{self.path} cannot be removed", _AGAIN):
                        self._hidden.unlink()
                        fsync_path(self.path.parent)
                    status = os.fstat(descriptor)
            finally:
                self._put_back()  # rename a refused file back
            if status.st_nlink:
                hint = f"remove the other name, too: find FOLDER -inum {status.st_ino}"
                raise StoppedError(f"{self.path} is removed, but was given another name meanwhile", hint=hint)
        if _is_there(self.path):
            raise StoppedError(f"{self.path} was created again during the removal", hint=_AGAIN)
        return is_there

    def _require_no_link(self) -> None:
        """Refuse a key file that is a symbolic link, or in a linked folder below the folder of the ring."""
        path, folder = self.path.absolute(), self.ring.parent.absolute()
        for part in (path, *(one for one in path.parents if one != folder and one.is_relative_to(folder))):
            if part.is_symlink():
                hint = f"replace the link by the file: the command would only remove the link{self.way_out}"
                raise FilePermissionsError(f"{part} is a symbolic link", hint=hint)

    @contextmanager
    def _compared(self, path: Path, most_names: int = 1) -> Iterator[int]:
        """Open a file; refuse it if it does not contain the key, or has more than ``most_names`` names."""
        with open_private(path) as (raw, descriptor):
            found = None
            with suppress(KeyMaterialError):
                found = check_value(raw if self.suite == LEGACY else parse_material(raw, str(path)))
            if found is None or found != self.check:
                problem = f"{path} is not known to contain the key {self.key_id!r}"
                hint = (
                    "if it was the file of this key, remove it, otherwise move it away; then run this again"
                )
                if self.check is None and found is not None:
                    problem += ": its entry has no check value"
                    hint = f'add check = "{found}" to the entry if the file is of this key, or move it away'
                raise KeyTransitionError(problem, hint=hint)
            links = os.fstat(descriptor).st_nlink
            if links > most_names:
                hint = f"remove the other names first: find FOLDER -samefile {path}{self.way_out}"
                raise FilePermissionsError(f"{path} has {links} names (hard links)", hint=hint)
            yield descriptor

    def _put_back(self) -> None:
        """Rename the key file from the hidden name back to its original name."""
        hidden = self._hidden
        if not _is_there(hidden):
            return
        with stopping(f"{hidden} cannot be renamed to {self.path}", _AGAIN):
            with suppress(FileExistsError):
                os.link(hidden, self.path, follow_symlinks=False)  # unlike rename, link never replaces a file
            is_same = os.path.samestat(hidden.lstat(), self.path.lstat())
            if is_same:
                hidden.unlink()
        if not is_same:
            hint = "check both files, move away the one that contains another key, then run the command again"
            raise KeyTransitionError(f"{hidden} and {self.path} both exist", hint=hint)


def own_file(ring: LockedRing, key_id: str, act: str) -> OwnFile | None:
    """Return the key file of a key or of the index key; refuse a file that another entry also names."""
    folder, index = ring.file.parent, ring.parsed.index
    others = {
        repr(one.id): folder / str(one.location)
        for one in ring.entries
        if one.source == FileSource.kind and (one.state is not KeyState.DESTROYED or one.id == key_id)
    }
    if index is not None and isinstance(index.source, FileSource):
        others["the [[index]]"] = folder / index.source.location
    entry = next((one for one in ring.entries if one.id == key_id), None)
    own = others.pop("the [[index]]" if entry is None else repr(key_id), None)
    if own is None:
        return None
    for other, file in others.items():
        if os.path.realpath(own) == os.path.realpath(file):
            raise KeyTransitionError(
                f"cannot {act} {key_id!r}: its key file is also the key file of {other}",
                hint="give each key a key file of its own in the ring, then run the same command again",
            )
    known = ring.parsed.require_loader(key_id) if entry is None else entry
    may_be_left = act == "destroy" and entry is not None and entry.state is not KeyState.DESTROYED
    return OwnFile(own, ring.file, key_id, known.suite, known.check, _LEAVE if may_be_left else "")


def left_file(ring: LockedRing, key_id: str) -> OwnFile | None:
    """Return the former key file of a wrapped key, if `wrap_key` has not removed the file yet."""
    loader = ring.parsed.require_loader(key_id)
    if not isinstance(loader.source, WrappedSource) or loader.source.left is None:
        return None
    file = ring.file.parent / loader.source.left
    way_out = "; or remove the file and its links yourself"
    return OwnFile(file, ring.file, key_id, loader.suite, loader.check, way_out)


def _is_there(path: Path) -> bool:
    """Whether a path exists. Raises if the path cannot be examined; `os.path.lexists` returns False."""
    with stopping(f"{path} cannot be examined", _AGAIN), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


Check = Callable[[RingFile, RingEntry], Sequence[str]]


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    require: Check | None = None,
    *,
    leave_material: bool = False,
) -> Path | None:
    """Mark a key as destroyed and remove the key file. This cannot be undone.

    The file is removed, not overwritten: journals, snapshots and flash memory may have copies that a
    program cannot reach. A wrapped key is removed from the ring file, but copies of the ring file still
    contain it. If the key file from which the key was wrapped still exists, the file is removed, too; the
    wrapping service is not called. Material from other sources is not removed; the entry records the source.
    If the key is already destroyed, this removes a key file left by an interrupted run or by
    ``leave_material``.

    ``require`` raises if the key is still in use, and returns the names of waived checks for the entry.
    Without ``require``, the check of databases counts as waived. Returns the path of the removed file.
    """
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is KeyState.DESTROYED:
            return None if leave_material else _remove(ring, entry)
        entry.require_transition(COMMANDS[KeyState.DESTROYED])
        waived = [DATABASE_CHECK] if require is None else require(ring.parsed, entry)
        if not leave_material:
            return _destroy(ring, entry, waived)
        if entry.source in (InlineSource.kind, WrappedSource.kind):
            hint = "run the command without --leave-material (leave_material=False)"
            problem = f"the material of {key_id!r} cannot be kept, because it is in the ring file"
            raise KeyTransitionError(problem, hint=hint)
        _mark(ring, entry, MATERIAL_LEFT, waived)
        return None


def _destroy(ring: LockedRing, entry: RingEntry, waived: Sequence[str]) -> Path | None:
    if (file := own_file(ring, entry.id, "destroy")) is not None:
        file.require_removable()
    left = left_file(ring, entry.id)
    if left is not None and not left.remove():
        left = None
    # For a wrapped key, mark the entry after its former key file is removed, because marking deletes the
    # file's name from the entry. For other keys, mark first: otherwise a crash could leave a usable entry
    # without material, and such a ring cannot be loaded.
    outcome = MATERIAL_REMOVED if entry.source == WrappedSource.kind else MATERIAL_LEFT
    marked = _mark(ring, entry, outcome, waived)
    removed = _remove(marked, require_entry(marked.entries, entry.id))
    return removed if left is None else left.path


def _remove(ring: LockedRing, entry: RingEntry) -> Path | None:
    """Remove the key file of a destroyed key; record the outcome as ``material`` in the entry."""
    file = own_file(ring, entry.id, "destroy") if entry.material == MATERIAL_LEFT else None
    if file is None:
        return None
    is_removed = file.remove()
    outcome = MATERIAL_REMOVED if is_removed else MATERIAL_GONE
    ring.replace(lambda tree, _: find_key(tree, entry.id).update(material=outcome))
    return file.path if is_removed else None


def _mark(ring: LockedRing, entry: RingEntry, outcome: str, waived: Sequence[str]) -> LockedRing:
    """Mark a key as destroyed; record its source and waived checks; remove material from the ring file."""
    now = now_in_seconds()

    def change(tree: Any, parse: Callable[[str], Any]) -> None:
        key = find_key(tree, entry.id)
        if entry.state is KeyState.COMPROMISED:
            key.setdefault("compromised", now)
        key["state"] = KeyState.DESTROYED.value
        key["destroyed"] = now
        if entry.source == InlineSource.kind:
            del key["source"]
        else:
            key["material"] = outcome
        if entry.source == WrappedSource.kind:
            key["source"] = parse(f'source = {{ wrapped = "", by = "{entry.wrapper}" }}')["source"]
        if waived:
            key["waived"] = list(waived)

    return ring.replace(change)
