"""Tokens: what stands in a database in place of metadata that is searched, and of thread ids.

    token       "sp" + hex(HMAC-SHA256(index key "metadata", LP(key) | LP(typed value))[:16])
    pseudonym   "t-" + base32(HMAC-SHA256(index key "thread_id", thread id))[:32], small letters

LP is a length as u32be and the bytes. Equal values have equal tokens, which is what a search needs, and what
a token shows. The index key never rotates, because a token cannot be made anew without the value.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from sealpoint.keys.key import keyed_hash
from sealpoint.keys.material import NeverPickled
from sealpoint.keys.ring import KeyRing

TOKEN: Final = re.compile(r"sp[0-9a-f]{32}\Z")
PSEUDONYM_START: Final = "t-"
PSEUDONYM: Final = re.compile(rf"{PSEUDONYM_START}[a-z2-7]{{32}}\Z")
_TOKEN_BYTES: Final = 16
_PSEUDONYM_CHARS: Final = 32
_CACHED: Final = 4096
EXACT: Final = 2**53
"""Integers below are exact as floats, so that 1 and 1.0 have one token."""


class Tokens(NeverPickled):
    """Computes tokens and pseudonyms with the index key of a ring, and remembers the last few thousand."""

    def __init__(self, ring: Callable[[], KeyRing]) -> None:
        """Make an object that derives its keys at first use.

        Args:
            ring: Returns the ring; its index key never changes.
        """
        self._ring = ring
        self._key = lru_cache(self._derive)
        self._token = lru_cache(_CACHED)(self._make_token)
        self.pseudonym = lru_cache(_CACHED)(self._make_pseudonym)

    def __repr__(self) -> str:
        return type(self).__name__

    def token(self, key: str, value: Any) -> str | None:
        """Return the token of one item of metadata; ``None`` if the value is no scalar.

        Raises:
            KeyRingError: If the ring has no index key, or its material is not available.
        """
        text = _canonical(value)
        return None if text is None else self._token(key, text)

    def _derive(self, purpose: str) -> bytes:
        return self._ring().index_key(purpose)

    def _make_token(self, key: str, text: str) -> str:
        data = b"".join(
            len(part).to_bytes(4, "big") + part
            for part in (key.encode("utf-8", "surrogatepass"), text.encode("utf-8", "surrogatepass"))
        )
        return "sp" + keyed_hash(self._key("metadata"), data)[:_TOKEN_BYTES].hex()

    def _make_pseudonym(self, thread_id: str) -> str:
        digest = keyed_hash(self._key("thread_id"), thread_id.encode())
        return PSEUDONYM_START + b32encode(digest).decode().lower()[:_PSEUDONYM_CHARS]


def _canonical(value: Any) -> str | None:
    """Return the typed text of a scalar: equal for values that are equal in JSON."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, int):
        return f"n:{value:d}"
    if isinstance(value, float):
        return f"n:{int(value)}" if value.is_integer() and abs(value) < EXACT else f"n:{value!r}"
    return None
