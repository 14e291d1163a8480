"""Files that moves on a ring leave and take: written whole and private, or not at all.

What a move that was stopped may leave beside a ring is known by its name:

    .<ring>.new               a new ring that did not come to be; written anew by the next move
    keys.d/.<ring>.<id>.new   the key file of a new key, until an entry names it; taken up again
    .<ring>.<id>.destroyed    a link to the key file of a tombstone, which is still to be removed
"""

from __future__ import annotations

import base64
import errno
import os
import re
import secrets
import shlex
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

from sealpoint.errors import (
    FileLinkError,
    FilePermissionsError,
    KeyRingError,
    KeyTransitionError,
    OutputExistsError,
    StoppedError,
)
from sealpoint.keys.ids import KEY_BYTES
from sealpoint.keys.ring import check_value
from sealpoint.keys.sources import parse_material, read_private

if TYPE_CHECKING:
    from collections.abc import Collection

    from sealpoint.keys.ringfile import RingEntry

KEY_FOLDER: Final = "keys.d"
_DENIED: Final = "let this account write in the folder, then run the same command again"


def beside(file: Path, ending: str) -> Path:
    """Return the name of a file that belongs to ``file`` and that nobody else looks at."""
    return file.with_name(f".{file.name}.{ending}")


def write_private(path: Path, data: bytes, like: os.stat_result | None = None) -> Path:
    """Write a file that is not there, down to the disk, and return its path.

    Args:
        path: The file; what a stopped move left under this name is removed first.
        data: All of it.
        like: Whose owner and mode it gets; by default our own and 0600.

    Raises:
        StoppedError: If it cannot be written.
        FilePermissionsError: If it cannot be given to that owner.
    """
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                _give(path, descriptor, like)
            os.fsync(descriptor)
    except FilePermissionsError:
        path.unlink(missing_ok=True)
        raise
    except OSError as error:
        path.unlink(missing_ok=True)
        hint = _DENIED if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else None
        raise StoppedError(f"{path} cannot be written: {os.strerror(error.errno or 0)}", hint=hint) from None
    return path


def _give(path: Path, descriptor: int, like: os.stat_result) -> None:
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        try:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        except PermissionError:
            raise FilePermissionsError(
                f"{path.parent} has a file of user {like.st_uid}, group {like.st_gid}, to be written anew",
                hint="run this as that account",
            ) from None
    os.fchmod(descriptor, like.st_mode & 0o777)


def keep(path: Path) -> None:
    """Bring a file down to the disk, or a folder with the names that were made and removed in it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def key_file(ring: Path, key_id: str) -> Path:
    """Return where the material of a key is put that is made for ``ring``."""
    return ring.parent / KEY_FOLDER / f"{key_id}.key"


def _pending(ring: Path, key_id: str) -> Path:
    return ring.parent / KEY_FOLDER / f".{ring.name}.{key_id}.new"


def _is_left_over(ring: Path, key_id: str) -> bool:
    """Whether a key file was made for ``ring`` by a move that was stopped before an entry named it."""
    try:
        return _pending(ring, key_id).samefile(key_file(ring, key_id))
    except FileNotFoundError:
        return False


def free_id(ring: Path, taken: Collection[str], year: int) -> str:
    """Return an id for a new key: ``k26a-4f7c``, the next key of the year, and a random part.

    The random part keeps the keys of two environments apart: rows under one then never name the other.
    """
    for number in count(1):
        stem = f"k{year % 100:02}{_letters(number)}"
        if any(key_id == stem or key_id.startswith(f"{stem}-") for key_id in taken):
            continue
        left_over = _left_over_id(ring, stem)
        key_id = left_over or f"{stem}-{secrets.token_hex(2)}"
        if left_over or not any(os.path.lexists(key_file(ring, name)) for name in (stem, key_id)):
            break
    return key_id


def _left_over_id(ring: Path, stem: str) -> str | None:
    """Return the id of a key file that a stopped move made for the same key of the year."""
    pending = re.compile(rf"{re.escape(f'.{ring.name}.{stem}')}(-[0-9a-f]{{4}})\.new", re.DOTALL)
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(file.name for file in (ring.parent / KEY_FOLDER).iterdir()):
            if (match := pending.fullmatch(name)) and _is_left_over(ring, stem + match[1]):
                return stem + match[1]
    return None


def _letters(number: int) -> str:
    """Count in letters: a ... z, aa, ab ..."""
    front, place = divmod(number - 1, 26)
    return (_letters(front) if front else "") + ascii_lowercase[place]


def make_material(ring: Path, key_id: str) -> bytes:
    """Return 32 new random bytes, once they lie in the key's file.

    Until `settle` is called, the file has a second name that tells whose it is: should the move be
    stopped, the next one with this id takes the material up.

    Raises:
        OutputExistsError: If somebody else's file has the name.
        FileLinkError: If the folder for key files is a link.
        FilePermissionsError: If others can write in it.
        StoppedError: If it cannot be written.
    """
    file, pending = key_file(ring, key_id), _pending(ring, key_id)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    _require_own_folder(file.parent)
    if _is_left_over(ring, key_id):
        return parse_material(read_private(file), str(file))
    if os.path.lexists(file):
        raise OutputExistsError(
            f"{file} is there already", hint="name another id; no key file is overwritten"
        )
    material = os.urandom(KEY_BYTES)
    write_private(pending, base64.b64encode(material) + b"\n")
    os.link(pending, file)  # unlike a renaming it never replaces what came in between
    keep(file.parent)
    keep(ring.parent)
    return material


def _require_own_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise FileLinkError(f"{folder} is a symbolic link", hint="put the folder itself there")
    require_unshared(folder)


def require_unshared(folder: Path) -> None:
    """Raise `FilePermissionsError` if everybody can put files into a folder, take them out or swap them.

    A group may: where each account has a group of its own, folders are made for it to write.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o002:
        raise FilePermissionsError(
            f"{folder} has mode {mode:04o}: everybody can put files into it",
            hint=f"chmod o-w {shlex.quote(str(folder))}, or keep the ring in a folder of its own",
        )


