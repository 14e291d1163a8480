"""Sealing suites: what a key does to bytes. One name, one meaning, for ever.

    cobblestone256   salt 24 | commitment 32 | chunks of 16 KiB, each followed by a tag of 16
    aes256gcm        nonce 12 | ciphertext | tag 16
    aes              nonce 16 | tag 16 | ciphertext            (read only, LangGraph's AES-EAX or AES-GCM)

cobblestone256 draws a fresh key for every message, so there is no count of messages to
keep (C2SP chunked-encryption, Cobblestone-256). aes256gcm draws its nonce at random, so
one key may seal 2^32 messages at most (NIST SP 800-38D, section 8.3).
"""

from __future__ import annotations

import os
from io import BytesIO
from typing import Final, Protocol

from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealpoint.errors import BlobError, IntegrityError, UnknownSuiteError, excerpt

KEY_BYTES: Final = 32

# From here on a value is sealed within one buffer: to join parts would copy it once more. Below that,
# the buffer takes longer than the copy.
IN_PLACE_BYTES: Final = 128 * 1024


class Suite(Protocol):
    """One suite under one key."""

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Encrypt and authenticate ``data``, and authenticate ``context``."""

    def open(self, blob: bytes, context: bytes) -> bytes:
        """Return the data, or raise `BlobError` or `IntegrityError`."""


def _require_length(blob: bytes, least: int) -> None:
    if len(blob) < least:
        raise BlobError(f"sealed value of {len(blob)} bytes; the shortest possible has {least}")


def _in_place(message: Cobblestone256Encryptor | Cobblestone256Decryptor, data: bytes, room: int) -> bytes:
    """Return what ``message`` makes of ``data``, written into one buffer of ``room`` bytes or more.

    `BytesIO` gives its buffer away without a copy.

    Raises:
        InvalidTag: If the message does not authenticate; the buffer is empty then.
    """
    made = BytesIO(bytes(room))
    with made.getbuffer() as buffer:
        try:
            end = message.update_into(data, buffer)
            last = message.finalize()
        except InvalidTag:
            buffer[:] = bytes(room)  # a traceback shows the locals of its frames
            raise
        buffer[end : end + len(last)] = last
    made.truncate(end + len(last))
    return made.getvalue()


class Cobblestone256:
    """One C2SP chunked-encryption message a value, under a key of 32 bytes."""

    OVERHEAD_BYTES: Final = 24 + 32 + 16
    CHUNK_BYTES: Final = 16 * 1024

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return salt, commitment and chunks: 72 bytes more, and 16 for every full 16 KiB."""
        message = Cobblestone256Encryptor(self._key, context)
        if len(data) >= IN_PLACE_BYTES:
            return _in_place(
                message, data, len(data) + 16 * (len(data) // self.CHUNK_BYTES) + self.OVERHEAD_BYTES
            )
        return message.update(data) + message.finalize()

    def open(self, blob: bytes, context: bytes) -> bytes:
        """Return the data.

        Raises:
            BlobError: If ``blob`` has fewer than 72 bytes.
            IntegrityError: If it was not sealed under this key and context.
        """
        _require_length(blob, self.OVERHEAD_BYTES)
        message = Cobblestone256Decryptor(self._key, context)
        try:
            if len(blob) >= IN_PLACE_BYTES:
                return _in_place(message, blob, len(blob))
            return message.update(blob) + message.finalize()
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None


class Aes256Gcm:
    """AES-256-GCM with a random nonce, under a key of 32 bytes; 2^32 messages at most."""

    NONCE_BYTES: Final = 12
    OVERHEAD_BYTES: Final = 12 + 16

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag: 28 bytes more."""
        nonce = os.urandom(self.NONCE_BYTES)
        if len(data) < IN_PLACE_BYTES:
            return nonce + self._aead.encrypt(nonce, data, context)
        made = BytesIO(bytes(len(data) + self.OVERHEAD_BYTES))
        with made.getbuffer() as buffer:
            buffer[: self.NONCE_BYTES] = nonce
            self._aead.encrypt_into(nonce, data, context, buffer[self.NONCE_BYTES :])
        return made.getvalue()

    def open(self, blob: bytes, context: bytes) -> bytes:
        """Return the data.

        Raises:
            BlobError: If ``blob`` has fewer than 28 bytes.
            IntegrityError: If it was not sealed under this key and context.
        """
        _require_length(blob, self.OVERHEAD_BYTES)
        view = memoryview(blob)  # slices without a copy of the ciphertext
        try:
            return self._aead.decrypt(view[: self.NONCE_BYTES], view[self.NONCE_BYTES :], context)
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None


def make_suite(name: str, key: bytes) -> Suite:
    """Return the suite called ``name`` under ``key``.

    Raises:
        UnknownSuiteError: If there is no such suite.
    """
    if name == "cobblestone256":
        return Cobblestone256(key)
    if name == "aes256gcm":
        return Aes256Gcm(key)
    if name == "aes":
        from sealpoint.crypto.legacy import LegacyAes  # few need it; its imports are a third of the floor's

        return LegacyAes(key)
    raise UnknownSuiteError(f"{excerpt(name)} is not a suite; known: aes, aes256gcm, cobblestone256")
