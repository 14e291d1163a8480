"""Copies that killed runs have left incomplete.

A copy with decrypted values is written in its own folder beside the output, with mode 0700, named

    .<name>.partial-<random>

No other account can read it there, or put a journal beside it. SIGKILL and a power failure leave the
folder; earlier versions left a hidden file ``.<name>.partial``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sealpoint.keys.lock import is_held

KIND: Final = "partial"
"""Part of the name of a `PrivateFolder` for a copy."""

COPY: Final = "copy.db"
"""Name of the copy in its folder."""

_FOLDER: Final = re.compile(r"\.(.+)\.partial-[0-9a-f]{6}", re.DOTALL)
_FILE: Final = re.compile(r"\.(.+)\.partial", re.DOTALL)
_BESIDE: Final = ("", "-journal", "-wal", "-shm")
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
                for suffix in _BESIDE:
                    path.with_name(path.name + suffix).unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    """Remove a folder with a copy: another account may have given its name to a folder with other files."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                os.unlink(COPY + suffix, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    path.rmdir()  # refused if there is more in it


def _partials(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each partial copy in a folder, and the name of its output."""
    with suppress(OSError), os.scandir(folder) as entries:  # a folder that cannot be listed is skipped
        for entry in entries:
            for form, fits in ((_FOLDER, _is_private), (_FILE, _is_database)):
                if (match := form.fullmatch(entry.name)) and fits(entry):
                    yield folder / entry.name, match[1]


def _is_private(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISDIR(mode) and not mode & 0o077


def _is_database(entry: os.DirEntry[str]) -> bool:
    """Whether this is a database that an earlier version left: other programs use such names too."""
    if not entry.is_file(follow_symlinks=False):
        return False
    try:
        # The file may be replaced after the check above: O_NOFOLLOW refuses a symbolic link, and with
        # O_NONBLOCK a FIFO does not block until a writer opens it.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:  # of the account that decrypted the values
        return True
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC
