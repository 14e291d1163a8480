"""A WSGI application: `gunicorn --preload --workers 2 wsgi:app`.

The parent process reads the ring, and all workers use it. Each worker creates its own saver at its first
request: a connection must not be shared with the parent.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.state import CompiledStateGraph

from agent import Visit, builder
from sealpoint.langgraph import EncryptedSerializer, SealedSaver

serde = EncryptedSerializer.from_key_file()


@cache
def graph() -> CompiledStateGraph[Visit, None, Visit, Visit]:
    """Return the graph of this worker."""
    connection = sqlite3.connect(os.environ["STATE_DB"], check_same_thread=False)
    return builder.compile(checkpointer=SealedSaver(SqliteSaver(connection), serde=serde))


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Add the body of the request to the notes of the thread that the path names."""
    said = environ["wsgi.input"].read().decode()
    state = graph().invoke({"said": said}, {"configurable": {"thread_id": environ["PATH_INFO"]}})
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({**state, "worker": os.getpid()}).encode()]
