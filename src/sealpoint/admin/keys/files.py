"""Files and folders that commands make: private to this account, and written completely or not at all."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from contextlib import suppress
from pathlib import Path

from sealpoint.errors import PERMANENT_ERRNOS, FilePermissionsError, OutputError, stopped_by, stopping
from sealpoint.keys.files import ACCESS_LIST, get_access_list, opened


def write_private(path: Path, data: bytes, like: Path | None = None, *, replaces: bool = True) -> Path:
    """Write a new file, flush it to the disk, and return its path.

    A file that is there is removed first, or refused if ``replaces`` is ``False``. The new one gets owner,
    mode and access list of ``like``; by default it is private to this account.
    """
    hint = f"move it away: {path}" if os.path.isdir(path) else None  # noqa: PTH112 -- raises nothing
    with stopping(f"{path} cannot be written", hint):
        if replaces:
            path.unlink(missing_ok=True)
        # Private from the start: before a chmod another account could open it and keep it open.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if like is not None:
                    _give(path, descriptor, like)
                # Before any rename or link: otherwise a power failure could leave an empty file.
                os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
    return path


def _give(path: Path, descriptor: int, like: Path) -> None:
    own, old = os.fstat(descriptor), like.lstat()
    # The owner before the mode: otherwise the group of this account could read the file meanwhile.
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            raise FilePermissionsError(
                f"{path.parent} has a file of user {old.st_uid}, group {old.st_gid}; it cannot be replaced",
                hint="run this as that account",
            ) from None
    # The list before the mode, whose group bits are then its mask, and not what the group of the file may do.
    data = get_access_list(like)
    if sys.platform == "linux":
        if data is not None:
            os.setxattr(descriptor, ACCESS_LIST, data)
        elif get_access_list(descriptor) is not None:  # from the folder
            os.removexattr(descriptor, ACCESS_LIST)
    os.fchmod(descriptor, old.st_mode & 0o777)


def fsync_path(path: Path) -> None:
    """Flush a file to the disk, or a folder with its names."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder, unless it is there. The folder above it must be there."""
    hint = "name another place with --keys or $SEALPOINT_KEYS"
    try:
        folder.mkdir(mode=mode, exist_ok=True)
    except PermissionError:
        hint += ", or run this as another account"
        raise FilePermissionsError(f"this account may not make {folder}", hint=hint) from None
    except FileExistsError:
        raise OutputError(f"{folder} is not a folder", hint=hint) from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise read_only(folder.parent) from None
        lasts = error.errno in PERMANENT_ERRNOS
        raise stopped_by(error, f"{folder} cannot be made", hint if lasts else None) from None


def read_only(folder: Path) -> FilePermissionsError:
    """Return the error for a folder in which nothing can be made, by any account."""
    hint = "change the ring where it is kept, and deploy that; or mount the file system writable"
    return FilePermissionsError(f"{folder} is on a read-only file system", hint=hint)


def require_unshared(folder: Path) -> None:
    """Refuse a folder in which every account can add, remove or replace files.

    A group may: on systems where each account has its own group, folders are group-writable by default.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Also with the sticky bit: others can still create a file with a name that is free.
    if mode & 0o002:
        close = "" if mode & stat.S_ISVTX else f"chmod o-w {shlex.quote(str(folder))}, or "  # never /tmp
        raise FilePermissionsError(
            f"{folder} has mode {mode:04o}: every account can put files into it",
            hint=f"{close}use a folder of your own",
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file that others read, a pin or a report, in one step; one that is there is replaced.

    The error of the system names ``path``.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        fresh.unlink(missing_ok=True)
