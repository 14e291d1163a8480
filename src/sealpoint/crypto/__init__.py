"""Seals and opens bytes; independent of checkpoints and savers.

`sealpoint.keys.ringfile` reads a ring file without its keys (`RingEntry`, `read_ring_entries`). That module
is imported where it is used, because a ring that is created in code needs no TOML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Not on demand: the module has the name of its function.
from sealpoint.crypto.context import PackedRow, Row, RowTemplate, context
from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.crypto.cipher import CipherStats, RingCipher
    from sealpoint.keys.material import check_value
    from sealpoint.keys.ring import KeyRing
    from sealpoint.seal.cipher import Opened
    from sealpoint.seal.keys import Key, KeyState
    from sealpoint.seal.tag import Tag
else:
    __getattr__ = on_demand(
        __name__,
        {
            "crypto.cipher": "CipherStats RingCipher",
            "keys.material": "check_value",
            "keys.ring": "KeyRing",
            "seal.cipher": "Opened",
            "seal.keys": "Key KeyState",
            "seal.tag": "Tag",
        },
    )

__all__ = [
    "CipherStats",
    "Key",
    "KeyRing",
    "KeyState",
    "Opened",
    "PackedRow",
    "RingCipher",
    "Row",
    "RowTemplate",
    "Tag",
    "check_value",
    "context",
]
