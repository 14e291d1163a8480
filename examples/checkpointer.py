"""The checkpointer of `langgraph dev`, which langgraph.json names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver


@asynccontextmanager
async def checkpointer() -> AsyncIterator[SealedSaver]:
    """Open the database for as long as the server runs."""
    async with AsyncSqliteSaver.from_conn_string(os.environ["STATE_DB"]) as saver:
        yield SealedSaver(saver, serde=EncryptedSerializer.from_key_file())
