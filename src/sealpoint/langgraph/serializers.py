"""sealpoint's serializers as subclasses of LangGraph's JsonPlusSerializer, which LangGraph requires."""

from __future__ import annotations

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as _LangGraphSerializer

from sealpoint.serde import encrypted, jsonplus


class JsonPlusSerializer(jsonplus.JsonPlusSerializer, _LangGraphSerializer):  # type: ignore[misc]
    """`sealpoint.serde.JsonPlusSerializer` as a subclass of LangGraph's."""

    __module__ = "sealpoint.langgraph"


class EncryptedSerializer(encrypted.EncryptedSerializer, _LangGraphSerializer):
    """`sealpoint.serde.EncryptedSerializer` as a subclass of LangGraph's JsonPlusSerializer."""

    __module__ = "sealpoint.langgraph"
