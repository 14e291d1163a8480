"""sealpoint: LangGraph checkpoints, sealed at rest.

    from sealpoint.langgraph import EncryptedSerializer
    saver = SqliteSaver(connection, serde=EncryptedSerializer.from_key_file("keys.toml"))

Pass `EncryptedSerializer` as ``serde=`` to LangGraph's savers or to `sealpoint.sqlite.SqliteSaver`.
`sealpoint.EncryptedSerializer` needs no LangGraph. For graphs, import `EncryptedSerializer` from
`sealpoint.langgraph`: that class is also a subclass of LangGraph's serializer class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag
    from sealpoint.errors import IntegrityError, PlaintextError, SealpointError, UnknownKeyError
    from sealpoint.serde import Allowlist, EncryptedSerializer, JsonPlusSerializer
else:
    __getattr__ = on_demand(
        __name__,
        {
            "crypto": "Key KeyRing KeyState RingCipher Tag",
            "errors": "IntegrityError PlaintextError SealpointError UnknownKeyError",
            "serde": "Allowlist EncryptedSerializer JsonPlusSerializer",
        },
    )

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
