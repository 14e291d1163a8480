"""Changes of a ring file: make one, add a key, take a key from state to state.

A change puts a new file in the place of the old one, after reading it back: an interrupted command leaves
the old ring or the new one, and can be run again. The ring file is locked meanwhile, and it is not replaced
if it was changed by hand.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

from sealpoint.errors import (
    DuplicateKeyError,
    FilePermissionsError,
    HeldError,
    KeyRingError,
    KeyTransitionError,
    OutputExistsError,
    StoppedError,
)
from sealpoint.keys import files, leftovers
from sealpoint.keys.entry import (
    MATERIAL_GONE,
    MATERIAL_LEFT,
    MATERIAL_REMOVED,
    RingEntry,
    require_entry,
    require_owner,
)
from sealpoint.keys.ids import LEGACY, require_key_id
from sealpoint.keys.key import check_value
from sealpoint.keys.lock import holding
from sealpoint.keys.material import parse_material
from sealpoint.keys.ringfile import SHARED, RingFile, find_ring_file, read_ring_entries
from sealpoint.keys.ringtext import NEW_RING, Change, changed, entry_text
from sealpoint.keys.sources import FileSource, InlineSource
from sealpoint.keys.state import COMMANDS, KeyState

Precondition = Callable[[RingFile, RingEntry], object]
"""Raises if a key may not change its state. Called with the ring and the key's entry, while the ring file is
locked and before anything is written."""


@dataclass(frozen=True, slots=True)
class _Locked:
    """A ring file that no other command changes, as it was found."""

    file: Path
    parsed: RingFile

    @property
    def entries(self) -> tuple[RingEntry, ...]:
        return self.parsed.entries

    def replace(self, change: Change) -> _Locked:
        """Put a changed file in the place of this one."""
        text = changed(self.parsed.data.decode(), change, str(self.file))
        like = self.file.stat(follow_symlinks=False)
        fresh = files.write_private(files.beside(self.file, "new"), text.encode(), like)
        try:
            read_ring_entries(fresh)
            if files.read_private(self.file, forbidden=SHARED) != self.parsed.data:
                raise HeldError(
                    f"{self.file} was changed by hand meanwhile",
                    hint="look at what was changed, then run the same command again",
                )
            fresh.replace(self.file)
        finally:
            fresh.unlink(missing_ok=True)
        files.fsync_path(self.file.parent)
        return _Locked(self.file, RingFile(self.file))


@contextmanager
def _locked(path: str | PathLike[str] | None) -> Iterator[_Locked]:
    file = find_ring_file(path)
    with _holding(file):
        yield _Locked(file, RingFile(file))


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
        OutputExistsError: If the ring file or the key file exists already.
        FilePermissionsError: If every account can write in its folder, as for all other changes, or this
            account cannot.
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
        os.link(fresh, file)  # unlike rename, never replaces a file
        fresh.unlink()
        files.fsync_path(file.parent)
        leftovers.remove_second_name(file, key_id)
    return key_id


def stage_key(
    path: str | PathLike[str] | None = None,
    key_id: str | None = None,
    *,
    expires: datetime | None = None,
    owner: str | None = None,
) -> str:
    """Add a key with new material, staged.

    Args:
        path: The ring file, as for `KeyRing.load`; also in all other changes.
        key_id: Id of the key; by default the next of the year and a random part, e.g. ``k26b-4f7c``.
        expires: When it should no longer seal.
        owner: Who is responsible for it, one line.

    Returns:
        The id of the key.

    Raises:
        DuplicateKeyError: If the id is taken, even by a destroyed key.
        OutputExistsError: If its key file exists already, and is not from an interrupted command.
        RingFileError: If ``owner`` is not one line of text.
    """
    with _locked(path) as ring:
        for entry in ring.entries:
            leftovers.remove_second_name(ring.file, entry.id)
        taken = [entry.id for entry in ring.entries]
        if ring.parsed.index_id is not None:
            taken.append(ring.parsed.index_id)
        key_id, text = _new_key(ring.file, key_id, taken, KeyState.STAGED, expires, owner)
        ring.replace(lambda tree, parse: tree["key"].append(parse(text)["key"][0]))
        leftovers.remove_second_name(ring.file, key_id)
    return key_id


def _new_key(
    file: Path,
    key_id: str | None,
    taken: Sequence[str],
    state: KeyState,
    expires: datetime | None = None,
    owner: str | None = None,
) -> tuple[str, str]:
    """Make the material of a key; return its id and the text of its entry."""
    now = _now()
    key_id = leftovers.free_id(file, taken, now.year) if key_id is None else require_key_id(key_id)
    if key_id in taken:
        raise DuplicateKeyError(f"{file} has a key {key_id!r} already")
    if owner is not None:
        require_owner(owner, f"key {key_id!r}")
    activated = now if state is KeyState.ACTIVE else None
    dates = {"created": now, "activated": activated, "expires": expires}
    check = check_value(leftovers.make_material(file, key_id))
    return key_id, entry_text(key_id, state.value, dates, owner, check)


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
    with _locked(path) as ring:
        entry = require_entry(ring.entries, key_id)
        before = next((one.id for one in ring.entries if one.state is KeyState.ACTIVE), None)
        if before == key_id:
            return key_id
        entry.require_transition(COMMANDS[KeyState.ACTIVE])
        ring.parsed.load_key(key_id)  # without its material no process could load the ring
        if require is not None:
            require(ring.parsed, entry)
        now = _now()
        ring.replace(lambda tree, _: _promote(tree, key_id, before, now))
    return before


def disable_key(path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None) -> None:
    """Refuse values under a key that only opened. A key that is disabled already is left as it is.

    Raises:
        KeyTransitionError: If its state does not allow it.
    """
    _change_state(path, key_id, KeyState.DISABLED, require)


def enable_key(path: str | PathLike[str] | None, key_id: str) -> None:
    """Let a disabled key open again: as compromised if it was, else as decrypt-only.

    A key that only opens is left as it is.

    Raises:
        KeyTransitionError: If its state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """
    _change_state(path, key_id, KeyState.DECRYPT_ONLY, lambda ring, entry: ring.load_key(entry.id))


def compromise_key(
    path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None
) -> None:
    """Mark a key as compromised: it opens, and never seals again.

    A key that is compromised already is left as it is.

    Raises:
        KeyTransitionError: If its state does not allow it: in the place of an active key another is promoted
            first.
    """
    _change_state(path, key_id, KeyState.COMPROMISED, require)


def destroy_key(
    path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None
) -> Path | None:
    """Mark a key as destroyed and remove the file with its material. Nothing undoes it.

    The file is removed, not overwritten: journals, snapshots and flash memory may have copies that no
    program reaches. Material from other sources is not removed; the entry says where it was.
    Run again on a destroyed key, it removes what an interrupted run left.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, or it shares its file with another.
        StoppedError: If the file cannot be removed.
    """
    with _locked(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is not KeyState.DESTROYED:
            entry.require_transition(COMMANDS[KeyState.DESTROYED])
            if require is not None:
                require(ring.parsed, entry)
            file = _own_file(ring, entry)
            is_gone = file is not None and not os.path.lexists(file)
            outcome = MATERIAL_GONE if is_gone else MATERIAL_LEFT
            now = _now()
            ring = ring.replace(lambda tree, _: _mark_destroyed(tree, key_id, outcome, now))
        elif entry.source == FileSource.kind and entry.material == MATERIAL_LEFT:
            file, is_gone = _own_file(ring, entry), False
            if file is not None and os.path.lexists(file):
                _require_holds(file, entry)
        else:
            return None
        if file is None or is_gone:
            return None
        return _remove(ring, key_id, file)


def _remove(ring: _Locked, key_id: str, file: Path) -> Path | None:
    """Remove the key file of a destroyed key, and record it. Until then the entry says that it is left."""
    is_there = os.path.lexists(file)
    leftovers.remove_second_name(ring.file, key_id)
    try:
        with suppress(FileNotFoundError):  # perhaps with its folder
            file.unlink(missing_ok=True)
            files.fsync_path(file.parent)
    except OSError as error:
        raise StoppedError(
            f"{file} cannot be removed: {os.strerror(error.errno or 0)}",
            hint="the key is destroyed, its material is still there: run the same command again",
        ) from None
    ring.replace(lambda tree, _: _key(tree, key_id).update(material=MATERIAL_REMOVED))
    return file if is_there else None


def _require_holds(file: Path, entry: RingEntry) -> None:
    """Refuse to remove a file that may be another by now: one that does not have the key's check value."""
    with suppress(KeyRingError):
        raw = files.read_private(file)
        material = raw if entry.suite == LEGACY else parse_material(raw, str(file))
        if entry.check == check_value(material):
            return
    raise KeyTransitionError(
        f"{file} is not known to hold the key {entry.id!r}",
        hint=f"remove it if it was the key's, then set material = \"{MATERIAL_REMOVED}\" in the key's entry",
    )


