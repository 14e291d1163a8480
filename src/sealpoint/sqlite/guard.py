"""What holds while one of our statements runs: nothing acts by itself, and no walk is endless.

An authorizer refuses to compile what a trigger or a view is responsible for. A progress handler
ends a statement whose budget of opcodes is spent: pages of a hostile file may lead to one another
so that a few of them hold any number of rows. One chain of pages may also be the text of every row,
and one opcode reads it: the handler bounds what the thread computes, too. Both look at the thread
that runs: statements of the application on the same connection pass.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from sealpoint.errors import EndlessTreeError, HaltedError

STEP_OPCODES: Final = 10_000
"""How often a statement is looked at: each 0.3 ms or so."""

LEAST_OPCODES: Final = 200_000
OPCODES_PER_BYTE: Final = 8
"""What a walk may take: the smallest rows take less than one opcode for each of their bytes."""

_LEAST_STEPS: Final = LEAST_OPCODES // STEP_OPCODES

LEAST_SECONDS: Final = 5.0
SECONDS_PER_STEP: Final = 4 * 0.0003
"""What a walk may compute: 1 s for each megabyte of the file, where honest rows take some hundredths."""


class _Work:
    """What a thread runs.

    Attributes:
        subqueries: Names of subqueries of the statement; ``None`` if it is not of this package.
        steps: How many steps it has left.
        until: Up to when it may compute, by the clock of the thread; ``None`` before the first step.
        is_over: Says whether to end the statement for another reason.
        cause: Why it was ended.
    """

    __slots__ = ("cause", "is_over", "steps", "subqueries", "until")

    def __init__(self) -> None:
        self.subqueries: Collection[str] | None = None
        self.steps = 0
        self.until: float | None = None
        self.is_over: Callable[[], bool] | None = None
        self.cause: BaseException | None = None


class _Thread(threading.local):
    """Holds the work of this thread: to look it up once is cheaper than four attributes of a local."""

    def __init__(self) -> None:
        self.work = _Work()


_thread: Final = _Thread()

Handler = Callable[[], int]
"""What SQLite calls every `STEP_OPCODES`; one for each connection, which runs one statement at a time."""


def make_handler() -> Handler:
    """Return a progress handler: a generator's ``next``.

    The exception of a signal is raised inside of the generator then, and not lost.
    """
    return partial(next, _ticks())


def begin(
    connection: sqlite3.Connection, handler: Handler, is_over: Callable[[], bool] | None = None
) -> None:
    """Guard what this thread runs on a connection from now on, with the least budget.

    The progress handler is set for this time alone: while one is set, a signal would end statements
    of the application too, and its exception be lost.
    """
    work = _thread.work
    work.subqueries, work.is_over, work.cause, work.until = (), is_over, None, None
    work.steps = _LEAST_STEPS
    connection.set_progress_handler(handler, STEP_OPCODES)


def end(connection: sqlite3.Connection) -> None:
    """Guard nothing more on this thread."""
    connection.set_progress_handler(None, 0)
    work = _thread.work
    work.subqueries = work.is_over = work.cause = None


def is_ours() -> bool:
    """Whether this thread runs a statement of this package."""
    return _thread.work.subqueries is not None


@contextmanager
def guarding(
    connection: sqlite3.Connection,
    is_over: Callable[[], bool] | None = None,
    handler: Handler | None = None,
) -> Iterator[None]:
    """Guard what the block runs; it may set budgets, and raises why one of its statements was ended."""
    begin(connection, handler or make_handler(), is_over)
    try:
        yield
    except sqlite3.Error as error:
        raise_cause(error)
        raise
    finally:
        end(connection)


def allow(size_bytes: int, parameters: int = 0, subqueries: Collection[str] = ()) -> None:
    """Give the next statement the budget of a file of ``size_bytes``; each parameter costs something too."""
    work = _thread.work
    work.subqueries, work.cause, work.until = subqueries, None, None
    work.steps = (LEAST_OPCODES + (OPCODES_PER_BYTE + parameters) * size_bytes) // STEP_OPCODES


def is_spent(error: Exception) -> bool:
    """Whether a statement was ended because of its budget."""
    return isinstance(error, EndlessTreeError) or isinstance(_thread.work.cause, EndlessTreeError)


def raise_cause(error: Exception) -> None:
    """Raise why a statement was ended, if it was ended here.

    Raises:
        EndlessTreeError: If the budget of the statement was spent.
        HaltedError: If ``is_over`` returned true.
        BaseException: If a signal handler raised it while the statement ran, such as `KeyboardInterrupt`.
    """
    work = _thread.work
    cause, work.cause = work.cause, None
    if cause is not None and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        raise cause from None


def authorize(_action: int, _first: object, _second: object, _schema: object, owner: str | None) -> int:
    """Say whether SQLite may compile an action of a statement; ``owner`` is the trigger or view behind it."""
    if owner is None:
        return sqlite3.SQLITE_OK
    subqueries = _thread.work.subqueries
    if subqueries is None or owner in subqueries:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _ticks() -> Iterator[int]:
    """Yield, each time that SQLite asks, whether the statement is to be ended."""
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
            if _thread.work.subqueries is not None:
                _tick()
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 -- SQLite would drop it; `raise_cause` raises it
            _thread.work.cause, answer = error, 1


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
        raise HaltedError("the run was to end while a statement was at work")
