"""Guards for sealpoint's SQLite statements: no trigger or view runs, and no query runs without end.

An authorizer refuses to compile actions of a trigger or a view. A progress handler ends a statement whose
budget of opcodes is spent: pages of a hostile file may refer to one another, so that a few pages contain any
number of rows. Every row may also have the same long chain of pages as its text, which a single opcode reads,
so the handler limits the CPU time of the thread, too. Authorizer and handler check which thread runs:
statements of the application on the same connection are not affected.

SQLite runs a compiled statement only with the schema for which it was compiled, and compiles it again for any
other schema. So a compiled statement needs no further check of the schema. `REQUIRE_CHECK` in a statement
fails if it was compiled without the authorizer of this module.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from sealpoint.errors import (
    DatabaseCorruptError,
    EndlessTreeError,
    HaltedError,
    MetadataError,
    SchemaError,
    TextError,
    excerpt,
)
from sealpoint.guards.limits import oversized

STEP_OPCODES: Final = 10_000  # how often a statement is checked: about every 0.3 ms

LEAST_OPCODES: Final = 200_000
# Opcodes of a scan, per byte: the smallest rows take less than one opcode per byte
OPCODES_PER_BYTE: Final = 8

# CPU time of a scan: 1 s per megabyte of the file; valid rows take some hundredths of that
LEAST_SECONDS: Final = 5.0
SECONDS_PER_STEP: Final = 4 * 0.0003


CHECK_FUNCTION: Final = "sealpoint_require_check"
# Condition of a statement that may run without a check of the schema (see `begin`). The authorizer has SQLite
# compile the call as NULL; otherwise the function is called, and fails without a check.
REQUIRE_CHECK: Final = f"{CHECK_FUNCTION}(1) IS NULL"

_ENDED: Final = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_ERROR)  # by the handler, or by a function for SQL


class _Work:
    __slots__ = (
        "cause",
        "is_checked",
        "is_over",
        "needs_check",
        "steps",
        "subqueries",
        "until",
        "was_denied",
    )

    def __init__(self) -> None:
        self.subqueries: Collection[str] | None = None  # `None` for a statement of the application
        self.steps = 0
        self.until: float | None = None  # limit of the CPU time; `None` before the first step
        self.is_over: Callable[[], bool] | None = None
        self.cause: BaseException | None = None  # the exception that interrupted the statement
        self.is_checked = True  # whether the schema was checked, so that statements may be compiled
        self.was_denied = False  # whether this module has refused a statement
        self.needs_check = False  # whether it did so because the schema was not checked


class _Thread(threading.local):
    """Holds the state of this thread's statement: one lookup is cheaper than four thread-local attributes."""

    def __init__(self) -> None:
        self.work = _Work()


_thread: Final = _Thread()

# Called by SQLite every `STEP_OPCODES`; one per connection, which runs one statement at a time
Handler = Callable[[], int]


def make_handler(check: Callable[[None], None] | None = None) -> Handler:
    """Return a progress handler, the ``next`` of a generator. The handler interrupts if ``check`` raises.

    By default the handler checks the budget of this thread's statement. An exception, also of a signal
    handler, is kept, and `raise_cause` raises it. The generator is already started, because an exception
    before its first line could not be caught.
    """
    ticks = _results(check or _tick, failed=1)
    next(ticks)
    return partial(next, ticks)


def begin(
    connection: sqlite3.Connection,
    handler: Handler,
    is_over: Callable[[], bool] | None = None,
    *,
    unchecked_bytes: int | None = None,
) -> None:
    """Guard this thread's statements on a connection from now on, with the minimum budget of opcodes.

    The progress handler is set only until `end`: otherwise a signal would also interrupt statements of
    the application, and the exception of its handler would be lost.

    With ``unchecked_bytes``, the size of the file, the budget is that of `allow`, and the schema is not
    checked: a statement runs only if it was compiled after a check of the current schema.
    """
    work = _thread.work
    work.subqueries, work.is_over, work.cause, work.until = (), is_over, None, None
    work.is_checked = unchecked_bytes is None
    work.was_denied = False
    work.steps = (LEAST_OPCODES + OPCODES_PER_BYTE * (unchecked_bytes or 0)) // STEP_OPCODES
    connection.set_progress_handler(handler, STEP_OPCODES)


def end(connection: sqlite3.Connection) -> None:
    """Stop guarding this thread's statements."""
    connection.set_progress_handler(None, 0)
    work = _thread.work
    work.subqueries = work.is_over = work.cause = work.until = None
    work.is_checked = True


def needs_check() -> bool:
    """Whether a statement was refused since the last call, because the schema has not been checked."""
    work = _thread.work
    was_refused, work.needs_check, work.was_denied = work.needs_check, False, False
    return was_refused


def is_ours() -> bool:
    """Whether this thread runs a statement of this package."""
    return _thread.work.subqueries is not None


@contextmanager
def guarding(
    connection: sqlite3.Connection,
    is_over: Callable[[], bool] | None = None,
    handler: Handler | None = None,
) -> Iterator[None]:
    """Guard the statements of a block, and raise the reason if one of them was interrupted."""
    begin(connection, handler or make_handler(), is_over)
    try:
        yield
    except sqlite3.Error as error:
        raise_cause(error)
        raise
    finally:
        end(connection)


def allow(size_bytes: int, parameters: int = 0, subqueries: Collection[str] = ()) -> None:
    """Set the budget of opcodes for the next statement on a file of ``size_bytes`` with these parameters."""
    work = _thread.work
    work.subqueries, work.cause, work.until = subqueries, None, None
    work.steps = (LEAST_OPCODES + (OPCODES_PER_BYTE + parameters) * size_bytes) // STEP_OPCODES


