"""AES-EAX, the mode of most of LangGraph's own rows under LANGGRAPH_AES_KEY, read only.

nonce 16 | tag 16 | ciphertext
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.cmac import CMAC
from cryptography.hazmat.primitives.constant_time import bytes_eq

from sealpoint.errors import BlobError, IntegrityError, UnknownSuiteError


class AesEax:
    """AES-EAX as LangGraph's EncryptedSerializer writes it: read only, binds no context.

    Source: Bellare, Rogaway, Wagner, "The EAX Mode of Operation", section 4, over CTR and
    CMAC. The key has 16, 24 or 32 bytes and is used as it is.
    """

    NONCE_BYTES: Final = 16
    TAG_BYTES: Final = 16
    OVERHEAD_BYTES: Final = 16 + 16

    def __init__(self, key: bytes) -> None:
        self._cipher = AES(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Refuse: no new values are sealed in a suite that binds no context.

        Raises:
            UnknownSuiteError: Always.
        """
        raise UnknownSuiteError(f"suite 'aes' is read only ({len(data)} bytes to seal)")

    def _omac(self, number: int, data: bytes | memoryview) -> bytes:
        mac = CMAC(self._cipher)
        # The leading block separates the three MACs: that of a nonce is never that of a ciphertext.
        mac.update(number.to_bytes(16, "big"))
        mac.update(bytes(data))
        return mac.finalize()

    def open(self, blob: bytes, context: bytes = b"") -> bytes:
        """Return the data of nonce, tag and ciphertext. ``context`` is not part of it.

        Raises:
            BlobError: If ``blob`` has fewer than 32 bytes.
            IntegrityError: If it was not sealed under this key.
        """
        if len(blob) < self.OVERHEAD_BYTES:
            raise BlobError(
                f"sealed value of {len(blob)} bytes; the shortest possible has {self.OVERHEAD_BYTES}"
            )
        body = self.NONCE_BYTES + self.TAG_BYTES
        return self.open_parts(blob[: self.NONCE_BYTES], b"", blob[body:], blob[self.NONCE_BYTES : body])

    def open_parts(self, nonce: bytes, header: bytes, ciphertext: bytes, tag: bytes) -> bytes:
        """Return the plaintext of the general mode: any nonce, any header, a tag of 16 bytes.

        Raises:
            IntegrityError: If the tag does not match the other arguments under this key.
        """
        start = self._omac(0, nonce)
        macs = start, self._omac(1, header), self._omac(2, ciphertext)
        wanted = bytes(a ^ b ^ c for a, b, c in zip(*macs, strict=True))
        # In constant time, so that timing reveals nothing about the right tag, and before any decryption.
        if not bytes_eq(wanted, tag):
            raise IntegrityError("sealed value does not open: authentication failed")
        decryptor = Cipher(self._cipher, CTR(start)).decryptor()
        return decryptor.update(ciphertext) + decryptor.finalize()
