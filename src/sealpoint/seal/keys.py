"""Keys: ids, states and their transitions, material, and the keys derived from a key.

States follow NIST SP 800-57 part 1, section 7:

    staged -> active <-> decrypt-only <-> disabled -> destroyed
    staged, decrypt-only, disabled <-> compromised -> destroyed

A compromised key can be disabled; enabling the key makes it compromised again. It never becomes active or
decrypt-only.

Every suite has its own subkey, HKDF-Expand-SHA512(key, "sealpoint v1 " + suite, 32) (RFC 5869, section 2.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, NoReturn

from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from sealpoint.errors import (
    KeyDestroyedError,
    KeyDisabledError,
    KeyIdError,
    KeyMaterialError,
    KeyRingError,
    KeyTransitionError,
    RingFileError,
    excerpt,
)

KEY_BYTES: Final = 32

LEGACY: Final = "aes"  # the suite of LANGGRAPH_AES_KEY, which only opens LangGraph's own rows
LEGACY_KEY_BYTES: Final = (16, 24, 32)

KEY_ID: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,23}")


def require_key_id(key_id: object) -> str:
    """Return ``key_id``, if it is 1 to 24 of ``a-z0-9.-``, and begins with a letter or a digit."""
    if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
        raise KeyIdError(f"{excerpt(key_id)} is not a key id")
    return key_id


class KeyState(Enum):
    """The state of a key: whether the key seals, only opens, or does neither.

    Example:
        >>> from sealpoint import KeyState
        >>> KeyState("decrypt-only").opens
        True
        >>> [state.value for state in KeyState.ACTIVE.transitions]
        ['decrypt-only']
    """

    STAGED = "staged"
    ACTIVE = "active"
    DECRYPT_ONLY = "decrypt-only"
    DISABLED = "disabled"
    COMPROMISED = "compromised"
    DESTROYED = "destroyed"

    @property
    def opens(self) -> bool:
        """Whether values under a key in this state may be opened."""
        return self not in (KeyState.DISABLED, KeyState.DESTROYED)

    @property
    def transitions(self) -> tuple[KeyState, ...]:
        """The states into which a key in this state can be changed directly."""
        return _TRANSITIONS[self]

    def reaches(self, to: KeyState) -> bool:
        """Whether ``to`` is this state, or a state that a key in this state can reach by any transitions."""
        found = {self}
        while more := {after for state in found for after in state.transitions} - found:
            found |= more
        return to in found


_TRANSITIONS: Final = {
    KeyState.STAGED: (KeyState.ACTIVE, KeyState.COMPROMISED, KeyState.DESTROYED),
    # Only promoting another key ends this state: no command leaves a ring without an active key.
    KeyState.ACTIVE: (KeyState.DECRYPT_ONLY,),
    # Disabled before destroyed: a row that was missed raises an error while `enable` can still undo it.
    KeyState.DECRYPT_ONLY: (KeyState.ACTIVE, KeyState.DISABLED, KeyState.COMPROMISED),
    KeyState.DISABLED: (KeyState.DECRYPT_ONLY, KeyState.COMPROMISED, KeyState.DESTROYED),
    KeyState.COMPROMISED: (KeyState.DISABLED, KeyState.DESTROYED),
    KeyState.DESTROYED: (),
}


def require_suite_state(key_id: str, suite: str | None, state: KeyState) -> None:
    """Refuse a state that is not valid for keys of ``suite``."""
    if suite == LEGACY and state in (KeyState.ACTIVE, KeyState.STAGED):
        raise KeyTransitionError(
            f"key {key_id!r}: a key for suite 'aes' cannot be {state.value}; it only opens",
            hint='give it state = "decrypt-only", and let another key be active',
        )


class NeverPickled:
    """Base class of objects with key material: they cannot be pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        hint = "load the ring again in each process; key material is never pickled"
        raise KeyRingError(f"{type(self).__name__} holds key material and is never pickled", hint=hint)


class Material(NeverPickled):
    """The bytes of one key, in memory. A subclass may load the bytes at their first use."""

    __slots__ = ("__weakref__", "_value", "is_slow", "loader")

    def __init__(self, value: bytes) -> None:
        """Keep the bytes of a key in memory."""
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
        """Return the bytes of the key; load them first if necessary."""
        return self.load()

    def load(self) -> bytes:
        """Return the bytes of the key. If these are not loaded, the calling thread reads their source."""
        return self._value or b""


def expand(key: bytes, purpose: str) -> bytes:
    """Derive 32 bytes for one purpose: HKDF-Expand-SHA512(key, "sealpoint v1 " + purpose, 32)."""
    # No extract step: a key is uniformly random already (RFC 5869, section 3.3).
    return HKDFExpand(SHA512(), KEY_BYTES, f"sealpoint v1 {purpose}".encode()).derive(key)


