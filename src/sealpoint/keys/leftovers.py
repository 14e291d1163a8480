"""Key files of new keys, and the files that an interrupted command leaves beside a ring file.

    .<ring>.new               a new ring file that did not replace the old one; the next command overwrites it
    keys.d/.<ring>.<id>.new   a second name of a new key's file, until an entry of the ring names the key
    .<id>.key.old             a key file while it is removed, see `sealpoint.keys.keyfile`

A key file with a second name belongs to an interrupted command: the next one for this id uses it, and the
next default id is this id. A second name without a key file is removed when the next key is made.
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
from sealpoint.keys.files import fsync_path, make_folder, read_private, require_unshared, write_private
from sealpoint.keys.ids import KEY_BYTES
from sealpoint.keys.material import parse_material

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

KEY_FOLDER: Final = "keys.d"

_DEFAULT_ID: Final = re.compile(r"k[0-9]{2}[a-z]+-[0-9a-f]{4}")


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


def free_id(ring: Path, taken: Collection[str], year: int, *, resume: bool = True) -> str:
    """Return an id for a new key, such as ``k26a-4f7c``: the year, a counter and a random part.

    The random part differs between environments: rows under a key of one never name a key of the other.

    Args:
        ring: The ring file.
        taken: The ids that it has.
        year: The year.
        resume: Whether an id like this for which an interrupted command made a key file is returned first.
    """
    for key_id in _pending_ids(ring) if resume else ():
        if key_id not in taken and _DEFAULT_ID.fullmatch(key_id) and _is_left_over(ring, key_id):
            return key_id
    for number in count(1):
        stem = f"k{year % 100:02}{_letters(number)}"
        if any(key_id == stem or key_id.startswith(f"{stem}-") for key_id in taken):
            continue
        key_id = f"{stem}-{secrets.token_hex(2)}"
        if not any(os.path.lexists(key_file(ring, name)) for name in (stem, key_id)):
            break
    return key_id


def _pending_ids(ring: Path) -> list[str]:
    """Return the ids for which ``ring`` has a second name of a key file, in order.

    An id with a dot is not among them: ``.a.b.k1.new`` may be for the key ``b.k1`` of the ring ``a``, or for
    ``k1`` of ``a.b``.
    """
    pending = re.compile(rf"\.{re.escape(ring.name)}\.([a-z0-9-]+)\.new")
    with suppress(FileNotFoundError, NotADirectoryError):
        found = (pending.fullmatch(file.name) for file in (ring.parent / KEY_FOLDER).iterdir())
        return sorted(match[1] for match in found if match)
    return []


def _letters(number: int) -> str:
    """Count in letters: a ... z, aa, ab ..."""
    front, place = divmod(number - 1, 26)
    return (_letters(front) if front else "") + ascii_lowercase[place]


def make_material(ring: Path, key_id: str) -> bytes:
    """Write 32 new random bytes to the key's file, and return them.

    Until `remove_second_name` is called, the file has a second name that identifies its ring. If the
    command is interrupted, the next one for this id uses the same material.

    Raises:
        OutputExistsError: If another file has this name, or that of the folder.
        FileLinkError: If the folder for key files is a link.
        FilePermissionsError: If others can write in it.
        StoppedError: If it cannot be written.
    """
    file, pending = key_file(ring, key_id), _pending(ring, key_id)
    make_folder(file.parent, 0o700)
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


def remove_second_names(ring: Path, held: Iterable[str]) -> None:
    """Remove the second names of the keys in ``ring``, and those whose key file was not made.

    A command that is killed before it makes the key file leaves such a name, and perhaps half a key. Called
    while the ring is locked: no other command is about to make the key file.
    """
    unmade = [key_id for key_id in _pending_ids(ring) if not os.path.lexists(key_file(ring, key_id))]
    for key_id in (*held, *unmade):
        remove_second_name(ring, key_id)


def remove_second_name(ring: Path, key_id: str) -> None:
    """Remove the second name of a key file, after an entry of the ring names the key."""
    _pending(ring, key_id).unlink(missing_ok=True)
