"""Bytes in, sealed bytes out; knows nothing of checkpoints."""

from __future__ import annotations

from sealpoint.crypto.cipher import RingCipher
from sealpoint.crypto.context import Row, context
from sealpoint.crypto.keys import Key, KeyRing, KeyState
from sealpoint.crypto.tag import Tag

__all__ = ["Key", "KeyRing", "KeyState", "RingCipher", "Row", "Tag", "context"]
