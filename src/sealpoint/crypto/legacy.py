"""The suite ``aes``: LangGraph's own rows under LANGGRAPH_AES_KEY, read only.

    nonce 16 | tag 16 | ciphertext

LangGraph writes AES-EAX, or AES-GCM if it was configured with ``mode=AES.MODE_GCM``. Both kinds of row have
this layout and the tag ``+aes``, so the mode is not known.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealpoint.crypto.eax import AesEax
from sealpoint.errors import IntegrityError, UnknownSuiteError


class LegacyAes:
    """Opens both kinds of row under one key: as EAX first, LangGraph's default, then as GCM.

    This is no fallback to another key or to weaker authentication: there is one key, and each mode
    authenticates the whole row. A row that neither mode authenticates, including one of another mode, is
    refused. Forging a row needs the key in both modes; a random row opens with a probability of 2^-127
    instead of 2^-128.
    """

    _GCM_TAG: Final = slice(AesEax.NONCE_BYTES, AesEax.OVERHEAD_BYTES)

    def __init__(self, key: bytes) -> None:
        self._eax = AesEax(key)
        self._gcm = AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Refuse: no new values are sealed in a suite that binds no context.

        Raises:
            UnknownSuiteError: Always.
        """
        raise UnknownSuiteError(f"suite 'aes' is read only ({len(data)} bytes to seal)")

    def open(self, blob: bytes, context: bytes = b"") -> bytes:
        """Return the data of nonce, tag and ciphertext. ``context`` is not part of it.

        Raises:
            BlobError: If ``blob`` has fewer than 32 bytes.
            IntegrityError: If neither mode authenticates it under this key.
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
