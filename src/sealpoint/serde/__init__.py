"""Serializers: values to a type name and bytes, and back. Independent of savers."""

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
