"""sealpoint's savers as subclasses of LangGraph's BaseCheckpointSaver."""

from __future__ import annotations

from langgraph.checkpoint.base import BaseCheckpointSaver as _LangGraphSaver

from sealpoint import memory
from sealpoint.sqlite import aio, saver

# The methods differ only in the names of their types, which is what the type checker reports below.


class SqliteSaver(saver.SqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.SqliteSaver` as one of LangGraph's savers."""

    __module__ = "sealpoint.langgraph"


class AsyncSqliteSaver(aio.AsyncSqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.aio.AsyncSqliteSaver` as one of LangGraph's savers."""

    __module__ = "sealpoint.langgraph"


class InMemorySaver(memory.InMemorySaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.memory.InMemorySaver` as one of LangGraph's savers."""

    __module__ = "sealpoint.langgraph"
