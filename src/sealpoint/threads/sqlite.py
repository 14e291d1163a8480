"""SqliteThreadStore: a thread store in a SQLite file, for the processes of one host."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from sealpoint.errors import ThreadStoreDownError, ThreadStoreTimeoutError
from sealpoint.forks import inherited, reset_in_child
from sealpoint.sqlitefile import guard
from sealpoint.threads import sqlitefile as statements
from sealpoint.threads.postgres import PostgresThreadStore
from sealpoint.threads.sqlitefile import FOREIGN, Opened, connect, damaged, require_row, translated
from sealpoint.threads.sqlitefile import create as create_file
from sealpoint.threads.store import (
    PAGE_ROWS,
    TIMEOUT_SECONDS,
    Answer,
    Event,
    Head,
    Kind,
    Special,
    Spot,
    ThreadStore,
    parse_specials,
)


def head_of(path: Path, *values: Any) -> Head:
    """Return a head for the columns of a row."""
    thread_id, ns, checkpoint_id, kind, mac = require_row(path, values, str, str, str, int, bytes)
    if not 0 <= kind < len(Kind):
        raise damaged(path, "a row has a kind that does not exist")
    return Head(Spot(thread_id, ns, checkpoint_id), Kind(kind), mac)


def specials_of(path: Path, *found: tuple[Spot, Any]) -> list[tuple[Spot, list[Special]]]:
    """Return events of special writes, for those that have records."""
    try:
        return [(spot, parse_specials(records)) for spot, records in found if records is not None]
    except (ValueError, AttributeError, TypeError):
        raise damaged(path, "a special write is not as a thread store writes it") from None


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


CHECKPOINT_EVENTS: Final = 500
"""How many events a store appends before it moves the log into the file, and so to the disk."""

MAINTENANCE_SECONDS: Final = 3600.0
"""Time limit of `adopt`, which may change every row."""


class SqliteThreadStore:
    """A thread store in a SQLite file. See `ThreadStore`.

    A file that is replaced by a restored one of the same store is opened again by the next call.

    Attributes:
        identity: Names this store in what is sealed: 32 hex digits.
    """

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
    def identities(self) -> frozenset[str]:
        """All that were names of this store."""
        rows = self._file.run(self._rows, "SELECT identity FROM identities")
        return frozenset(name for row in rows for name in require_row(self._file.path, row, str))

    @property
    def claim(self) -> int:
        """The clock when the log was last moved into the file: a power failure may undo later commits."""
        opened = self._file.opened
        return opened.claim if opened else 0

    def newest(self, thread_id: str, checkpoint_ns: str) -> Answer:
        """Return the head with the greatest id of those whose kind is PUT. See `ThreadStore`."""
        return self._file.run(self._newest, thread_id, checkpoint_ns)

    def _newest(self, opened: Opened, thread_id: str, checkpoint_ns: str) -> Answer:
        row = opened.connection.execute(statements.NEWEST, (thread_id, checkpoint_ns)).fetchone()
        if row is None or row[1] != Kind.PUT:
            row = opened.connection.execute(statements.NEWEST_PUT, (thread_id, checkpoint_ns)).fetchone()
            if row is None or row[0] is None:
                return Answer((), self._clock(row and row[4:]))
        checkpoint_id, _, mac, records, *clock = row
        if type(mac) is not bytes or type(checkpoint_id) is not str:
            require_row(self._file.path, (checkpoint_id, mac), str, bytes)
        head = Head(Spot(thread_id, checkpoint_ns, checkpoint_id), Kind.PUT, mac)
        return Answer((head,), self._clock(clock), specials_of(self._file.path, (head.spot, records)))

    def find(self, spots: Sequence[Spot]) -> Answer:
        """Return the heads of those of ``spots`` that have one. See `ThreadStore`."""
        return self._file.run(self._find, [*dict.fromkeys(spots)])

    def _find(self, opened: Opened, spots: Sequence[Spot]) -> Answer:
        if len(spots) != 1:
            opened.connection.execute("BEGIN")
        heads, found, clock = list[Head](), list[tuple[Spot, Any]](), None
        for spot in spots:
            row = opened.connection.execute(statements.FIND, (*spot, *spot)).fetchone() or (None,) * 5
            kind, mac, records, *clock = row
            if kind is not None:
                heads.append(head_of(self._file.path, *spot, kind, mac))
            found.append((spot, records))
        now = self._clock(clock) if clock else self._read_clock(opened)
        return Answer(heads, now, specials_of(self._file.path, *found))

    def between(
        self, thread_id: str, checkpoint_ns: str | None, least: str | None, below: str | None
    ) -> Answer:
        """Return the heads of a thread whose kind is not DELETED. See `ThreadStore`."""
        limits = (("checkpoint_ns =", checkpoint_ns), ("checkpoint_id >=", least), ("checkpoint_id <", below))
        given = [(condition, value) for condition, value in limits if value is not None]
        statement = statements.BETWEEN.format("".join(f"AND {condition} ? " for condition, _ in given))
        return self._file.run(self._between, statement, (thread_id, *(value for _, value in given)))

    def _between(self, opened: Opened, statement: str, values: Sequence[str]) -> Answer:
        opened.connection.execute("BEGIN")
        rows = opened.connection.execute(statement, values).fetchall()
        heads = [head_of(self._file.path, values[0], *row[:4]) for row in rows]
        found = [(head.spot, row[4]) for head, row in zip(heads, rows, strict=True)]
        return Answer(heads, self._read_clock(opened), specials_of(self._file.path, *found))

    def replaced(self, spot: Spot) -> Sequence[bytes]:
        """Return the MACs of the earlier contents of a checkpoint, the last first. See `ThreadStore`."""
        rows = self._file.run(self._rows, statements.MACS, (*spot, *spot))
        return [mac for row in rows for mac in require_row(self._file.path, row, bytes)]

    def require_writable(self) -> None:
        """Check that heads can be appended now. See `ThreadStore`."""
        self._file.run(self._require_writable)

    def _require_writable(self, opened: Opened) -> None:
        if opened.appended is None:
            self._move_log(opened)
        opened.connection.execute(statements.REQUIRE_WRITABLE)

    def append(self, heads: Sequence[Head]) -> None:
        """Append events in one transaction. See `ThreadStore`."""
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
        """Return the number of the last event of a special write. See `ThreadStore`."""
        return self._file.run(self._find_last_special)

    def _find_last_special(self, opened: Opened) -> int:
        self._require_writable(opened)
        (last,) = opened.connection.execute(statements.LAST_SPECIAL).fetchone()
        return int(last)

    def append_specials(self, spot: Spot, specials: Sequence[Special]) -> None:
        """Append events of special writes to a checkpoint, in one transaction. See `ThreadStore`."""
        self._file.run(self._append_specials, [(*spot, *special[1:]) for special in specials])

    def _append_specials(self, opened: Opened, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) > 1 or opened.appended is None:
            self._begin(opened)
        opened.connection.executemany(statements.APPEND_SPECIAL, rows)
        self._commit(opened, len(rows))

    def specials(self) -> Iterator[tuple[Spot, Sequence[Special]]]:
        """Yield the events of special writes by checkpoint. See `ThreadStore`."""
        for *spot, records in self._ordered(statements.SPECIALS, statements.ALSO_AFTER):
            names = require_row(self._file.path, spot, str, str, str)
            yield from specials_of(self._file.path, (Spot(*names), records))

    def delete_thread(self, thread_id: str) -> None:
        """Append DELETED for each checkpoint of a thread whose last event is another."""
        # A page at a time, which takes no longer than other calls may wait.
        while len(rows := self._file.run(self._rows, statements.LIVE, (thread_id, PAGE_ROWS))) == PAGE_ROWS:
            self._delete(thread_id, rows)
        self._delete(thread_id, rows)
        after: tuple[Any, ...] = ()
        while rows := self._file.run(
            self._rows,
            statements.SPECIAL_NAMES.format(statements.AFTER_NAME if after else ""),
            (thread_id, *after, PAGE_ROWS),
        ):
            self._delete(thread_id, [name for *name, is_live in rows if is_live])
            if rows[-1][:2] <= after:
                raise damaged(self._file.path, "the rows of an index have no order")
            after = rows[-1][:2]

    def _delete(self, thread_id: str, rows: Sequence[Sequence[Any]]) -> None:
        names = [require_row(self._file.path, row, str, str) for row in rows]
        self.append(sorted(Head(Spot(thread_id, *name), Kind.DELETED, b"") for name in names))

    def has_live(self, thread_id: str) -> bool:
        """Whether a thread has a head whose kind is not DELETED. See `ThreadStore`."""
        return bool(self._file.run(self._rows, statements.LIVE, (thread_id, 1)))

    def heads(self) -> Iterator[Head]:
        """Yield the head of each checkpoint, by thread, namespace and id. See `ThreadStore`."""
        for row in self._ordered(statements.HEADS, statements.AFTER):
            yield head_of(self._file.path, *row[:5])

    def _ordered(self, statement: str, further: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement by checkpoint; ``further`` begins it after one."""
        after: tuple[Any, ...] = ()
        while rows := self._file.run(
            self._rows, statement.format(further if after else ""), (*after, PAGE_ROWS)
        ):
            yield from rows
            if rows[-1][:3] <= after:
                raise damaged(self._file.path, "the rows of an index have no order")
            after = rows[-1][:3]

    def end(self) -> int:
        """Return the number of the last event. See `ThreadStore`."""
        return self._number(statements.END)

    def events(self, until: int) -> Iterator[Event]:
        """Yield the events up to a number, in their order. See `ThreadStore`."""
        after = 0
        while rows := self._file.run(self._rows, statements.EVENTS, (after, until, PAGE_ROWS)):
            for seq, *head, at in rows:
                require_row(self._file.path, (seq, at), int, int)
                if seq <= after:
                    raise damaged(self._file.path, "the rows of a table have no order")
                after = seq
                yield Event(seq, head_of(self._file.path, *head), at)

    def adopt(
        self,
        heads: Iterable[Head],
        identities: frozenset[str],
        clock: int,
        reason: str,
        specials: Iterable[tuple[Spot, Sequence[Special]]] = (),
    ) -> None:
        """Take what a database has as true, in one transaction. See `ThreadStore`."""
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

    def trim(self, before: int) -> int:
        """Remove the events of checkpoints that were deleted before a time. See `ThreadStore`."""
        count, after = 0, ()
        while (done := self._file.run(self._trim, before, after)) is not None:
            gone, last = done
            if last <= after:
                raise damaged(self._file.path, "the rows of an index have no order")
            count, after = count + gone, last
        return count

    def _trim(
        self, opened: Opened, before: int, after: tuple[Any, ...]
    ) -> tuple[int, tuple[Any, ...]] | None:
        """Trim some checkpoints; return how many, and the last that was looked at; ``None`` at the end."""
        self._begin(opened)
        statement = statements.PAGE.format(statements.AFTER if after else "")
        rows = opened.connection.execute(statement, (*after, PAGE_ROWS)).fetchall()
        if not rows:
            return None
        (end,) = opened.connection.execute(statements.END).fetchone()
        gone = [key for *key, kind, at, last in rows if kind == Kind.DELETED and at < before and last < end]
        opened.connection.executemany(statements.FORGET, gone)
        opened.connection.executemany(statements.FORGET_SPECIALS, gone)
        opened.connection.execute(statements.TRIMMED, (len(gone),))
        self._commit(opened, len(gone))
        return len(gone), tuple(require_row(self._file.path, rows[-1][:3], str, str, str))

    def trimmed(self) -> int:
        """Return how many checkpoints were forgotten so far."""
        return self._number("SELECT trimmed FROM store LIMIT 1")

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
        return self._clock(opened.connection.execute(statements.CLOCK).fetchone())

    def _clock(self, values: Sequence[Any] | None) -> int:
        """Return the clock."""
        raised, last = values or (None, None)
        if type(raised) is not int or type(last) is not int:
            raise damaged(self._file.path, "it has no clock")
        return raised + last

    def _rows(self, opened: Opened, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return opened.connection.execute(statement, values).fetchall()

    def _number(self, statement: str) -> int:
        rows = self._file.run(self._rows, statement)
        (number,) = require_row(self._file.path, rows[0] if rows else None, int)
        return int(number)


_POSTGRES: Final = re.compile(r"postgres(ql)?://|service=")


def open_thread_store(name: str, *, create: bool = False, timeout: float = TIMEOUT_SECONDS) -> ThreadStore:
    """Open a thread store.

    Args:
        name: Path of a SQLite file; or a Postgres database, ``postgresql://...`` or ``service=NAME``.
        create: Whether to create it if there is none.
        timeout: How long a call may take, in seconds.

    Raises:
        ThreadStoreError: If it cannot be opened, or is not a store.
        MissingExtraError: If psycopg is not installed, and a Postgres database is named.
    """
    if _POSTGRES.match(name):
        return PostgresThreadStore(name, create=create, timeout=timeout)
    return SqliteThreadStore(name, create=create, timeout=timeout)
