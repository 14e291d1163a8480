"""Whether a ring follows from the ring in use, or is older, or another one.

Other material under the id of a key is noticed if the process has had the first: it keeps a mark of it.
Material that was never loaded has no mark, and that of a changed source is accepted in its place: this
process has sealed and opened nothing with the first one, and a source that never worked must be correctable.
What protects such a key is the ``check`` in its entry, with which material is compared when it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from sealpoint.errors import RingRollbackError
from sealpoint.keys.key import Key, expand
from sealpoint.keys.ring import KeyRing


def marks(ring: KeyRing) -> dict[str, bytes]:
    """Return 32 bytes for each key with loaded material, which identify the material and do not reveal it.

    The caller keeps the marks of disabled keys, whose material is not loaded.
    """
    loaded = [key for key in ring.keys if key.lazy_material is not None and key.lazy_material.is_loaded]
    # All 32 bytes: other material with the same check value of 4 bytes can be found by search.
    return {key.id: expand(key.material, "check") for key in loaded}


def require_later(old: KeyRing, new: KeyRing, seen: Mapping[str, bytes] | None = None) -> KeyRing:
    """Return ``new`` if it follows from ``old`` by transitions and new keys.

    Several transitions may happen between two checks of a file, so every state that can be reached in any
    number of steps is accepted. Any other state means an older file, or another ring.

    Args:
        old: The ring in use.
        new: The ring that should replace it.
        seen: The `marks` of all rings so far; by default those of ``old``.

    Raises:
        RingRollbackError: If a key is missing, is in a state that it cannot have reached, or has other
            material or another suite; or if the index key is missing or has changed.
    """
    for key in old.keys:
        require_later_key(key, new.get_key(key.id))
    before = marks(old) if seen is None else seen
    for key_id, mark in marks(new).items():
        if not compare_digest(before.get(key_id, mark), mark):
            raise RingRollbackError(f"key {key_id!r} has other material than before")
    if not new.has_index_of(old):
        raise RingRollbackError("the index key is missing or has changed")
    return new


def require_later_key(old: Key, new: Key | None) -> None:
    """Refuse a key that does not follow from the one with its id in the ring in use.

    Raises:
        RingRollbackError: If it is missing, for another suite, or in a state that it cannot have reached.
    """
    if new is None:
        raise RingRollbackError(
            f"key {old.id!r} is missing; keys that are no longer used are marked as destroyed, not removed"
        )
    if new.suite != old.suite:
        raise RingRollbackError(f"key {old.id!r} is for another suite than before")
    if not old.state.reaches(new.state):
        raise RingRollbackError(f"key {old.id!r} is {new.state.value}, and was {old.state.value} before")
    # A compromised key may be disabled and then open again, but it is never trusted again.
    if old.is_compromised and not new.is_compromised and new.state.opens:
        raise RingRollbackError(f"key {old.id!r} is {new.state.value}, and was compromised before")
