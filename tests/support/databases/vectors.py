"""sqlite-vec on a Python whose `sqlite3` cannot load extensions, as LangGraph's SqliteStore wants it.

It imports nothing of this project: `tests/compat/storesuites` loads it where ``tests`` is another package.
"""

from __future__ import annotations

import ctypes
import sqlite3
from typing import Any

import sqlite_vec  # type: ignore[import-untyped]


class Loadable(sqlite3.Connection):
    """A connection with the methods that load an extension, which do nothing: it is there already."""

    def enable_load_extension(self, enable: bool, /) -> None:
        """Do nothing."""

    def load_extension(self, name: str, /, **_: Any) -> None:
        """Do nothing."""


def vector_connections() -> type[sqlite3.Connection]:
    """Return the class of connections that have sqlite-vec once ``load_extension`` was called.

    Raises:
        OSError: If there is no way to load it.
    """
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3.Connection
    library = ctypes.CDLL("libsqlite3.so.0")  # to which the module `_sqlite3` is linked
    library.sqlite3_auto_extension(ctypes.CDLL(f"{sqlite_vec.loadable_path()}.so").sqlite3_vec_init)
    return Loadable
