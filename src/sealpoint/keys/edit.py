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

from sealpoint.crypto import KeyState, check_value
from sealpoint.crypto.tag import require_key_id
from sealpoint.databases.rows import RowStore
from sealpoint.errors import (
    DuplicateKeyError,
    FilePermissionsError,
    HeldError,
    KeyMoveError,
    KeyRingError,
    OutputExistsError,
)
from sealpoint.keys import files as keyfiles
from sealpoint.keys import ringfile as keyfile
from sealpoint.keys.lock import holding
from sealpoint.keys.ringfile import RingEntry, find_ring_file, read_ring_entries, read_tables
from sealpoint.keys.ringtext import NEW_RING, Change, changed, entry_text
from sealpoint.keys.sources import read_private
from sealpoint.maintenance.moves import require_entry, require_move, require_related, require_unused
from sealpoint.maintenance.ringcheck import require_opening

_SHARED: Final = 0o022  # a ring may be read by all, and written by its owner alone


@dataclass(frozen=True, slots=True)
class _Held:
    """A ring file that nobody else moves on, as it was found."""

    file: Path
    data: bytes
    entries: tuple[RingEntry, ...]
    index_ids: tuple[str, ...]

    def replace(self, change: Change) -> None:
        """Put a changed file in its place."""
        text = changed(self.data.decode(), change, str(self.file))
        like = self.file.stat(follow_symlinks=False)
        fresh = keyfiles.write_private(keyfiles.beside(self.file, "new"), text.encode(), like)
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
        keyfiles.keep(self.file.parent)


@contextmanager
def _held(path: str | PathLike[str] | None) -> Iterator[_Held]:
    file = find_ring_file(path)
    with _holding(file):
        data = read_private(file, forbidden=_SHARED)
        tables, indexes = read_tables(file)
        index_ids = tuple(index["id"] for index in indexes if "id" in index)
        yield _Held(file, data, tuple(entry for entry, _ in tables), index_ids)


@contextmanager
def _holding(file: Path) -> Iterator[None]:
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise FilePermissionsError(
            f"this account may not write in {file.parent}", hint="run this as the account that owns the ring"
        )
    keyfiles.require_unshared(file.parent)
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
        fresh = keyfiles.write_private(keyfiles.beside(file, "new"), text.encode())
        fresh.chmod(0o644)
        os.link(fresh, file)  # unlike a renaming it never replaces what came in between
        fresh.unlink()
        keyfiles.keep(file.parent)
        keyfiles.settle(file, key_id)
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
            keyfiles.settle(ring.file, entry.id)
        taken = [*(entry.id for entry in ring.entries), *ring.index_ids]
        key_id, text = _new_key(ring.file, key_id, taken, KeyState.STAGED)
        ring.replace(lambda tree, parse: tree["key"].append(parse(text)["key"][0]))
        keyfiles.settle(ring.file, key_id)
    return key_id


def _new_key(file: Path, key_id: str | None, taken: Sequence[str], state: KeyState) -> tuple[str, str]:
    """Make the material of a key; return its id and the text of its entry."""
    now = datetime.now(UTC)
    key_id = keyfiles.free_id(file, taken, now.year) if key_id is None else require_key_id(key_id)
    if key_id in taken:
        raise DuplicateKeyError(f"{file} has a key {key_id!r} already")
    return key_id, entry_text(key_id, state.value, now, check_value(keyfiles.make_material(file, key_id)))


def promote_key(path: str | PathLike[str] | None, key_id: str, stores: Sequence[RowStore] = ()) -> str | None:
    """Make a key the one that seals; the one before it goes on to open.

    Returns:
        The id of the one before it: ``key_id`` itself if it was active already, ``None`` if none was.

    Raises:
        KeyMoveError: If the key's state does not allow it.
        KeyInUseError: If a store has rows under a key of the ring that is neither of the two.
            Where no key was active, nothing is refused: that is how sealing is taken up again.
        WrongRingError: If a store has rows under the key's id that it does not open.
        KeyRingError: Another of its subclasses, if the key's material is not to be had.
    """
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        before = next((one.id for one in ring.entries if one.state is KeyState.ACTIVE), None)
        if before == key_id:
            return key_id
        require_move(entry, "promote")
        _require_material(ring.file, entry)
        older = [one for one in ring.entries if one.id not in (before, key_id)] if before else []
        require_unused(older, stores, f"cannot promote {key_id!r}")
        if stores:
            table = next(table for one, table in read_tables(ring.file)[0] if one.id == key_id)
            require_opening(keyfile.load_key(entry, table, ring.file), stores)
        ring.replace(lambda tree, _: _promote(tree, key_id, before))
    return before


