"""sqlite-vec on a Python whose `sqlite3` cannot load extensions, as LangGraph's SqliteStore wants it.

It imports nothing of this project: `tests/compat/ownsuites` loads it where ``tests`` is another package.
"""

from __future__ import annotations

import ctypes
import sqlite3
from typing import Any

import sqlite_vec  # type: ignore[import-untyped]


class Loadable(sqlite3.Connection):
    """A connection with sqlite-vec, and with the methods that load an extension, which do nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        library = ctypes.CDLL("libsqlite3.so.0")  # to which the module `_sqlite3` is linked
        begin = ctypes.CDLL(f"{sqlite_vec.loadable_path()}.so").sqlite3_vec_init
        library.sqlite3_auto_extension(begin)  # of every connection, so for this one alone
        try:
            super().__init__(*arguments, **options)
        finally:
            library.sqlite3_cancel_auto_extension(begin)

    def enable_load_extension(self, enable: bool, /) -> None:
        """Do nothing."""

    def load_extension(self, name: str, /, **_: Any) -> None:
        """Do nothing."""


def vector_connections() -> type[sqlite3.Connection]:
    """Return the class of connections that have sqlite-vec once ``load_extension`` was called."""
    return sqlite3.Connection if hasattr(sqlite3.Connection, "enable_load_extension") else Loadable
