"""Maintenance of whole databases: rotate, verify, audit. Library functions that know no terminal.

    from sealpoint.databases.failures import Failure
from sealpoint.maintenance.rotate import rotate

    with closing(SqliteRows("app.db", writable=True)) as store, store.hold():
        for event in rotate(store, RingCipher(KeyRing.load())):
            print(event)

What a module does is called like the module, so each function is imported from its own.
"""

from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.databases.rows import Progress, RowStore
from sealpoint.databases.sqlite.rows import SqliteRows

__all__ = ["Failure", "PostgresRows", "Progress", "RowStore", "SqliteRows"]
