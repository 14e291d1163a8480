"""Tokens, by which sealed metadata is searched, and pseudonyms, which are stored instead of thread ids.

    token       "sp" + hex(HMAC-SHA256(index key "metadata", LP(key) | LP(typed value))[:16])
    pseudonym   "t-" + base32(HMAC-SHA256(index key "thread_id", thread id))[:32], small letters

LP is a length as u32be and the bytes. The typed value is the value as it is stored in JSON, with its type.
Equal values have equal tokens, so that searches work; any reader of the database sees them. The index key
never rotates, because a token cannot be computed again without the value.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeVar

from sealpoint.seal.keys import KeyedHash, NeverPickled
from sealpoint.seal.ring import Ring

Result = TypeVar("Result")

TOKEN: Final = re.compile(r"sp[0-9a-f]{32}\Z")
PSEUDONYM_START: Final = "t-"
PSEUDONYM: Final = re.compile(rf"{PSEUDONYM_START}[a-z2-7]{{32}}\Z")
_TOKEN_BYTES: Final = 16
_PSEUDONYM_CHARS: Final = 32
_CACHED: Final = 4096
MAX_CACHED_CHARS: Final = 256
# Integers below are exact as floats, so that 1 and 1.0 have one token
EXACT: Final = 2**53


def is_cached(*texts: str | bytes) -> bool:
    """Whether a result for these texts may be cached: only for short texts, to bound the memory."""
    return sum(map(len, texts)) <= MAX_CACHED_CHARS


def cached(size: int, function: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap a function of texts in a cache of ``size`` results, for the texts that `is_cached` allows."""
    remembered = lru_cache(size)(function)
    return lambda *texts: (remembered if is_cached(*texts) else function)(*texts)


class Tokens(NeverPickled):
    """Computes tokens and pseudonyms with the index key of a ring, and caches a few thousand of them."""

    def __init__(self, ring: Callable[[], Ring]) -> None:
        self._ring = ring
        # At first use; the index key of a ring never changes.
        self.key = lru_cache(lambda purpose: ring().index_key(purpose))
        self._token = cached(_CACHED, self._make_token)
        self.pseudonym = cached(_CACHED, self._make_pseudonym)

    def __repr__(self) -> str:
        return type(self).__name__

    def token(self, key: str, value: Any) -> str | None:
        """Return the token of a key of metadata and its value; ``None`` if the value is not a scalar."""
        text = _canonical(value)
        return None if text is None else self._token(key, text)

    @property
    def are_available(self) -> bool:
        """Whether the ring has an index key with loaded material; reading does not wait for the loading."""
        index = self._ring().index
        return index is not None and index.is_loaded

    def of(self, metadata: Mapping[str, Any]) -> frozenset[str]:
        """Return the tokens of all keys of ``metadata`` whose values are scalars."""
        made = (self.token(key, value) for key, value in metadata.items())
        return frozenset(token for token in made if token is not None)

    def _make_token(self, key: str, text: str) -> str:
        data = b"".join(
            len(part).to_bytes(4, "big") + part for part in (key.encode("utf-8", "ignore"), text.encode())
        )
        return "sp" + KeyedHash(self.key("metadata"))(data)[:_TOKEN_BYTES].hex()

    def _make_pseudonym(self, thread_id: str) -> str:
        digest = KeyedHash(self.key("thread_id"))(thread_id.encode())
        return PSEUDONYM_START + b32encode(digest).decode().lower()[:_PSEUDONYM_CHARS]


def in_json(value: Any) -> Any:
    """Return a scalar as it is read back from JSON: of a plain type, and text without lone surrogates."""
    if isinstance(value, str):
        return str.__str__(value).encode("utf-8", "ignore").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _canonical(value: Any) -> str | None:
    """Return bytes for a scalar with its type: the same bytes for values that are equal in JSON.

    Two numbers are equal if their decimal digits are equal, as in Postgres.
    """
    value = in_json(value)
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, float):
        if not isfinite(value):
            return None
        if not value.is_integer():
            return f"n:{value!r}"
        value = int(value) if abs(value) < EXACT else int(Decimal(repr(value)))
    try:
        return f"n:{value:d}" if isinstance(value, int) else None
    except ValueError:  # Python converts at most 4,300 digits, also for JSON
        return None
