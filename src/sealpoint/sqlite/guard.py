"""Guards for our statements: no trigger or view runs, and no walk is endless.

An authorizer refuses to compile actions of a trigger or a view. A progress handler ends a statement whose
budget of opcodes is spent: pages of a hostile file may refer to one another, so that a few pages contain
any number of rows. One chain of pages may also be the text of every row, read by a single opcode, so the
handler limits the CPU time of the thread, too. Both check the running thread: statements of the application
on the same connection are not affected.

SQLite runs a compiled statement only with the schema that it was compiled for, and compiles it again for
another one. So a statement that may not be compiled needs no check of the schema of its own: it was compiled
after one. `REQUIRE_CHECK` in a statement fails if it was compiled without the authorizer of this module.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from sealpoint.errors import EndlessTreeError, HaltedError, SchemaError

STEP_OPCODES: Final = 10_000
"""How often a statement is checked: about every 0.3 ms."""

LEAST_OPCODES: Final = 200_000
OPCODES_PER_BYTE: Final = 8
"""Opcodes of a walk, per byte: the smallest rows take less than one opcode per byte."""

_LEAST_STEPS: Final = LEAST_OPCODES // STEP_OPCODES

LEAST_SECONDS: Final = 5.0
SECONDS_PER_STEP: Final = 4 * 0.0003
"""CPU time of a walk: 1 s per megabyte of the file; valid rows take some hundredths."""


CHECK_FUNCTION: Final = "sealpoint_require_check"
REQUIRE_CHECK: Final = f"{CHECK_FUNCTION}(1) IS NULL"
"""Condition of a statement that may run without a check of the schema (see `begin`). The authorizer has
SQLite compile the call as NULL; otherwise the function is called, and fails without a check."""

_ENDED: Final = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_ERROR)  # by the handler, or by a function for SQL

_FAILED: Final = object()
"""Result of a function for SQL that has none: sqlite3 cannot convert it, and ends the statement."""


class _Work:
    """The statement that a thread runs.

    Attributes:
        subqueries: Names of subqueries of the statement; ``None`` if it is a statement of the application.
        steps: The number of steps left.
        until: Limit of the thread's CPU time; ``None`` before the first step.
        is_over: Returns whether to end the statement for another reason.
        cause: Why it was ended.
        is_checked: Whether the schema was checked in the transaction, so that statements may be compiled.
        needs_check: Whether a statement was refused because it has not.
    """

    __slots__ = ("cause", "is_checked", "is_over", "needs_check", "steps", "subqueries", "until")

    def __init__(self) -> None:
        self.subqueries: Collection[str] | None = None
        self.steps = 0
        self.until: float | None = None
        self.is_over: Callable[[], bool] | None = None
        self.cause: BaseException | None = None
        self.is_checked = True
        self.needs_check = False


class _Thread(threading.local):
    """Holds the work of this thread: one lookup is cheaper than four thread-local attributes."""

    def __init__(self) -> None:
        self.work = _Work()


_thread: Final = _Thread()

Handler = Callable[[], int]
"""Called by SQLite every `STEP_OPCODES`; one per connection, which runs one statement at a time."""


def make_handler() -> Handler:
    """Return a progress handler: a generator's ``next``.

    The exception of a signal handler is then raised inside the generator, and not lost. It has begun: before
    the first line of a generator nothing can catch one.
    """
    ticks = _ticks()
    next(ticks)
    return partial(next, ticks)


def begin(
    connection: sqlite3.Connection, handler: Handler, is_over: Callable[[], bool] | None = None
) -> None:
    """Start guarding this thread's statements on a connection, with the minimum budget.

    The progress handler is set only meanwhile: otherwise a signal would also end statements of the
    application, and its exception would be lost.
    """
    work = _thread.work
    work.subqueries, work.is_over, work.cause, work.until = (), is_over, None, None
    work.steps = _LEAST_STEPS
    connection.set_progress_handler(handler, STEP_OPCODES)


def begin_unchecked(connection: sqlite3.Connection, handler: Handler, size_bytes: int) -> None:
    """Start as `begin` does, with the budget of `allow`; the schema is not checked.

    A statement runs only if it was compiled after a check of the present schema.
    """
    work = _thread.work
    work.subqueries, work.is_checked = (), False
    work.steps = (LEAST_OPCODES + OPCODES_PER_BYTE * size_bytes) // STEP_OPCODES
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
    was_refused, work.needs_check = work.needs_check, False
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
    """Guard the statements of a block, and raise the reason if one of them was ended."""
    begin(connection, handler or make_handler(), is_over)
    try:
        yield
    except sqlite3.Error as error:
        raise_cause(error)
        raise
    finally:
        end(connection)


def allow(size_bytes: int, parameters: int = 0, subqueries: Collection[str] = ()) -> None:
    """Set the budget of the next statement for a file of ``size_bytes``; each parameter adds to it."""
    work = _thread.work
    work.subqueries, work.cause, work.until = subqueries, None, None
    work.steps = (LEAST_OPCODES + (OPCODES_PER_BYTE + parameters) * size_bytes) // STEP_OPCODES


def is_spent(error: Exception) -> bool:
    """Whether a statement was ended because of its budget."""
    return isinstance(error, EndlessTreeError) or isinstance(_thread.work.cause, EndlessTreeError)


def raise_cause(error: Exception) -> None:
    """Raise the reason why a statement was ended, if it was ended here.

    Raises:
        EndlessTreeError: If the budget of the statement was spent.
        HaltedError: If ``is_over`` returned true.
        BaseException: If a signal handler raised it while the statement ran, such as `KeyboardInterrupt`.
    """
    work = _thread.work
    cause, work.cause = work.cause, None
    if cause is not None and getattr(error, "sqlite_errorcode", None) in _ENDED:
        raise cause from None


def keeping_cause(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function for SQL whose exceptions `raise_cause` raises: SQLite would drop them.

    It has one argument, because it is a generator's ``send``: the exception of a signal handler is then
    raised inside the generator. In a Python function it would be raised before the first line, where
    nothing can catch it.
    """
    results = _results(function)
    next(results)
    return results.send


