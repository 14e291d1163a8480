"""Private files: refused if another account can read or change them; written completely or not at all.

Access lists (POSIX ACLs) of files on Linux grant permissions in addition to the mode:

    version   u32, 2
    entries   tag u16, permissions u16 (read 4, write 2, execute 1), id of the account or group u32

Numbers are little-endian. A file has such a list only if it has entries for named accounts or groups. The
group bits of its mode are then the mask, which limits these entries and the rights of the file's own group.
Lists of other forms, such as those of NFSv4 and of macOS, are not read.

Sources: Linux, include/uapi/linux/posix_acl_xattr.h; acl(5)
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwuid
from typing import Final, Self

from sealpoint.errors import (
    AccessError,
    FilePermissionsError,
    SourceError,
    excerpt,
)

_USER: Final = 0x02  # the tags of entries: for a named account
_OWN_GROUP: Final = 0x04
_GROUP: Final = 0x08  # for a named group
_MASK: Final = 0x10
ACCESS_LIST: Final = "system.posix_acl_access"
_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")


def _parse_access_list(data: bytes) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the permissions of the file's own group, and tag, permissions and id of each named entry."""
    body = data[len(_VERSION) :]
    if not data.startswith(_VERSION) or len(body) % _ENTRY.size:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    entries = [*_ENTRY.iter_unpack(body)]
    mask = next((bits for tag, bits, _ in entries if tag == _MASK), 7)
    own_group = next((bits for tag, bits, _ in entries if tag == _OWN_GROUP), 0)
    named = [(tag, bits & mask, number) for tag, bits, number in entries if tag in (_USER, _GROUP)]
    return own_group & mask, named


def get_access_list(file: int | Path) -> bytes | None:
    """Return the stored bytes of a file's access list; ``None`` if the file has no access list."""
    if sys.platform != "linux":
        return None
    try:
        return os.getxattr(file, ACCESS_LIST)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP, errno.ENOSYS):
            return None
        raise


@contextmanager
def opened(path: str | Path, flags: int, *, dir_fd: int | None = None) -> Iterator[int]:
    """Yield a descriptor of a file or folder; a file that is created is private to this account."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


MAX_FILE_BYTES: Final = 1 << 20
MAX_ATTEMPTS: Final = 10  # attempts to open a link that other processes replace meanwhile
_LINK_HINT: Final = "name the file itself; a link is followed only to a target within the folder of the link"


@dataclass(frozen=True, slots=True)
class Origin:
    """The path of a ring file, and the result of its `stat`, which shows later changes of the file."""

    path: Path
    stamp: tuple[int, ...] | None  # differs if the file, or the target of the link, has changed

    @classmethod
    def of(cls, path: Path) -> Origin:
        """Call `stat` for a file. The stamp has the change time, so new permissions count as a change."""
        path = path.absolute()
        try:
            # Of the target: in a Secret that is mounted, the link itself never changes.
            found = path.stat()
        except OSError:
            return cls(path, None)
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


def read_private(path: Path, *, forbidden: int = 0o077, allow_links: bool = False) -> bytes:
    """Read a file that is private to this process.

    The same rules apply to files with key material and to ring files:

    - The file is a regular file, and belongs to root or to the account of the process.
    - No other account may read or write it. There is one exception: a file of root may be readable by its
      group if that is root's group or one of the process's groups. Kubernetes provides a Secret in this way
      to a pod with ``fsGroup``.
    - The same holds for the accounts and groups in its access list, see `sealpoint.keys.files`, except
      root and the account of the process. systemd provides a credential in this way to a service.
    - A ring file without key material has no secrets: every account may read it (``forbidden=0o022``).
    - The path may be a symbolic link if the target is within the folder of the link, at any depth. Kubernetes
      mounts ``k1 -> ..data/k1``, where ``..data`` is a link to a folder that is replaced as a whole. Other
      links are refused: an account that can write in another folder could exchange the target.

    The permissions of the folders above the file are not checked.
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
        try:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                # st_size is not reliable: it is 0 in /proc, and a file can grow after fstat.
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
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
                raise FilePermissionsError(f"{path} is a symbolic link", hint=_LINK_HINT) from None
            # Kubernetes may have replaced ``..data`` meanwhile, and removed the earlier folder.
            is_replaced = is_link and os.path.realpath(path) != str(target)
            if error.errno != errno.ENOENT or not is_replaced:
                hint = "restore its copy at this path" if error.errno == errno.ENOENT else None
                problem = f"{path} cannot be read: {os.strerror(error.errno or 0)}"
                raise SourceError(problem, hint=hint) from None
        except ValueError:
            raise SourceError(f"{excerpt(str(path))} is not a path") from None
    raise SourceError(
        f"{path} cannot be read: the link was replaced {MAX_ATTEMPTS} times meanwhile",
        hint="try again; if this error remains, find out which program replaces the link",
    )


def _require_within(path: Path) -> Path:
    """Return the target of a link; refuse a target outside of the folder of the link."""
    target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    if not target.is_relative_to(folder):
        raise FilePermissionsError(f"{path} is a symbolic link that leads out of its folder", hint=_LINK_HINT)
    return target


