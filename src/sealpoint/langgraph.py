"""The bridge: sealpoint's classes as instances of LangGraph's own base classes.

`StateGraph.compile` accepts only LangGraph's own checkpointers. Under ``LANGGRAPH_STRICT_MSGPACK=true`` it
also makes the checkpointer's serializer allow the types of the graph's schema, and replaces LangGraph's
encrypting serializer. Both serializers here are subclasses of LangGraph's JsonPlusSerializer, which it uses
as it is.
"""

from __future__ import annotations

from typing import Any

try:
    from langgraph.checkpoint.base import BaseCheckpointSaver as _LangGraphSaver
    from langgraph.checkpoint.base import EmptyChannelError
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as _LangGraphSerializer
except ImportError as error:
    raise ImportError("sealpoint.langgraph needs LangGraph: pip install 'sealpoint[langgraph]'") from error

from sealpoint import memory, sealed, serde, sqlite
from sealpoint.base.checkpoint import empty_channel_errors
from sealpoint.base.sealing import arequire_sealing, require_sealing
from sealpoint.sqlite import aio

__all__ = [
    "AsyncSqliteSaver",
    "EmptyChannelError",
    "EncryptedSerializer",
    "InMemorySaver",
    "JsonPlusSerializer",
    "SealedSaver",
    "SqliteSaver",
    "arequire_sealing",
    "require_sealing",
]

# The methods differ only in the names of their types, which is what the type checker reports below.
empty_channel_errors.add(EmptyChannelError)  # raised by LangGraph's channels


class JsonPlusSerializer(serde.JsonPlusSerializer, _LangGraphSerializer):  # type: ignore[misc]
    """`sealpoint.serde.JsonPlusSerializer` as a subclass of LangGraph's."""


class EncryptedSerializer(serde.EncryptedSerializer, _LangGraphSerializer):
    """`sealpoint.serde.EncryptedSerializer` as a subclass of LangGraph's JsonPlusSerializer."""


class SqliteSaver(sqlite.SqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.SqliteSaver` as one of LangGraph's savers."""


class AsyncSqliteSaver(aio.AsyncSqliteSaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.sqlite.aio.AsyncSqliteSaver` as one of LangGraph's savers."""


class InMemorySaver(memory.InMemorySaver, _LangGraphSaver[str]):  # type: ignore[misc, override]
    """`sealpoint.memory.InMemorySaver` as one of LangGraph's savers."""


class SealedSaver(sealed.SealedSaver, _LangGraphSaver[Any]):  # type: ignore[misc]
    """`sealpoint.sealed.SealedSaver` as one of LangGraph's savers."""

    _absent = _LangGraphSaver
