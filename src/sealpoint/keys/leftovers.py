"""Key files of new keys, and the files that an interrupted command leaves beside a ring file.

    .<ring>.new               a new ring file that did not replace the old one; the next command overwrites it
    keys.d/.<ring>.<id>.new   a second name of a new key's file, until an entry of the ring names the key

A key file with a second name belongs to an interrupted command: the next one for this id uses it.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
from contextlib import suppress
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

from sealpoint.errors import FileLinkError, OutputExistsError
from sealpoint.keys.files import fsync_path, read_private, require_unshared, write_private
from sealpoint.keys.ids import KEY_BYTES
from sealpoint.keys.material import parse_material

if TYPE_CHECKING:
    from collections.abc import Collection

KEY_FOLDER: Final = "keys.d"


def key_file(ring: Path, key_id: str) -> Path:
    """Return the path of the file for the material of a new key of ``ring``."""
    return ring.parent / KEY_FOLDER / f"{key_id}.key"


def _pending(ring: Path, key_id: str) -> Path:
    return ring.parent / KEY_FOLDER / f".{ring.name}.{key_id}.new"


def _is_left_over(ring: Path, key_id: str) -> bool:
    """Whether an interrupted command made this key file for ``ring``: no entry names it."""
    try:
        return _pending(ring, key_id).samefile(key_file(ring, key_id))
    except FileNotFoundError:
        return False


def free_id(ring: Path, taken: Collection[str], year: int) -> str:
    """Return an id for a new key, such as ``k26a-4f7c``: the year, a counter and a random part.

    Because of the random part, two environments do not use the same id.
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
    """Return the id of a key file that an interrupted command made with the same year and counter."""
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
    """Write 32 new random bytes to the key's file, and return them.

    Until `remove_second_name` is called, the file has a second name that identifies its ring. If the
    command is interrupted, the next one for this id uses the same material.

    Raises:
        OutputExistsError: If another file has this name.
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
    os.link(pending, file)  # unlike rename, never replaces a file
    fsync_path(file.parent)
    # The folder for key files may be new: its own name is in the folder of the ring.
    fsync_path(ring.parent)
    return material


def _require_own_folder(folder: Path) -> None:
    if folder.is_symlink():
        raise FileLinkError(f"{folder} is a symbolic link", hint="put the folder itself there")
    require_unshared(folder)


def remove_second_name(ring: Path, key_id: str) -> None:
    """Remove the second name of a key file, after an entry of the ring names the key."""
    _pending(ring, key_id).unlink(missing_ok=True)
