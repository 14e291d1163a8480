"""UUIDs of version 6, under the names of LangGraph's ``langgraph.checkpoint.base.id``."""

from __future__ import annotations

from sealpoint.base.checkpoint import UUID, uuid6

__all__ = ["UUID", "uuid6"]