def settle(ring: Path, key_id: str) -> None:
    """Take the second name off a key file that an entry names."""
    _pending(ring, key_id).unlink(missing_ok=True)


def schedule_removal(ring: Path, key_id: str, name: str | None) -> None:
    """Write down which file is to be removed once the key is a tombstone.

    Args:
        ring: The ring file.
        key_id: The key.
        name: The file, as the entry names it; ``None`` if its material is in none.
    """
    note = beside(ring, f"{key_id}.destroyed")
    note.unlink(missing_ok=True)
    if name is not None:
        note.symlink_to(name)  # whole from its first moment; it is read, and never followed
        keep(ring.parent)


def require_scheduled(ring: Path, entry: RingEntry) -> None:
    """Refuse a note that a stopped run cannot have left for a tombstone, whose source is not known any more.

    Raises:
        FilePermissionsError: If it belongs to another account that is not root.
        KeyTransitionError: If the file that it names is not known to hold the key.
    """
    note = beside(ring, f"{entry.id}.destroyed")
    if not note.is_symlink():
        return
    owner = note.lstat().st_uid
    if owner not in (os.geteuid(), 0):
        raise FilePermissionsError(
            f"{note} belongs to user {owner}, not to {os.geteuid()}",
            hint="remove it: it is not from sealpoint",
        )
    file = ring.parent / note.readlink()
    if os.path.lexists(file) and not _holds(file, entry):
        raise KeyTransitionError(
            f"{note} names {file}, which is not known to hold the key {entry.id!r}",
            hint="remove the note, and the file too if it was the key's",
        )


def _holds(file: Path, entry: RingEntry) -> bool:
    """Whether a file holds the key, by the check value that its tombstone keeps; without one nobody knows."""
    try:
        raw = read_private(file)
        material = parse_material(raw, str(file)) if entry.suite is None else raw
    except KeyRingError:
        return False
    return entry.check == check_value(material)


def remove_scheduled(ring: Path, key_id: str) -> Path | None:
    """Remove the file that was written down for a tombstone, and return it if it was there.

    Raises:
        StoppedError: If it cannot be removed.
    """
    settle(ring, key_id)
    note = beside(ring, f"{key_id}.destroyed")
    if not note.is_symlink():
        return None
    file = ring.parent / note.readlink()
    there = os.path.lexists(file)
    try:
        with suppress(FileNotFoundError):  # perhaps with its folder
            file.unlink(missing_ok=True)
            keep(file.parent)
    except OSError as error:
        raise StoppedError(
            f"{file} cannot be removed: {os.strerror(error.errno or 0)}",
            hint="the key is a tombstone, its material is still there: run the same command again",
        ) from None
    note.unlink()
    return file if there else None