class KeyedHash:
    """Function that computes HMAC-SHA256 under one key; the key is prepared only once."""

    def __init__(self, key: bytes) -> None:
        self._prepared = HMAC(key, SHA256())

    def __call__(self, data: bytes) -> bytes:
        """Return the hash of ``data``, 32 bytes."""
        mac = self._prepared.copy()
        mac.update(data)
        return mac.finalize()


_LEGACY_HINT: Final = "LANGGRAPH_AES_KEY has 16, 24 or 32 characters"
_TEXT_HINT: Final = "pass the 32 bytes themselves: bytes.fromhex(TEXT) or base64.b64decode(TEXT) of a text"


def require_length(material: object, suite: str | None, what: str) -> bytes:
    """Return key material; raise if its length is not valid for ``suite``."""
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
        id: Public name, 1 to 24 of ``[a-z0-9.-]``; part of the tag of every value that the key sealed.
        state: What may be done with the key.
        created: When the key was made, if known.
        destroyed: When the key was destroyed, if that is known.
        suite: ``"aes"`` for LANGGRAPH_AES_KEY, whose rows name no key; else ``None``.
        compromised: When the key was marked as compromised, if that is known.
        lazy_material: The object that has or loads the key's bytes; ``None`` for a key without material.

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
            id: Public name of the key.
            material: 32 bytes; 16, 24 or 32 for ``suite="aes"``; empty for a destroyed key, optionally for
                a disabled key. Or a `Material` that loads the bytes.
            state: What may be done with the key.
            created: When the key was made.
            destroyed: When the key was destroyed.
            suite: ``"aes"`` for LANGGRAPH_AES_KEY.
            compromised: When the key was marked as compromised.

        Raises:
            KeyIdError: If ``id`` is not a key id.
            RingFileError: If ``suite`` is neither ``"aes"`` nor ``None``.
            KeyTransitionError: If a key for ``suite`` cannot be in ``state``.
            KeyMaterialError: If ``material`` is bytes of the wrong length.
            KeyRingError: If ``state`` is not a `KeyState`.
        """
        require_key_id(id)
        if suite not in (None, LEGACY):
            hint = "suite= is only for LANGGRAPH_AES_KEY, as suite='aes'; omit it for other keys"
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
            KeyRingError: If the source does not provide the bytes, or provides other bytes than before.
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
            compromised: When the key was marked as compromised; ``None`` keeps the key's own time.
        """
        material = b"" if self.lazy_material is None else self.lazy_material
        compromised = compromised or self.compromised
        return Key(self.id, material, state, self.created, self.destroyed, self.suite, compromised)

    def subkey(self, suite: str) -> bytes:
        """Return the subkey for ``suite``: 32 bytes derived from this key.

        For the suite ``aes`` the key's own bytes are returned.
        """
        return self.material if suite == LEGACY else expand(self.material, suite)

    def require_open(self) -> Key:
        """Return this key if values under it may be opened.

        Raises:
            KeyDisabledError: If the key is disabled.
            KeyDestroyedError: If the key was destroyed.
        """
        if self.state is KeyState.DISABLED:
            raise KeyDisabledError(f"key {self.id!r} is disabled")
        if self.state is KeyState.DESTROYED:
            at = self.destroyed
            at = at.astimezone(UTC) if at is not None and at.tzinfo else at
            when = f" at {at:%Y-%m-%dT%H:%M:%SZ}" if at else ""
            raise KeyDestroyedError(f"key {self.id!r} was destroyed{when}")
        return self


def _hold(key_id: str, material: bytes, state: KeyState, suite: str | None) -> Material | None:
    if material == b"" and not state.opens:
        return None
    if state is KeyState.DESTROYED:
        raise KeyMaterialError(f"key {key_id!r}: {len(material)} bytes of material instead of 0")
    return Material(require_length(material, suite, f"key {key_id!r}"))


def active_id(keys: Iterable[Any]) -> str | None:
    """Return the id of the active key of a ring, or of the entries of a ring file, or ``None``."""
    return next((str(key.id) for key in keys if key.state is KeyState.ACTIVE), None)


def require_consistent(keys: Sequence[Any], where: str = "a ring") -> None:
    """Refuse keys that cannot be in one ring, such as two active keys. ``where`` is the ring's name."""
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
            f"{where}: two keys are for suite 'aes', but its rows do not name the key that sealed them",
            hint="give each of them a ring of its own, and open its rows with that ring",
        )


# Pickles and messages name the classes by their former modules.
Key.__module__, KeyState.__module__ = "sealpoint.keys.key", "sealpoint.keys.state"
