"""A key: its state, its material, and the keys derived from it.

Material is parsed from text, loaded at first use, and never pickled or shown.

Every suite has its own subkey, HKDF-Expand-SHA512(key, "sealpoint v1 " + suite, 32) (RFC 5869, section
2.3).
"""

from __future__ import annotations

import base64
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, NoReturn

from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sealpoint.errors import (
    KeyDestroyedError,
    KeyDisabledError,
    KeyIdError,
    KeyMaterialError,
    KeyRingError,
    RingFileError,
    excerpt,
)
from sealpoint.forks import reset_in_child
from sealpoint.keys.state import (
    KEY_BYTES,
    LEGACY,
    LEGACY_KEY_BYTES,
    KeyState,
    require_key_id,
    require_suite_state,
)
from sealpoint.keys.stats import FAILED, READ, tally
from sealpoint.utc import format_utc

if TYPE_CHECKING:
    from datetime import datetime

    from sealpoint.keys.entry import RingEntry


RETRY_SECONDS: Final = 30.0  # how long a failed source is not read again

logger: Final = logging.getLogger("sealpoint.keys")


class NeverPickled:
    """Base class of objects with key material: they cannot be pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        hint = "load the ring in the other process; key material is never pickled"
        raise KeyRingError(f"{type(self).__name__} holds key material and is never pickled", hint=hint)


class Material(NeverPickled):
    """The material of one key, loaded once from its source at first use. Safe to share between threads.

    Material from a slow source is loaded by a separate thread; a caller that needs it waits. After a
    failure the source is not read again for `RETRY_SECONDS`: until then every use raises the same error.
    """

    __slots__ = ("__weakref__", "_error", "_lock", "_retry_at", "_thread", "_value", "is_slow", "loader")

    def __init__(
        self, loader: Callable[[], bytes] | None, value: bytes | None = None, *, is_slow: bool = False
    ) -> None:
        """Create material, without loading it.

        Args:
            loader: Reads the material, or raises `KeyRingError`. Equal loaders read equal material.
            value: The material, if there is no loader.
            is_slow: Whether loading may wait for another program or a network.
        """
        self.loader = loader
        self.is_slow = is_slow
        self._value = value
        self._error: KeyRingError | None = None
        self._retry_at = 0.0
        self._lock = Lock()
        self._thread: Thread | None = None
        reset_in_child(self)

    def __repr__(self) -> str:
        return f"Material({'loaded' if self.is_loaded else 'not loaded'})"

    @property
    def is_loaded(self) -> bool:
        """Whether the bytes are in memory."""
        return self._value is not None

    def get(self) -> bytes:
        """Return the bytes; load them first if necessary."""
        if self._value is None and self.is_slow and not self._has_failed():
            self.start().join()
        return self.load()

    def load(self) -> bytes:
        """Return the bytes. If they are not loaded, the calling thread reads the source."""
        with self._lock:
            if self._value is None and self.loader is not None:
                if self._error is not None and self._has_failed():
                    # A new instance: threads that raise the same one would extend the same traceback.
                    raise type(self._error)(*self._error.args, hint=self._error.hint)
                if self.is_slow:
                    tally.add(READ, "")
                try:
                    self._value = self.loader()
                except KeyRingError as error:
                    self._error, self._retry_at = error, monotonic() + RETRY_SECONDS
                    if self.is_slow:
                        tally.add(FAILED, type(error).__name__)
                    raise
            return self._value or b""

    def start(self) -> Thread:
        """Return the thread that loads the bytes; start one if none is running."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            thread = self._thread = Thread(target=self.try_load, name="sealpoint-key", daemon=True)
            thread.start()
        return thread

    def try_load(self) -> None:
        """Load the bytes, and log the problem if they are not available."""
        try:
            self.load()
        except KeyRingError as error:
            logger.warning("key material is not available: %s", error)

    def _has_failed(self) -> bool:
        return self._error is not None and monotonic() < self._retry_at

    def reset_after_fork(self) -> None:
        """Release the lock of a thread that does not exist in this process."""
        self._lock = Lock()
        self._thread = None


