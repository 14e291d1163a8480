"""A lock on a file: one run at a time, across processes, released when the process ends.

The lock is on a separate file next to the locked one. A lock on a database itself would interfere with
SQLite's locks: a process loses its POSIX locks on a file as soon as it closes any descriptor of that file.
The lock file is removed on release, unlike that of the package filelock, and `is_held` makes none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sealpoint.errors import AccessError, HeldError, OutputError, excerpt, stopped_by

SUFFIX: Final = ".sealpoint-lock"

_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # without waiting for a FIFO
_HINT: Final = "let the account that runs this write to the folder, and check its free space"


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Lock ``path`` in a context."""
    path = path.resolve()  # one lock by any symbolic link; hard links are two files
    lock = path.with_name(path.name + SUFFIX)
    descriptor = _take(lock)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()  # while it is locked: a waiting run then finds another file and retries
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a run has locked ``path``, as far as this account can see. Creates no file."""
    path = path.resolve()
    try:
        descriptor = os.open(path.with_name(path.name + SUFFIX), os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return False
    except OSError:  # of another account
        return True
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take(lock: Path) -> int:
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise OutputError(
                    f"{excerpt(lock.name)}, which is held, is too long",
                    hint="choose a shorter name: temporary files next to the output have longer ones",
                ) from None
            raise stopped_by(error, f"{lock} cannot be made", _HINT) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            hint = "find out who put it there, and remove it"
            raise AccessError(f"{lock} is not a lock file: it is no regular file", hint=hint)
        try:
            # Not fcntl.lockf: this process would lose a POSIX lock when `is_held` closes the same file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise HeldError(f"another run holds {lock.name.removesuffix(SUFFIX)}") from None
        except OSError as error:  # a file system without locks
            os.close(descriptor)
            raise stopped_by(error, f"{lock} cannot be locked") from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat(follow_symlinks=False)):
                return descriptor
        os.close(descriptor)  # removed by the run that held the lock