def disable_key(path: str | PathLike[str] | None, key_id: str, stores: Sequence[RowStore] = ()) -> None:
    """Refuse values under a key that only opened. One that is disabled stays so.

    Raises:
        KeyMoveError: If its state does not allow it.
        KeyInUseError: If a store has rows under it.
    """

    def require(_: Path, entry: RingEntry) -> None:
        require_unused([entry], stores, f"cannot disable {key_id!r}")

    _move(path, key_id, "disable", KeyState.DISABLED, require)


def enable_key(path: str | PathLike[str] | None, key_id: str) -> None:
    """Let a disabled key open again. One that only opens stays so.

    Raises:
        KeyMoveError: If its state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not to be had.
    """
    _move(path, key_id, "enable", KeyState.DECRYPT_ONLY, _require_material)


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    allow_unrelated: bool = False,
) -> Path | None:
    """Make a key a tombstone and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory keep what they keep,
    and no program can promise otherwise. Material from other sources is left to who keeps it.
    Run again on a tombstone, it removes what a stopped run left.

    With ``allow_unrelated`` a store is accepted that has no value under any key of the ring.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyMoveError: If the key is neither staged nor disabled, or shares its file with another.
        KeyInUseError, UnrelatedDatabaseError: If a store has rows under it, or under no key of the ring.
        StoppedError: If the file cannot be removed.
    """
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not KeyState.DESTROYED:
            require_move(entry, "destroy")
            require_unused([entry], stores, f"cannot destroy {key_id!r}")
            if not allow_unrelated:
                require_related(ring.entries, stores, f"cannot destroy {key_id!r}")
            keyfiles.note_doomed(ring.file, key_id, _own_file(ring, key_id))
            now = datetime.now(UTC).replace(microsecond=0)
            ring.replace(lambda tree, _: _bury(tree, key_id, now))
        else:
            keyfiles.require_doomed(ring.file, entry)
        return keyfiles.remove_doomed(ring.file, key_id)


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
    for entry, table in keyfile.read_tables(file)[0]:
        if entry.state is not KeyState.DESTROYED and (ids is None or entry.id in ids):
            try:
                keyfile.load_key(entry, table, file)
                found[entry.id] = None
            except KeyRingError as error:
                found[entry.id] = error
    return found


def _require_material(file: Path, entry: RingEntry) -> None:
    """Refuse to let a key be used whose material is not to be had: no process could load the ring."""
    for problem in check_ring(file, [entry.id]).values():
        if problem is not None:
            raise problem


# --- what a move does to the ring's tree ------------------------------------------------------


def _key(tree: Any, key_id: str) -> Any:
    return next(entry for entry in tree["key"] if entry["id"] == key_id)


def _move(
    path: str | PathLike[str] | None,
    key_id: str,
    move: str,
    state: KeyState,
    require: Callable[[Path, RingEntry], None],
) -> None:
    with _held(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not state:
            require_move(entry, move)
            require(ring.file, entry)
            ring.replace(lambda tree, _: _key(tree, key_id).update(state=state.value))


def _promote(tree: Any, key_id: str, before: str | None) -> None:
    tree["active"] = key_id
    _key(tree, key_id)["state"] = KeyState.ACTIVE.value
    if before is not None:
        _key(tree, before)["state"] = KeyState.DECRYPT_ONLY.value


def _bury(tree: Any, key_id: str, now: datetime) -> None:
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
            raise KeyMoveError(
                f"cannot destroy {key_id!r}: its file is also that of {called}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    return str(own)
