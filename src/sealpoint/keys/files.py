"""Private files: read only if no other account can read or change them; written completely or not at all."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwuid
from typing import Final

from sealpoint.errors import FileLinkError, FilePermissionsError, OutputExistsError, SourceError, excerpt
from sealpoint.errors.maintenance import PERMANENT_ERRNOS, stopped_by
from sealpoint.keys.accesslist import USER, AccessList, copy_access_list, read_access_list

MAX_FILE_BYTES: Final = 1 << 20
MAX_ATTEMPTS: Final = 10
"""How often a file is opened whose link is replaced meanwhile."""

_GONE: Final = "restore its copy at this path"


@dataclass(frozen=True, slots=True)
class Origin:
    """A ring file at the time it was found.

    Attributes:
        path: The absolute path.
        stamp: Differs if the file, or the target of the link, has changed; ``None`` for a missing file.
    """

    path: Path
    stamp: tuple[int, ...] | None

    @classmethod
    def of(cls, path: Path) -> Origin:
        """Examine a file. The change time is part of the stamp: a corrected mode is a change."""
        path = path.absolute()
        try:
            # Of the target: in a Secret that is mounted, the link itself never changes.
            found = path.stat()
        except OSError:
            return cls(path, None)
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


def read_private(path: Path, *, forbidden: int = 0o077, allow_links: bool = False) -> bytes:
    """Read a file that is private to this process.

    This is the one rule of what is acceptable, for files with key material and for ring files:

    - It is a regular file, and belongs to root or to the account of the process.
    - No other account may read or write it. There is one exception: a file of root may be readable by its
      group if that is root's group or one of the process's groups. Kubernetes provides a Secret in this way
      to a pod with ``fsGroup``.
    - The same holds for the accounts and groups in its access list, see `sealpoint.keys.accesslist`, except
      root and the account of the process. systemd provides a credential in this way to a service.
    - A ring file without key material has no secrets: every account may read it (``forbidden=0o022``).
    - It may be a symbolic link if the target is within the folder of the link, at any depth. Kubernetes
      mounts ``k1 -> ..data/k1``, where ``..data`` is a link to a folder that is replaced as a whole. Other
      links are refused: an account that can write in another folder could exchange the target.

    The permissions of the folders above it are not checked.

    Args:
        path: The file; relative to the current directory.
        forbidden: Bits that its mode must not have: by default all that grant access to other accounts.
        allow_links: Whether it may be a symbolic link that ends within the folder of ``path``.

    Raises:
        FileLinkError: If it is a symbolic link that is not allowed, or not a regular file.
        FilePermissionsError: If its mode or its access list grants what is forbidden, or it belongs to
            another account that is not root.
        SourceError: If it cannot be read or has over 1 MiB.
    """
    with open_private(path, forbidden=forbidden, allow_links=allow_links) as (data, _):
        return data


@contextmanager
def open_private(
    path: Path, *, forbidden: int = 0o077, allow_links: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Read a file as `read_private` does; yield its contents and its descriptor."""
    descriptor = _open(path, allow_links=allow_links)
    try:
        _require_private(path, descriptor, forbidden)
        data = _read(path, descriptor)
        if len(data) > MAX_FILE_BYTES:
            raise SourceError(f"{path} has over {MAX_FILE_BYTES} bytes", hint="name the right file")
        yield data, descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, *, allow_links: bool) -> int:
    for _ in range(MAX_ATTEMPTS):
        is_link = allow_links and os.path.islink(path)  # noqa: PTH114 -- False for a path that is too long
        target = _require_within(path) if is_link else path
        try:
            # The checks use the descriptor: a file replaced after a check by path would be read unchecked.
            # O_NONBLOCK: opening a FIFO waits for a writer, and the process would hang.
            return os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileLinkError(f"{path} is a symbolic link") from None
            # Kubernetes may have replaced ``..data`` meanwhile, and removed the earlier folder.
            is_replaced = is_link and os.path.realpath(path) != str(target)
            if error.errno != errno.ENOENT or not is_replaced:
                hint = _GONE if error.errno == errno.ENOENT else None
                problem = f"{path} cannot be read: {os.strerror(error.errno or 0)}"
                raise SourceError(problem, hint=hint) from None
        except ValueError:
            raise SourceError(f"{excerpt(str(path))} is not a path") from None
    hint = "try again; if it stays so, find out what replaces the link all the time"
    raise SourceError(
        f"{path} cannot be read: the link was replaced {MAX_ATTEMPTS} times meanwhile", hint=hint
    )


def _read(path: Path, descriptor: int) -> bytes:
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # st_size is not reliable: it is 0 in /proc, and a file can grow after fstat.
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None


def _require_within(path: Path) -> Path:
    """Return the target of a link within its folder: Kubernetes mounts ``k1 -> ..data/k1``."""
    target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    if not target.is_relative_to(folder):
        raise FileLinkError(f"{path} is a symbolic link that leads out of its folder")
    return target


