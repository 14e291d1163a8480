"""Thread stores: logs, kept apart from a database, of the checkpoints that the database must have.

A database cannot show that a row is missing, or that a thread was restored to last week's state. A thread
store has one event for each checkpoint that was stored or deleted, with a keyed hash of its content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.seal.heads import Head, Kind, Special
    from sealpoint.seal.places import Spot
    from sealpoint.threads.postgres import PostgresThreadStore
    from sealpoint.threads.sqlite import MemoryThreadStore, SqliteThreadStore, open_thread_store
    from sealpoint.threads.store import Answer, Event, ThreadStore
else:
    __getattr__ = on_demand(
        __name__,
        {
            "threads.postgres": "PostgresThreadStore",
            "threads.sqlite": "MemoryThreadStore SqliteThreadStore open_thread_store",
            "seal.heads": "Head Kind Special",
            "seal.places": "Spot",
        },
        others="threads.store",
    )

__all__ = [
    "Answer",
    "Event",
    "Head",
    "Kind",
    "MemoryThreadStore",
    "PostgresThreadStore",
    "Special",
    "Spot",
    "SqliteThreadStore",
    "ThreadStore",
    "open_thread_store",
]