def is_spent(error: Exception) -> bool:
    """Whether a statement was interrupted because its budget was spent."""
    return isinstance(error, EndlessTreeError) or isinstance(_thread.work.cause, EndlessTreeError)


def raise_cause(error: Exception) -> None:
    """Raise the exception that interrupted a statement, if this module interrupted it."""
    work = _thread.work
    cause, work.cause = work.cause, None
    if cause is not None and getattr(error, "sqlite_errorcode", None) in _ENDED:
        raise cause from None


def keeping_cause(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function to call in SQL. SQLite drops its exceptions, which `raise_cause` raises later.

    The returned function has one argument, because it is the ``send`` of a generator: the exception of a
    signal handler is then raised inside the generator. In a Python function it could be raised before the
    first line, where nothing can catch it.
    """
    results = _results(function, failed=object())  # sqlite3 cannot convert it, and ends the statement
    next(results)
    return results.send


def deny() -> int:
    """Return SQLite's code that refuses an action; record for `translated` that this module refused it."""
    _thread.work.was_denied = True
    return sqlite3.SQLITE_DENY


def authorize(action: int, _first: object, second: object, _schema: object, owner: str | None) -> int:
    """Return whether SQLite may compile an action; ``owner`` is the trigger or view that contains it."""
    work = _thread.work
    if work.subqueries is None:
        return sqlite3.SQLITE_OK
    if not work.is_checked:
        work.needs_check = True
        return deny()
    if owner is not None and owner not in work.subqueries:
        return deny()
    if action == sqlite3.SQLITE_FUNCTION and second == CHECK_FUNCTION:
        return sqlite3.SQLITE_IGNORE
    return sqlite3.SQLITE_OK


def add_check(connection: sqlite3.Connection) -> None:
    """Register the SQL function that `REQUIRE_CHECK` calls."""
    connection.create_function(CHECK_FUNCTION, 1, keeping_cause(_require_check))


def _require_check(_: object) -> None:
    work = _thread.work
    if not work.is_checked:
        work.needs_check = True
        raise SchemaError("a statement was compiled without a check of the schema")


def _results(function: Callable[[Any], Any], failed: object) -> Generator[Any, Any, None]:
    """Yield the result of a function for each value that is sent, or ``failed`` if the function raises.

    A signal handler may raise where a loop begins again: the loop is inside of ``try``.
    """
    result = None
    while True:
        try:
            while True:
                argument = yield result
                result = function(argument)
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 -- SQLite would drop it; `raise_cause` raises it
            _thread.work.cause, result = error, failed


def _tick(_: None) -> None:
    work = _thread.work
    if work.subqueries is None:
        return  # a statement of the application
    work.steps -= 1
    if work.steps < 0:
        raise EndlessTreeError("the pages of the file yield more rows than it can hold")
    if work.until is None:
        work.until = time.thread_time() + LEAST_SECONDS + work.steps * SECONDS_PER_STEP
    elif time.thread_time() > work.until:
        raise EndlessTreeError("the rows of the file yield more bytes than it can hold")
    if work.is_over is not None and work.is_over():
        raise HaltedError("the run was stopped during a statement")


_MORE_MEMORY: Final = "give the process more memory; `.recover` in the sqlite3 shell saves what can be read"
# Only on a copy: in a hostile file the index may share pages with a table, and REINDEX would overwrite them.
_REINDEX: Final = (
    "the table may be complete: on a copy run `sqlite3 COPY REINDEX`, then `sealpoint verify COPY`;"
    " if that passes, use the copy"
)


@contextmanager
def translate_errors(first: Callable[[Exception], Exception | None] = lambda _: None) -> Iterator[None]:
    """Convert SQLite's errors, whose messages may quote a hostile file at any length, to sealpoint's.

    Raises the error that ``first`` returns for an error of SQLite; if ``None``, the error of `translated`.
    """
    try:
        yield
    except FOREIGN as error:
        raise first(error) or translated(error) from None


_NO_FUNCTION: Final = "not authorized to use function"  # SQLite has no separate code for this error
FOREIGN: Final = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)


def translated(error: Exception) -> Exception:
    """Return sealpoint's error for an error of SQLite, or SQLite's error if its message quotes nothing."""
    if isinstance(error, UnicodeDecodeError):
        return SchemaError("the schema contains text that is not UTF-8")
    if isinstance(error, MemoryError):  # a corrupt file may require any amount
        return DatabaseCorruptError("SQLite lacks the memory that the file requires", hint=_MORE_MEMORY)
    code, text = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF, str(error)
    if code == sqlite3.SQLITE_AUTH or text.startswith(_NO_FUNCTION):
        was_denied, _thread.work.was_denied = _thread.work.was_denied, False
        if not was_denied:  # sqlite3 denies the action, and drops an exception that ended our function
            return HaltedError(
                "a statement was not compiled: a signal handler raised an exception meanwhile, which Python"
                " dropped, or the application's authorizer refused the statement"
            )
        return SchemaError("a trigger or a view would have run within a statement of sealpoint")
    if code == sqlite3.SQLITE_TOOBIG:
        return oversized()
    if text.startswith("Could not decode to UTF-8"):
        return TextError("a row contains text that is not UTF-8")
    if text.startswith("malformed JSON"):
        return MetadataError("metadata that the filter searches is not JSON")
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CORRUPT_INDEX:
        return DatabaseCorruptError("an index of the file disagrees with its table", hint=_REINDEX)
    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or text.startswith("unsupported file")
    return DatabaseCorruptError(f"SQLite cannot read the file: {excerpt(text)}") if damaged else error
