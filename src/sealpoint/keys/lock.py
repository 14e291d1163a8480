"""A hold on a file: one run at a time, also among processes, and gone with the process that has it.

The lock is on a file of its own beside the database. On the database itself it would share a
descriptor table with SQLite's locks, which are lost as soon as any descriptor of theirs is closed
(POSIX fcntl locks).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sealpoint.errors import HeldError, OutputNameError, StoppedError, excerpt

SUFFIX: Final = ".sealpoint-lock"

_HINT: Final = "let the account that runs this write to the folder, and see that there is room in it"


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Hold ``path`` for as long as the context lasts.

    Raises:
        HeldError: If somebody else does.
        OutputNameError: If a file beside it would have too long a name.
        StoppedError: If no file can be made beside it.
    """
    path = path.resolve()  # one hold, by whatever link it is called; hard links stay two files
    lock = path.with_name(path.name + SUFFIX)
    descriptor = _take(lock)
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()  # while it is locked: whoever waits for it sees that it is gone
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a run holds ``path`` now, as far as this account can see. Nothing is made."""
    path = path.resolve()
    try:
        descriptor = os.open(path.with_name(path.name + SUFFIX), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:  # of another account
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take(lock: Path) -> int:
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise OutputNameError(f"{excerpt(lock.name)}, which is held, is too long") from None
            cause = os.strerror(error.errno or 0)
            raise StoppedError(f"{lock} cannot be made: {cause}", hint=_HINT) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise HeldError(f"another run holds {lock.name.removesuffix(SUFFIX)}") from None
        except OSError as error:  # a file system without locks
            os.close(descriptor)
            raise StoppedError(f"{lock} cannot be locked: {os.strerror(error.errno or 0)}") from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), lock.stat(follow_symlinks=False)):
                return descriptor
        os.close(descriptor)  # the holder before us took the file away: it is another one now
