"""Checkpoints in SQLite, under the names of LangGraph's ``langgraph.checkpoint.sqlite``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.sqlite.saver import SqliteSaver
else:
    __getattr__ = on_demand(__name__, {}, others="sqlite.saver")

__all__ = ["SqliteSaver"]
