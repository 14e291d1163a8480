"""A FastAPI application whose threads are sealed in SQLite: `uvicorn web:app`.

The saver is created by the lifespan, which runs in each worker process, after a fork.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from agent import builder
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the database, and close it when the worker ends."""
    serde = EncryptedSerializer.from_key_file()
    async with AsyncSqliteSaver.from_conn_string(os.environ["STATE_DB"]) as saver:
        app.state.graph = builder.compile(checkpointer=SealedSaver(saver, serde=serde))
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/threads/{thread_id}")
async def say(thread_id: str, said: str) -> dict[str, Any]:
    """Add a note to a thread."""
    config = {"configurable": {"thread_id": thread_id}}
    state: dict[str, Any] = await app.state.graph.ainvoke({"said": said}, config)
    return state
