"""Transactions of the caller, in which heads would be recorded before their rows are stored.

They are refused. A transaction that the wrapped saver began, and left open when a statement failed or its
task was cancelled, is rolled back: LangGraph's savers on SQLite would have it open from then on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import Any, Final

from sealpoint.errors import ConfigError
from sealpoint.sealed.watched import is_watched, is_within

_OPEN: Final = (2, 3)
"""libpq's PQTRANS_INTRANS and PQTRANS_INERROR."""


def require_own_transactions(saver: Any) -> None:
    """Check that a saver's connection is in no transaction of the caller.

    Args:
        saver: A saver with the attribute ``conn``; others, and pools, are taken as they are.

    Raises:
        ConfigError: If it is: rows would be stored later than their heads, or never, and reads be old.
    """
    if _may_be_refused(saver) and _is_refused(saver):
        raise _refusal()


async def arequire_own_transactions(saver: Any) -> None:
    """Async version of `require_own_transactions`."""
    if _may_be_refused(saver) and await _ais_refused(saver):
        raise _refusal()


def end_own_transaction(saver: Any) -> None:
    """Roll back what a call has left open that failed."""
    with suppress(ConfigError, sqlite3.Error):
        require_own_transactions(saver)


async def aend_own_transaction(saver: Any) -> None:
    """Async version of `end_own_transaction`; no other call of the saver can begin before it does.

    A statement of a task that was cancelled may still wait for the connection's thread: it begins the
    transaction later, so that is not looked for here.
    """
    with suppress(ConfigError, sqlite3.Error):
        if is_watched(getattr(saver, "conn", None)):
            await _ais_refused(saver)
        else:
            await arequire_own_transactions(saver)


def _may_be_refused(saver: Any) -> bool:
    """Whether a transaction is open, and no call of the saver runs, which has one of its own."""
    connection, lock = getattr(saver, "conn", None), getattr(saver, "lock", None)
    if getattr(connection, "autocommit", True) is False:
        raise ConfigError("beside a thread store a connection to Postgres needs autocommit=True")
    if lock is None or (isinstance(lock, asyncio.Lock) and lock.locked()):
        return False
    return _is_within(connection)


def _is_refused(saver: Any) -> bool:
    """Roll back the transaction of the saver, if it is one; return whether another one is open."""
    connection, lock = saver.conn, saver.lock
    if isinstance(lock, asyncio.Lock):
        loop = getattr(saver, "loop", None)
        if not is_watched(connection) or loop is None or not loop.is_running() or _is_on(loop):
            return not is_watched(connection)
        return asyncio.run_coroutine_threadsafe(_ais_refused(saver), loop).result()
    if not lock.acquire(blocking=False):
        return False
    try:
        if is_watched(connection):
            return bool(connection.owner.end(connection.plain))
        return _is_within(connection)
    finally:
        lock.release()


async def _ais_refused(saver: Any) -> bool:
    """Async version of `_is_refused`. It does not await before it asks the connection's thread."""
    if not isinstance(saver.lock, asyncio.Lock):
        return _is_refused(saver)
    if saver.lock.locked():
        return False
    if not is_watched(saver.conn):
        return _is_within(saver.conn)
    try:
        return bool(await saver.conn.end())
    except ValueError:  # it is closed
        return False


def _refusal() -> ConfigError:
    return ConfigError(
        "the saver's connection is in a transaction that was begun elsewhere",
        hint="beside a thread store, give the saver a connection of its own",
    )


def _is_on(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _is_within(connection: Any) -> bool:
    info = getattr(connection, "info", None)  # of psycopg
    if info is None:
        return is_within(connection)
    return info.transaction_status in _OPEN
