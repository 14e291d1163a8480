"""Opening SQLite files. The files next to a database are inspected before SQLite uses them.

SQLite uses files next to a database by their names:

    FILE-journal   of an interrupted transaction: the next reader rolls it back, and removes the super-journal
                   that its last bytes name, which may be any file
    FILE-wal       log of later transactions: read, written and removed
    FILE-shm       an index of the log, in memory that all processes share

SQLite follows links, writes through them, and waits for the writer of a FIFO. So a file next to
a database must be a regular file without hard links, and a super-journal must have a name of SQLite's own
form. Files that are created after the inspection are not noticed.

Sources: https://www.sqlite.org/fileformat2.html (sections 3 and 4), https://www.sqlite.org/atomiccommit.html
(section 5), and readSuperJournal in pager.c.

The module also detects a database file that lacks some of its pages.

SQLite refuses a file with fewer pages than its header counts, but reads zeros in place of the end of an
incomplete last page: rows there are missing or changed. With a write-ahead log it does not compare the sizes.

    log    header of 32 bytes, of which 16 to 23 are its salts; then frames
    frame  page number, 4 bytes; 4 more; the salts of its log, 8 bytes; 8 more; the page

The log ends before the first frame with other salts, which belongs to an earlier log.

Source: SQLite's file format, sections 1.3.7 (the header's size of the database) and 4.1 (the log).
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from sealpoint.errors import AccessError, DatabaseCorruptError, excerpt
from sealpoint.guards import statements
from sealpoint.guards.limits import MAX_VALUE_BYTES

BUSY_TIMEOUT_MS: Final = 60_000  # how long a write waits for other processes before it fails
COMPANIONS: Final = ("-journal", "-wal", "-shm")  # endings of the files that SQLite has next to a database

_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
_END_BYTES: Final = 16  # of a journal: length of the super-journal's name, its checksum, and the magic bytes
_SUPER_JOURNAL: Final = re.compile(rb"/[^\0]*-mj[0-9A-F]{6}9[0-9A-F]{2}")  # for SQLite a NUL ends the name
_MAX_SUPER_BYTES: Final = 1 << 20  # the names of 126 journals, the most that a connection attaches
Result = TypeVar("Result")

_REMOVE: Final = "find out which program created the file, and move it away if SQLite did not"


def open_file(
    path: str | bytes | PathLike[str], options: str, *, isolation_level: Any = None, timeout: float = 5.0
) -> sqlite3.Connection:
    """Open a connection to a database file; call `prepare` before anything is read through it."""
    return _open(sqlite3.connect, path, options, isolation_level, timeout)  # type: ignore[no-any-return]


def reopen_file(
    connection: sqlite3.Connection, path: str, options: str, *, isolation_level: Any = None
) -> None:
    """Open a closed connection again for a database file; its row and text factories are kept."""
    row_factory, text_factory = connection.row_factory, connection.text_factory
    _open(partial(sqlite3.Connection.__init__, connection), path, options, isolation_level, 5.0)
    connection.row_factory, connection.text_factory = row_factory, text_factory


def _open(connect: Callable[..., Any], path: Any, options: str, isolation_level: Any, timeout: float) -> Any:
    file = Path(os.path.realpath(os.fsdecode(path)))
    # SQLite would wait for the writer of a FIFO.
    _require_regular(file, "the database", hint="name the file of a database")
    return connect(
        f"{file.as_uri()}?{options}",
        uri=True,
        isolation_level=isolation_level,
        timeout=timeout,
        check_same_thread=False,
    )


def create_file(path: Path, folder: int) -> sqlite3.Connection:
    """Create an empty database, locked for this connection, without a journal and without fsync.

    SQLite opens the file by its path, where another account may have put another file since. So the opened
    file is compared with the created file before anything is read or written.
    """
    # SQLite would create the file with the mode of the umask, possibly readable for others.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
    try:
        connection = open_file(path, "mode=rw")
        is_open = _is_open_twice(descriptor)
    finally:
        os.close(descriptor)  # before SQLite has any lock, which this would end
    try:
        if not is_open:
            raise AccessError(
                f"another process has replaced {path}, which was just created",
                hint="use a folder in which no other account can write",
            )
        # The lock first: without it SQLite would look for a journal next to the path at each transaction.
        for pragma in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = OFF",
            "synchronous = OFF",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_open_twice(descriptor: int) -> bool:
    found = os.fstat(descriptor)
    for other in Path("/dev/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if int(other.name) != descriptor and os.path.samestat(os.fstat(int(other.name)), found):
                return True
    return False


def prepare(
    connection: sqlite3.Connection, authorize: Callable[..., int] = statements.authorize
) -> Path | None:
    """Inspect a database's files, set ``trusted_schema`` off, and return the path of the database, if any."""
    file = inspect(connection)
    connection.set_authorizer(authorize)
    limit = connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limit, MAX_VALUE_BYTES))
    # With the default, ON, expressions of the schema may call functions of the application.
    connection.execute("PRAGMA trusted_schema = OFF")
    return file


