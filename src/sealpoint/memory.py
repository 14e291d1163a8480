"""InMemorySaver: keeps checkpoints in memory; they are lost when the process ends."""

from __future__ import annotations

import sqlite3
import weakref
from types import TracebackType
from typing import Final, Self

from sealpoint.errors import Omitted
from sealpoint.serde import SerializerProtocol
from sealpoint.sqlite import SqliteSaver

_READ_INSTEAD: Final = "the checkpoints are in a SQLite database: read them with list() or get_tuple()"


class InMemorySaver(SqliteSaver):
    """A `SqliteSaver` on a SQLite database in memory. Values are sealed if ``serde`` seals them.

    Example:
        >>> from sealpoint.langgraph import EncryptedSerializer, InMemorySaver
        >>> with InMemorySaver(serde=EncryptedSerializer.from_key_file("keys.toml")) as saver:
        ...     print(saver.get_tuple({"configurable": {"thread_id": "1"}}))
        None
    """

    storage: Final = Omitted(_READ_INSTEAD)
    writes: Final = Omitted(_READ_INSTEAD)
    blobs: Final = Omitted(_READ_INSTEAD)
    stack: Final = Omitted("the saver is a context manager itself: use it in a 'with' statement")

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        """Create an empty saver.

        Args:
            serde: Serializer of all values: an `EncryptedSerializer` seals them, the default does not.
        """
        conn = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            super().__init__(conn, serde=serde)
        except BaseException:
            conn.close()
            raise
        weakref.finalize(self._database, conn.close)  # when the last copy of this saver is gone

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._pool.run(self._database.close)
        self._pool.shutdown()


MemorySaver = InMemorySaver  # its first name in LangGraph, which many programs import
