"""Transactions of the caller, in which heads would be recorded before their rows are stored."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sealpoint.errors import ConfigError

_OPEN: Final = (2, 3)
"""libpq's PQTRANS_INTRANS and PQTRANS_INERROR."""


def require_own_transactions(saver: Any) -> None:
    """Check that a saver's connection is in no transaction of the caller.

    Args:
        saver: A saver with the attribute ``conn``; others, and pools, are taken as they are.

    Raises:
        ConfigError: If it is: rows would be stored later than their heads, or never, and reads be old.
    """
    connection, lock = getattr(saver, "conn", None), getattr(saver, "lock", None)
    if getattr(connection, "autocommit", True) is False:
        raise ConfigError("beside a thread store a connection to Postgres needs autocommit=True")
    if isinstance(lock, asyncio.Lock):  # this function does not await: nothing happens meanwhile
        is_within = not lock.locked() and _is_within(connection)
    elif lock is not None and lock.acquire(blocking=False):
        try:
            is_within = _is_within(connection)
        finally:
            lock.release()
    else:  # another call of the saver runs, in a transaction of its own
        return
    if is_within:
        raise ConfigError(
            "the saver's connection is in a transaction that was begun elsewhere",
            hint="beside a thread store, give the saver a connection of its own",
        )


def _is_within(connection: Any) -> bool:
    info = getattr(connection, "info", None)  # of psycopg
    if info is None:
        return bool(getattr(connection, "in_transaction", False))
    return info.transaction_status in _OPEN
