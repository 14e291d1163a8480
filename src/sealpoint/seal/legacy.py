"""The suite ``aes``: LangGraph's own rows under LANGGRAPH_AES_KEY, read only.

    nonce 16 | tag 16 | ciphertext

LangGraph writes AES-EAX, or AES-GCM if it was configured with ``mode=AES.MODE_GCM``. Rows of both modes have
this layout and the tag ``+aes``, so the mode of a row is not known.
"""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.hazmat.primitives.constant_time import bytes_eq

from sealpoint.errors import IntegrityError, SealedValueError, TagError


class LegacyAes:
    """Opens rows of AES-EAX and of AES-GCM under one key: it tries EAX first, LangGraph's default, then GCM.

    This is no fallback to another key or to weaker authentication: there is one key, and each mode
    authenticates the whole row. Rows of EAX and of GCM are opened; all others are refused. Forging a row
    needs the key in both modes; a random row opens with a probability of 2^-127 instead of 2^-128. The key
    has 16, 24 or 32 bytes and is used as it is.

    Source: Bellare, Rogaway, Wagner, "The EAX Mode of Operation", section 4, over CTR and CMAC.
    """

    DESCRIPTION: ClassVar = "AES-EAX or AES-GCM of LangGraph, read only"
    NONCE_BYTES: Final = 16
    OVERHEAD_BYTES: Final = 16 + 16

    def __init__(self, key: bytes) -> None:
        self._cipher, self._gcm = AES(key), AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Raise: no new values are sealed in this suite, because it authenticates no context."""
        raise TagError(f"suite 'aes' is read only ({len(data)} bytes to seal)")

    def open(self, blob: bytes, context: bytes = b"") -> bytes:
        """Return the plaintext of a stored value. ``context`` is ignored: these rows are not bound to it."""
        least = self.OVERHEAD_BYTES
        if len(blob) < least:
            raise SealedValueError(f"sealed value of {len(blob)} bytes; the shortest possible has {least}")
        nonce, tag, sealed = blob[: self.NONCE_BYTES], blob[self.NONCE_BYTES : least], blob[least:]
        with suppress(IntegrityError):
            return self.open_parts(nonce, b"", sealed, tag)
        try:
            return self._gcm.decrypt(nonce, sealed + tag, None)
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None

    def _omac(self, number: int, data: bytes | memoryview) -> bytes:
        mac = CMAC(self._cipher)
        # The leading block separates the three MACs: that of a nonce is never that of a ciphertext.
        mac.update(number.to_bytes(16, "big"))
        mac.update(bytes(data))
        return mac.finalize()

    def open_parts(self, nonce: bytes, header: bytes, ciphertext: bytes, tag: bytes) -> bytes:
        """Decrypt AES-EAX. Nonce and header may have any length, the tag has 16 bytes."""
        start = self._omac(0, nonce)
        macs = start, self._omac(1, header), self._omac(2, ciphertext)
        wanted = bytes(a ^ b ^ c for a, b, c in zip(*macs, strict=True))
        # In constant time, so that timing reveals nothing about the right tag, and before any decryption.
        if not bytes_eq(wanted, tag):
            raise IntegrityError("sealed value does not open: authentication failed")
        decryptor = Cipher(self._cipher, CTR(start)).decryptor()
        return decryptor.update(ciphertext) + decryptor.finalize()
