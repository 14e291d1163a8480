"""Create LangGraph's tables in Postgres, once, before any agent runs: `python tables.py`."""

from __future__ import annotations

import os

from langgraph.checkpoint.postgres import PostgresSaver

with PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]) as saver:
    saver.setup()
