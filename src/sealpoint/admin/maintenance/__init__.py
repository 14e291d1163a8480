"""Maintenance of whole databases: rotate, verify, audit. Library functions, independent of a terminal.

    from sealpoint.admin.maintenance.rotate import rotate

    with closing(SqliteRows("app.db", writable=True)) as store, store.hold():
        for event in rotate(store, RingCipher(KeyRing.load())):
            print(event)

The main function of a module has the name of the module, and is imported from there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.rows import PostgresRows
    from sealpoint.admin.databases.rows import RowStore
    from sealpoint.admin.databases.sqlite.rows import SqliteRows
    from sealpoint.admin.results.events import Failure, Progress

__all__ = ["Failure", "PostgresRows", "Progress", "RowStore", "SqliteRows"]

_MODULES: Final = {"PostgresRows": "postgres.rows", "SqliteRows": "sqlite.rows"}  # imported on demand


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"sealpoint.admin.databases.{_MODULES.get(name, 'rows')}"), name)
