"""RingCipher: a cipher that counts its operations, and reloads its ring file when the file changes.

Sealing and opening are in `sealpoint.seal.cipher`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final, TypeVar

from sealpoint.crypto.zstd import compress as compressed
from sealpoint.crypto.zstd import zstd_for
from sealpoint.errors import (
    ConfigError,
    KeyDestroyedError,
    KeyDisabledError,
    NoActiveKeyError,
    SealedValueError,
    SealpointError,
    TagError,
    UnknownKeyError,
    excerpt,
    require_is,
)
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.stats import Reloads, RingStats, SourceStats, Tally, source_stats
from sealpoint.keys.watch import ANY_LEGACY, LOOK_SECONDS, SEALING, Follower
from sealpoint.seal.cipher import OPENED, OPENED_RETIRED, SEALED, Opened, PreparedRing, parse_tag
from sealpoint.seal.context import PackedRow, Row
from sealpoint.seal.keys import NeverPickled
from sealpoint.seal.suites import SUITES

E = TypeVar("E", bound=SealpointError)

PLAINTEXT: Final = "plaintext"
UNBOUND: Final = "unbound"
REFUSED: Final = "refused"
TOLERATED: Final = "tolerated"


@dataclass(frozen=True, slots=True)
class CipherStats:
    """Counters of a cipher, and of the serializers and savers that use it, since the cipher was created.

    The object contains numbers, ids of keys, names of error classes and times: no material, path or message.
    Each number is exact, over all threads and rings, but the numbers are not read at the same moment.

    Attributes:
        sealed: Number of values that were sealed, by key id.
        opened: Number of values that were opened, by key id.
        opened_retired: Number of values that were opened while their key was ``decrypt-only`` or
            ``compromised``, by key id.
        plaintext: Number of unsealed values that were read, with ``plaintext="allow"``.
        unbound: Number of calls of ``put`` and ``put_writes`` whose rows a `SealedSaver` with
            ``allow_write_with`` stored unbound, and unsealed unless that serializer seals.
        refused: Number of calls that raised an error instead of returning or storing a value, by class of the
            error, without errors in the arguments of a call (`ConfigError`).
        tolerated: Number of errors that ``heads="warn"`` logged instead of raising, by class of the error.
        ring: The ring in use.
        sources: Statistics of this process about slow sources of keys: how often they were read.
    """

    sealed: Mapping[str, int]
    opened: Mapping[str, int]
    opened_retired: Mapping[str, int]
    plaintext: int
    unbound: int
    refused: Mapping[str, int]
    tolerated: Mapping[str, int]
    ring: RingStats
    sources: SourceStats


class CipherTally(Tally):
    """The counters of one cipher; the serializers and savers that use it count here, too."""

    def refuse(self, error: E) -> E:
        """Count an error that is about to be raised, and return it. Each error is counted only once."""
        if not error.is_counted and not isinstance(error, ConfigError):
            error.is_counted = True
            self.add(REFUSED, type(error).__name__)
        return error

    def __enter__(self) -> None:
        """Count the error that a ``with`` block raises, as `refuse` does."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, SealpointError):
            self.refuse(error)

    def tolerate(self, error: SealpointError) -> None:
        """Count an error that is logged and not raised."""
        self.add(TOLERATED, type(error).__name__)


# Errors that a newer ring file may resolve: the key is unknown, not usable, or there is no key to seal with.
_RETRY_AFTER_RELOAD: Final = (UnknownKeyError, KeyDisabledError, KeyDestroyedError, NoActiveKeyError)


class _NoType(str):
    """The empty type name of bytes without a type. `RingCipher.seal` refuses any other empty name."""

    __slots__ = ()


_NO_TYPE: Final = _NoType()