def _require_private(path: Path, descriptor: int, forbidden: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise FileLinkError(f"{path} is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise FilePermissionsError(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}", hint=_hint_for(status.st_uid)
        )
    mode = granted = stat.S_IMODE(status.st_mode)
    readers = {0, os.getegid(), *os.getgroups()} if status.st_uid == 0 else set[int]()
    access_list = _access_list(path, descriptor)
    if access_list is not None:
        granted = mode & ~0o070 | access_list.own_group << 3  # in the mode, these bits are the mask
        _require_private_list(path, access_list, forbidden, readers)
    open_bits = granted & forbidden
    if status.st_gid in readers:
        open_bits &= ~0o040
    if open_bits:
        others = "read" if open_bits & 0o044 else "write"
        raise FilePermissionsError(f"{path} has mode {mode:04o}: others can {others} it")


def _access_list(path: Path, descriptor: int) -> AccessList | None:
    try:
        return read_access_list(descriptor)
    except OSError as error:
        problem = f"the access list of {path} cannot be read: {os.strerror(error.errno or 0)}"
        raise SourceError(problem) from None


def _require_private_list(path: Path, granted: AccessList, forbidden: int, readers: set[int]) -> None:
    """Refuse entries for others; ``readers`` are groups that may read the file."""
    for entry in granted.named:
        is_user = entry.tag == USER
        if is_user and entry.id in (0, os.geteuid()):
            continue
        bits = entry.bits & (forbidden >> 3 | forbidden)
        if not is_user and entry.id in readers:
            bits &= ~4
        if bits:
            name = f"{'user' if is_user else 'group'} {entry.id}"
            can = "read" if bits & 4 else "write" if bits & 2 else "execute"
            remove = f"setfacl -x {name[0]}:{entry.id} {shlex.quote(str(path))}"
            raise FilePermissionsError(f"{path} has an access list: {name} can {can} it", hint=remove)


def why_fixed(path: Path) -> str | None:
    """Return why this process cannot see that another file replaces ``path``; ``None`` if it can."""
    target = Path(os.path.realpath(path))
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and target.is_relative_to(os.path.realpath(credentials)):
        return "systemd copied it when the service started"
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:  # not Linux, or no /proc
        return None
    name = os.fsencode(target)
    for code in b"\\ \t\n":  # the backslash first
        name = name.replace(bytes([code]), b"\\%03o" % code)
    if any(line.split(b" ")[4:5] == [name] for line in mounts.splitlines()):
        return "it is mounted as a single file (in Kubernetes by subPath), and not with its folder"
    return None


def _hint_for(owner: int) -> str | None:
    """Return the hint for root about a file of another account: use that account, do not change the owner."""
    if os.geteuid() != 0:
        return None
    try:
        name = getpwuid(owner).pw_name
    except KeyError:
        name = f"'#{owner}'"
    return f"run this as the account that the file belongs to: sudo -u {name} sealpoint ..."


def beside(file: Path, ending: str) -> Path:
    """Return the name of a hidden file that belongs to ``file``."""
    return file.with_name(f".{file.name}.{ending}")


def write_private(path: Path, data: bytes, like: Path | None = None) -> Path:
    """Write a new file, flush it to the disk, and return its path.

    Args:
        path: The file; one that an interrupted command has left is removed first.
        data: Its contents.
        like: A file whose owner, mode and access list it gets; by default it is private to this account.

    Raises:
        StoppedError: If it cannot be written.
        FilePermissionsError: If it cannot be given that owner.
    """
    try:
        path.unlink(missing_ok=True)
        # Private from the start: before a chmod another account could open it and keep it open.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                _give(path, descriptor, like)
            # Before any rename or link: otherwise a power failure could leave an empty file under the name.
            os.fsync(descriptor)
    except OSError as error:
        with suppress(OSError):  # a folder is left
            path.unlink()
        if isinstance(error, FilePermissionsError):
            raise
        hint = f"move it away: {path}" if path.is_dir() else None
        raise stopped_by(error, f"{path} cannot be written", hint) from None
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
    copy_access_list(like, descriptor)
    os.fchmod(descriptor, old.st_mode & 0o777)


def fsync_path(path: Path) -> None:
    """Flush a file to the disk, or a folder with its names."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder, unless it is there. The folder above it must be there.

    Raises:
        FilePermissionsError: If this account may not make it, or the file system is read-only.
        OutputExistsError: If there is something else at its path.
        StoppedError: If it cannot be made for another reason.
    """
    hint = "name another place with --keys or $SEALPOINT_KEYS"
    try:
        folder.mkdir(mode=mode, exist_ok=True)
    except PermissionError:
        hint += ", or run this as another account"
        raise FilePermissionsError(f"this account may not make {folder}", hint=hint) from None
    except FileExistsError:
        raise OutputExistsError(f"{folder} is not a folder", hint=hint) from None
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

    Raises:
        FilePermissionsError: If its mode lets every account write in it.
        OSError: If the folder is missing or its status cannot be read.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    # Also with the sticky bit: others can still create a file with a name that is free.
    if mode & 0o002:
        close = "" if mode & stat.S_ISVTX else f"chmod o-w {shlex.quote(str(folder))}, or "  # never /tmp
        hint = f"{close}use a folder of your own"
        raise FilePermissionsError(
            f"{folder} has mode {mode:04o}: every account can put files into it", hint=hint
        )
