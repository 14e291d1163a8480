"""The tables of a thread store in Postgres: how they are created, and upgraded in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from sealpoint.errors import ThreadStoreReadOnlyError
from sealpoint.threads import pgstatements as statements

UPGRADE_HINT: Final = (
    "let the owner of its schema open it once: run `sealpoint heads verify DB --threads URL` with that role"
)

Execute = Callable[..., list[tuple[Any, ...]]]
"""Executes a statement with values in the store's schema."""


def create(connection: Any, execute: Execute, schema: str) -> None:
    """Create the tables, unless there are some."""
    with connection.transaction():
        execute(statements.LOCK_CREATION)
        if execute(statements.TABLES, (schema,)):
            return
        if not execute(statements.HAS_SCHEMA, (schema,)):
            execute(statements.CREATE_SCHEMA)
        for statement in (*statements.CREATE, *statements.UPGRADE):
            execute(statement)
        identity = os.urandom(16).hex()
        execute(statements.FILL, (statements.VERSION, identity))
        execute(statements.NAME, (identity,))


def upgrade(connection: Any, execute: Execute, name: str) -> None:
    """Add what this version has to a store of version 1.

    Raises:
        ThreadStoreReadOnlyError: If the role does not own the schema.
    """
    from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction

    try:
        with connection.transaction():
            execute(statements.LONG)
            execute(statements.LOCK_CREATION)
            ((version, _),) = execute(statements.IDENTITY)
            for statement in statements.UPGRADE if version == 1 else ():  # another process may be faster
                connection.extend(statements.LONG_SECONDS)
                execute(statement)
            execute(statements.SET_VERSION)
    except (InsufficientPrivilege, ReadOnlySqlTransaction):
        what = f"{name}: it is of an earlier version, and this role may not upgrade it"
        raise ThreadStoreReadOnlyError(what, hint=UPGRADE_HINT) from None
