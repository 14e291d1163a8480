"""Follower: reloads a ring file after a change, and refuses a file that is older than the ring in use.

Only the ring file is watched, by calls of `stat`: as long as the result is the same, neither the file nor the
source of a key is read. Key files are not watched, and slow sources are not read again: the material of a key
never changes, because other material is another key.
`sealpoint.seal.ring` decides which rings are older than the ring in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final, NamedTuple

from sealpoint.errors import SealpointError
from sealpoint.forks import reset_in_child
from sealpoint.keys.files import Origin, why_fixed
from sealpoint.keys.material import background
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.stats import Reloads
from sealpoint.locks import holding
from sealpoint.seal.keys import LEGACY, Key, KeyState, Material, NeverPickled
from sealpoint.seal.ring import marks, require_later, require_later_key

SEALING: Final = "+seal"  # stands for a key id in calls that need the active key; ids contain no '+'
ANY_LEGACY: Final = "+aes"

LOOK_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 30.0

logger: Final = logging.getLogger("sealpoint.crypto")
_fixed: Final[set[Path]] = set()  # ring files whose changes cannot reach this process, each reported once


class _Load(NamedTuple):
    """A changed ring that is not in use yet: a thread reads the slow sources of its keys."""

    ring: KeyRing
    missing: Collection[Material]  # the material that must be loaded before the ring is used
    is_first: bool  # the first attempt after a change of the file
    needs: frozenset[str]  # the calls that wait: ids of keys, `SEALING`, `ANY_LEGACY`
    ended: Event  # set when the ring is in use, refused, or replaced by a newer one


class Follower(NeverPickled):
    """Reloads one ring file for one cipher. Safe to share between threads, and after a fork.

    New states of keys apply when the file is parsed, before any source is read. The call that finds the
    change reads key files and environment variables. Slow sources are read by a thread, and only for keys
    whose material is not loaded. The new ring is used once the material of the active key, and of keys whose
    loaded material may have changed, is loaded; until then the loaded keys are used with their new states.
    Other keys are loaded in the background: opening a value under such a key waits for the key, or raises.

    A file that is broken, missing, or older than the ring in use is refused: the ring is unchanged, and the
    refusal is logged once. The file is read again when it changes and every ``RETRY_SECONDS``, since a
    missing source may be the reason. If only a source failed, keys that the file disables or destroys stop
    opening values nevertheless, and keys that the file marks as compromised stop sealing, even if no key is
    left that seals.
    """

    def __init__(
        self, ring: KeyRing, origin: Origin, put: Callable[[KeyRing], None], reloads: Reloads
    ) -> None:
        self._ring = ring  # the last loaded ring, with later disabled and destroyed states applied
        self._in_force = ring
        self._marks: dict[str, bytes] = {}  # of all material in use so far, taken before each change
        self._path = origin.path
        self._seen = origin.stamp
        self._put = put
        self._reloads = reloads
        self._retry_at: float | None = None
        self._lock = Lock()
        self._load: _Load | None = None
        self._is_running = False  # whether the loading thread runs
        reset_in_child(self)
        reason = None if origin.path in _fixed else why_fixed(origin.path)
        if reason is not None:
            _fixed.add(origin.path)
            logger.warning("ring file %s cannot be followed: %s; restart after a change", origin.path, reason)
        background.load(material for material in ring.materials if not material.is_loaded)

    def look(self, *, wait: bool) -> bool:
        """Reload the file if it has changed, without running a command or waiting for one.

        Returns whether the file was checked: without ``wait``, False while another thread checks the file.
        """
        return holding(self._lock, -1 if wait else 0, self._look, bool)

    def wait_for(self, need: str) -> None:
        """Wait until the material for ``need`` is loaded or failed: a key id, `SEALING` or `ANY_LEGACY`."""
        while (load := self._load) is not None and need in load.needs:
            load.ended.wait()

    def reset_after_fork(self) -> None:
        """Replace the lock, and forget an unfinished load: their threads do not exist in this process."""
        self._lock = Lock()
        if self._load is not None:
            self._seen = ()  # no file has this stamp, so the next check starts again
        self._load, self._is_running = None, False

    def _look(self) -> bool:
        stamp = Origin.of(self._path).stamp
        changed = stamp != self._seen
        is_due = self._retry_at is not None and self._load is None and monotonic() >= self._retry_at
        if not (changed or is_due):
            return True
        try:
            ring = self._read()
            if missing := self._missing(ring):
                self._load_slow(ring, missing, changed)
                return True
            ring = require_later(self._ring, ring.load_material(is_local=True), self._marks)
        except (SealpointError, OSError) as error:
            self._refuse(stamp, changed, error)
        else:
            self._use(ring)
        return True

    def _read(self) -> KeyRing:
        """Parse the file, and apply its restrictions to the keys in use. No source is read."""
        from sealpoint.keys.ringfile import RingFile  # rings that are created in code need no TOML

        self._marks |= marks(self._ring)  # first: the ring loses the material of keys that are closed below
        # A newer file may come while commands run: the material that they print is used for it, too.
        held = (self._ring,) if self._load is None else (self._ring, self._load.ring)
        later = KeyRing.of_file(RingFile(self._path), *held)
        for key in self._ring.keys:
            require_later_key(key, later.get_key(key.id))
        keys = [_withdraw(key, later.get_key(key.id)) for key in self._ring.keys]
        if any(key is not held for key, held in zip(keys, self._ring.keys, strict=True)):
            self._ring = self._ring.with_keys(keys)
            self._enforce(self._ring)
        return later

    def _missing(self, ring: KeyRing) -> list[Material]:
        """Return the material of slow sources that must be loaded before a ring can be used."""
        needed = [key for key in ring.keys if key.state is KeyState.ACTIVE or key.id in self._marks]
        found = [key.lazy_material for key in needed if key.lazy_material is not None]
        if ring.index is not None and self._ring.index is not None and self._ring.index.is_loaded:
            found.append(ring.index)
        return [material for material in found if material.is_slow and not material.is_loaded]

    def _load_slow(self, ring: KeyRing, missing: Collection[Material], is_first: bool) -> None:
        needs = frozenset[str]()
        if is_first:  # on later attempts the earlier ring stays in use, and no call waits
            interim, needs = _interim(self._ring, ring, missing)
            self._enforce(interim)
        before, self._load = self._load, _Load(ring, missing, is_first, needs, Event())
        if before is not None:
            before.ended.set()
        self._seen = _stamp(ring)
        if not self._is_running:
            self._is_running = True
            Thread(target=self._run, name="sealpoint-ring", daemon=True).start()

    def _run(self) -> None:
        """Load the missing material for the latest ring file; called in a separate thread."""
        try:
            while (load := self._next_load()) is not None:
                try:
                    load.ring.load_material(is_local=True)
                    for material in load.missing:
                        material.load()
                    with self._lock:
                        if self._load is load:  # otherwise the file has changed meanwhile
                            self._marks |= marks(self._ring)
                            self._use(require_later(self._ring, load.ring, self._marks))
                except (SealpointError, OSError) as error:
                    with self._lock:
                        if self._load is load:
                            self._refuse(_stamp(load.ring), load.is_first, error)
        # An unexpected error, e.g. of another package's wrapper, is a refusal, too: the load is tried again.
        except BaseException as error:
            with self._lock:
                if self._load is not None:
                    self._refuse(_stamp(self._load.ring), self._load.is_first, error)
                self._is_running = False
            raise

    def _next_load(self) -> _Load | None:
        with self._lock:
            self._is_running = self._load is not None
            return self._load

    def _end_load(self) -> None:
        load, self._load = self._load, None
        if load is not None:
            load.ended.set()

    def _enforce(self, ring: KeyRing) -> None:
        if ring is not self._in_force:
            self._put(ring)
            self._in_force = ring

    def _refuse(self, stamp: tuple[int, ...] | None, is_first: bool, error: BaseException) -> None:
        self._enforce(self._ring)
        self._reloads.fail(error)
        if is_first:
            # The text of another error may quote what a service answered.
            why = error if isinstance(error, SealpointError | OSError) else type(error).__name__
            logger.warning("ring file %s is refused, the ring in use is unchanged: %s", self._path, why)
        self._end_load()
        self._seen, self._retry_at = stamp, monotonic() + RETRY_SECONDS

    def _use(self, ring: KeyRing) -> None:
        level = logging.INFO if self._retry_at is None else logging.WARNING  # at the level of the refusal
        self._enforce(ring)
        known = {id(material) for material in self._ring.materials}
        background.load(one for one in ring.materials if not one.is_loaded and id(one) not in known)
        self._ring = ring
        self._reloads.succeed()
        logger.log(level, "ring file %s was read again: %r", self._path, ring)
        self._end_load()
        self._retry_at = None
        self._seen = _stamp(ring)  # last, so that an interrupted check is repeated


def _stamp(ring: KeyRing) -> tuple[int, ...] | None:
    return None if ring.origin is None else ring.origin.stamp


def _withdraw(key: Key, later: Key | None) -> Key:
    """Return a key with the restrictions of a later file: the key no longer opens, or no longer seals."""
    if later is None or later.state is key.state:
        return key
    if not later.state.opens:
        return later
    if later.state is KeyState.COMPROMISED and key.state.opens:
        return key.with_state(later.state, later.compromised)
    return key


def _interim(ring: KeyRing, later: KeyRing, missing: Collection[Material]) -> tuple[KeyRing, frozenset[str]]:
    """Return the ring to use until material is loaded, and the ids of keys whose callers wait for it."""
    keys, needs = [], set()
    for key in later.keys:
        held = ring.get_key(key.id)
        if not key.state.opens:
            keys.append(key)
        elif held is not None and held.lazy_material is not None:
            keys.append(held.with_state(key.state, key.compromised))
        elif key.lazy_material is not None and key.lazy_material.is_slow and key.lazy_material not in missing:
            keys.append(key)
        else:
            needs.add(ANY_LEGACY if key.suite == LEGACY else key.id)
            if key.state is KeyState.ACTIVE:
                needs.add(SEALING)
    return ring.with_keys(keys), frozenset(needs)