def check_ring(
    path: str | PathLike[str] | None = None, ids: Iterable[str] | None = None
) -> dict[str, KeyRingError | None]:
    """Ask for the material of each key, and compare it with its check value.

    Args:
        path: The ring file.
        ids: The keys to ask for; by default all that are not destroyed.

    Returns:
        By id, what is wrong; ``None`` for a key whose material is available and right.
    """
    ring = RingFile(find_ring_file(path))
    found: dict[str, KeyRingError | None] = {}
    for entry in ring.entries:
        if entry.state is not KeyState.DESTROYED and (ids is None or entry.id in ids):
            try:
                ring.load_key(entry.id)
                found[entry.id] = None
            except KeyRingError as error:
                found[entry.id] = error
    return found


# --- what a transition does to the ring's tree ------------------------------------------------


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _key(tree: Any, key_id: str) -> Any:
    return next(entry for entry in tree["key"] if entry["id"] == key_id)


def _change_state(
    path: str | PathLike[str] | None, key_id: str, state: KeyState, require: Precondition | None
) -> None:
    with _locked(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is state:
            return
        entry.require_transition(COMMANDS[state])
        if require is not None:
            require(ring.parsed, entry)
        now = _now()
        ring.replace(lambda tree, _: _set_state(_key(tree, key_id), state, now))


def _set_state(key: Any, state: KeyState, now: datetime) -> None:
    if KeyState.COMPROMISED in (state, KeyState(key["state"])):
        key.setdefault("compromised", now)  # remembered while the key is disabled
    if state is KeyState.DISABLED:
        key["disabled"] = now
    else:
        key.pop("disabled", None)
    if state is KeyState.DECRYPT_ONLY and "compromised" in key:
        state = KeyState.COMPROMISED
    key["state"] = state.value


def _promote(tree: Any, key_id: str, before: str | None, now: datetime) -> None:
    key = _key(tree, key_id)
    tree["active"] = key_id
    key["state"] = KeyState.ACTIVE.value
    key.setdefault("activated", now)
    key.pop("retired", None)
    if before is not None:
        _key(tree, before).update(state=KeyState.DECRYPT_ONLY.value, retired=now)


def _mark_destroyed(tree: Any, key_id: str, outcome: str, now: datetime) -> None:
    """Keep where the material was. Material in the ring itself is removed with its source."""
    key = _key(tree, key_id)
    if KeyState(key["state"]) is KeyState.COMPROMISED:
        key.setdefault("compromised", now)
    key["state"] = KeyState.DESTROYED.value
    key["destroyed"] = now
    if InlineSource.kind in key["source"]:
        del key["source"]
    else:
        key["material"] = outcome


def _own_file(ring: _Locked, entry: RingEntry) -> Path | None:
    """Return the file of a key, if no other entry has the same."""
    if entry.source != FileSource.kind or entry.location is None:
        return None
    folder = ring.file.parent
    own = folder / entry.location
    tree = tomllib.loads(ring.parsed.data.decode())
    for other in [*tree["key"], *tree.get("index", ())]:
        name = other.get("source", {}).get("file")
        is_own = other.get("id") == entry.id and "state" in other
        if name is None or is_own or other.get("state") == KeyState.DESTROYED.value:
            continue
        if os.path.realpath(own) == os.path.realpath(folder / name):
            called = repr(other["id"]) if "id" in other else "the [[index]]"
            raise KeyTransitionError(
                f"cannot destroy {entry.id!r}: its file is also that of {called}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    return own