def inspect(connection: sqlite3.Connection) -> Path | None:
    """Inspect the files next to an open database; return the path of the database, ``None`` in memory."""
    main = None
    for name, file in _files(connection):
        for ending in COMPANIONS:
            companion = file.with_name(file.name + ending)
            if (
                _require_regular(companion, "a file next to the database", most_links=1)
                and ending == "-journal"
            ):
                _require_super_journal(companion)
        if name == b"main" and file.exists():  # otherwise a database in memory, whose name looks like a path
            main = file
    return main


def _files(connection: sqlite3.Connection) -> Iterator[tuple[bytes, Path]]:
    """Yield the schema name and the path of each attached database with a file, without reading the file."""
    theirs = connection.text_factory
    connection.text_factory = bytes  # a path need not be UTF-8
    try:
        with closing(connection.cursor()) as cursor:
            cursor.row_factory = None
            rows = cursor.execute("PRAGMA database_list").fetchall()
    finally:
        connection.text_factory = theirs
    for _, name, file in rows:
        if file:
            yield name, Path(os.fsdecode(file))


def _require_regular(path: Path, what: str, most_links: int | None = None, hint: str = _REMOVE) -> bool:
    """Raise if the path exists and is not a regular file; return whether it exists."""
    try:
        found = path.lstat()
    except OSError:
        return False  # if it exists, SQLite raises the reason
    if stat.S_ISLNK(found.st_mode):
        raise DatabaseCorruptError(f"{what}, {path}, is a symbolic link", hint=hint)
    if not stat.S_ISREG(found.st_mode):
        raise DatabaseCorruptError(f"{what}, {path}, is not a regular file", hint=hint)
    if most_links is not None and found.st_nlink > most_links:
        hint = f"SQLite would change the file under both names; {_REMOVE}"
        raise DatabaseCorruptError(f"{what}, {path}, has a second name (a hard link)", hint=hint)
    return True


def _require_super_journal(journal: Path) -> None:
    """Refuse a journal whose super-journal has not SQLite's form: a rollback reads and removes this file."""
    name = _super_journal_of(journal)
    if name is None:
        return
    if not _SUPER_JOURNAL.fullmatch(name):
        raise DatabaseCorruptError(
            f"{journal} names {excerpt(os.fsdecode(name))} as its super-journal, which SQLite would remove",
            hint=_REMOVE,
        )
    file = Path(os.fsdecode(name))
    if not _require_regular(file, f"the super-journal of {journal}", most_links=1):
        return
    names = _read(file, 0, _MAX_SUPER_BYTES)
    children = [name for name in names.split(b"\0") if name]
    if len(names) == _MAX_SUPER_BYTES or any(
        not (name.startswith(b"/") and name.endswith(b"-journal")) for name in children
    ):
        raise DatabaseCorruptError(f"{file} is not a super-journal of SQLite", hint=_REMOVE)
    for name in children:
        _require_regular(Path(os.fsdecode(name)), f"a journal that {file} names")


