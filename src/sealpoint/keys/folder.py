"""Private folders beside an output, in which a file is completed before it gets its name.

They are used by descriptor: where another account may write, what stands under the path of a folder can be
another folder, or a link, a moment later.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from sealpoint.errors import AccessError

_WITHOUT_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})  # file systems
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PrivateFolder:
    """A folder that only this account can enter; at the end of its context it is removed.

    Attributes:
        path: Its path, at which another account may have put something else.
        descriptor: The folder itself.
    """

    __slots__ = ("_parent", "descriptor", "path")

    def __init__(self, out: Path, kind: str) -> None:
        """Make a folder beside ``out``, named ``.<name of out>.<kind>-<6 hex digits>``.

        Raises:
            AccessError: If another process has put something else in its place.
            OSError: If it cannot be made.
        """
        self.path = out.with_name(f".{out.name}.{kind}-{secrets.token_hex(3)}")
        self._parent = os.open(out.parent, _OPEN)
        try:
            os.mkdir(self.path.name, 0o700, dir_fd=self._parent)
            self.descriptor = os.open(self.path.name, _OPEN | os.O_NOFOLLOW, dir_fd=self._parent)
        except BaseException:
            os.close(self._parent)
            raise
        found = os.fstat(self.descriptor)
        # It was empty, so that all that is removed at the end is what this process has put there.
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077 or self._names():
            self._close()
            raise self._replaced()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the folder and its files, wherever it is now."""
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
        hint = "name an output in a folder in which no other account can write"
        return AccessError(f"another process has replaced the folder {self.path}", hint=hint)

    def _is_there(self) -> bool:
        with suppress(FileNotFoundError):
            found = os.stat(self.path.name, dir_fd=self._parent, follow_symlinks=False)
            return os.path.samestat(found, os.fstat(self.descriptor))
        return False

    def publish(self, name: str, out: Path) -> None:
        """Give a complete file of the folder its name beside the folder. No file is replaced.

        The content is flushed before it is named: after a power failure ``out`` is never incomplete.

        Raises:
            FileExistsError: If there is one.
            AccessError: If another process has put something else in the place of the folder.
            OSError: If it cannot be flushed or named.
        """
        if not self._is_there():
            raise self._replaced()
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        folders = {"src_dir_fd": self.descriptor, "dst_dir_fd": self._parent}
        try:
            # link() fails where a file exists; rename() would replace it.
            os.link(name, out.name, follow_symlinks=False, **folders)
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            # Without hard links, O_EXCL claims the name first.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(out.name, flags, 0o600, dir_fd=self._parent))
            os.replace(name, out.name, **folders)  # noqa: PTH105 -- by descriptor
        os.fsync(self._parent)
