"""Moves on a ring file: make one, add a key, take a key from state to state.

A move puts a new file in the old one's place that was read back before, so whoever is stopped
leaves the old ring or the new one, and runs the same move again. One move at a time: the file is
held meanwhile, and not replaced if somebody changed it by hand.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any, Final

from sealpoint.errors import (
    DuplicateKeyError,
    FilePermissionsError,
    HeldError,
    KeyRingError,
    KeyTransitionError,
    OutputExistsError,
)
from sealpoint.keys import files, ringfile
from sealpoint.keys.ids import require_key_id
from sealpoint.keys.lock import holding
from sealpoint.keys.ring import check_value
from sealpoint.keys.ringfile import (
    RingEntry,
    RingFile,
    find_ring_file,
    read_ring_entries,
    read_tables,
    require_entry,
)
from sealpoint.keys.ringtext import NEW_RING, Change, changed, entry_text
from sealpoint.keys.sources import read_private
from sealpoint.keys.state import COMMANDS, KeyState

Precondition = Callable[[RingFile, RingEntry], object]
"""Raises if a key may not change its state. Called with the ring and the key's entry, while the ring file is
locked and before anything is written."""

_SHARED: Final = 0o022  # a ring may be read by all, and written by its owner alone


@dataclass(frozen=True, slots=True)
class _Held:
    """A ring file that nobody else moves on, as it was found."""

    file: Path
    data: bytes
    parsed: RingFile
    index_ids: tuple[str, ...]

    @property
    def entries(self) -> tuple[RingEntry, ...]:
        """What the file says about its keys."""
        return self.parsed.entries

    def replace(self, change: Change) -> None:
        """Put a changed file in its place."""
        text = changed(self.data.decode(), change, str(self.file))
        like = self.file.stat(follow_symlinks=False)
        fresh = files.write_private(files.beside(self.file, "new"), text.encode(), like)
        try:
            read_ring_entries(fresh)
            if read_private(self.file, forbidden=_SHARED) != self.data:
                raise HeldError(
                    f"{self.file} was changed by somebody else meanwhile",
                    hint="look at what was changed, then run the same command again",
                )
            fresh.replace(self.file)
        finally:
            fresh.unlink(missing_ok=True)
        files.keep(self.file.parent)


@contextmanager
def _held(path: str | PathLike[str] | None) -> Iterator[_Held]:
    file = find_ring_file(path)
    with _holding(file):
        data = read_private(file, forbidden=_SHARED)
        index_ids = tuple(index["id"] for index in read_tables(file)[1] if "id" in index)
        yield _Held(file, data, RingFile(file), index_ids)


@contextmanager
def _holding(file: Path) -> Iterator[None]:
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise FilePermissionsError(
            f"this account may not write in {file.parent}", hint="run this as the account that owns the ring"
        )
    files.require_unshared(file.parent)
    with holding(file):
        yield


def create_ring(path: str | PathLike[str], key_id: str | None = None) -> str:
    """Make a ring file with one new key, which is active, and the folder for key files beside it.

    Args:
        path: The file that is to be made.
        key_id: Id of the key; by default the next of the year and a random part, e.g. ``k26a-4f7c``.

    Returns:
        The id of the key.

    Raises:
        OutputExistsError: If the ring file or the key file is there already.
        FilePermissionsError: If others can write in its folder, as in all other moves, or this account
            cannot.
        OSError: If a folder cannot be made.
    """
    file = Path(path)
    if not file.name:
        raise OutputExistsError(f"{file} is a folder")
    for folder in reversed(file.parents):  # parents=True would give those above it what the umask leaves
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
        except PermissionError:
            hint = "name a place of your own with --keys or $SEALPOINT_KEYS, or run this as another account"
            raise FilePermissionsError(f"this account may not make {folder}", hint=hint) from None
    with _holding(file):
        if os.path.lexists(file):
            hint = f"nothing is overwritten; to add a key: sealpoint keys generate --keys {quote(str(file))}"
            raise OutputExistsError(f"{file} is there already", hint=hint)
        key_id, entry = _new_key(file, key_id, (), KeyState.ACTIVE)
        text = NEW_RING.format(active=f'active = "{key_id}"'.ljust(24)) + entry
        fresh = files.write_private(files.beside(file, "new"), text.encode())
        fresh.chmod(0o644)
        os.link(fresh, file)  # unlike a renaming it never replaces what came in between
        fresh.unlink()
        files.keep(file.parent)
        files.settle(file, key_id)
    return key_id


def stage_key(path: str | PathLike[str] | None = None, key_id: str | None = None) -> str:
    """Add a key with new material, staged.

    Args:
        path: The ring file; as for `KeyRing.load`, also in all other moves.
        key_id: Id of the key; by default the next of the year and a random part, e.g. ``k26b-4f7c``.

    Returns:
        The id of the key.

    Raises:
        DuplicateKeyError: If the id is taken, be it by a tombstone.
        OutputExistsError: If its key file is there already, and is not from a move that was stopped.
    """
    with _held(path) as ring:
        for entry in ring.entries:
            files.settle(ring.file, entry.id)
        taken = [*(entry.id for entry in ring.entries), *ring.index_ids]
        key_id, text = _new_key(ring.file, key_id, taken, KeyState.STAGED)
        ring.replace(lambda tree, parse: tree["key"].append(parse(text)["key"][0]))
        files.settle(ring.file, key_id)
    return key_id


def _new_key(file: Path, key_id: str | None, taken: Sequence[str], state: KeyState) -> tuple[str, str]:
    """Make the material of a key; return its id and the text of its entry."""
    now = datetime.now(UTC)
    key_id = files.free_id(file, taken, now.year) if key_id is None else require_key_id(key_id)
    if key_id in taken:
        raise DuplicateKeyError(f"{file} has a key {key_id!r} already")
    return key_id, entry_text(key_id, state.value, now, check_value(files.make_material(file, key_id)))


def promote_key(
    path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None
) -> str | None:
    """Make a key the one that seals; the one before it goes on to open.

    Args:
        path: The ring file.
        key_id: The key.
        require: What else must hold; also in all other transitions.

    Returns:
        The id of the one before it: ``key_id`` itself if it was active already, ``None`` if none was.

    Raises:
        KeyTransitionError: If the key's state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        before = next((one.id for one in ring.entries if one.state is KeyState.ACTIVE), None)
        if before == key_id:
            return key_id
        entry.require_transition("promote")
        ring.parsed.load_key(key_id)  # without its material no process could load the ring
        if require is not None:
            require(ring.parsed, entry)
        ring.replace(lambda tree, _: _promote(tree, key_id, before))
    return before


