"""Thread stores in SQLite: in a file, for the processes of one host; and in memory, for tests."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from sealpoint.errors import ThreadStoreDownError, ThreadStoreTimeoutError
from sealpoint.forks import inherited, reset_in_child
from sealpoint.postgres import is_url
from sealpoint.sqlitefile import guard
from sealpoint.threads import sqlitefile as statements
from sealpoint.threads.database import AFTER, END, DatabaseStore
from sealpoint.threads.postgres import PostgresThreadStore
from sealpoint.threads.sqlitefile import FOREIGN, Opened, connect, damaged, fill, translated
from sealpoint.threads.sqlitefile import create as create_file
from sealpoint.threads.store import (
    TIMEOUT_SECONDS,
    Answer,
    Head,
    Kind,
    Special,
    Spot,
    ThreadStore,
)


def values_of(heads: Iterable[Head]) -> list[tuple[Any, ...]]:
    """Return the columns of heads that are appended now."""
    now = int(time.time())
    # sqlite3 searches for an adapter of each value that is bytes, and not of a bytearray.
    return [(*spot, int(kind), bytearray(mac), now, int(kind is Kind.DELETED)) for spot, kind, mac in heads]


Result = TypeVar("Result")


class SharedFile:
    """The file of a store.

    A file that is replaced by a restored one of the same store is opened again by the next call.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self.identity = path, ""
        self.opened: Opened | None = None
        self._name = os.fspath(path)
        self._timeout = timeout
        self._lock = threading.Lock()
        reset_in_child(self)

    def run(self, work: Callable[..., Result], *arguments: Any, seconds: float | None = None) -> Result:
        """Call ``work`` with the file and ``arguments``, and return its result.

        A transaction that it leaves open is rolled back.
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
            guard.raise_cause(error)
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


# How many events a store appends before it moves the log into the file, and so to the disk
CHECKPOINT_EVENTS: Final = 500

MAINTENANCE_SECONDS: Final = 3600.0  # time limit of `adopt`, which may change every row


class SqliteThreadStore(DatabaseStore):
    """A thread store in a SQLite file. `ThreadStore` says what its methods do.

    A file that is replaced by a restored one of the same store is opened again by the next call.

    Attributes:
        identity: Names this store in what is sealed: 32 hex digits.

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from sealpoint.langgraph import EncryptedSerializer, SealedSaver
        >>> from sealpoint.threads import SqliteThreadStore
        >>> threads = SqliteThreadStore("threads.db", create=True)
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> saver = SealedSaver(InMemorySaver(), serde=serde, threads=threads)
        >>> threads.close()
    """

    _statements, _names = statements, (str, str, str)

    def __init__(
        self, path: str | PathLike[str], *, create: bool = False, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Open a store.

        Args:
            path: Its file, on a disk of this host.
            create: Whether to create the file if there is none.
            timeout: How long a call may take, in seconds.

        Raises:
            ThreadStoreError: If it is missing, not a store, damaged, locked, or cannot be read.
        """
        self._file = SharedFile(Path(path).absolute(), timeout)
        if create:
            create_file(self._file.path)
        try:
            self._file.run(self._read_clock)
        except BaseException:
            self._file.close()
            raise
        self.identity = self._file.identity

    @property
    def claim(self) -> int:
        """The clock when the log was last moved into the file: a power failure may undo later commits."""
        opened = self._file.opened
        return opened.claim if opened else 0

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        return self._file.run(self._newest, thread_id, checkpoint_ns)

    def _newest(self, opened: Opened, thread_id: str, checkpoint_ns: str) -> Answer:
        row = opened.connection.execute(statements.NEWEST, (thread_id, checkpoint_ns)).fetchone()
        if row is None or row[1] != Kind.PUT:
            row = opened.connection.execute(statements.NEWEST_PUT, (thread_id, checkpoint_ns)).fetchone()
            if row is None or row[0] is None:
                return Answer((), self._clock([row[4:]] if row else []))
        checkpoint_id, _, mac, records, *clock = row
        if type(mac) is not bytes or type(checkpoint_id) is not str:
            self._require((checkpoint_id, mac), str, bytes)
        head = Head(Spot(thread_id, checkpoint_ns, checkpoint_id), Kind.PUT, mac)
        specials = () if records is None else self._specials([(head.spot, records)])
        return Answer((head,), self._clock([clock]), specials)

    def find(self, spots: Sequence[Spot]) -> Answer:
        return self._file.run(self._find, [*dict.fromkeys(spots)])

    def _find(self, opened: Opened, spots: Sequence[Spot]) -> Answer:
        if not spots:
            return Answer((), self._read_clock(opened))
        if len(spots) > 1:
            opened.connection.execute("BEGIN")
        return self._answer(
            [
                (*spot, *row)
                for spot in spots
                for row in opened.connection.execute(statements.FIND, (*spot, *spot)).fetchall()
            ]
        )

    def require_writable(self) -> None:
        self._file.run(self._require_writable)

    def _require_writable(self, opened: Opened) -> None:
        if opened.appended is None:
            self._move_log(opened)
        opened.connection.execute(statements.REQUIRE_WRITABLE)

    def append(self, heads: Sequence[Head]) -> None:
        if heads:
            self._file.run(self._append, values_of(heads))

    def _append(self, opened: Opened, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1 and rows[0][3] == Kind.PUT and opened.appended is not None:
            opened.connection.execute(statements.APPEND, rows[0])  # a transaction of its own
        else:
            self._begin(opened, flushed=any(row[3] != Kind.PUT for row in rows))
            self._insert(opened, rows)
        self._commit(opened, len(rows))

    def _insert(self, opened: Opened, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            if row[3] != Kind.PUT:
                opened.connection.execute(statements.REPLACE, row[:3])
            opened.connection.execute(statements.APPEND, row)

    def last_special(self) -> int:
        return self._file.run(self._find_last_special)

    def _find_last_special(self, opened: Opened) -> int:
        self._require_writable(opened)
        (last,) = opened.connection.execute(statements.LAST_SPECIAL).fetchone()
        return int(last)

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        self._file.run(self._append_specials, [(*spot, *special[1:]) for special in specials])

    def _append_specials(self, opened: Opened, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) > 1 or opened.appended is None:
            self._begin(opened)
        opened.connection.executemany(statements.APPEND_SPECIAL, rows)
        self._commit(opened, len(rows))

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        # Read before the transaction begins: other processes append meanwhile.
        values = values_of(heads)
        also = [(*spot, *special[1:]) for spot, events in specials for special in events]
        self._file.run(self._adopt, values, also, identities, clock, reason, seconds=MAINTENANCE_SECONDS)

    def _adopt(
        self,
        opened: Opened,
        rows: Sequence[tuple[Any, ...]],
        specials: Sequence[tuple[Any, ...]],
        identities: frozenset[str],
        clock: int,
        reason: str,
    ) -> None:
        self._begin(opened)
        self._insert(opened, rows)
        opened.connection.executemany(statements.APPEND_SPECIAL, specials)
        opened.connection.executemany(statements.NAME, [(name, name) for name in sorted(identities)])
        opened.connection.execute(statements.RAISE, (clock,))
        opened.connection.execute(statements.RECORD, (int(time.time()), reason))
        self._commit(opened, CHECKPOINT_EVENTS)

    def _trim_page(self, before: int, after: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
        return self._file.run(self._trim, before, after, most)

    def _trim(self, opened: Opened, before: int, after: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
        self._begin(opened)
        rows = self._fetch(opened, statements.PAGE, (*after, most), f"WHERE {AFTER}" if after else "")
        if not rows:
            return []
        ((end,),) = self._fetch(opened, END)
        gone = [key for *key, kind, at, last in rows if kind == Kind.DELETED and at < before and last < end]
        opened.connection.executemany(statements.FORGET, gone)
        opened.connection.executemany(statements.FORGET_SPECIALS, gone)
        opened.connection.executemany(statements.END_SPECIALS, gone)
        opened.connection.execute(statements.TRIMMED, (len(gone),))
        self._commit(opened, len(gone))
        return [(len(gone), *self._spot(rows[-1][:3]))]

    def close(self) -> None:
        """Close the store's connection; a later call opens it again."""
        self._file.close()

    def _begin(self, opened: Opened, *, flushed: bool = False) -> None:
        """Begin a transaction; ``flushed`` if it must reach the disk before the database deletes rows.

        After a power failure the database would else lack rows that the store still remembers.
        """
        if opened.appended is None:
            self._move_log(opened)
        opened.connection.execute(f"PRAGMA synchronous = {'FULL' if flushed else 'NORMAL'}")
        opened.connection.execute("BEGIN IMMEDIATE")

    def _commit(self, opened: Opened, events: int) -> None:
        if opened.connection.in_transaction:
            opened.connection.execute("COMMIT")
            opened.connection.execute("PRAGMA synchronous = NORMAL")
        opened.appended = (opened.appended or 0) + events
        if opened.appended >= CHECKPOINT_EVENTS:
            self._move_log(opened)

    def _move_log(self, opened: Opened) -> None:
        """Move the log into the file and flush it to the disk; update the claim if all was moved."""
        clock = self._read_clock(opened)
        opened.appended = 0
        try:
            busy, pages, moved = opened.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:  # for instance on a full disk: nothing is lost, the log remains
            with suppress(ThreadStoreTimeoutError):
                guard.raise_cause(error)
        else:
            if not busy and pages == moved >= 0:  # otherwise another connection reads an earlier state
                opened.claim = clock

    def _read_clock(self, opened: Opened) -> int:
        return self._clock(self._fetch(opened, statements.READ_CLOCK))

    def _rows(
        self, statement: str, values: Sequence[Any] = (), conditions: str = ""
    ) -> list[tuple[Any, ...]]:
        return self._file.run(self._fetch, statement, values, conditions)

    def _fetch(
        self, opened: Opened, statement: str, values: Sequence[Any] = (), conditions: str = ""
    ) -> list[tuple[Any, ...]]:
        return opened.connection.execute(_text(statement, conditions), values).fetchall()

    def _encoded(self, *texts: str) -> tuple[str, ...]:
        return texts

    def _damaged(self, what: str) -> ThreadStoreDownError:
        return damaged(self._file.path, what)


class MemoryThreadStore(SqliteThreadStore):
    """A thread store in the memory of this process; a child of a fork has a copy. See `ThreadStore`.

    It remembers nothing that a restart could compare with: it is for tests.

    Example:
        >>> from sealpoint.threads import MemoryThreadStore
        >>> list(MemoryThreadStore().heads())
        []
    """

    def __init__(self) -> None:
        self._file = _Memory()
        self.identity = self._file.identity

    @property
    def claim(self) -> int:
        """The clock."""
        return self._file.run(self._read_clock)


@cache
def _text(statement: str, conditions: str) -> str:
    return statement.format(schema="", conditions=conditions)


def open_thread_store(name: str, *, create: bool = False, timeout: float = TIMEOUT_SECONDS) -> ThreadStore:
    """Open a thread store.

    Args:
        name: Path of a SQLite file; or a Postgres database, ``postgresql://...`` or ``service=NAME``.
        create: Whether to create it if there is none.
        timeout: How long a call may take, in seconds.

    Raises:
        ThreadStoreError: If it cannot be opened, or is not a store.
        MissingExtraError: If psycopg is not installed, and a Postgres database is named.

    Example:
        >>> from sealpoint.threads import open_thread_store
        >>> threads = open_thread_store("threads.db", create=True)  # or "service=threads"
        >>> threads.close()
    """
    if is_url(name) or name.startswith("service="):
        return PostgresThreadStore(name, create=create, timeout=timeout)
    return SqliteThreadStore(name, create=create, timeout=timeout)