def authorize(action: int, _first: object, second: object, _schema: object, owner: str | None) -> int:
    """Return whether SQLite may compile an action of a statement; ``owner`` is its trigger or view."""
    work = _thread.work
    if work.subqueries is None:
        return sqlite3.SQLITE_OK
    if not work.is_checked:
        work.needs_check = True
        return sqlite3.SQLITE_DENY
    if owner is not None and owner not in work.subqueries:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second == CHECK_FUNCTION:
        return sqlite3.SQLITE_IGNORE
    return sqlite3.SQLITE_OK


def add_check(connection: sqlite3.Connection) -> None:
    """Give a connection the function of `REQUIRE_CHECK`."""
    connection.create_function(CHECK_FUNCTION, 1, keeping_cause(_require_check))


def _require_check(_: object) -> None:
    work = _thread.work
    if not work.is_checked:
        work.needs_check = True
        raise SchemaError("a statement was compiled without a check of the schema")


def _ticks() -> Iterator[int]:
    """Yield at each call of SQLite whether to end the statement.

    A signal handler may raise where a loop begins again: the loop is inside of ``try``.
    """
    answer = 0
    while True:
        try:
            while True:
                yield answer
                answer = 0
                if _thread.work.subqueries is not None:
                    _tick()
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 -- SQLite would drop it; `raise_cause` raises it
            _thread.work.cause, answer = error, 1


def _results(function: Callable[[Any], Any]) -> Generator[Any, Any, None]:
    """Yield the result for each value that is sent, or `_FAILED`. As `_ticks`."""
    result = None
    while True:
        try:
            while True:
                argument = yield result
                result = function(argument)
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 -- as above; a generator that raises has ended
            _thread.work.cause, result = error, _FAILED


def _tick() -> None:
    work = _thread.work
    work.steps -= 1
    if work.steps < 0:
        raise EndlessTreeError("the pages of the file lead to more rows than it can hold")
    if work.until is None:
        work.until = time.thread_time() + LEAST_SECONDS + work.steps * SECONDS_PER_STEP
    elif time.thread_time() > work.until:
        raise EndlessTreeError("the rows of the file lead to more bytes than it can hold")
    if work.is_over is not None and work.is_over():
        raise HaltedError("the run was stopped during a statement")