class Background:
    """Loads material in one thread of the process, so that the first value under a key need not wait.

    One thread for all keys: a host with many old keys makes one request at a time. A value that is to be
    opened does not wait for it, but has its key loaded by another thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting = deque[Material]()
        self._is_running = False
        reset_in_child(self)

    def load(self, materials: Iterable[Material]) -> None:
        """Load material soon. A failure is logged once, and raised when the key is used."""
        with self._lock:
            self._waiting.extend(materials)
            if not self._waiting or self._is_running:
                return
            self._is_running = True
        Thread(target=self._run, name="sealpoint-key", daemon=True).start()

    def _run(self) -> None:
        try:
            while (material := self._next()) is not None:
                material.try_load()
        except BaseException:
            with self._lock:
                self._is_running = False
            raise

    def _next(self) -> Material | None:
        with self._lock:
            self._is_running = bool(self._waiting)
            return self._waiting.popleft() if self._waiting else None

    def reset_after_fork(self) -> None:
        """Forget the thread, which does not exist in this process, and what it was to load."""
        self._lock = Lock()
        self._waiting.clear()
        self._is_running = False


background: Final = Background()


def parse_material(text: bytes, what: str) -> bytes:
    """Parse 32 raw bytes, or base64 or hex of them with an optional newline."""
    # Before a newline is removed: the last of 32 raw bytes can be one.
    if len(text) == KEY_BYTES:
        return text
    line = text.removesuffix(b"\n").removesuffix(b"\r")
    if line != line.strip():
        hint = "remove the white space; one newline at the end is all that may follow the key"
        raise KeyMaterialError(f"{what}: key material has white space at its ends", hint=hint)
    with suppress(ValueError):
        # 64 hex digits are valid base64 as well, of 48 bytes: hex is tried first.
        data = bytes.fromhex(line.decode("ascii", "replace")) if len(line) == 2 * KEY_BYTES else None
        data = base64.b64decode(line, validate=True) if data is None else data
        if len(data) == KEY_BYTES:
            return data
    raise KeyMaterialError(f"{what}: expected {KEY_BYTES} bytes, or their base64 or hex; got {len(text)}")


def expand(key: bytes, purpose: str) -> bytes:
    """Derive 32 bytes for one purpose: HKDF-Expand-SHA512(key, "sealpoint v1 " + purpose, 32)."""
    # No extract step: a key is uniformly random already (RFC 5869, section 3.3).
    return HKDFExpand(SHA512(), KEY_BYTES, f"sealpoint v1 {purpose}".encode()).derive(key)


class KeyedHash:
    """HMAC-SHA256 under one key, which is prepared once."""

    def __init__(self, key: bytes) -> None:
        self._prepared = HMAC(key, SHA256())

    def __call__(self, data: bytes) -> bytes:
        """Return the hash of ``data``, 32 bytes."""
        mac = self._prepared.copy()
        mac.update(data)
        return mac.finalize()


def check_value(key: bytes) -> str:
    """Return eight hex digits that identify a key and reveal nothing else about it.

    Args:
        key: Its bytes.

    Example:
        >>> from sealpoint.crypto import check_value
        >>> check_value(bytes(32))
        '229a393f'
    """
    # 32 bits detect a swapped or damaged file. An attacker can find another key with the same 32 bits.
    return expand(key, "check")[:4].hex()


_LEGACY_HINT: Final = "LANGGRAPH_AES_KEY has 16, 24 or 32 characters"
_TEXT_HINT: Final = "pass the 32 bytes themselves: bytes.fromhex(TEXT) or base64.b64decode(TEXT) of a text"


def require_length(material: object, suite: str | None, what: str) -> bytes:
    """Return key material."""
    hint = _LEGACY_HINT if suite else _TEXT_HINT
    if not isinstance(material, bytes):
        raise KeyMaterialError(f"{what}: material is {type(material).__name__}, not bytes", hint=hint)
    lengths = LEGACY_KEY_BYTES if suite == LEGACY else (KEY_BYTES,)
    if len(material) not in lengths:
        raise KeyMaterialError(
            f"{what}: {len(material)} bytes of material instead of {' or '.join(map(str, lengths))}",
            hint=hint,
        )
    return material


@dataclass(frozen=True, slots=True, repr=False, eq=False, init=False)
class Key(NeverPickled):
    """A key of a ring.

    Attributes:
        id: Public name, 1 to 24 of ``[a-z0-9.-]``; part of the tag of every value that it sealed.
        state: What may be done with it.
        created: When it was made, if known.
        destroyed: When it was destroyed, if that is known.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY, whose rows name no key; else ``None``.
        compromised: When it was marked as compromised, if that is known.
        lazy_material: The key's bytes, or what loads them; ``None`` for a key without material.

    Example:
        >>> import secrets
        >>> from sealpoint import Key, KeyRing, KeyState
        >>> key = Key("k1", secrets.token_bytes(32), KeyState.ACTIVE)
        >>> KeyRing([key]).active_id
        'k1'
    """

    id: str
    state: KeyState
    created: datetime | None
    destroyed: datetime | None
    suite: str | None
    compromised: datetime | None
    lazy_material: Material | None

    def __init__(
        self,
        id: str,  # noqa: A002 -- the attribute's name
        material: bytes | Material,
        state: KeyState,
        created: datetime | None = None,
        destroyed: datetime | None = None,
        suite: str | None = None,
        compromised: datetime | None = None,
    ) -> None:
        """Make a key.

        Args:
            id: Its public name.
            material: 32 bytes; 16, 24 or 32 for ``suite="aes"``; empty for a destroyed key, optionally for
                a disabled one. Or an object that loads them.
            state: What may be done with it.
            created: When it was made.
            destroyed: When it was destroyed.
            suite: ``"aes"`` for LANGGRAPH_AES_KEY.
            compromised: When it was found to be compromised.

        Raises:
            KeyIdError: If ``id`` is not a key id.
            RingFileError: If ``suite`` is another suite.
            KeyTransitionError: If a key for ``suite`` cannot be in ``state``.
            KeyMaterialError: If ``material`` is bytes of the wrong length.
            KeyRingError: If ``state`` is not a `KeyState`.
        """
        require_key_id(id)
        if suite not in (None, LEGACY):
            hint = "name a suite only for LANGGRAPH_AES_KEY: 'aes'"
            raise RingFileError(f"key {id!r}: suite is {excerpt(suite)}", hint=hint)
        if not isinstance(state, KeyState):
            raise KeyRingError(f"key {id!r}: state is {type(state).__name__}, not KeyState")
        require_suite_state(id, suite, state)
        held = material if isinstance(material, Material) else _hold(id, material, state, suite)
        fields = (id, state, created, destroyed, suite, compromised, held)
        for name, value in zip(self.__dataclass_fields__, fields, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Key(id={self.id!r}, state={self.state.value!r})"

    @property
    def material(self) -> bytes:
        """The bytes of the key, loaded at first use; empty for a key without material.

        Raises:
            KeyRingError: If its source does not provide them, or provides others.
        """
        return b"" if self.lazy_material is None else self.lazy_material.get()

    @property
    def is_compromised(self) -> bool:
        """Whether the key was ever marked as compromised, even if it is disabled now."""
        return self.state is KeyState.COMPROMISED or self.compromised is not None

    def with_state(self, state: KeyState, compromised: datetime | None = None) -> Key:
        """Return the key with the same material in another state.

        Args:
            state: The new state.
            compromised: When it was marked as compromised; ``None`` leaves what the key says.
        """
        material = b"" if self.lazy_material is None else self.lazy_material
        compromised = compromised or self.compromised
        return Key(self.id, material, state, self.created, self.destroyed, self.suite, compromised)

    def subkey(self, suite: str) -> bytes:
        """Return the key that ``suite`` uses: 32 bytes derived from this one.

        The legacy suite uses its key as it is.
        """
        return self.material if suite == LEGACY else expand(self.material, suite)

    def require_open(self) -> Key:
        """Return the key if values under it may be opened.

        Raises:
            KeyDisabledError: If it is disabled.
            KeyDestroyedError: If it was destroyed.
        """
        if self.state is KeyState.DISABLED:
            raise KeyDisabledError(f"key {self.id!r} is disabled")
        if self.state is KeyState.DESTROYED:
            when = f" at {format_utc(self.destroyed)}" if self.destroyed else ""
            raise KeyDestroyedError(f"key {self.id!r} was destroyed{when}")
        return self


def _hold(key_id: str, material: bytes, state: KeyState, suite: str | None) -> Material | None:
    if material == b"" and not state.opens:
        return None
    if state is KeyState.DESTROYED:
        raise KeyMaterialError(f"key {key_id!r}: {len(material)} bytes of material instead of 0")
    return Material(None, require_length(material, suite, f"key {key_id!r}"))


def active_id(keys: Iterable[Key] | Iterable[RingEntry]) -> str | None:
    """Return the id of the active key, if there is one."""
    return next((key.id for key in keys if key.state is KeyState.ACTIVE), None)


def require_consistent(keys: Sequence[Key] | Sequence[RingEntry], where: str = "a ring") -> None:
    """Refuse keys that cannot be in one ring. ``where`` names the ring in the message."""
    ids = [key.id for key in keys]
    if len(set(ids)) < len(ids):
        raise KeyIdError(f"{where}: two keys are called {max(ids, key=ids.count)!r}")
    active = [key.id for key in keys if key.state is KeyState.ACTIVE]
    if len(active) > 1:
        raise RingFileError(
            f"{where}: {len(active)} keys are active: {', '.join(active)}",
            hint="exactly one key has state = \"active\", and 'active' names it",
        )
    if sum(key.suite == LEGACY for key in keys) > 1:
        raise KeyRingError(
            f"{where}: two keys are for suite 'aes', whose rows do not say which of them sealed them",
            hint="give each of them a ring of its own, and open its rows with that ring",
        )
