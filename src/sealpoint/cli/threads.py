"""Thread stores that a command line or the ring file names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from sealpoint.cli.databases import all_databases
from sealpoint.errors import ConfigError, RingFileMissingError, ThreadStoreDownError, ThreadStoreMissingError
from sealpoint.keys.databasetable import is_url
from sealpoint.keys.ringfile import read_thread_store
from sealpoint.threads.opening import open_thread_store
from sealpoint.threads.store import ThreadStore

TIMEOUT_SECONDS: Final = 10.0
"""How long a call may take: agents write to the store meanwhile."""

ThreadsOption = Annotated[
    str | None,
    typer.Option(
        "--threads",
        metavar="STORE",
        show_default=False,
        help="The thread store: a SQLite file or a postgresql:// URL; else that of [threads] in the ring.",
    ),
]
StoreArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORE",
        show_default=False,
        help="A SQLite file or a postgresql:// URL; else that of [threads] in the ring file.",
    ),
]


def find_threads(named: str | None, keys: Path | None) -> str | None:
    """Return the name of the thread store: that of the command line, or that of the ring file.

    Raises:
        PasswordError: If it contains a password.
        DatabaseMissingError: If it cannot be the name of one.
        KeyRingError: If the ring file cannot be read.
    """
    store = read_thread_store(keys) if named is None else named
    return None if store is None else all_databases([store], None)[0]


def require_threads(named: str | None, keys: Path | None) -> str:
    """Return the name of the thread store.

    Raises:
        BadParameter: If neither the command line nor the ring file names one.
        SealpointError: What `find_threads` raises.
    """
    try:
        store = find_threads(named, keys)
    except RingFileMissingError:
        if keys is not None:
            raise
        store = None
    if store is None:
        raise typer.BadParameter(
            "name the thread store, or add [threads] to the ring file", param_hint="STORE"
        )
    return store


@contextmanager
def opened_threads(name: str, *, create: bool = False) -> Iterator[ThreadStore]:
    """Open a thread store, and close it at the end.

    Raises:
        ConfigError: If the file is missing, or is not a thread store.
        ThreadStoreError: If it cannot be opened for another reason.
    """
    try:
        store = open_thread_store(name, create=create, timeout=TIMEOUT_SECONDS)
    except ThreadStoreDownError as error:
        is_server = is_url(name) or name.startswith("service=")
        if is_server and not isinstance(error, ThreadStoreMissingError):  # it may be started again
            raise
        raise ConfigError(str(error), hint=error.hint) from None
    try:
        yield store
    finally:
        store.close()
