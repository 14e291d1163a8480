"""Signatures: Ed25519 (RFC 8032), for the size and the root hash of a ledger's log.

Ed25519 was chosen because it is the only algorithm that every reader of C2SP signed notes supports.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sealpoint.seal.keys import NeverPickled

PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


class SigningKey(NeverPickled):
    """A private key of Ed25519."""

    __slots__ = ("_private", "public")

    def __init__(self, seed: bytes) -> None:
        """Create the key from a seed of 32 random bytes."""
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public: Final = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return type(self).__name__

    def sign(self, data: bytes) -> bytes:
        """Return the signature over ``data``, 64 bytes."""
        return self._private.sign(data)


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether a signature over ``data`` is valid under the public key ``public``, 32 bytes."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except InvalidSignature:  # also for a signature that does not have 64 bytes
        return False
    return True
