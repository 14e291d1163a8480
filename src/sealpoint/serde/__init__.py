"""Serializers: convert values to a type name and bytes, and back; independent of savers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.serde.base import (
        AllowlistSerializer,
        CarrierSerializer,
        CipherProtocol,
        SealAwareSerializer,
        SerializerCompat,
        SerializerProtocol,
        UntypedSerializerProtocol,
        maybe_add_typed_methods,
    )
    from sealpoint.serde.catalogue import SAFE_TYPES, Allowlist
    from sealpoint.serde.encrypted import EncryptedSerializer
    from sealpoint.serde.jsonplus import JsonPlusSerializer
else:
    __getattr__ = on_demand(
        __name__,
        {
            "serde.catalogue": "SAFE_TYPES Allowlist",
            "serde.encrypted": "EncryptedSerializer",
            "serde.jsonplus": "JsonPlusSerializer",
        },
        others="serde.base",
    )

__all__ = [
    "SAFE_TYPES",
    "Allowlist",
    "AllowlistSerializer",
    "CarrierSerializer",
    "CipherProtocol",
    "EncryptedSerializer",
    "JsonPlusSerializer",
    "SealAwareSerializer",
    "SerializerCompat",
    "SerializerProtocol",
    "UntypedSerializerProtocol",
    "maybe_add_typed_methods",
]
