"""Creates files and folders for commands: private to this account, and complete or not there at all."""

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
    """Write a new file, fsync it, and return its path.

    An existing file is removed first, or refused if ``replaces`` is false. The new file gets the owner, mode
    bits and access list of ``like``; by default it is private to this account.
    """
    hint = f"move the folder {path} away" if os.path.isdir(path) else None  # noqa: PTH112 -- raises nothing
    with stopping(f"{path} cannot be written", hint):
        if replaces:
            path.unlink(missing_ok=True)
        # Private from the start: before a chmod, another account could open the file and keep it open.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if like is not None:
                    _give(path, descriptor, like)
                # fsync before any rename or link: otherwise a power failure could leave an empty file.
                os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
    return path


def _give(path: Path, descriptor: int, like: Path) -> None:
    own, old = os.fstat(descriptor), like.lstat()
    # Set the owner before the mode: otherwise this account's group could read the file in between.
    if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            raise FilePermissionsError(
                f"{path.parent} has a file of user {old.st_uid}, group {old.st_gid}; it cannot be replaced",
                hint="run the command as the owner of this file",
            ) from None
    # Set the access list before the mode: with a list, the mode's group bits are the mask of the list.
    data = get_access_list(like)
    if sys.platform == "linux":
        if data is not None:
            os.setxattr(descriptor, ACCESS_LIST, data)
        elif get_access_list(descriptor) is not None:  # inherited from the folder
            os.removexattr(descriptor, ACCESS_LIST)
    os.fchmod(descriptor, old.st_mode & 0o777)


def fsync_path(path: Path) -> None:
    """Call fsync for a file; or for a folder, so that created and renamed files keep their names."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def make_folder(folder: Path, mode: int) -> None:
    """Create a folder if it does not exist. Its parent folder must exist."""
    hint = "name a ring file in another folder with --keys or $SEALPOINT_KEYS"
    try:
        folder.mkdir(mode=mode, exist_ok=True)
    except PermissionError:
        hint += ", or run the command as another account"
        raise FilePermissionsError(f"this account has no right to create {folder}", hint=hint) from None
    except FileExistsError:
        raise OutputError(f"{folder} is not a folder", hint=hint) from None
    except OSError as error:
        if error.errno == errno.EROFS:
            raise read_only(folder.parent) from None
        lasts = error.errno in PERMANENT_ERRNOS
        raise stopped_by(error, f"{folder} cannot be created", hint if lasts else None) from None


def read_only(folder: Path) -> FilePermissionsError:
    """Return the error for a folder on a read-only file system."""
    hint = "change the original of the ring file, and deploy it; or mount the file system writable"
    return FilePermissionsError(f"{folder} is on a read-only file system", hint=hint)


def require_unshared(folder: Path) -> None:
    """Refuse a folder in which every account can add, remove or replace files.

    Group-writable folders are accepted: they are the default on systems where each account has its own group.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Refused even with the sticky bit: other accounts could still create a file with an unused name.
    if mode & 0o002:
        close = "" if mode & stat.S_ISVTX else f"chmod o-w {shlex.quote(str(folder))}, or "  # never /tmp
        raise FilePermissionsError(
            f"{folder} has mode {mode:04o}: every account can create files there",
            hint=f"{close}use a folder of your own",
        )


def write_whole(path: Path, text: str) -> None:
    """Write or replace a file that other accounts may read, such as a pin or report, in one step.

    An OSError has ``path`` as its filename.
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
