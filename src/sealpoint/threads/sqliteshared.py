"""A store's file in SQLite, shared by threads: one call at a time, with its time limit and its errors."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sealpoint.errors import ThreadStoreDownError, ThreadStoreTimeoutError
from sealpoint.forks import inherited, reset_in_child
from sealpoint.threads.sqliteerrors import FOREIGN, translated
from sealpoint.threads.sqlitefile import Opened, connect

Result = TypeVar("Result")


class SharedFile:
    """The file of a store.

    A file that is replaced by a restored one of the same store is opened again by the next call.

    Attributes:
        path: Its name.
        identity: Name of the store; empty before the first call.
        opened: The file; ``None`` before the first call, and after `close` or a fork.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        """Share the file at ``path``; a call may take ``timeout`` seconds."""
        self.path, self.identity = path, ""
        self.opened: Opened | None = None
        self._name = os.fspath(path)
        self._timeout = timeout
        self._lock = threading.Lock()
        reset_in_child(self)

    def run(self, work: Callable[..., Result], *arguments: Any, seconds: float | None = None) -> Result:
        """Call ``work`` with the file and ``arguments``, and return its result.

        A transaction that it leaves open is rolled back.

        Raises:
            ThreadStoreError: For an error of SQLite or of the file system.
        """
        if not self._lock.acquire(timeout=self._timeout):
            raise ThreadStoreTimeoutError(f"thread store {self.path}: other threads kept it busy")
        try:
            found = os.stat(self._name)  # noqa: PTH116 -- half the time of `Path.stat`
            opened = self.opened
            if opened is None or opened.inode != (found.st_ino, found.st_dev):
                opened = self._open()
            opened.until = time.monotonic() + (seconds or self._timeout)
            try:
                return work(opened, *arguments)
            finally:
                if opened.connection.in_transaction:
                    with suppress(sqlite3.Error):  # SQLite itself may have rolled back
                        opened.connection.execute("ROLLBACK")
        except FOREIGN as error:
            self._raise_cause()
            raised = translated(error, self.path)
            if isinstance(raised, ThreadStoreDownError):
                self._close()  # the next call opens a file that was repaired or restored meanwhile
            raise raised from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        with self._lock:
            self._close()

    def reset_after_fork(self) -> None:
        """Forget the connection and the lock of the parent."""
        if self.opened is not None:
            inherited.append(self.opened)  # SQLite forbids to use or close it here
        self._lock, self.opened = threading.Lock(), None

    def _open(self) -> Opened:
        self._close()
        opened = connect(self.path, self._timeout)
        if self.identity not in ("", opened.identity):
            opened.connection.close()
            raise ThreadStoreDownError(
                f"thread store {self.path}: the file was replaced by another thread store",
                hint="restore the store that was there, or start the process again to use this one",
            )
        self.opened, self.identity = opened, opened.identity
        return opened

    def _close(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.connection.close()

    def _raise_cause(self) -> None:
        """Raise the exception of a signal handler that ended a statement."""
        opened = self.opened
        if opened is not None and opened.cause is not None:
            cause, opened.cause = opened.cause, None
            raise cause from None
