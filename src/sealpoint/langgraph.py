"""The bridge: sealpoint's classes as instances of LangGraph's own base classes.

`StateGraph.compile` takes a checkpointer only if it is one of LangGraph's. Under
``LANGGRAPH_STRICT_MSGPACK=true`` it also asks the checkpointer's serializer to allow the
types of the graph's schema, and replaces a serializer that it takes for its own
encrypting one: to LangGraph these two are its JsonPlusSerializer, which it asks as it is.
"""

from __future__ import annotations

try:
    from langgraph.checkpoint.base import BaseCheckpointSaver as _LangGraphSaver
    from langgraph.checkpoint.base import EmptyChannelError
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as _LangGraphSerializer
except ImportError as error:
    raise ImportError("sealpoint.langgraph needs LangGraph: pip install 'sealpoint[langgraph]'") from error

from sealpoint import memory, serde, sqlite
from sealpoint.base.checkpoint import empty_channel_errors
from sealpoint.sqlite import aio

__all__ = [
    "AsyncSqliteSaver",
    "EmptyChannelError",
    "EncryptedSerializer",
    "InMemorySaver",
    "JsonPlusSerializer",
    "SqliteSaver",
]

# Methods are the same over LangGraph's own types, which is all that the type checker objects to below.
empty_channel_errors.add(EmptyChannelError)  # what LangGraph's channels raise


class JsonPlusSerializer(serde.JsonPlusSerializer, _LangGraphSerializer):  # type: ignore[misc]
    """`sealpoint.serde.JsonPlusSerializer`, and one of LangGraph's."""


class EncryptedSerializer(serde.EncryptedSerializer, _LangGraphSerializer):
    """`sealpoint.serde.EncryptedSerializer`, and to LangGraph one of its own, which it keeps as it is."""


class SqliteSaver(sqlite.SqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.SqliteSaver`, and one of LangGraph's savers."""


class AsyncSqliteSaver(aio.AsyncSqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.aio.AsyncSqliteSaver`, and one of LangGraph's savers."""


class InMemorySaver(memory.InMemorySaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.memory.InMemorySaver`, and one of LangGraph's savers."""
