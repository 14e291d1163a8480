"""Thread stores in SQLite: in a file, for the processes of one host; and in memory, for tests."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Final

from sealpoint.errors import ThreadStoreDownError, ThreadStoreError, ThreadStoreTimeoutError
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


class SharedFile:
    """The file of a store.

    A file that is replaced by a restored one of the same store is opened again by the next use.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self.identity = path, ""
        self.opened: Opened | None = None
        self._name = os.fspath(path)
        self._timeout = timeout
        self._lock = threading.Lock()
        reset_in_child(self)

    def __enter__(self) -> Opened:
        """Give the open file to a block, which uses it alone."""
        if not self._lock.acquire(timeout=self._timeout):
            raise ThreadStoreTimeoutError(f"thread store {self.path}: other threads kept it busy")
        try:
            opened = self._current()
            opened.until = time.monotonic() + self._timeout
        except BaseException as error:
            self.__exit__(None, error, None)
            raise
        return opened

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Roll back the transaction that a block has left open, and raise our own error for a foreign one."""
        try:
            with suppress(sqlite3.Error):  # SQLite itself may have rolled back
                if self.opened is not None and self.opened.connection.in_transaction:
                    self.opened.connection.execute("ROLLBACK")
            if isinstance(error, FOREIGN):
                guard.raise_cause(error)
                raised = translated(error, self.path)
                if isinstance(raised, ThreadStoreDownError):
                    self._close()  # the next use opens a file that was repaired or restored meanwhile
                raise raised from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._close()

    def reset_after_fork(self) -> None:
        """Forget the connection and the lock of the parent."""
        if self.opened is not None:
            inherited.append(self.opened)  # SQLite forbids to use or close it here
        self._lock, self.opened = threading.Lock(), None

    def _current(self) -> Opened:
        found = os.stat(self._name)  # noqa: PTH116 -- half the time of `Path.stat`
        if self.opened is not None and self.opened.inode == (found.st_ino, found.st_dev):
            return self.opened
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
        super().__init__(Path(":memory:"), threading.TIMEOUT_MAX)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.identity = fill(connection)
        self.opened = Opened(self.path, connection, (0, 0), math.inf)
        weakref.finalize(self, connection.close)

    def _current(self) -> Opened:
        return self.opened

    def _close(self) -> None:
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
        if is_url(str(path)):  # it may have a password, which messages about a file would show
            raise ThreadStoreError("a URL is not a file", hint="open_thread_store(URL) opens one on Postgres")
        self._file = SharedFile(Path(path).absolute(), timeout)
        if create:
            create_file(self._file.path)
        try:
            with self._file as opened:
                self._read_clock(opened)
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
        with self._file as opened:
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
        with self._file as opened:
            if not spots:
                return Answer((), self._read_clock(opened))
            if len(spots) > 1:
                opened.connection.execute("BEGIN")
            rows = [
                (*spot, *row)
                for spot in dict.fromkeys(spots)
                for row in opened.connection.execute(statements.FIND, (*spot, *spot)).fetchall()
            ]
            return self._answer(rows)

    def require_writable(self) -> None:
        with self._file as opened:
            self._require_writable(opened)

    def _require_writable(self, opened: Opened) -> None:
        if opened.appended is None:
            self._move_log(opened)
        opened.connection.execute(statements.REQUIRE_WRITABLE)

    def append(self, heads: Sequence[Head]) -> None:
        if not heads:
            return
        rows = values_of(heads)
        with self._file as opened:
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
        with self._file as opened:
            self._require_writable(opened)
            (last,) = opened.connection.execute(statements.LAST_SPECIAL).fetchone()
        return int(last)

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        rows = [(*spot, *special[1:]) for special in specials]
        with self._file as opened:
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
        rows = values_of(heads)
        also = [(*spot, *special[1:]) for spot, events in specials for special in events]
        with self._file as opened:
            opened.until = time.monotonic() + MAINTENANCE_SECONDS
            self._begin(opened)
            self._insert(opened, rows)
            opened.connection.executemany(statements.APPEND_SPECIAL, also)
            opened.connection.executemany(statements.NAME, [(name, name) for name in sorted(identities)])
            opened.connection.execute(statements.RAISE, (clock,))
            opened.connection.execute(statements.RECORD, (int(time.time()), reason))
            self._commit(opened, CHECKPOINT_EVENTS)

    def _trim_page(self, before: int, after: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
        with self._file as opened:
            self._begin(opened)
            rows = self._fetch(opened, statements.PAGE, (*after, most), f"WHERE {AFTER}" if after else "")
            if not rows:
                return []
            ((end,),) = self._fetch(opened, END)
            gone = [
                key for *key, kind, at, last in rows if kind == Kind.DELETED and at < before and last < end
            ]
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
        with self._file as opened:
            return self._fetch(opened, statement, values, conditions)

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
        with self._file as opened:
            return self._read_clock(opened)


@cache
def _text(statement: str, conditions: str) -> str:
    return statement.format(schema="", records=statements.RECORDS, conditions=conditions)


def open_thread_store(
    name: str | PathLike[str], *, create: bool = False, timeout: float = TIMEOUT_SECONDS
) -> ThreadStore:
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
    name = os.fspath(name)
    if is_url(name) or name.startswith("service="):
        return PostgresThreadStore(name, create=create, timeout=timeout)
    return SqliteThreadStore(name, create=create, timeout=timeout)
