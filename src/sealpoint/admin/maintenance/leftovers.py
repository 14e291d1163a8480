"""What runs of `decrypt` leave when they are killed: folders next to their outputs, see there."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sealpoint.admin.keys.lock import is_held
from sealpoint.guards.files import COMPANIONS

KIND: Final = "partial"  # part of the name of a `PrivateFolder` for a copy
COPY: Final = "copy.db"  # name of the copy in its folder
_PARTIAL: Final = re.compile(r"\.(.+)\.partial(-[0-9a-f]{6})?", re.DOTALL)  # a folder, or an earlier file
MAGIC: Final = b"SQLite format 3\0"


def find_leftovers(folder: Path) -> list[Path]:
    """Return what killed runs have left in a folder: possibly decrypted values. Running ones are excluded."""
    return sorted(path for path, name in _partials(folder) if not is_held(folder / name))


def remove_leftovers(out: Path) -> None:
    """Remove what killed runs to ``out`` have left, as far as permitted. The caller holds ``out``."""
    for path, name in list(_partials(out.parent)):
        with suppress(OSError):  # the next command on a database here names it
            # In a shared folder another account may have chosen this name: what it owns is not removed.
            if name != out.name or path.lstat().st_uid != os.geteuid():
                continue
            if path.is_dir():
                _remove_folder(path)
            else:
                for suffix in ("", *COMPANIONS):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    """Remove a folder with a copy: another account may have given its name to a folder with other files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for suffix in ("", *COMPANIONS):
            with suppress(FileNotFoundError):
                os.unlink(COPY + suffix, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    path.rmdir()  # refused if there is more in it


def _partials(folder: Path) -> Iterator[tuple[Path, str]]:
    with suppress(OSError), os.scandir(folder) as entries:  # a folder that cannot be listed is skipped
        for entry in entries:
            if (match := _PARTIAL.fullmatch(entry.name)) is None:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            is_private = stat.S_ISDIR(mode) and not mode & 0o077
            if is_private if match[2] else stat.S_ISREG(mode) and _is_database(entry.path):
                yield folder / entry.name, match[1]


def _is_database(path: str) -> bool:
    """Whether this is a database that an earlier version left: other programs use such names too."""
    try:
        # The file may be replaced after the check above: O_NOFOLLOW refuses a symbolic link, and with
        # O_NONBLOCK a FIFO does not block until a writer opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:  # of the account that decrypted the values
        return True
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
