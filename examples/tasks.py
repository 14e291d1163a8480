"""A Celery worker: `celery --app tasks worker`.

Its parent process reads the ring and forks. Each worker process creates its own saver at its first task: a
connection must not be shared with the parent.
"""

from __future__ import annotations

import os
import sqlite3
from functools import cache

from celery import Celery
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph

from agent import Visit, builder
from sealpoint.langgraph import EncryptedSerializer, SealedSaver

app = Celery("tasks", broker=os.environ["BROKER_URL"])
serde = EncryptedSerializer.from_key_file()


@cache
def graph() -> CompiledStateGraph[Visit, None, Visit, Visit]:
    """Return the graph of this worker process."""
    connection = sqlite3.connect(os.environ["STATE_DB"], check_same_thread=False)
    return builder.compile(checkpointer=SealedSaver(SqliteSaver(connection), serde=serde))


@app.task
def say(thread_id: str, said: str) -> list[str]:
    """Add a note to a thread."""
    state = graph().invoke({"said": said}, {"configurable": {"thread_id": thread_id}})
    notes: list[str] = state["notes"]
    return notes
