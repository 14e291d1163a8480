"""InMemorySaver: checkpoints for as long as the process lives."""

from __future__ import annotations

import sqlite3
from typing import Self

from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import SqliteSaver


class InMemorySaver(SqliteSaver):
    """`SqliteSaver` on a database in memory. Values are serialized, and sealed if ``serde`` seals."""

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        """Make an empty saver.

        Args:
            serde: An `EncryptedSerializer`, to have every value sealed.
        """
        super().__init__(sqlite3.connect(":memory:", check_same_thread=False), serde=serde)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.conn.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.conn.close()