def disable_key(path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None) -> None:
    """Refuse values under a key that only opened. A key that is disabled already stays disabled.

    Raises:
        KeyTransitionError: If its state does not allow it.
    """
    _transition(path, key_id, KeyState.DISABLED, require)


def enable_key(path: str | PathLike[str] | None, key_id: str) -> None:
    """Let a disabled key open again. A key that only opens is left as it is.

    Raises:
        KeyTransitionError: If its state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """
    _transition(path, key_id, KeyState.DECRYPT_ONLY, lambda ring, entry: ring.load_key(entry.id))


def destroy_key(
    path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None
) -> Path | None:
    """Make a key a tombstone and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory may keep copies that no
    program reaches. Material from other sources is not removed.
    Run again on a tombstone, it removes what an interrupted run left.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key is neither staged nor disabled, or shares its file with another.
        StoppedError: If the file cannot be removed.
    """
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not KeyState.DESTROYED:
            entry.require_transition("destroy")
            if require is not None:
                require(ring.parsed, entry)
            files.schedule_removal(ring.file, key_id, _own_file(ring, key_id))
            now = datetime.now(UTC).replace(microsecond=0)
            ring.replace(lambda tree, _: _mark_destroyed(tree, key_id, now))
        else:
            files.require_scheduled(ring.file, entry)
        return files.remove_scheduled(ring.file, key_id)


def check_ring(
    path: str | PathLike[str] | None = None, ids: Iterable[str] | None = None
) -> dict[str, KeyRingError | None]:
    """Ask for the material of each key, and compare it with its check value.

    Args:
        path: The ring file.
        ids: The keys to ask for; by default all that are not destroyed.

    Returns:
        By id, what is wrong; ``None`` for a key that is as it should be.
    """
    file = find_ring_file(path)
    found: dict[str, KeyRingError | None] = {}
    for entry, table in ringfile.read_tables(file)[0]:
        if entry.state is not KeyState.DESTROYED and (ids is None or entry.id in ids):
            try:
                ringfile.load_key(entry, table, file)
                found[entry.id] = None
            except KeyRingError as error:
                found[entry.id] = error
    return found


# --- what a transition does to the ring's tree ---------------------------------------------------


def _key(tree: Any, key_id: str) -> Any:
    return next(entry for entry in tree["key"] if entry["id"] == key_id)


def _transition(
    path: str | PathLike[str] | None, key_id: str, state: KeyState, require: Precondition | None
) -> None:
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not state:
            entry.require_transition(COMMANDS[state])
            if require is not None:
                require(ring.parsed, entry)
            ring.replace(lambda tree, _: _key(tree, key_id).update(state=state.value))


def _promote(tree: Any, key_id: str, before: str | None) -> None:
    tree["active"] = key_id
    _key(tree, key_id)["state"] = KeyState.ACTIVE.value
    if before is not None:
        _key(tree, before)["state"] = KeyState.DECRYPT_ONLY.value


def _mark_destroyed(tree: Any, key_id: str, now: datetime) -> None:
    entry = _key(tree, key_id)
    entry["state"] = KeyState.DESTROYED.value
    del entry["source"]
    entry["destroyed"] = now


def _own_file(ring: _Held, key_id: str) -> str | None:
    """Return the file of a key as its entry names it, if no other entry has the same."""
    tree = tomllib.loads(ring.data.decode())
    key = _key(tree, key_id)
    own = key["source"].get("file")
    if own is None:
        return None
    folder = ring.file.parent
    for other in [*tree["key"], *tree.get("index", ())]:
        name = other.get("source", {}).get("file")
        if (
            other is not key
            and name is not None
            and os.path.realpath(folder / own) == os.path.realpath(folder / name)
        ):
            called = repr(other["id"]) if "id" in other else "the [[index]]"
            raise KeyTransitionError(
                f"cannot destroy {key_id!r}: its file is also that of {called}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    return str(own)
