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

LEAST_SECONDS: Final = 5.0
SECONDS_PER_STEP: Final = 4 * 0.0003
"""What a walk may compute: 1 s for each megabyte of the file, where honest rows take some hundredths."""


class _Now(threading.local):
    """What this thread runs.

    Attributes:
        subqueries: Names of the subqueries of the statement; ``None`` if it is not one of ours.
        steps: How many steps it has left.
        until: Up to when it may compute, by the clock of the thread; ``None`` before the first step.
        is_over: Says whether to end the statement for another reason.
        cause: Why it was ended.
    """

    subqueries: Collection[str] | None = None
    steps: int = 0
    until: float | None = None
    is_over: Callable[[], bool] | None = None
    cause: BaseException | None = None


_now: Final = _Now()


def begin(connection: sqlite3.Connection, is_over: Callable[[], bool] | None = None) -> None:
    """Guard what this thread runs on a connection from now on, with the least budget.

    The progress handler is set for this time alone: while one is set, a signal would end statements
    of the application too, and its exception be lost.
    """
    _now.subqueries, _now.is_over, _now.cause, _now.until = (), is_over, None, None
    _now.steps = LEAST_OPCODES // STEP_OPCODES
    # A generator's `next`: the exception of a signal is raised inside of the generator, and not lost.
    connection.set_progress_handler(partial(next, _ticks()), STEP_OPCODES)


def end(connection: sqlite3.Connection) -> None:
    """Guard nothing more on this thread."""
    connection.set_progress_handler(None, 0)
    _now.subqueries = _now.is_over = _now.cause = None


def is_ours() -> bool:
    """Whether this thread runs a statement of ours."""
    return _now.subqueries is not None


@contextmanager
def guarding(connection: sqlite3.Connection, is_over: Callable[[], bool] | None = None) -> Iterator[None]:
    """Guard what the block runs; it may set budgets, and raises why one of its statements was ended."""
    begin(connection, is_over)
    try:
        yield
    except sqlite3.Error as error:
        raise_cause(error)
        raise
    finally:
        end(connection)


def allow(size_bytes: int, parameters: int = 0, subqueries: Collection[str] = ()) -> None:
    """Give the next statement the budget of a file of ``size_bytes``; each parameter costs something too."""
    _now.subqueries, _now.cause, _now.until = subqueries, None, None
    _now.steps = (LEAST_OPCODES + (OPCODES_PER_BYTE + parameters) * size_bytes) // STEP_OPCODES


def is_spent(error: Exception) -> bool:
    """Whether a statement was ended because of its budget."""
    return isinstance(error, EndlessTreeError) or isinstance(_now.cause, EndlessTreeError)


def raise_cause(error: Exception) -> None:
    """Raise why a statement was ended, if it was ended here."""
    cause, _now.cause = _now.cause, None
    if cause is not None and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        raise cause from None


def authorize(_action: int, _first: object, _second: object, _schema: object, owner: str | None) -> int:
    """Say whether SQLite may compile an action of a statement; ``owner`` is the trigger or view behind it."""
    if owner is None or _now.subqueries is None or owner in _now.subqueries:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _ticks() -> Iterator[int]:
    """Yield, each time that SQLite asks, whether the statement is to be ended."""
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
            if _now.subqueries is not None:
                _tick()
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 -- SQLite would drop it; `raise_cause` raises it
            _now.cause, answer = error, 1


def _tick() -> None:
    _now.steps -= 1
    if _now.steps < 0:
        raise EndlessTreeError("the pages of the file lead to more rows than it can hold")
    if _now.until is None:
        _now.until = time.thread_time() + LEAST_SECONDS + _now.steps * SECONDS_PER_STEP
    elif time.thread_time() > _now.until:
        raise EndlessTreeError("the rows of the file lead to more bytes than it can hold")
    if _now.is_over is not None and _now.is_over():
        raise HaltedError("the run was to end while a statement was at work")
