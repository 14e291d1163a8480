"""sealpoint: LangGraph checkpoints, sealed at rest.

    from sealpoint.langgraph import EncryptedSerializer
    saver = SqliteSaver(connection, serde=EncryptedSerializer.from_key_file("keys.toml"))

`EncryptedSerializer` goes as ``serde=`` under LangGraph's savers, unchanged, or under
`sealpoint.sqlite.SqliteSaver`. Here it is the core's, which needs no LangGraph; for graphs
take the one of `sealpoint.langgraph`, which LangGraph knows as its own.
"""

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag
from sealpoint.errors import IntegrityError, PlaintextError, SealpointError, UnknownKeyError
from sealpoint.serde import Allowlist, EncryptedSerializer, JsonPlusSerializer

__all__ = [
    "Allowlist",
    "EncryptedSerializer",
    "IntegrityError",
    "JsonPlusSerializer",
    "Key",
    "KeyRing",
    "KeyState",
    "PlaintextError",
    "RingCipher",
    "SealpointError",
    "Tag",
    "UnknownKeyError",
]
