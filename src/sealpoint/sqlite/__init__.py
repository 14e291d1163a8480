"""Checkpoints in SQLite: LangGraph's ``langgraph.checkpoint.sqlite``."""

from sealpoint.sqlite.saver import SqliteSaver

__all__ = ["SqliteSaver"]
