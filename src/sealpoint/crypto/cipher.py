"""RingCipher: the only place that seals or opens."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from sealpoint.crypto.context import Row, context
from sealpoint.crypto.keys import Key, KeyRing, NeverPickled
from sealpoint.crypto.suites import Suite, make_suite
from sealpoint.crypto.tag import LEGACY, SUITES, Tag
from sealpoint.errors import (
    BlobError,
    KeyMaterialError,
    LegacyTypeError,
    RowMissingError,
    SecretMissingError,
    TagError,
    UnboundValueError,
    UnknownSuiteError,
    UnmixedValueError,
    excerpt,
)

LEGACY_INNER: Final = frozenset({"null", "bytes", "bytearray", "msgpack", "json"})
_CACHED_TAGS: Final = 256
_CACHED_SECRETS: Final = 1024


class RingCipher(NeverPickled):
    """Seals with the ring's active key and opens with the key that a tag names.

    Never falls back: an unknown key, suite or flag, a missing row or secret, and every
    failed authentication each raise an error of their own. Safe to share between threads.
    """

    def __init__(self, ring: KeyRing, suite: str = "cobblestone256") -> None:
        """Make a cipher.

        Args:
            ring: Keys to open with; sealing needs an active one.
            suite: What to seal in: ``cobblestone256`` or ``aes256gcm``.

        Raises:
            UnknownSuiteError: If values cannot be sealed in ``suite``.
        """
        if suite not in SUITES:
            raise UnknownSuiteError(f"{excerpt(suite)} cannot seal; known: {', '.join(sorted(SUITES))}")
        self.ring = ring
        self.suite = suite
        # One entry a tag that values without row and secret carry; caches live and die with the ring.
        self._sealing = lru_cache(_CACHED_TAGS)(self._prepare_seal)
        self._opening = lru_cache(_CACHED_TAGS)(self._prepare_open)
        self._keyed = lru_cache(_CACHED_SECRETS)(self._make_suite)

    def __repr__(self) -> str:
        return f"RingCipher({self.ring!r}, suite={self.suite!r})"

    def seal(
        self, inner: str, data: bytes, *, row: Row | None = None, secret: bytes | None = None
    ) -> tuple[str, bytes]:
        """Seal one value.

        Args:
            inner: What the serializer called its bytes, e.g. ``msgpack``.
            data: The serializer's bytes.
            row: Coordinates that the value is bound to; ``None`` binds it to none, ``{}``
                to a row without coordinates.
            secret: Secret of the thread, mixed into the key; not empty.

        Returns:
            The tag for the `type` column, at most 64 characters, and the sealed bytes.

        Raises:
            NoActiveKeyError: If the ring has no active key.
            TagError: If ``inner`` cannot stand in a tag.
        """
        if not inner:
            raise TagError("a value without a type name cannot be sealed")
        if row is None and secret is None:
            tag, suite, bound = self._sealing(inner)
            return tag, suite.seal(data, bound)
        return self._seal_flagged(inner, data, row, secret)

    def open(
        self, tag: str, blob: bytes, *, row: Row | None = None, secret: bytes | None = None
    ) -> tuple[str, bytes]:
        """Open one value.

        Args:
            tag: The whole text of the `type` column.
            blob: The sealed bytes.
            row: The same coordinates as at sealing, ``None`` if there were none.
            secret: The same secret as at sealing, ``None`` if there was none.

        Returns:
            The inner type name and the serializer's bytes.

        Raises:
            TagError: If ``tag`` is none (or one of its subclasses, for suite and flags).
            BlobError: If ``blob`` is not bytes, or too short.
            UnknownKeyError, KeyDisabledError, KeyDestroyedError: If the key is not to be had.
            RowMissingError, UnboundValueError: If only one of tag and call has a row.
            SecretMissingError, UnmixedValueError: If only one of tag and call has a secret.
            LegacyTypeError: If a row under LANGGRAPH_AES_KEY names a type it may not have.
            IntegrityError: If anything is not as it was sealed.
        """
        if type(blob) is not bytes:
            raise BlobError(f"sealed value is {type(blob).__name__}, not bytes")
        if type(tag) is not str:
            raise TagError(f"{excerpt(tag)} is not a type tag")
        if row is None and secret is None:
            inner, suite, bound = self._opening(tag)
            return inner, suite.open(blob, bound)
        return self._open_flagged(tag, blob, row, secret)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Seal bytes of no type, for code that knows LangGraph's ``CipherProtocol`` only.

        Returns:
            ``<suite>:<key id>`` and the sealed bytes. The type that such code writes before
            the name is not bound; `EncryptedSerializer` binds it.
        """
        tag, suite, bound = self._sealing("")
        return tag[1:], suite.seal(plaintext, bound)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Open what `encrypt` sealed. Raises as `open` does."""
        return self.open(f"+{ciphername}", ciphertext)[1]

    def _make_suite(self, key: Key, name: str, secret: bytes | None) -> Suite:
        return make_suite(name, key.subkey(name, secret))

    def _prepare_seal(self, inner: str) -> tuple[str, Suite, bytes]:
        key = self.ring.require_active()
        tag = Tag(inner, self.suite, key_id=key.id).format()
        return tag, self._keyed(key, self.suite, None), context(tag)

    def _prepare_open(self, text: str) -> tuple[str, Suite, bytes]:
        tag = Tag.parse(text)
        key = self._require_matching(tag, None, None)
        return tag.inner, self._keyed(key, tag.suite, None), context(text)

    def _seal_flagged(
        self, inner: str, data: bytes, row: Row | None, secret: bytes | None
    ) -> tuple[str, bytes]:
        key = self.ring.require_active()
        _require_secret(secret)
        flags = (() if secret is None else ("dek",)) + (() if row is None else ("row",))
        tag = Tag(inner, self.suite, flags, key.id).format()
        return tag, self._keyed(key, self.suite, secret).seal(data, context(tag, row))

    def _open_flagged(
        self, text: str, blob: bytes, row: Row | None, secret: bytes | None
    ) -> tuple[str, bytes]:
        tag = Tag.parse(text)
        _require_secret(secret)
        key = self._require_matching(tag, row, secret)
        return tag.inner, self._keyed(key, tag.suite, secret).open(blob, context(text, row))

    def _require_matching(self, tag: Tag, row: Row | None, secret: bytes | None) -> Key:
        """Refuse what can be refused before any cryptography, and return the key."""
        if tag.key_id is None and tag.inner not in LEGACY_INNER:
            raise LegacyTypeError(f"row under LANGGRAPH_AES_KEY with type {excerpt(tag.inner)}")
        if "row" in tag.flags and row is None:
            raise RowMissingError(f"{tag.format()} is bound to its row, and no row was given")
        if "row" not in tag.flags and row is not None:
            raise UnboundValueError(f"{tag.format()} is not bound to a row")
        if "dek" in tag.flags and secret is None:
            raise SecretMissingError(f"{tag.format()} needs the secret of its thread")
        if "dek" not in tag.flags and secret is not None:
            raise UnmixedValueError(f"{tag.format()} has no secret in its key")
        return self.ring.require_legacy() if tag.suite == LEGACY else self.ring.require_key(str(tag.key_id))


def _require_secret(secret: bytes | None) -> None:
    if secret is not None and (type(secret) is not bytes or not secret):
        raise KeyMaterialError(
            "a thread's secret is bytes, and not empty", hint="make it with os.urandom(32)"
        )
