"""Sealing and opening of bytes. Independent of checkpoints.

`sealpoint.keys.ringfile` reads a ring file without its keys (`RingEntry`, `read_ring_entries`). It is
imported where it is used, because a ring that is created in code needs no TOML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Not on demand: the module has the name of its function.
from sealpoint.crypto.context import PackedRow, Row, RowTemplate, context
from sealpoint.ondemand import on_demand

if TYPE_CHECKING:
    from sealpoint.crypto.cipher import CipherStats, Opened, RingCipher
    from sealpoint.crypto.tag import Tag
    from sealpoint.keys.key import Key, check_value
    from sealpoint.keys.ring import KeyRing
    from sealpoint.keys.state import KeyState
else:
    __getattr__ = on_demand(
        __name__,
        {
            "crypto.cipher": "CipherStats Opened RingCipher",
            "crypto.tag": "Tag",
            "keys.key": "Key check_value",
            "keys.ring": "KeyRing",
            "keys.state": "KeyState",
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
