"""InMemorySaver: checkpoints for as long as the process lives."""

from __future__ import annotations

import sqlite3
import weakref
from typing import Self

from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import SqliteSaver
from sealpoint.sqlite.database import run_in_thread


class InMemorySaver(SqliteSaver):
    """`SqliteSaver` on a database in memory. Values are serialized, and sealed if ``serde`` seals."""

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        """Make an empty saver.

        Args:
            serde: An `EncryptedSerializer`, to have every value sealed.
        """
        conn = sqlite3.connect(":memory:", check_same_thread=False)
        super().__init__(conn, serde=serde)
        weakref.finalize(self._database, conn.close)  # with the last copy of this saver that uses it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await run_in_thread(self._database.close)
