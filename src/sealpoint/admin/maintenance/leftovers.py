"""Leftovers of killed runs of `decrypt`: folders next to the output file, see `maintenance.decrypt`."""

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

KIND: Final = "partial"  # part of the folder's name, see `PrivateFolder`
COPY: Final = "copy.db"  # name of the copy in its folder
_PARTIAL: Final = re.compile(r"\.(.+)\.partial(-[0-9a-f]{6})?", re.DOTALL)  # a folder, or an older file
MAGIC: Final = b"SQLite format 3\0"


def find_leftovers(folder: Path) -> list[Path]:
    """Return the paths in a folder that killed runs of `decrypt` left. They may contain decrypted values."""
    return sorted(path for path, name in _partials(folder) if not is_held(folder / name))


def remove_leftovers(out: Path) -> None:
    """Remove leftovers of killed `decrypt` runs to ``out``, if permitted. The caller has locked ``out``."""
    for path, name in list(_partials(out.parent)):
        with suppress(OSError):  # the next command in this folder warns of it
            # In a shared folder, another account may have used this name: remove only files of this account.
            if name != out.name or path.lstat().st_uid != os.geteuid():
                continue
            if path.is_dir():
                _remove_folder(path)
            else:
                for suffix in ("", *COMPANIONS):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    """Remove a folder that `decrypt` left, but no other files in it: another program may use the folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for suffix in ("", *COMPANIONS):
            with suppress(FileNotFoundError):
                os.unlink(COPY + suffix, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    path.rmdir()  # fails if the folder has other files


def _partials(folder: Path) -> Iterator[tuple[Path, str]]:
    with suppress(OSError), os.scandir(folder) as entries:  # skip a folder that cannot be listed
        for entry in entries:
            if (match := _PARTIAL.fullmatch(entry.name)) is None:
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            is_private = stat.S_ISDIR(mode) and not mode & 0o077
            if is_private if match[2] else stat.S_ISREG(mode) and _is_database(entry.path):
                yield folder / entry.name, match[1]


def _is_database(path: str) -> bool:
    """Whether a file that is named like a leftover is a SQLite database: other programs use such names."""
    try:
        # The file may be replaced after the check above: O_NOFOLLOW refuses a symbolic link, and O_NONBLOCK
        # does not block on a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:  # belongs to the account that ran decrypt
        return True
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
