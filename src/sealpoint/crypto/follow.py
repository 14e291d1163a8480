"""Follower: reads a ring file again when it has changed, and takes over only what comes after.

Looked at is the ring file alone, by its `stat`; a look that finds it as it was reads nothing and asks no
source. Key files are not watched: a key's material never changes, other material is another key.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from hmac import compare_digest
from threading import Lock
from time import monotonic
from typing import Final
from weakref import WeakSet

from sealpoint.crypto.keys import Key, KeyRing, NeverPickled, Origin, expand
from sealpoint.errors import KeyReversalError, SealpointError

LOOK_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 30.0

logger: Final = logging.getLogger("sealpoint.crypto")


class Follower(NeverPickled):
    """Follows one ring file for one cipher. Safe to share between threads, and over a fork.

    A file that cannot be taken over (broken, gone, or from before) leaves the ring as it is, is
    reported once, and is tried again when it changes and, since a key's source may be what was
    missing, every ``RETRY_SECONDS``.
    """

    def __init__(self, ring: KeyRing, origin: Origin, put: Callable[[KeyRing], None]) -> None:
        """Follow the file that a ring was read from.

        Args:
            ring: The ring in force.
            origin: Its file, as it was when the ring was read.
            put: Called with each new ring to be in force, by one thread at a time.
        """
        self._ring = ring
        self._marks = marks(ring)
        self._path = origin.path
        self._seen = origin.stamp
        self._put = put
        self._retry_at: float | None = None
        self._lock = Lock()
        _followers.add(self)

    def look(self, *, wait: bool) -> None:
        """Read the file again if it has changed.

        Args:
            wait: Whether to wait for another thread that is at it, or leave it to that one.
        """
        if self._lock.acquire(blocking=wait):
            try:
                self._look()
            finally:
                self._lock.release()

    def renew_lock(self) -> None:
        """Forget who holds the lock: after a fork, a thread that is not there."""
        self._lock = Lock()

    def _look(self) -> None:
        stamp = Origin.of(self._path).stamp
        changed = stamp != self._seen
        if not changed and (self._retry_at is None or monotonic() < self._retry_at):
            return
        try:
            ring = require_later(self._ring, KeyRing.load(self._path), self._marks)
        except (SealpointError, OSError) as error:
            self._seen, self._retry_at = stamp, monotonic() + RETRY_SECONDS
            if changed:
                logger.warning("ring file %s is not taken over, the ring stays: %s", self._path, error)
            return
        again = logging.INFO if self._retry_at is None else logging.WARNING  # where the refusal stands
        self._put(ring)
        self._ring = ring
        self._marks |= marks(ring)
        self._seen, self._retry_at = stamp, None  # last of all: a look that is interrupted is made again
        logger.log(again, "ring file %s was read again: %r", self._path, ring)


def marks(ring: KeyRing) -> dict[str, bytes]:
    """Return, for each key that has its material, 32 bytes that tell it from any other, and not what it is.

    They outlast a time in which a key is disabled, and its material is not loaded.
    """
    return {key.id: expand(key.material, "check") for key in ring.keys if key.material}


def require_later(old: KeyRing, new: KeyRing, seen: Mapping[str, bytes] | None = None) -> KeyRing:
    """Return ``new``, if moves of keys and the adding of keys lead to it from ``old``.

    Several moves may lie between two looks at a file, so any state counts that the table of moves
    leads to. What no move leads to is an older file, or another ring.

    Args:
        old: The ring in force.
        new: The one that is to come after it.
        seen: The `marks` of all rings so far; by default those of ``old`` alone.

    Raises:
        KeyReversalError: If a key is gone, is in a state that it cannot have come to, or has other
            material or another suite; or if the index key is gone or another.
    """
    for key in old.keys:
        _require_later_key(key, new.get_key(key.id))
    before = marks(old) if seen is None else seen
    for key_id, mark in marks(new).items():
        if not compare_digest(before.get(key_id, mark), mark):
            raise KeyReversalError(f"key {key_id!r} has other material than before")
    if not new.keeps_index(old):
        raise KeyReversalError("the index key is gone, or is another one")
    return new


def _require_later_key(old: Key, new: Key | None) -> None:
    if new is None:
        raise KeyReversalError(f"key {old.id!r} is gone; a key that is not wanted any more is destroyed")
    if new.suite != old.suite:
        raise KeyReversalError(f"key {old.id!r} is for another suite than before")
    if not old.state.reaches(new.state):
        raise KeyReversalError(f"key {old.id!r} is {new.state.value}, and was {old.state.value} before")


_followers: Final = WeakSet[Follower]()


def _renew_locks() -> None:
    for follower in _followers:
        follower.renew_lock()


os.register_at_fork(after_in_child=_renew_locks)
