"""A lock on a file: one run at a time, across processes, released when the process ends.

The lock is on a separate file next to the locked file. A lock on a database itself would interfere with
SQLite's locks: a process loses its POSIX locks on a file as soon as it closes any descriptor of that file.
The lock file is removed on release, unlike in the package filelock, and `is_held` creates no file.
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

_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # do not block on a FIFO
_HINT: Final = "let this account write to the folder, and check the free disk space"


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold a lock on ``path`` within the context; raise HeldError if another run holds the lock."""
    path = path.resolve()  # symbolic links share one lock; hard links do not
    lock = path.with_name(path.name + SUFFIX)
    descriptor = _take(lock)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()  # still locked: a waiting run sees that its file is gone, and retries
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a run has locked ``path``, or another account owns the lock file. Creates no file."""
    path = path.resolve()
    try:
        descriptor = os.open(path.with_name(path.name + SUFFIX), os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return False
    except OSError:  # owned by another account
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
                    f"{excerpt(lock.name)}, the name of the lock file, is too long",
                    hint="choose a shorter name: temporary files next to the output have longer names",
                ) from None
            raise stopped_by(error, f"{lock} cannot be created", _HINT) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            hint = "find out what created this file, and remove the file"
            raise AccessError(f"{lock} is not a lock file: it is not a regular file", hint=hint)
        try:
            # Not fcntl.lockf: closing the file in `is_held` would release this process's POSIX lock.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise HeldError(f"another run holds {lock.name.removesuffix(SUFFIX)}") from None
        except OSError as error:  # the file system may not support locks
            os.close(descriptor)
            raise stopped_by(error, f"{lock} cannot be locked") from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat(follow_symlinks=False)):
                return descriptor
        os.close(descriptor)  # removed by the run that held the lock
