"""MemoryThreadStore: a thread store for tests, gone with its process."""

from __future__ import annotations

import math
import sqlite3
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sealpoint.threads.sqlite import SharedFile, SqliteThreadStore
from sealpoint.threads.sqlitefile import FOREIGN, Opened, fill, translated

Result = TypeVar("Result")


class _Memory(SharedFile):
    """A database in memory in place of the file. After a fork the child has a copy of it."""

    opened: Opened

    def __init__(self) -> None:
        super().__init__(Path(":memory:"), math.inf)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.identity = fill(connection)
        self.opened = Opened(self.path, connection, (0, 0), math.inf)
        weakref.finalize(self, connection.close)

    def run(self, work: Callable[..., Result], *arguments: object, seconds: float | None = None) -> Result:
        with self._lock:
            try:
                return work(self.opened, *arguments)
            except FOREIGN as error:
                raise translated(error, self.path) from None
            finally:
                if self.opened.connection.in_transaction:
                    self.opened.connection.execute("ROLLBACK")

    def close(self) -> None:
        pass

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()


class MemoryThreadStore(SqliteThreadStore):
    """A thread store in the memory of this process; a child of a fork has a copy. See `ThreadStore`.

    It remembers nothing that a restart could compare with: it is for tests.
    """

    def __init__(self) -> None:
        self._file = _Memory()
        self.identity = self._file.identity

    @property
    def claim(self) -> int:
        """The clock."""
        return self._file.run(self._read_clock)
