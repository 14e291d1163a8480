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
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from sealpoint import forks
from sealpoint.errors import ForkedError, ThreadStoreDownError, ThreadStoreError, ThreadStoreTimeoutError
from sealpoint.forks import close_at_fork, inherited
from sealpoint.guards import statements
from sealpoint.locks import holding, take
from sealpoint.seal.heads import Head, Kind, Special
from sealpoint.seal.places import Spot
from sealpoint.threads import sqlitefile
from sealpoint.threads.database import AFTER, END, DatabaseStore
from sealpoint.threads.sqlitefile import FOREIGN, Opened, connect, damaged, fill, translated
from sealpoint.threads.sqlitefile import create as create_file
from sealpoint.threads.store import TIMEOUT_SECONDS, Answer, ThreadStore
from sealpoint.urls import is_url

Result = TypeVar("Result")


def values_of(heads: Iterable[Head]) -> list[tuple[Any, ...]]:
    """Return heads as rows for the table of events, with the present time."""
    now = int(time.time())
    # sqlite3 searches for an adapter of each value that is bytes, and not of a bytearray.
    return [(*spot, int(kind), bytearray(mac), now, int(kind is Kind.DELETED)) for spot, kind, mac in heads]


def _roll_back(opened: Opened) -> None:
    if opened.connection.in_transaction:
        with suppress(sqlite3.Error):  # SQLite itself may have rolled back
            opened.connection.execute("ROLLBACK")


class SharedFile:
    """The file of a thread store in SQLite, and the one connection of this process to the file.

    If a restored copy of the same store replaces the file, the next use opens the copy. The file is closed
    while the process forks: SQLite counts the locks of a process, and a child inherits the count. A child
    that opened the file while the parent has a connection would take no lock.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self.identity = path, ""
        self.opened: Opened | None = None
        self._name = os.fspath(path)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._quiet, self._is_inherited = list[bool](), False
        close_at_fork(self)

    def run(self, function: Callable[[Opened], Result]) -> Result:
        """Call a function with exclusive use of the open file; roll back a transaction that is left open."""
        return holding(self._lock, self._timeout, partial(self._run, function), self._refuse)

    def _run(self, function: Callable[[Opened], Result]) -> Result:
        try:
            opened = self._current()
            opened.until = time.monotonic() + self._timeout
            _roll_back(opened)  # the transaction of an interrupted call
            return function(opened)
        except FOREIGN as error:
            statements.raise_cause(error)
            raised = translated(error, self.path)
            if isinstance(raised, ThreadStoreDownError):
                self._close()  # the next use opens a file that was repaired or restored meanwhile
            raise raised from None
        finally:
            if self.opened is not None:
                _roll_back(self.opened)

    def _refuse(self) -> NoReturn:
        raise ThreadStoreTimeoutError(f"thread store {self.path}: other threads kept the store busy")

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._close()

    def before_fork(self) -> None:
        """Wait for another thread's call to end, close the file, and block other threads."""
        take(self._lock, self._timeout, self._quiet)
        if True in self._quiet:
            self._close()

    def after_fork(self) -> None:
        """Let the threads of the parent use the file again."""
        quiet, self._quiet = self._quiet, []
        if True in quiet:
            self._lock.release()

    def reset_after_fork(self) -> None:
        """Forget the parent's connection. If it was open at the fork, the child cannot use the store."""
        if self.opened is not None:
            inherited.append(self.opened)  # SQLite forbids to use or close it here
            self._is_inherited = True
        self._lock, self.opened, self._quiet = threading.Lock(), None, []

    def _current(self) -> Opened:
        if self._is_inherited:
            raise ForkedError("thread store")
        found = os.stat(self._name)  # noqa: PTH116 -- half the time of `Path.stat`
        if self.opened is not None and self.opened.inode == (found.st_ino, found.st_dev):
            return self.opened
        self._close()
        opened = connect(self.path, self._timeout)
        if self.identity not in ("", opened.identity):
            opened.connection.close()
            raise ThreadStoreDownError(
                f"thread store {self.path}: the file was replaced by another thread store",
                hint="restore the earlier store, or restart the process to use this one",
            )
        self.opened, self.identity = opened, opened.identity
        return opened

    def _close(self) -> None:
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.connection.close()


class _Memory(SharedFile):
    """Replaces `SharedFile` by a database in memory. After a fork the child has a copy of the database."""

    opened: Opened

    def __init__(self) -> None:
        super().__init__(Path(":memory:"), MAINTENANCE_SECONDS)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.identity = fill(connection)
        self.opened = Opened(self.path, connection, (0, 0), math.inf)
        weakref.finalize(self, connection.close)

    def _current(self) -> Opened:
        return self.opened

    def _close(self) -> None:
        pass

    def reset_after_fork(self) -> None:
        self._lock, self._quiet = threading.Lock(), []


