"""RingCipher: the only place that seals or opens."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import Final

from sealpoint.crypto.context import PackedRow, Row
from sealpoint.crypto.kinds import PICKLE
from sealpoint.crypto.prepared import Opened, PreparedRing, parse_tag
from sealpoint.crypto.stats import CipherStats, CipherTally
from sealpoint.crypto.suites import SUITES
from sealpoint.crypto.tag import is_sealed
from sealpoint.errors import (
    BlobError,
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    PlaintextError,
    SealpointError,
    TagError,
    UnknownKeyError,
    UnknownSuiteError,
    UnknownTypeError,
    excerpt,
)
from sealpoint.keys.material import NeverPickled
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.stats import Reloads, RingStats, source_stats
from sealpoint.keys.watch import ANY_LEGACY, LOOK_SECONDS, SEALING, Follower

# Errors that a newer ring file may resolve: the key is unknown, not usable, or there is no key to seal with.
_RETRY_AFTER_RELOAD: Final = (UnknownKeyError, KeyDisabledError, KeyDestroyedError, NoActiveKeyError)


class _NoType(str):
    """The type name of bytes that have none. `RingCipher.seal` refuses any other empty name."""

    __slots__ = ()


_NO_TYPE: Final = _NoType()


class RingCipher(NeverPickled):
    """Seals with the ring's active key and opens with the key that a tag names.

    Never falls back: an unknown key, suite or flag, a missing row or secret, and every
    failed authentication each raise an error of their own. Safe to share between threads.

    If the ring was loaded from a file, the cipher follows that file: see `sealpoint.keys.watch`. A call
    that seals or opens checks the file every few seconds, and at once if a value needs a key that is
    unknown or not usable. The call that finds a change reads the file. Commands run in separate threads; a
    call waits for one only if it needs a key whose material was never loaded.

    Attributes:
        suite: The suite to seal with.
        tally: Its counters; serializers and savers that use it add theirs. `stats` shows them.
    """

    def __init__(self, ring: KeyRing, suite: str = "cobblestone256", *, follow: bool = True) -> None:
        """Make a cipher.

        Args:
            ring: The keys to open with; sealing needs an active key.
            suite: The suite to seal with: ``cobblestone256`` or ``xaes256gcm``.
            follow: Whether to reload the ring's file, if there is one, when it changes.

        Raises:
            UnknownSuiteError: If values cannot be sealed in ``suite``.
        """
        if suite not in SUITES:
            raise UnknownSuiteError(f"{excerpt(suite)} cannot seal; known: {', '.join(sorted(SUITES))}")
        self.suite = suite
        self.tally = CipherTally()
        self._prepared = PreparedRing(ring, suite, self.tally)  # replaced as a whole, which needs no lock
        self._reloads = Reloads()
        self._follower: Follower | None = None
        self._look_at = inf
        if follow and ring.origin is not None:
            self._follower = Follower(ring, ring.origin, self._put, self._reloads)
            self._look_at = monotonic() + LOOK_SECONDS

    def __repr__(self) -> str:
        return f"RingCipher({self.ring!r}, suite={self.suite!r})"

    @property
    def ring(self) -> KeyRing:
        """The ring in use."""
        return self._prepared.ring

    def stats(self) -> CipherStats:
        """Return what this cipher has counted, and which ring it uses, for monitoring."""
        ring, reloads = self.ring, self._reloads
        active = None if ring.active_id is None else ring.get_key(ring.active_id)
        return self.tally.stats(
            RingStats(
                active_id=ring.active_id,
                active_created=None if active is None else active.created,
                read_at=reloads.read_at,
                reloads=reloads.reloads,
                refused=reloads.refused,
                error=reloads.error,
            ),
            source_stats(),
        )

    def seal(
        self, inner: str, data: bytes, *, row: Row | PackedRow | None = None, secret: bytes | None = None
    ) -> tuple[str, bytes]:
        """Seal one value.

        Args:
            inner: Type name from the serializer, e.g. ``msgpack``.
            data: The serializer's bytes.
            row: Coordinates of the row to bind the value to; ``None`` for no row, ``{}`` for a row without
                coordinates.
            secret: Secret of the thread, 32 bytes, mixed into the key.

        Returns:
            The tag for the `type` column, at most 64 characters, and the sealed bytes.

        Raises:
            NoActiveKeyError: If the ring has no active key.
            TagError: If ``inner`` cannot be part of a tag.
        """
        try:
            if not inner and inner is not _NO_TYPE:
                raise TagError("a value without a type name cannot be sealed")
            if self._follower is not None and monotonic() >= self._look_at:
                self._look()
            prepared = self._prepared
            try:
                return prepared.seal(inner, data, row, secret)
            except _RETRY_AFTER_RELOAD:
                newer = self._newer_than(prepared, SEALING)
                if newer is prepared:
                    raise
            return newer.seal(inner, data, row, secret)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def open(
        self, tag: str, blob: bytes, *, row: Row | PackedRow | None = None, secret: bytes | None = None
    ) -> Opened:
        """Open one value.

        Args:
            tag: The whole text of the `type` column.
            blob: The sealed bytes.
            row: The same coordinates as at sealing, ``None`` if there were none.
            secret: The same secret as at sealing, ``None`` if there was none.

        Returns:
            The inner type name and the serializer's bytes, whether both are authenticated, and by which key.

        Raises:
            TagError: If ``tag`` is not a valid type tag (or one of its subclasses, for suite and flags).
            BlobError: If ``blob`` is not bytes, or too short.
            UnknownKeyError, KeyDisabledError, KeyDestroyedError: If the key is not available.
            RowMissingError, UnboundValueError: If only one of tag and call has a row.
            SecretMissingError, UnexpectedSecretError: If only one of tag and call has a secret.
            LegacyTypeError: If a row under LANGGRAPH_AES_KEY names a type it may not have.
            IntegrityError: If the bytes, the tag, the key or the row differ from those that were sealed.
        """
        try:
            if type(blob) is not bytes:
                raise BlobError(f"sealed value is {type(blob).__name__}, not bytes")
            if type(tag) is not str:
                raise TagError(f"{excerpt(tag)} is not a type tag")
            if self._follower is not None and monotonic() >= self._look_at:
                self._look()
            prepared = self._prepared
            try:
                return prepared.open(tag, blob, row, secret)
            except _RETRY_AFTER_RELOAD:
                newer = self._newer_than(prepared, parse_tag(tag).key_id or ANY_LEGACY)
                if newer is prepared:
                    raise
            return newer.open(tag, blob, row, secret)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def reseal(
        self,
        tag: str,
        blob: bytes,
        *,
        row: Row | PackedRow | None = None,
        secret: bytes | None = None,
        allow_plaintext: bool = False,
    ) -> tuple[str, bytes]:
        """Open one value and seal it again under the active key and in this cipher's suite.

        Type, bytes, row and secret are unchanged, and the bytes are not examined. The type of a row under
        LANGGRAPH_AES_KEY and a plaintext value are not authenticated: they are sealed as they are, and
        count as authentic afterwards.

        Args:
            tag: The whole text of the `type` column.
            blob: The bytes beside it.
            row: Coordinates of the row; used only if ``tag`` says that the value is bound to its row.
            secret: Secret of the thread; used only if ``tag`` says that it is mixed into the key.
            allow_plaintext: Whether to seal a value that is not sealed.

        Returns:
            The new tag and the new bytes.

        Raises:
            PlaintextError: If the value is not sealed, and plaintext is not allowed.
            UnknownTypeError: If it is an unsealed pickle.
            RowMissingError, SecretMissingError: If ``tag`` needs a row or a secret that is not given.
            SealedValueError, KeyRingError: As `open` and `seal`.
        """
        try:
            return self._reseal(tag, blob, row, secret, allow_plaintext)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def _reseal(
        self, tag: str, blob: bytes, row: Row | PackedRow | None, secret: bytes | None, allow_plaintext: bool
    ) -> tuple[str, bytes]:
        if type(tag) is not str:
            raise TagError(f"{excerpt(tag)} is not a type tag")
        if not is_sealed(tag):
            return self._seal_plaintext(tag, blob, allow_plaintext)
        flags = parse_tag(tag).flags
        row = row if "row" in flags else None
        secret = secret if "dek" in flags else None
        opened = self.open(tag, blob, row=row, secret=secret)
        return self.seal(opened.inner, opened.data, row=row, secret=secret)

    def forget_secret(self, secret: bytes) -> None:
        """Remove a thread's secret, and every key derived from it, from the caches.

        A call with this secret that is still running, or begins later, derives them again.

        Args:
            secret: 32 bytes; a secret that was never used is not an error.
        """
        self._prepared.forget_secret(secret)

    def _seal_plaintext(self, tag: str, blob: bytes, allowed: bool) -> tuple[str, bytes]:
        if not allowed:
            raise PlaintextError(f"value of type {excerpt(tag)} is not sealed")
        if tag == PICKLE:
            raise UnknownTypeError("a pickle that is not sealed is not read")
        if type(blob) is not bytes:
            raise BlobError(f"value is {type(blob).__name__}, not bytes")
        return self.seal(tag, blob)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Seal bytes without a type, for code that uses LangGraph's ``CipherProtocol``.

        Returns:
            ``<suite>@<key id>`` and the sealed bytes. The type that such code writes before the name is not
            authenticated; `EncryptedSerializer` authenticates it.
        """
        tag, blob = self.seal(_NO_TYPE, plaintext)
        return tag[1:], blob

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Open what `encrypt` sealed. Raises as `open` does."""
        return self.open(f"+{ciphername}", ciphertext).data

    def _look(self) -> None:
        self._look_at = monotonic() + LOOK_SECONDS  # first, so that other threads do not check the file too
        if self._follower is not None and not self._follower.look(wait=False):
            self._look_at = 0.0  # the thread that loads keys had the lock for a moment: the next call checks

    def _newer_than(self, prepared: PreparedRing, need: str) -> PreparedRing:
        """Check the ring file, and return the ring in use: ``prepared`` if nothing has changed.

        Waits while a command that prints the material of the needed key runs.
        """
        if self._follower is not None:
            if self._prepared is prepared:
                self._follower.look(wait=True)
            self._follower.wait_for(need)
        return self._prepared

    def _put(self, ring: KeyRing) -> None:
        self._prepared = PreparedRing(ring, self.suite, self.tally)
