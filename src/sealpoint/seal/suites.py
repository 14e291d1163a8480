"""Sealing suites: algorithms that seal bytes under a key. The meaning of a name never changes.

    cobblestone256   salt 24 | commitment 32 | chunks of 16 KiB, each followed by a tag of 16
    xaes256gcm       nonce 24 | ciphertext | tag 16
    aes              nonce 16 | tag 16 | ciphertext            (read only, LangGraph's AES-EAX or AES-GCM)

cobblestone256 (C2SP chunked-encryption, Cobblestone-256) derives a fresh key for every message and commits to
this key. xaes256gcm (C2SP XAES-256-GCM) is faster for short messages, and does not commit to its key. With
either suite operators need not count messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from itertools import count
from os import urandom
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from cryptography.cobblestone import Cobblestone256Decryptor, Cobblestone256Encryptor
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

from sealpoint.errors import IntegrityError, SealedValueError, TagError, excerpt
from sealpoint.forks import reset_in_child
from sealpoint.seal.keys import KEY_BYTES, LEGACY

if TYPE_CHECKING:
    from sealpoint.seal.legacy import LegacyAes

# Values of this size and above are sealed in one buffer, because joining parts would copy them again. For
# smaller values the copy is faster.
IN_PLACE_BYTES: Final = 128 * 1024

# Blobs of this size and above are opened through a view, without a copy of the ciphertext. For smaller
# blobs the copy is faster.
VIEW_BYTES: Final = 8 * 1024

# Parts of an XAES-256-GCM message. A slice that is made once costs half of one that is made for each message.
_PREFIX: Final = slice(0, 12)
_TAIL: Final = slice(12, 24)
_BODY: Final = slice(24, None)
_HALF_BYTES: Final = 12
_XAES_OVERHEAD_BYTES: Final = 24 + 16


def random_source() -> Callable[[int], bytes]:
    """Return the function `os.getrandom`, or `os.urandom` if the system lacks the former.

    Both functions return random bytes of the kernel. `os.urandom` releases the GIL, so that with several
    threads each value that is sealed may cost a switch to another thread and back.
    """
    try:
        from os import getrandom

        getrandom(1)
    except (ImportError, OSError):  # another system, or a sandbox that refuses the call
        return urandom
    return getrandom


_random: Final = random_source()


def _too_short(blob: bytes, least: int) -> SealedValueError:
    return SealedValueError(f"sealed value of {len(blob)} bytes; the shortest possible has {least}")


def _in_place(message: Cobblestone256Encryptor | Cobblestone256Decryptor, data: bytes, room: int) -> bytes:
    """Encrypt or decrypt ``data`` with ``message``; the output buffer has at least ``room`` bytes.

    `BytesIO` returns its buffer without a copy.

    Raises:
        InvalidTag: If the message is not authentic; no bytes of it are returned.
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
    """One C2SP chunked-encryption message per value, under a key of 32 bytes."""

    DESCRIPTION: ClassVar = "AES-256-GCM (C2SP chunked encryption, Cobblestone-256)"
    OVERHEAD_BYTES: Final = 24 + 32 + 16
    CHUNK_BYTES: Final = 16 * 1024

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return salt, commitment and chunks: 72 bytes longer than ``data``, and 16 for every full 16 KiB."""
        message = Cobblestone256Encryptor(self._key, context)
        if len(data) >= IN_PLACE_BYTES:
            return _in_place(
                message, data, len(data) + 16 * (len(data) // self.CHUNK_BYTES) + self.OVERHEAD_BYTES
            )
        return message.update(data) + message.finalize()

    def open(self, blob: bytes, context: bytes) -> bytes:
        """Return the data."""
        if len(blob) < self.OVERHEAD_BYTES:
            raise _too_short(blob, self.OVERHEAD_BYTES)
        message = Cobblestone256Decryptor(self._key, context)
        try:
            if len(blob) >= IN_PLACE_BYTES:
                return _in_place(message, blob, len(blob))
            return message.update(blob) + message.finalize()
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None


def derive_xaes_key(key: bytes, prefix: bytes) -> bytes:
    """Return the AES-256-GCM key of all messages whose nonces begin with ``prefix``.

    KDF in counter mode over AES-CMAC (NIST SP 800-108r1, section 4.1): a counter of 16 bits, the
    label ``X``, a zero byte, and the prefix as context.

    Source: C2SP, XAES-256-GCM, "Overview".
    """
    counter = CounterLocation.BeforeFixed
    kdf = KBKDFCMAC(AES, Mode.CounterMode, KEY_BYTES, 2, None, counter, None, None, b"X\0" + prefix)
    return kdf.derive(key)


# A nonce prefix, its cipher, and the number of messages sealed with it.
_Sealing: TypeAlias = "tuple[bytes, AESGCM, count[int]]"


class Xaes256Gcm:
    """C2SP XAES-256-GCM under a key of 32 bytes. It does not commit to the key.

    A nonce has 24 bytes. The first 12, the prefix, determine the AES key, and are shared by up to 2^24
    messages of one process: deriving the key costs ten times as much as sealing a short message. The last
    12 are random for each message. Under one prefix a nonce repeats with a probability of 2^-49. Two
    prefixes collide with the probability of two random numbers of 96 bits.
    """

    DESCRIPTION: ClassVar = "AES-256-GCM (C2SP XAES-256-GCM)"
    MAX_MESSAGES: Final = 1 << 24
    # How many ciphers of other processes' prefixes are kept, about 1 KiB each; a process seals under few.
    MAX_PREFIXES: Final = 128

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sealing: _Sealing | None = None
        self._ciphers: dict[bytes, AESGCM] = {}
        reset_in_child(self)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag: 40 bytes longer than ``data``."""
        sealing = self._sealing
        if sealing is None or next(sealing[2]) >= self.MAX_MESSAGES:
            sealing = self._draw()
        prefix, cipher, _ = sealing
        tail = _random(_HALF_BYTES)
        if len(data) < IN_PLACE_BYTES:
            return prefix + tail + cipher.encrypt(tail, data, context)
        made = BytesIO(bytes(len(data) + _XAES_OVERHEAD_BYTES))
        with made.getbuffer() as buffer:
            buffer[: 2 * _HALF_BYTES] = prefix + tail
            cipher.encrypt_into(tail, data, context, buffer[_BODY])
        return made.getvalue()

    def _draw(self) -> _Sealing:
        """Choose a prefix, and count its first message. Prefixes chosen by two threads are both valid."""
        prefix = _random(_HALF_BYTES)
        cipher = AESGCM(derive_xaes_key(self._key, prefix))
        self._sealing = prefix, cipher, count(1)
        return self._sealing

    def reset_after_fork(self) -> None:
        """Choose a new prefix for the next message.

        Parent and child process count separately, and together could exceed `MAX_MESSAGES` under one prefix.
        """
        self._sealing = None

    def open(self, blob: bytes, context: bytes) -> bytes:
        """Return the data."""
        size = len(blob)
        if size < _XAES_OVERHEAD_BYTES:
            raise _too_short(blob, _XAES_OVERHEAD_BYTES)
        prefix = blob[_PREFIX]
        known = self._ciphers.get(prefix)
        cipher = AESGCM(derive_xaes_key(self._key, prefix)) if known is None else known
        parts = blob if size < VIEW_BYTES else memoryview(blob)
        try:
            data = cipher.decrypt(parts[_TAIL], parts[_BODY], context)
        except InvalidTag:
            raise IntegrityError("sealed value does not open: authentication failed") from None
        if known is None:  # cached only after authentication, so that forged prefixes do not displace others
            if len(self._ciphers) >= self.MAX_PREFIXES:
                self._ciphers = {}  # replaced as a whole, which needs no lock
            self._ciphers[prefix] = cipher
        return data


# One suite under one key. `seal` authenticates data and context; `open` returns the data, or raises
# `SealedValueError` or `IntegrityError`. A suite has a DESCRIPTION, as reports name the algorithm.
Suite: TypeAlias = "Cobblestone256 | Xaes256Gcm | LegacyAes"

# The suites that seal, by their names in tags.
SUITES: Final[Mapping[str, type[Cobblestone256 | Xaes256Gcm]]] = {
    "cobblestone256": Cobblestone256,
    "xaes256gcm": Xaes256Gcm,
}


def make_suite(name: str, key: bytes) -> Suite:
    """Return the suite called ``name`` under ``key``."""
    if name == LEGACY:
        from sealpoint.seal.legacy import LegacyAes  # few need it; its imports are a third of the package's

        return LegacyAes(key)
    if name not in SUITES:
        known = ", ".join(sorted((LEGACY, *SUITES)))
        raise TagError(f"{excerpt(name)} is not a suite; known: {known}")
    return SUITES[name](key)