# How many events a store appends before it moves the log into the file, and so to the disk
CHECKPOINT_EVENTS: Final = 500

MAINTENANCE_SECONDS: Final = 3600.0  # time limit of `adopt`, which may change every row


class SqliteThreadStore(DatabaseStore):
    """A thread store in a SQLite file. `ThreadStore` describes the methods.

    If a restored copy of the same store replaces the file, the next call opens the copy.

    Attributes:
        identity: Identifier of this store in sealed values: 32 hex digits.

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from sealpoint.langgraph import EncryptedSerializer, SealedSaver
        >>> from sealpoint.threads import SqliteThreadStore
        >>> threads = SqliteThreadStore("threads.db", create=True)
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> saver = SealedSaver(InMemorySaver(), serde=serde, threads=threads)
        >>> threads.close()
    """

    _statements, _names = sqlitefile, (str, str, str)

    def __init__(
        self, path: str | PathLike[str], *, create: bool = False, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Open a thread store.

        Args:
            path: File of the store, on a disk of this host.
            create: Whether to create the file if there is none.
            timeout: Time limit of each call of a method, in seconds.

        Raises:
            ThreadStoreError: If the file is missing, not a thread store, damaged, locked, or cannot be read.
        """
        if is_url(str(path)):  # it may have a password, which messages about a file would show
            raise ThreadStoreError("a URL is not a file", hint="open_thread_store(URL) opens one on Postgres")
        self._file = SharedFile(Path(path).absolute(), timeout)
        if create:
            with forks.no_fork:
                create_file(self._file.path)
        try:
            self._file.run(self._read_clock)
        except BaseException:
            self._file.close()
            raise
        self.identity = self._file.identity

    @property
    def claim(self) -> int:
        """Clock up to which all events are in the file and fsynced; a power failure may undo later events."""
        opened = self._file.opened
        return opened.claim if opened else 0

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        def newest(opened: Opened) -> Answer:
            names = thread_id, checkpoint_ns
            row = opened.connection.execute(sqlitefile.NEWEST, names).fetchone()
            if row is None or row[1] != Kind.PUT:
                return self._answer(self._fetch(sqlitefile.NEWEST_PUT, names, "", opened))
            checkpoint_id, _, mac, records, *clock = row
            if type(mac) is not bytes or type(checkpoint_id) is not str:
                self._require((checkpoint_id, mac), str, bytes)
            head = Head(Spot(thread_id, checkpoint_ns, checkpoint_id), Kind.PUT, mac)
            specials = () if records is None else self._specials([(head.spot, records)])
            return Answer((head,), self._clock([clock]), specials)

        return self._file.run(newest)

    def find(self, spots: Sequence[Spot]) -> Answer:
        def find(opened: Opened) -> Answer:
            if not spots:
                return Answer((), self._read_clock(opened))
            if len(spots) > 1:
                opened.connection.execute("BEGIN")
            rows = [
                (*spot, *row)
                for spot in dict.fromkeys(spots)
                for row in opened.connection.execute(sqlitefile.FIND, (*spot, *spot)).fetchall()
            ]
            return self._answer(rows)

        return self._file.run(find)

    def require_writable(self) -> None:
        self._file.run(self._require_writable)

    def _require_writable(self, opened: Opened) -> None:
        if opened.appended is None:
            self._move_log(opened)
        opened.connection.execute(sqlitefile.REQUIRE_WRITABLE)

    def append(self, heads: Sequence[Head]) -> None:
        if not heads:
            return
        rows = values_of(heads)

        def append(opened: Opened) -> None:
            if len(rows) == 1 and rows[0][3] == Kind.PUT and opened.appended is not None:
                opened.connection.execute(sqlitefile.APPEND, rows[0])  # a transaction of its own
            else:
                self._begin(opened, flushed=any(row[3] != Kind.PUT for row in rows))
                self._insert(opened, rows)
            self._commit(opened, len(rows))

        self._file.run(append)

    def _insert(self, opened: Opened, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            if row[3] != Kind.PUT:
                opened.connection.execute(sqlitefile.REPLACE, row[:3])
            opened.connection.execute(sqlitefile.APPEND, row)

    def last_special(self) -> int:
        def last_special(opened: Opened) -> int:
            self._require_writable(opened)
            (last,) = opened.connection.execute(sqlitefile.LAST_SPECIAL).fetchone()
            return int(last)

        return self._file.run(last_special)

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        rows = [(*spot, *special[1:]) for special in specials]

        def append_specials(opened: Opened) -> None:
            if len(rows) > 1 or opened.appended is None:
                self._begin(opened)
            opened.connection.executemany(sqlitefile.APPEND_SPECIAL, rows)
            self._commit(opened, len(rows))

        self._file.run(append_specials)

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

        def adopt(opened: Opened) -> None:
            opened.until = time.monotonic() + MAINTENANCE_SECONDS
            self._begin(opened)
            self._insert(opened, rows)
            opened.connection.executemany(sqlitefile.APPEND_SPECIAL, also)
            opened.connection.executemany(sqlitefile.NAME, [(name, name) for name in sorted(identities)])
            opened.connection.execute(sqlitefile.RAISE, (clock,))
            opened.connection.execute(sqlitefile.RECORD, (int(time.time()), reason))
            self._commit(opened, CHECKPOINT_EVENTS)

        self._file.run(adopt)

    def _trim_page(self, before: int, after: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
        def trim_page(opened: Opened) -> list[tuple[Any, ...]]:
            self._begin(opened)
            rows = self._fetch(sqlitefile.HEADS, (*after, most), f"WHERE {AFTER}" if after else "", opened)
            if not rows:
                return []
            ((end,),) = self._fetch(END, (), "", opened)
            gone = [
                key for *key, kind, _, at, last in rows if kind == Kind.DELETED and at < before and last < end
            ]
            opened.connection.executemany(sqlitefile.FORGET, gone)
            opened.connection.executemany(sqlitefile.FORGET_SPECIALS, gone)
            opened.connection.executemany(sqlitefile.END_SPECIALS, gone)
            opened.connection.execute(sqlitefile.TRIMMED, (len(gone),))
            self._commit(opened, len(gone))
            return [(len(gone), *self._spot(rows[-1][:3]))]

        return self._file.run(trim_page)

    def close(self) -> None:
        """Close the store's connection; a later call of a method opens a new connection."""
        self._file.close()

    def _begin(self, opened: Opened, *, flushed: bool = False) -> None:
        """Begin a transaction; with ``flushed``, COMMIT waits until the transaction is on the disk.

        A deletion is flushed: otherwise, after a power failure, the database could lack rows that must exist.
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
        """Move SQLite's write-ahead log into the file, and fsync it; update `claim` if all was moved."""
        clock = self._read_clock(opened)
        opened.appended = 0
        try:
            busy, pages, moved = opened.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:  # for instance on a full disk: nothing is lost, the log remains
            with suppress(ThreadStoreTimeoutError):
                statements.raise_cause(error)
        else:
            if not busy and pages == moved >= 0:  # otherwise another connection reads an earlier state
                opened.claim = clock

    def _read_clock(self, opened: Opened) -> int:
        return self._clock(self._fetch(sqlitefile.READ_CLOCK, (), "", opened))

    def _rows(
        self, statement: str, values: Sequence[Any] = (), conditions: str = ""
    ) -> list[tuple[Any, ...]]:
        return self._file.run(partial(self._fetch, statement, values, conditions))

    def _fetch(
        self, statement: str, values: Sequence[Any], conditions: str, opened: Opened
    ) -> list[tuple[Any, ...]]:
        return opened.connection.execute(_text(statement, conditions), values).fetchall()

    def _encoded(self, *texts: str) -> tuple[str, ...]:
        return texts

    def _damaged(self, what: str) -> ThreadStoreDownError:
        return damaged(self._file.path, what)


class MemoryThreadStore(SqliteThreadStore):
    """A thread store in the memory of this process; a child of a fork has a copy. See `ThreadStore`.

    It is for tests: its contents end with the process.

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
        """The present clock of the store: no disk is involved, so all events count as flushed."""
        return self._file.run(self._read_clock)


@cache
def _text(statement: str, conditions: str) -> str:
    return statement.format(schema="", records=sqlitefile.RECORDS, conditions=conditions)


def open_thread_store(
    name: str | PathLike[str], *, create: bool = False, timeout: float = TIMEOUT_SECONDS
) -> ThreadStore:
    """Open a thread store.

    Args:
        name: Path of a SQLite file; or a Postgres database, ``postgresql://...`` or ``service=NAME``.
        create: Whether to create the store if there is none.
        timeout: Time limit of each call of a method, in seconds.

    Raises:
        ThreadStoreError: If the store cannot be opened, or is not a thread store.
        MissingExtraError: If ``name`` is a Postgres database, and psycopg is not installed.

    Example:
        >>> from sealpoint.threads import open_thread_store
        >>> threads = open_thread_store("threads.db", create=True)  # or "service=threads"
        >>> threads.close()
    """
    name = os.fspath(name)
    if is_url(name) or name.startswith("service="):
        from sealpoint.threads.postgres import PostgresThreadStore  # not for a file

        return PostgresThreadStore(name, create=create, timeout=timeout)
    return SqliteThreadStore(name, create=create, timeout=timeout)