class RingCipher(NeverPickled):
    """Seals with the ring's active key and opens with the key that a tag names.

    Never falls back: an unknown key, suite or flag, a missing ``row``, and every failed authentication each
    raise an error of their own. Safe to share between threads.

    If the ring was loaded from a file, the cipher follows that file: see `sealpoint.keys.watch`. A call
    that seals or opens checks the file every few seconds, and at once if a value needs a key that is
    unknown or not usable. The call that finds a change reads the file. Commands that print keys run in
    separate threads; a call waits for a command only if it needs a key whose material was never loaded.

    Attributes:
        suite: The suite to seal with.
        tally: Counters of this cipher, and of serializers and savers that use it; `stats` returns them.

    Example:
        >>> from sealpoint import KeyRing, RingCipher
        >>> cipher = RingCipher(KeyRing.load("keys.toml"))
        >>> tag, blob = cipher.seal("bytes", b"a secret")
        >>> tag
        'bytes+cobblestone256@k1'
        >>> cipher.open(tag, blob).data
        b'a secret'
        >>> cipher.stats().opened
        {'k1': 1}
    """

    def __init__(self, ring: KeyRing, suite: str = "cobblestone256", *, follow: bool = True) -> None:
        """Make a cipher.

        Args:
            ring: The keys to open with; sealing needs an active key.
            suite: The suite to seal with: ``cobblestone256`` or ``xaes256gcm``.
            follow: Whether to reload the ring's file, if there is one, when it changes.

        Raises:
            ConfigError: If ``ring`` is not a ring.
            TagError: If ``suite`` is unknown, or only opens.
        """
        require_is(ring, KeyRing, "ring", "load one: KeyRing.load(PATH)")
        if suite not in SUITES:
            raise TagError(f"{excerpt(suite)} cannot seal; known: {', '.join(sorted(SUITES))}", hint="")
        self.suite = suite
        self.tally = CipherTally()
        self._put(ring)
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
        """Return the counters of this cipher, and the ring that it uses, for monitoring."""
        ring, reloads = self.ring, self._reloads
        active = None if ring.active_id is None else ring.get_key(ring.active_id)
        return CipherStats(
            sealed=self.tally.read(SEALED),
            opened=self.tally.read(OPENED, OPENED_RETIRED),
            opened_retired=self.tally.read(OPENED_RETIRED),
            plaintext=self.tally.read(PLAINTEXT).get("", 0),
            unbound=self.tally.read(UNBOUND).get("", 0),
            refused=self.tally.read(REFUSED),
            tolerated=self.tally.read(TOLERATED),
            ring=RingStats(
                active_id=ring.active_id,
                active_created=None if active is None else active.created,
                read_at=reloads.read_at,
                reloads=reloads.reloads,
                refused=dict(reloads.refused),
                error=reloads.error,
            ),
            sources=source_stats(),
        )

    def seal(
        self,
        inner: str,
        data: bytes,
        *,
        row: Row | PackedRow | None = None,
        compress: bool = False,
    ) -> tuple[str, bytes]:
        """Seal one value.

        Args:
            inner: Type name from the serializer, e.g. ``msgpack``.
            data: The serializer's bytes.
            row: Coordinates of the row to bind the value to; ``None`` for no row, ``{}`` for a row without
                coordinates.
            compress: Whether to compress ``data`` first, if that saves at least a tenth of its bytes.

        Returns:
            The tag for the `type` column, at most 64 characters, and the sealed bytes.

        Raises:
            NoActiveKeyError: If the ring has no active key.
            TagError: If ``inner`` cannot be part of a tag.
            MissingExtraError: If ``compress`` is on, and there is no module for zstd.
        """
        try:
            if not inner and inner is not _NO_TYPE:
                raise TagError("a value without a type name cannot be sealed")
            if self._follower is not None and monotonic() >= self._look_at:
                self._look()
            prepared, frame = self._prepared, compressed(data) if compress else None
            try:
                return prepared.seal(inner, data, row, frame)
            except _RETRY_AFTER_RELOAD:
                newer = self._newer_than(prepared, SEALING)
                if newer is prepared:
                    raise
            return newer.seal(inner, data, row, frame)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def open(self, tag: str, blob: bytes, *, row: Row | PackedRow | None = None) -> Opened:
        """Open one value.

        Args:
            tag: The whole text of the `type` column.
            blob: The sealed bytes.
            row: The coordinates that were given to `seal`, or ``None`` if none were given.

        Returns:
            The inner type name and the serializer's bytes, whether both are authenticated, and by which key.

        Raises:
            TagError: If ``tag`` is not a valid type tag.
            SealedValueError: If ``blob`` is not bytes, or too short.
            UnknownKeyError, KeyDisabledError, KeyDestroyedError: If the key is not available.
            ContextMissingError, UnboundValueError: If only the tag has ``.row``, or only ``row`` is given.
            UnknownTypeError: If a value under LANGGRAPH_AES_KEY has a type that is not read from such values.
            IntegrityError: If the bytes, the tag, the key or the row differ from those that were sealed.
        """
        try:
            if type(blob) is not bytes:
                raise SealedValueError(f"sealed value is {type(blob).__name__}, not bytes")
            if type(tag) is not str:
                raise TagError(f"{excerpt(tag)} is not a type tag")
            if self._follower is not None and monotonic() >= self._look_at:
                self._look()
            prepared = self._prepared
            try:
                return prepared.open(tag, blob, row)
            except _RETRY_AFTER_RELOAD:
                newer = self._newer_than(prepared, parse_tag(tag).key_id or ANY_LEGACY)
                if newer is prepared:
                    raise
            return newer.open(tag, blob, row)
        except SealpointError as error:
            self.tally.refuse(error)
            raise

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Seal bytes without a type, for code that uses LangGraph's ``CipherProtocol``.

        Args:
            plaintext: Any bytes.

        Returns:
            ``<suite>@<key id>`` and the sealed bytes. Such code writes the type before this name and does not
            authenticate the type; `EncryptedSerializer` does.
        """
        tag, blob = self.seal(_NO_TYPE, plaintext)
        return tag[1:], blob

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Open what `encrypt` sealed. Raises as `open` does.

        Args:
            ciphername: ``<suite>@<key id>``, as `encrypt` returned it.
            ciphertext: The sealed bytes.
        """
        return self.open(f"+{ciphername}", ciphertext).data

    def _look(self) -> None:
        self._look_at = monotonic() + LOOK_SECONDS  # first, so that other threads do not check the file too
        if self._follower is not None and not self._follower.look(wait=False):
            self._look_at = 0.0  # the thread that loads keys had the lock for a moment: the next call checks

    def _newer_than(self, prepared: PreparedRing[KeyRing], need: str) -> PreparedRing[KeyRing]:
        """Check the ring file, and return the ring in use: ``prepared`` if nothing has changed.

        Waits for a command that prints the material of the needed key.
        """
        if self._follower is not None:
            if self._prepared is prepared:
                self._follower.look(wait=True)
            self._follower.wait_for(need)
        return self._prepared

    def _put(self, ring: KeyRing) -> None:
        # Replaced as a whole, which needs no lock.
        counter = self.tally.counter
        self._prepared: PreparedRing[KeyRing] = PreparedRing(ring, self.suite, counter, zstd_for)
