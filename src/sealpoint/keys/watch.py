"""Follower: reads a ring file again when it has changed, and takes over only what comes after.

Looked at is the ring file alone, by its `stat`; a look that finds it as it was reads nothing and asks no
source. Key files are not watched: a key's material never changes, other material is another key. For the
same reason material that a command gave is not asked for again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hmac import compare_digest
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from sealpoint.errors import RingRollbackError, SealpointError
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.ring import Key, KeyRing, NeverPickled, Origin, expand
from sealpoint.keys.state import KeyState

if TYPE_CHECKING:
    from sealpoint.keys.ringfile import RingEntry, RingFile

SEALING: Final = "+seal"  # what a value may need beside a key by its id, which has no '+'
ANY_LEGACY: Final = "+aes"

LOOK_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 30.0

logger: Final = logging.getLogger("sealpoint.crypto")


class _Load(NamedTuple):
    """A ring file whose commands are being run.

    Attributes:
        file: The file.
        is_first: Whether it is loaded for the first time since it has changed.
        needs: Which values wait: ids of keys, `SEALING`, `ANY_LEGACY`.
        ended: Set when it was taken over, refused, or replaced by a newer one.
    """

    file: RingFile
    is_first: bool
    needs: frozenset[str]
    ended: Event


class Follower(NeverPickled):
    """Follows one ring file for one cipher. Safe to share between threads, and over a fork.

    States are in force once the file is parsed; no source was asked by then. Files and variables are read by
    the call that finds the change. Commands run in a thread, at most one, and only for keys whose
    material is not held; until it ends, the keys that are held are in force with their new states.

    A file that cannot be taken over (broken, gone, or from before) leaves the ring as it is, is
    reported once, and is tried again when it changes and, since a key's source may be what was
    missing, every ``RETRY_SECONDS``. Keys that it disables or destroys are refused all the same, if
    only a source failed.
    """

    def __init__(self, ring: KeyRing, origin: Origin, put: Callable[[KeyRing], None]) -> None:
        """Follow the file that a ring was read from.

        Args:
            ring: The ring in force.
            origin: Its file, as it was when the ring was read.
            put: Called with each new ring to be in force, by one thread at a time.
        """
        self._ring = ring  # the last that was taken over, without what was closed since
        self._in_force = ring
        self._marks = marks(ring)
        self._path = origin.path
        self._seen = origin.stamp
        self._put = put
        self._retry_at: float | None = None
        self._lock = Lock()
        self._load: _Load | None = None
        self._is_running = False  # the thread
        _followers.add(self)

    def look(self, *, wait: bool) -> None:
        """Read the file again if it has changed. Runs no command, and waits for none.

        Args:
            wait: Whether to wait for another thread that is at it, or leave it to that one.
        """
        if self._lock.acquire(blocking=wait):
            try:
                self._look()
            finally:
                self._lock.release()

    def wait_for(self, need: str) -> None:
        """Wait while the material of a key is being asked for that was never held.

        Args:
            need: Id of the key, `SEALING` for the one that seals, `ANY_LEGACY` for the one of suite ``aes``.
        """
        while (load := self._load) is not None and need in load.needs:
            load.ended.wait()

    def reset_after_fork(self) -> None:
        """Forget the threads that are not there: one that holds the lock, and one that loads."""
        self._lock = Lock()
        if self._load is not None:
            self._seen = ()  # no file has this stamp, so the next look begins again
        self._load, self._is_running = None, False

    def _look(self) -> None:
        stamp = Origin.of(self._path).stamp
        changed = stamp != self._seen
        is_due = self._retry_at is not None and self._load is None and monotonic() >= self._retry_at
        if not changed and not is_due:
            return
        try:
            file = self._read()
            if file.runs_commands(self._ring):
                self._load_beside(file, changed)
                return
            ring = require_later(self._ring, file.load(self._ring), self._marks)
        except (SealpointError, OSError) as error:
            self._refuse(stamp, changed, error)
        else:
            self._take_over(ring)

    def _read(self) -> RingFile:
        """Parse the file, and close what it closes."""
        from sealpoint.keys.ringfile import RingFile  # the file needs the ring, not the reverse

        file = RingFile(self._path)
        entries = {entry.id: entry for entry in file.entries}
        for key in self._ring.keys:
            _require_later_key(key, entries.get(key.id))
        closed = {key.id for key in self._ring.keys if key.state.opens and not entries[key.id].state.opens}
        if closed:
            keys = self._ring.keys
            self._ring = self._ring.with_keys(_keyless(entries[k.id]) if k.id in closed else k for k in keys)
            self._enforce(self._ring)
        return file

    def _load_beside(self, file: RingFile, is_first: bool) -> None:
        needs = frozenset[str]()
        if is_first:  # later the ring that stayed is in force, and nothing waits
            interim, needs = _interim(self._ring, file.entries)
            self._enforce(interim)
        before, self._load = self._load, _Load(file, is_first, needs, Event())
        if before is not None:
            before.ended.set()
        self._seen = file.origin.stamp
        if not self._is_running:
            self._is_running = True
            Thread(target=self._run, name="sealpoint-ring", daemon=True).start()

    def _run(self) -> None:
        """Load what is to be loaded, until nothing is; in a thread of its own."""
        held: tuple[KeyRing, ...] = ()
        try:
            while (load := self._next_load()) is not None:
                ring, error = None, None
                try:
                    ring = load.file.load(self._ring, *held)
                except (SealpointError, OSError) as caught:
                    error = caught
                held = held if ring is None else (ring,)
                self._finish(load, ring, error)
        except BaseException:
            with self._lock:
                self._end_load()
                self._is_running = False
            raise

    def _next_load(self) -> _Load | None:
        with self._lock:
            self._is_running = self._load is not None
            return self._load

    def _finish(self, load: _Load, ring: KeyRing | None, error: Exception | None) -> None:
        with self._lock:
            if self._load is not load:  # the file has changed meanwhile
                return
            try:
                later = None if ring is None else require_later(self._ring, ring, self._marks)
            except SealpointError as caught:
                later, error = None, caught
            if later is None:
                self._refuse(load.file.origin.stamp, load.is_first, error)
            else:
                self._take_over(later)

    def _end_load(self) -> None:
        load, self._load = self._load, None
        if load is not None:
            load.ended.set()

    def _enforce(self, ring: KeyRing) -> None:
        if ring is not self._in_force:
            self._put(ring)
            self._in_force = ring

    def _refuse(self, stamp: tuple[int, ...] | None, is_first: bool, error: Exception | None) -> None:
        self._enforce(self._ring)
        self._end_load()
        self._seen, self._retry_at = stamp, monotonic() + RETRY_SECONDS
        if is_first:
            logger.warning("ring file %s is not taken over, the ring stays: %s", self._path, error)

    def _take_over(self, ring: KeyRing) -> None:
        again = logging.INFO if self._retry_at is None else logging.WARNING  # where the refusal stands
        self._enforce(ring)
        self._ring = ring
        self._marks |= marks(ring)
        self._end_load()
        stamp = None if ring.origin is None else ring.origin.stamp
        self._seen, self._retry_at = stamp, None  # last of all: a look that is interrupted is made again
        logger.log(again, "ring file %s was read again: %r", self._path, ring)


def _keyless(entry: RingEntry) -> Key:
    dates = {"created": entry.created, "destroyed": entry.destroyed}
    return Key(entry.id, b"", entry.state, suite=entry.suite, **dates)


def _interim(ring: KeyRing, entries: Iterable[RingEntry]) -> tuple[KeyRing, frozenset[str]]:
    """Return the keys whose material is held, with the states that entries give them, and what is missing."""
    keys, needs = [], set()
    for entry in entries:
        held = ring.get_key(entry.id)
        if not entry.state.opens:
            keys.append(_keyless(entry))
        elif held is not None and held.material:
            keys.append(replace(held, state=entry.state))
        else:
            needs.add(ANY_LEGACY if entry.suite == LEGACY else entry.id)
            if entry.state is KeyState.ACTIVE:
                needs.add(SEALING)
    return ring.with_keys(keys), frozenset(needs)


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
        RingRollbackError: If a key is gone, is in a state that it cannot have come to, or has other
            material or another suite; or if the index key is gone or another.
    """
    for key in old.keys:
        _require_later_key(key, new.get_key(key.id))
    before = marks(old) if seen is None else seen
    for key_id, mark in marks(new).items():
        if not compare_digest(before.get(key_id, mark), mark):
            raise RingRollbackError(f"key {key_id!r} has other material than before")
    if not new.keeps_index(old):
        raise RingRollbackError("the index key is gone, or is another one")
    return new


def _require_later_key(old: Key, new: Key | RingEntry | None) -> None:
    if new is None:
        raise RingRollbackError(f"key {old.id!r} is gone; a key that is not wanted any more is destroyed")
    if new.suite != old.suite:
        raise RingRollbackError(f"key {old.id!r} is for another suite than before")
    if not old.state.reaches(new.state):
        raise RingRollbackError(f"key {old.id!r} is {new.state.value}, and was {old.state.value} before")


_followers: Final = WeakSet[Follower]()


def _reset_after_fork() -> None:
    for follower in _followers:
        follower.reset_after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
