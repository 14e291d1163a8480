"""Maintenance of whole databases: rotate, verify, audit. Library functions, independent of a terminal.

    from sealpoint.admin.maintenance.rotate import rotate

    with closing(SqliteRows("app.db", writable=True)) as store, store.hold():
        for event in rotate(store, RingCipher(KeyRing.load())):
            print(event)

The main function of a module has the module's name, and is imported from that module.
"""

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.admin.databases.postgres.rows import PostgresRows
    from sealpoint.admin.databases.rows import RowStore
    from sealpoint.admin.databases.sqlite.rows import SqliteRows
    from sealpoint.admin.results.events import Failure, Progress
else:
    __getattr__ = on_demand(
        __name__,
        {"admin.databases.postgres.rows": "PostgresRows", "admin.databases.sqlite.rows": "SqliteRows"},
        others="admin.databases.rows",
    )

__all__ = ["Failure", "PostgresRows", "Progress", "RowStore", "SqliteRows"]
