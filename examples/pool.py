"""Threads in Postgres, through a pool of connections: `python pool.py THREAD TEXT`."""

from __future__ import annotations

import asyncio
import os
import sys

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from agent import builder
from sealpoint.langgraph import EncryptedSerializer, SealedSaver


def make_pool() -> AsyncConnectionPool[AsyncConnection[DictRow]]:
    """Return a pool whose connections have the settings that LangGraph's saver needs."""
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return AsyncConnectionPool(os.environ["DATABASE_URL"], kwargs=settings, max_size=10, open=False)


async def main(thread_id: str, said: str) -> None:
    """Add a note to a thread."""
    async with make_pool() as pool:
        sealed = SealedSaver(AsyncPostgresSaver(pool), serde=EncryptedSerializer.from_key_file())
        graph = builder.compile(checkpointer=sealed)
        state = await graph.ainvoke({"said": said}, {"configurable": {"thread_id": thread_id}})
        print(*state["notes"], sep="\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
