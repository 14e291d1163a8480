"""The file of one key, which a command is about to remove.

A file is removed only if it holds the key, and if nothing is left of it afterwards: its material is compared
with the check value, and a file with links is refused. What is compared is what is removed:

    k1.key  ->  .k1.key.old, compared again  ->  removed, or put back

Under the hidden name no other program replaces it. A command that is interrupted there leaves that name; the
next one puts the file back first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sealpoint.errors import FileLinkError, KeyMaterialError, KeyTransitionError, StoppedError
from sealpoint.errors.maintenance import stopped_by
from sealpoint.keys import leftovers
from sealpoint.keys.change import LockedRing
from sealpoint.keys.files import fsync_path, open_private
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import check_value
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import FileSource
from sealpoint.keys.state import KeyState
from sealpoint.keys.wrapped import WrappedSource

_LEAVE: Final = "; to mark the key as destroyed, and remove no file: --leave-material (leave_material=True)"
_AGAIN: Final = "the material may still be there: run the same command again"


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The file of a key, which no other entry of the ring has.

    Attributes:
        path: The file.
        ring: The ring file.
        key_id: The key.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY.
        check: The check value of the key, if its entry has one.
        way_out: Ends the hint of an error about links: what else may be done.
    """

    path: Path
    ring: Path
    key_id: str
    suite: str | None
    check: str | None
    way_out: str = ""

    @property
    def _hidden(self) -> Path:
        return self.path.parent / f".{self.path.name}.old"

    def require_removable(self) -> bool:
        """Return whether the file is there. Refuse one whose removal would not remove this key, or not alone.

        The second name of an interrupted command is removed first; it is no other link.

        Raises:
            KeyTransitionError: If it is not known to hold the key.
            FileLinkError: If it has links.
            KeyRingError: Another of its subclasses, if it cannot be read, or is not private.
            StoppedError: If it cannot be examined.
        """
        self._require_no_link()
        if _is_there(self._hidden):
            with self._compared(self._hidden, most_names=2):  # with both, if `_put_back` was interrupted
                pass
            self._put_back()
        if not _is_there(self.path):
            return False
        leftovers.remove_second_name(self.ring, self.key_id)
        with self._compared(self.path):
            return True

    def remove(self) -> bool:
        """Remove the file, flush its folder to the disk, and look that nothing is left of it.

        Returns:
            Whether it was removed; ``False`` if it was gone.

        Raises:
            StoppedError: If it cannot be removed, or is still there.
            KeyRingError: As `require_removable`; the file is then unchanged.
        """
        if is_there := self.require_removable():
            with _stopping(f"{self.path} cannot be removed"):
                self.path.rename(self._hidden)
            try:
                with self._compared(self._hidden) as descriptor:
                    with _stopping(f"{self.path} cannot be removed"):
                        self._hidden.unlink()
                        fsync_path(self.path.parent)
                    status = os.fstat(descriptor)
            finally:
                self._put_back()  # what was refused
            if status.st_nlink:
                hint = f"remove the other name, too: find FOLDER -inum {status.st_ino}"
                raise StoppedError(f"{self.path} is removed, but was given another name meanwhile", hint=hint)
        if _is_there(self.path):
            raise StoppedError(f"{self.path} is there again", hint=_AGAIN)
        return is_there

    def _require_no_link(self) -> None:
        """Refuse a link, also one in a folder of the path within the folder of the ring."""
        path, folder = self.path.absolute(), self.ring.parent.absolute()
        for part in (path, *(one for one in path.parents if one != folder and one.is_relative_to(folder))):
            if part.is_symlink():
                hint = f"put the file itself there: the link would be removed, and not the key{self.way_out}"
                raise FileLinkError(f"{part} is a symbolic link", hint=hint)

    @contextmanager
    def _compared(self, path: Path, most_names: int = 1) -> Iterator[int]:
        """Open the file under one of its names, if it holds the key and has no other name."""
        with open_private(path) as (raw, descriptor):
            found = None
            with suppress(KeyMaterialError):
                found = check_value(raw if self.suite == LEGACY else parse_material(raw, str(path)))
            if found is None or found != self.check:
                raise self._foreign(path, found)
            links = os.fstat(descriptor).st_nlink
            if links > most_names:
                hint = f"remove the other names first: find FOLDER -samefile {path}{self.way_out}"
                raise FileLinkError(f"{path} has {links} names (hard links)", hint=hint)
            yield descriptor

    def _foreign(self, path: Path, found: str | None) -> KeyTransitionError:
        problem = f"{path} is not known to hold the key {self.key_id!r}"
        hint = "remove it if it was the key's, otherwise move it away; then run the same command again"
        if self.check is None and found is not None:
            problem += ": its entry has no check value"
            hint = f'add check = "{found}" to the entry if it is the key\'s, otherwise move it away'
        return KeyTransitionError(problem, hint=hint)

    def _put_back(self) -> None:
        """Give the file its name again, if it has the hidden one."""
        hidden = self._hidden
        if not _is_there(hidden):
            return
        with _stopping(f"{hidden} cannot be renamed to {self.path}"):
            with suppress(FileExistsError):
                os.link(hidden, self.path, follow_symlinks=False)  # unlike rename, never replaces a file
            is_same = os.path.samestat(hidden.lstat(), self.path.lstat())
            if is_same:
                hidden.unlink()
        if not is_same:
            hint = "one of them may hold another key: move it away, then run the same command again"
            raise KeyTransitionError(f"{hidden} and {self.path} are both there", hint=hint)


def own_file(ring: LockedRing, key_id: str, act: str) -> OwnFile | None:
    """Return the file of a key or of the index key, if no other entry has the same file.

    Args:
        ring: The ring.
        key_id: The key.
        act: What is to be done with the key, for the message.

    Raises:
        KeyTransitionError: If another entry has the same file.
    """
    folder, own = ring.file.parent, None
    others = {
        repr(one.id): folder / str(one.location)
        for one in ring.entries
        if one.source == FileSource.kind and (one.state is not KeyState.DESTROYED or one.id == key_id)
    }
    entry = next((one for one in ring.entries if one.id == key_id), None)
    if repr(key_id) in others:
        own = others.pop(repr(key_id))
    if isinstance(index := ring.parsed.index_source, FileSource):
        others["the [[index]]"] = folder / index.location
        if entry is None:
            own = others.pop("the [[index]]")
    if own is None:
        return None
    for other, file in others.items():
        if os.path.realpath(own) == os.path.realpath(file):
            raise KeyTransitionError(
                f"cannot {act} {key_id!r}: its file is also that of {other}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    known = ring.parsed.require_loader(key_id) if entry is None else entry
    may_be_left = act == "destroy" and entry is not None and entry.state is not KeyState.DESTROYED
    return OwnFile(own, ring.file, key_id, known.suite, known.check, _LEAVE if may_be_left else "")


def left_file(ring: LockedRing, key_id: str) -> OwnFile | None:
    """Return the file of a wrapped key that `wrap_key` has not removed yet."""
    loader = ring.parsed.require_loader(key_id)
    if not isinstance(loader.source, WrappedSource) or loader.source.left is None:
        return None
    file = ring.file.parent / loader.source.left
    way_out = "; or remove it and its links yourself"
    return OwnFile(file, ring.file, key_id, loader.suite, loader.check, way_out)


def _is_there(path: Path) -> bool:
    """Whether there is anything at a path. For `os.path.lexists` an error is absence, here it is raised."""
    with _stopping(f"{path} cannot be examined"), suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


@contextmanager
def _stopping(message: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise stopped_by(error, message, _AGAIN) from None
