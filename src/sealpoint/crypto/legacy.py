"""The suite ``aes``: LangGraph's own rows under LANGGRAPH_AES_KEY, read only.

    nonce 16 | tag 16 | ciphertext

LangGraph writes AES-EAX, or AES-GCM where it was made with ``mode=AES.MODE_GCM``. Both kinds of
row have this layout and the one tag ``+aes``; nothing in them says which it is.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealpoint.crypto.eax import AesEax
from sealpoint.errors import IntegrityError, UnknownSuiteError


class LegacyAes:
    """Opens both kinds of row under the one key: as EAX first, LangGraph's default, then as GCM.

    No fallback to another key, or to less: there is one key, and either mode authenticates the whole
    row with it. The row leaves open which of the two made it, so both are asked, and what neither
    authenticates (rows of other modes among them) is refused. A forger needs the key for either; by
    chance one of 2^127 guesses opens instead of one of 2^128.
    """

    _GCM_TAG: Final = slice(AesEax.NONCE_BYTES, AesEax.OVERHEAD_BYTES)

    def __init__(self, key: bytes) -> None:
        self._eax = AesEax(key)
        self._gcm = AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Refuse: nothing new is written in a suite that binds no context.

        Raises:
            UnknownSuiteError: Always.
        """
        raise UnknownSuiteError(f"suite 'aes' is read only ({len(data)} bytes to seal)")

    def open(self, blob: bytes, context: bytes = b"") -> bytes:
        """Return the data of nonce, tag and ciphertext. ``context`` is not part of it.

        Raises:
            BlobError: If ``blob`` has fewer than 32 bytes.
            IntegrityError: If it was sealed in neither mode under this key.
        """
        try:
            return self._eax.open(blob)
        except IntegrityError:
            nonce, tag, sealed = (
                blob[: AesEax.NONCE_BYTES],
                blob[self._GCM_TAG],
                blob[AesEax.OVERHEAD_BYTES :],
            )
        try:
            return self._gcm.decrypt(nonce, sealed + tag, None)
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None
