"""Changing a ring file: it is locked meanwhile, and replaced as a whole.

The new file is read back before it replaces the old one: an interrupted command leaves the old ring or the
new one, and can be repeated. The file is not replaced if it was changed by hand meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

from sealpoint.errors import FileLinkError, FilePermissionsError, HeldError
from sealpoint.keys import files
from sealpoint.keys.entry import RingEntry
from sealpoint.keys.lock import holding
from sealpoint.keys.ringfile import SHARED, RingFile, find_ring_file, read_ring_entries
from sealpoint.keys.ringtext import Change, changed

Precondition = Callable[[RingFile, RingEntry], object]
"""Raises an error if a key may not change its state. Called with the ring and the key's entry while the
ring file is locked, before any change."""


@dataclass(frozen=True, slots=True)
class LockedRing:
    """A locked ring file: no other command changes it."""

    file: Path
    parsed: RingFile

    @property
    def entries(self) -> tuple[RingEntry, ...]:
        """The entries of its keys."""
        return self.parsed.entries

    @property
    def taken_ids(self) -> list[str]:
        """The ids that no new key may have: of keys, destroyed ones too, of the index key and of wrappers."""
        index = [] if self.parsed.index_id is None else [self.parsed.index_id]
        return [*(entry.id for entry in self.entries), *index, *self.parsed.wrappers.by_id]

    def replace(self, change: Change) -> LockedRing:
        """Replace the file by a changed one.

        Raises:
            HeldError: If the file was changed by hand since it was read.
            MissingExtraError: If tomlkit is not installed.
            RingFileError: If the text is written in a way that cannot be changed without loss.
            KeyRingError: Another subclass, if the changed file would not be a valid ring.
            StoppedError: If the new file cannot be written.
            FilePermissionsError: If it cannot be given the owner of the old file.
            OSError: If the old file is missing, or cannot be replaced.
        """
        text = changed(self.parsed.data.decode(), change, str(self.file))
        fresh = files.write_private(files.beside(self.file, "new"), text.encode(), self.file)
        try:
            read_ring_entries(fresh)
            # The lock does not exclude an editor: a change by hand is found by comparing the bytes.
            if files.read_private(self.file, forbidden=SHARED) != self.parsed.data:
                raise HeldError(
                    f"{self.file} was changed by hand meanwhile",
                    hint="check the change, then run the same command again",
                )
            fresh.replace(self.file)
        finally:
            fresh.unlink(missing_ok=True)
        # Until the folder is flushed a power failure can undo the rename; `destroy` removes a key file next.
        files.fsync_path(self.file.parent)
        return LockedRing(self.file, RingFile(self.file))


@contextmanager
def lock_ring(path: str | PathLike[str] | None) -> Iterator[LockedRing]:
    """Lock a ring file, and read it.

    Raises:
        FileLinkError: If it is a symbolic link, which would be replaced instead of its target.
        KeyRingError: If it is not a valid ring, or every account can write in its folder.
        HeldError: If another command has locked it.
    """
    file = find_ring_file(path)
    if file.is_symlink():
        hint = "change the original, such as the Secret or ConfigMap that is mounted here, and deploy that"
        raise FileLinkError(f"{file} is a symbolic link", hint=hint)
    with lock_folder(file):
        yield LockedRing(file, RingFile(file))


@contextmanager
def lock_folder(file: Path) -> Iterator[None]:
    """Lock a ring file, which need not exist, in a folder that not every account can write.

    Raises:
        FilePermissionsError: If this account cannot write in its folder, or every account can.
        HeldError: If another command has locked it.
    """
    if not os.access(file.parent, os.W_OK | os.X_OK):
        if file.parent.is_dir() and os.statvfs(file.parent).f_flag & os.ST_RDONLY:
            raise files.read_only(file.parent)
        raise FilePermissionsError(
            f"this account may not write in {file.parent}", hint="run this as the account that owns the ring"
        )
    files.require_unshared(file.parent)
    with holding(file):
        yield


def find_key(tree: Any, key_id: str) -> Any:
    """Return the table of a key in the tree of a ring."""
    return next(entry for entry in tree["key"] if entry["id"] == key_id)


def add_key(tree: Any, text: Any) -> None:
    """Add the entry of a key to the tree of a ring; ``text`` is that entry, parsed."""
    if "key" in tree:
        tree["key"].append(text["key"][0])
    else:
        tree["key"] = text["key"]


def now_in_seconds() -> datetime:
    """Return the time in the form of a ring file: UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)