def _super_journal_of(journal: Path) -> bytes | None:
    with suppress(FileNotFoundError):  # its transaction has just ended
        size = journal.stat().st_size
        end = _read(journal, size - _END_BYTES, _END_BYTES)
        length = int.from_bytes(end[:4])
        if end[8:] == _MAGIC and 0 < length <= size - _END_BYTES:
            name = _read(journal, size - _END_BYTES - length, min(length, _MAX_SUPER_BYTES))
            # The sum of its characters, which are signed on some processors.
            sums = sum(name), sum(byte - 256 * (byte > 127) for byte in name)
            return name if int.from_bytes(end[4:8]) in [one % 2**32 for one in sums] else None
    return None


def _read(path: Path, start: int, size: int) -> bytes:
    """Read a part of a file that is not a database: closing a database would end SQLite's locks on it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""  # removed meanwhile, or SQLite may not read it either
    try:
        return os.pread(descriptor, size, max(start, 0))
    finally:
        os.close(descriptor)


def switch_log_on(cursor: sqlite3.Cursor) -> None:
    """Set journal mode WAL, unless the database cannot be changed now; ``cursor`` must return tuples."""
    (mode,) = cursor.execute("PRAGMA main.journal_mode").fetchone()
    # SQLite cannot change to WAL within a transaction, and a database in memory has no log.
    if mode in ("wal", "memory") or cursor.connection.in_transaction:
        return
    try:
        cursor.execute("PRAGMA main.journal_mode = WAL").fetchall()
    except sqlite3.OperationalError as error:
        # A read-only file is not changed. SQLite does not wait here for a busy one: either another process is
        # switching, which this connection will notice, or it works without WAL until one does.
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
            raise


_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_LOCK_BYTE: Final = 1 << 30  # SQLite writes no page there


def rolled_back(cursor: sqlite3.Cursor, work: Callable[[], Result]) -> Result:
    """Call a function in a new transaction; roll the transaction back, even if a signal handler raises."""
    try:
        cursor.execute("BEGIN")
        found = work()
        cursor.execute("ROLLBACK")
    except BaseException:
        if cursor.connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise
    return found


def require_whole(cursor: sqlite3.Cursor, file: Path | None) -> None:
    """Check that each page of the database is in its file, or in the log.

    A file of 0 bytes is a new database; its first page may still be in memory, after ``PRAGMA journal_mode``
    whose result was not fetched. If the file's header is older than the last change, its number of pages
    is not used: only an incomplete page is noticed. During a transaction nothing is checked, because its
    pages may be only in memory.
    """
    if file is None or cursor.connection.in_transaction:
        return
    rolled_back(cursor, partial(_require_pages, cursor, file))  # no other process shortens the file meanwhile


def _require_pages(cursor: sqlite3.Cursor, file: Path) -> None:
    (pages,) = cursor.execute("PRAGMA main.page_count").fetchone()
    (page_bytes,) = cursor.execute("PRAGMA main.page_size").fetchone()
    try:
        size_bytes = file.stat().st_size
    except FileNotFoundError:  # removed meanwhile
        return
    log, kept = file.with_name(f"{file.name}-wal"), size_bytes // page_bytes
    if size_bytes and kept < pages and not _is_in_log(log, kept + 1, pages, page_bytes):
        raise DatabaseCorruptError("the file is shorter than its header says: its end is cut off")


def _is_in_log(log: Path, first: int, last: int, page_bytes: int) -> bool:
    """Whether a write-ahead log has all pages from ``first`` to ``last``, except the lock page."""
    numbers = {_LOCK_BYTE // page_bytes + 1}
    try:
        with log.open("rb") as stream:
            salts = stream.read(_LOG_HEADER_BYTES)[16:24]
            while (frame := stream.read(_FRAME_HEADER_BYTES))[8:16] == salts and salts:
                number = int.from_bytes(frame[:4])
                if not number:
                    break  # a hole
                if first <= number <= last:
                    numbers.add(number)
                stream.seek(page_bytes, os.SEEK_CUR)
    except FileNotFoundError:
        return False
    return numbers.issuperset(range(first, last + 1))
