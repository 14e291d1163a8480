"""PreparedRing: a ring with all that sealing and opening take, worked out once for each tag."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Final

from sealpoint.crypto.context import Row, context
from sealpoint.crypto.counters import OPENED, OPENED_RETIRED, SEALED, Tally
from sealpoint.crypto.suites import LEGACY, Suite, make_suite
from sealpoint.crypto.tag import Tag
from sealpoint.errors import (
    LegacyTypeError,
    RowMissingError,
    SecretMissingError,
    UnboundValueError,
    UnexpectedSecretError,
    excerpt,
)
from sealpoint.keys.ring import Key, KeyRing, NeverPickled, require_secret
from sealpoint.keys.state import KeyState

LEGACY_INNER: Final = frozenset({"null", "bytes", "bytearray", "msgpack", "json"})
_CACHED_TAGS: Final = 256
_CACHED_SECRETS: Final = 1024

Work = Callable[[bytes, bytes], bytes]  # data or blob, and context

parse_tag = lru_cache(_CACHED_TAGS)(Tag.parse)


class PreparedRing(NeverPickled):
    """One ring and its caches, which live and die with it. Never changes as seen from outside."""

    def __init__(self, ring: KeyRing, suite: str, tally: Tally) -> None:
        self.ring = ring
        self._suite = suite
        self._tally = tally
        # One entry a tag that values without row and secret carry.
        self._sealing = lru_cache(_CACHED_TAGS)(self._prepare_seal)
        self._opening = lru_cache(_CACHED_TAGS)(self._prepare_open)
        self._naming = lru_cache(_CACHED_TAGS)(self._prepare_name)
        self._keyed = lru_cache(_CACHED_SECRETS)(self._make_suite)

    def seal(self, inner: str, data: bytes, row: Row | None, secret: bytes | None) -> tuple[str, bytes]:
        """See `RingCipher.seal`. Here ``inner`` may be empty."""
        if row is None and secret is None:
            tag, seal, bound, counter = self._sealing(inner)
        else:
            if secret is not None:
                require_secret(secret)
            flags = (() if secret is None else ("dek",)) + (() if row is None else ("row",))
            tag, key, counter = self._naming(inner, flags)
            seal, bound = self._keyed(key, self._suite, secret).seal, context(tag, row)
        blob = seal(data, bound)
        next(counter)
        return tag, blob

    def open(self, text: str, blob: bytes, row: Row | None, secret: bytes | None) -> tuple[str, bytes]:
        """See `RingCipher.open`."""
        if row is None and secret is None:
            inner, open_, bound, counter = self._opening(text)
        else:
            tag = parse_tag(text)
            if secret is not None:
                require_secret(secret)
            key = self._require_matching(tag, row, secret)
            inner, counter = tag.inner, self._count_open(key)
            open_, bound = self._keyed(key, tag.suite, secret).open, context(text, row)
        data = open_(blob, bound)
        next(counter)
        return inner, data

    def _make_suite(self, key: Key, name: str, secret: bytes | None) -> Suite:
        return make_suite(name, key.subkey(name, secret))

    def _prepare_name(self, inner: str, flags: tuple[str, ...]) -> tuple[str, Key, count[int]]:
        key = self.ring.require_active()
        return Tag(inner, self._suite, flags, key.id).format(), key, self._tally.counter(SEALED, key.id)

    def _prepare_seal(self, inner: str) -> tuple[str, Work, bytes, count[int]]:
        tag, key, counter = self._prepare_name(inner, ())
        return tag, self._keyed(key, self._suite, None).seal, context(tag), counter

    def _prepare_open(self, text: str) -> tuple[str, Work, bytes, count[int]]:
        tag = parse_tag(text)
        key = self._require_matching(tag, None, None)
        return tag.inner, self._keyed(key, tag.suite, None).open, context(text), self._count_open(key)

    def _count_open(self, key: Key) -> count[int]:
        return self._tally.counter(OPENED_RETIRED if key.state is KeyState.DECRYPT_ONLY else OPENED, key.id)

    def _require_matching(self, tag: Tag, row: Row | None, secret: bytes | None) -> Key:
        """Refuse what can be refused before any cryptography, and return the key."""
        if tag.key_id is None and tag.inner not in LEGACY_INNER:
            raise LegacyTypeError(f"rows under LANGGRAPH_AES_KEY never have the type {excerpt(tag.inner)}")
        if "row" in tag.flags and row is None:
            raise RowMissingError(f"{tag.format()} is bound to its row, and no row was given")
        if "row" not in tag.flags and row is not None:
            raise UnboundValueError(f"{tag.format()} is not bound to a row")
        if "dek" in tag.flags and secret is None:
            raise SecretMissingError(f"{tag.format()} needs the secret of its thread")
        if "dek" not in tag.flags and secret is not None:
            raise UnexpectedSecretError(f"{tag.format()} has no secret in its key")
        return self.ring.require_legacy() if tag.suite == LEGACY else self.ring.require_key(str(tag.key_id))
