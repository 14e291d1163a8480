"""Bytes in, sealed bytes out; knows nothing of checkpoints.

What a ring file says without its keys is in `sealpoint.keys.ringfile` (`RingEntry`,
`read_ring_entries`), which is imported where it is used: a ring by hand needs no TOML.
"""

from __future__ import annotations

from sealpoint.crypto.cipher import RingCipher
from sealpoint.crypto.context import PackedRow, Row, RowTemplate, context
from sealpoint.crypto.prepared import Opened
from sealpoint.crypto.tag import Tag
from sealpoint.keys.key import Key, check_value
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.state import KeyState

__all__ = [
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
