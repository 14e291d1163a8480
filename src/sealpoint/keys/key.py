"""A key: its state, its material, and the keys derived from it.

Every suite has its own subkey, HKDF-Expand-SHA512(key, "sealpoint v1 " + suite, 32) (RFC 5869, section
2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from sealpoint.keys.state import (
    KEY_BYTES,
    LEGACY,
    LEGACY_KEY_BYTES,
    KeyState,
    require_key_id,
    require_suite_state,
)
from sealpoint.utc import format_utc

if TYPE_CHECKING:
    from datetime import datetime

    from sealpoint.keys.entry import RingEntry


class NeverPickled:
    """Base class of objects with key material: they cannot be pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        hint = "load the ring in the other process; key material is never pickled"
        raise KeyRingError(f"{type(self).__name__} holds key material and is never pickled", hint=hint)


class Material(NeverPickled):
    """The bytes of one key, in memory. A subclass loads them at first use."""

    __slots__ = ("__weakref__", "_value", "is_slow", "loader")

    def __init__(self, value: bytes) -> None:
        """Hold the bytes."""
        self._value: bytes | None = value
        self.is_slow = False  # whether loading may wait for another program or a network
        self.loader: Callable[[], bytes] | None = None

    def __repr__(self) -> str:
        return f"Material({'loaded' if self.is_loaded else 'not loaded'})"

    @property
    def is_loaded(self) -> bool:
        """Whether the bytes are in memory."""
        return self._value is not None

    def get(self) -> bytes:
        """Return the bytes; load them first if necessary."""
        return self.load()

    def load(self) -> bytes:
        """Return the bytes. If they are not loaded, the calling thread reads the source."""
        return self._value or b""


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
    return Material(require_length(material, suite, f"key {key_id!r}"))


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
