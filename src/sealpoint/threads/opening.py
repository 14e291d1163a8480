"""Opening a thread store by its name, as a ring file and the command line give it."""

from __future__ import annotations

import re
from typing import Final

from sealpoint.threads.postgres import PostgresThreadStore
from sealpoint.threads.sqlite import SqliteThreadStore
from sealpoint.threads.store import TIMEOUT_SECONDS, ThreadStore

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
