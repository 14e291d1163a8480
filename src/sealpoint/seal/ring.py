"""Ring: the keys that a process may use, and the check that a reloaded ring may replace the ring in use.

At most one key seals; the others only open. A ring that is older than the ring in use, or a different ring,
is refused: see `require_later`.

If the bytes of a key change under the same id, the process notices this if it has loaded the earlier bytes,
of which it keeps a hash. Bytes that were never loaded have no hash, so the bytes of a corrected source are
accepted: this process has sealed and opened nothing with the earlier bytes, and a source that never worked
must be correctable. The first loading compares the bytes with ``check`` in the key's ring entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hmac import compare_digest
from typing import TypeVar

from sealpoint.errors import NoActiveKeyError, RingRollbackError, UnknownKeyError, require_is
from sealpoint.seal.keys import (
    LEGACY,
    Key,
    Material,
    NeverPickled,
    active_id,
    expand,
    require_consistent,
    require_length,
)

R = TypeVar("R", bound="Ring")


class Ring(NeverPickled):
    """The keys that a process may use: at most one seals, the others only open. Immutable.

    Attributes:
        keys: All keys, in the order of the ring.
        index: Material of the index key, which never rotates; ``None`` if the ring has no index key.
    """

    __slots__ = ("_by_id", "index", "keys")

    def __init__(self, keys: Iterable[Key], *, index: bytes | Material | None = None) -> None:
        """Make a ring; `KeyRing` names the arguments and the errors."""
        self.keys = tuple(keys)
        for key in self.keys:
            require_is(key, Key, "one of the keys", "create Key(ID, MATERIAL, STATE), or KeyRing.load(PATH)")
        require_consistent(self.keys)
        self._by_id = {key.id: key for key in self.keys}
        if index is not None and not isinstance(index, Material):
            index = Material(require_length(index, None, "index key"))
        self.index = index

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key.id} {key.state.value}' for key in self.keys)})"

    @property
    def active_id(self) -> str | None:
        """Id of the active key, if there is one."""
        return active_id(self.keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all keys, in ring order."""
        return tuple(key.id for key in self.keys)

    def get_key(self, key_id: str) -> Key | None:
        """Return the key called ``key_id``, whatever its state, or ``None``."""
        return self._by_id.get(key_id)

    def require_active(self) -> Key:
        """Return the active key.

        Raises:
            NoActiveKeyError: If no key is active.
        """
        key = self._by_id.get(self.active_id or "")
        if key is not None:
            return key
        raise NoActiveKeyError(f"no key of the ring is active (held: {', '.join(self.ids) or 'none'})")

    def require_key(self, key_id: str) -> Key:
        """Return the key called ``key_id`` if values under it may be opened.

        Raises:
            UnknownKeyError: If the ring does not have the key.
            KeyDisabledError: If the key is disabled.
            KeyDestroyedError: If the key was destroyed.
        """
        key = self._by_id.get(key_id)
        # LangGraph's rows name no key: a tag with the id of the legacy key would use it with another suite.
        if key is None or key.suite == LEGACY:
            raise UnknownKeyError(key_id, self.ids)
        return key.require_open()

    def require_legacy(self) -> Key:
        """Return the key for rows under LANGGRAPH_AES_KEY.

        Raises:
            UnknownKeyError: If no key of the ring is for the suite ``aes``.
            KeyDisabledError: If the key is disabled.
            KeyDestroyedError: If the key was destroyed.
        """
        for key in self.keys:
            if key.suite == LEGACY:
                return key.require_open()
        hint = (
            'add an entry with suite = "aes", state = "decrypt-only" and LANGGRAPH_AES_KEY for its material'
        )
        raise UnknownKeyError(LEGACY, self.ids, hint=hint)

    def index_key(self, purpose: str) -> bytes:
        """Derive a key of 32 bytes from the index key, which never rotates.

        Args:
            purpose: Name of the use, such as ``thread_id``; each purpose has its own key.

        Raises:
            UnknownKeyError: If the ring has no index key.
            KeyRingError: If the material of the index key is not available.
        """
        if self.index is None:
            raise UnknownKeyError("index", self.ids, hint="add an index key: sealpoint keys generate --index")
        return expand(self.index.get(), f"index {purpose}")


def marks(ring: Ring) -> dict[str, bytes]:
    """Return, for each key with loaded material, 32 bytes that identify the material without revealing it.

    A disabled key, whose material is not loaded, is missing: the caller keeps the bytes returned earlier.
    """
    loaded = [key for key in ring.keys if key.lazy_material is not None and key.lazy_material.is_loaded]
    # All 32 bytes: other material with the same check value of 4 bytes can be found by search.
    return {key.id: expand(key.material, "check") for key in loaded}


def require_later(old: Ring, new: R, seen: Mapping[str, bytes] | None = None) -> R:
    """Return ``new`` if ``old`` becomes it by transitions of keys and by added keys; raise otherwise.

    Several transitions may happen between two checks of a file, so every state that can be reached in any
    number of steps is accepted. Any other state means that the file is older, or is of another ring.
    """
    for key in old.keys:
        require_later_key(key, new.get_key(key.id))
    before = marks(old) if seen is None else seen
    for key_id, mark in marks(new).items():
        if not compare_digest(before.get(key_id, mark), mark):
            raise RingRollbackError(f"key {key_id!r} has other material than in the ring in use")
    # An index key that is not loaded yet is assumed to be the same.
    if old.index is not None and (
        new.index is None
        or (
            old.index.is_loaded
            and new.index.is_loaded
            and not compare_digest(old.index.get(), new.index.get())
        )
    ):
        raise RingRollbackError("the index key is missing or has changed")
    return new


def require_later_key(old: Key, new: Key | None) -> None:
    """Raise if ``new`` cannot follow ``old``, the key with the same id in the ring in use."""
    if new is None:
        raise RingRollbackError(
            f"key {old.id!r} is missing; keys that are no longer used are marked as destroyed, not removed"
        )
    if new.suite != old.suite:
        raise RingRollbackError(f"key {old.id!r} is for another suite than in the ring in use")
    if not old.state.reaches(new.state):
        raise RingRollbackError(f"key {old.id!r} is {new.state.value}, and was {old.state.value} before")
    # A compromised key may be disabled and then open again, but it is never trusted again.
    if old.is_compromised and not new.is_compromised and new.state.opens:
        raise RingRollbackError(f"key {old.id!r} is {new.state.value}, and was compromised before")