def _require_private(path: Path, descriptor: int, forbidden: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise FilePermissionsError(f"{path} is not a regular file", hint=_LINK_HINT)
    if status.st_uid not in (os.geteuid(), 0):
        raise FilePermissionsError(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}", hint=_hint_for(status.st_uid)
        )
    mode = stat.S_IMODE(status.st_mode)
    readers = {0, os.getegid(), *os.getgroups()} if status.st_uid == 0 else set[int]()
    try:
        data = get_access_list(descriptor)
        own_group, named = (mode >> 3 & 7, []) if data is None else _parse_access_list(data)
    except OSError as error:
        problem = f"the access list of {path} cannot be read: {os.strerror(error.errno or 0)}"
        raise SourceError(problem) from None
    granted = mode & ~0o070 | own_group << 3  # with a list, these bits of the mode are its mask
    _require_private_entries(path, named, forbidden, readers)
    open_bits = granted & forbidden
    if status.st_gid in readers:
        open_bits &= ~0o040
    if open_bits:
        others = "read" if open_bits & 0o044 else "write"
        raise FilePermissionsError(f"{path} has mode {mode:04o}: others can {others} it")


def _require_private_entries(
    path: Path, named: list[tuple[int, int, int]], forbidden: int, readers: set[int]
) -> None:
    """Raise if an access list gives other accounts access; ``readers`` are groups that may read the file."""
    for tag, granted, number in named:
        bits = granted & (forbidden >> 3 | forbidden)
        if tag == _USER and number in (0, os.geteuid()):
            bits = 0
        elif tag == _GROUP and number in readers:
            bits &= ~4
        if bits:
            name = f"{'user' if tag == _USER else 'group'} {number}"
            can = "read" if bits & 4 else "write" if bits & 2 else "execute"
            remove = f"setfacl -x {name[0]}:{number} {shlex.quote(str(path))}"
            raise FilePermissionsError(f"{path} has an access list: {name} can {can} it", hint=remove)


def why_fixed(path: Path) -> str | None:
    """Return the reason why this process cannot notice a new file at ``path``; ``None`` if it can."""
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
    """Return, if this process runs as root, the hint to run the command as the owner of the file."""
    if os.geteuid() != 0:
        return None
    try:
        name = getpwuid(owner).pw_name
    except KeyError:
        name = f"'#{owner}'"
    return f"run this as the owner of the file: sudo -u {name} sealpoint ..."


_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PrivateFolder:
    """A private folder next to an output file: the file is written in the folder, then moved out of it.

    Only this account can enter the folder. Leaving the context removes the folder. All access is by
    descriptor, because an account that may write next to the folder could replace ``path`` at any time.
    """

    __slots__ = ("_parent", "descriptor", "path")

    def __init__(self, out: Path, kind: str) -> None:
        """Make a folder next to ``out``, named ``.<name of out>.<kind>-<6 hex digits>``."""
        self.path = out.with_name(f".{out.name}.{kind}-{secrets.token_hex(3)}")
        self._parent = os.open(out.parent, _FOLDER)
        try:
            os.mkdir(self.path.name, 0o700, dir_fd=self._parent)
            self.descriptor = os.open(self.path.name, _FOLDER | os.O_NOFOLLOW, dir_fd=self._parent)
        except BaseException:
            os.close(self._parent)
            raise
        found = os.fstat(self.descriptor)
        # The folder was empty, so the files that are removed at the end are those of this process.
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077 or self._names():
            self._close()
            raise self._replaced()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the folder and its files, even if another process has moved the folder."""
        try:
            for name in self._names():
                os.unlink(name, dir_fd=self.descriptor)
            if self._is_there():
                os.rmdir(self.path.name, dir_fd=self._parent)
        finally:
            self._close()

    def _names(self) -> list[str]:
        return os.listdir(self.descriptor)  # noqa: PTH208 -- by descriptor

    def _close(self) -> None:
        os.close(self.descriptor)
        os.close(self._parent)

    def _replaced(self) -> AccessError:
        hint = "name an output file in a folder in which no other account can write"
        return AccessError(f"another process has replaced the folder {self.path}", hint=hint)

    def _is_there(self) -> bool:
        with suppress(FileNotFoundError):
            found = os.stat(self.path.name, dir_fd=self._parent, follow_symlinks=False)
            return os.path.samestat(found, os.fstat(self.descriptor))
        return False

    def publish(self, name: str, out: Path) -> None:
        """Move the complete file ``name`` of the folder to ``out``. An existing file is not replaced.

        The content is fsynced before the move: after a power failure ``out`` is never incomplete.
        """
        if not self._is_there():
            raise self._replaced()
        with opened(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self.descriptor) as descriptor:
            os.fsync(descriptor)
        folders = {"src_dir_fd": self.descriptor, "dst_dir_fd": self._parent}
        try:
            # link() fails where a file exists; rename() would replace it.
            os.link(name, out.name, follow_symlinks=False, **folders)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                raise
            # On a file system without hard links, O_EXCL claims the name first.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(out.name, flags, 0o600, dir_fd=self._parent))
            os.replace(name, out.name, **folders)  # noqa: PTH105 -- by descriptor
        os.fsync(self._parent)
