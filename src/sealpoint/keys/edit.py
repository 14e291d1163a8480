"""Changes of a ring file: create one, add a key, change the state of a key."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

from sealpoint.errors import (
    DuplicateKeyError,
    KeyRingError,
    OutputExistsError,
)
from sealpoint.keys import files, leftovers
from sealpoint.keys.change import (
    Precondition,
    add_key,
    find_key,
    lock_folder,
    lock_ring,
    now_in_seconds,
)
from sealpoint.keys.entry import (
    require_entry,
    require_owner,
)
from sealpoint.keys.ids import require_key_id
from sealpoint.keys.key import Key, check_value
from sealpoint.keys.ringfile import INDEX, RingFile, find_ring_file
from sealpoint.keys.ringtext import NEW_RING, entry_text, index_text
from sealpoint.keys.state import COMMANDS, KeyState


def create_ring(path: str | PathLike[str], key_id: str | None = None) -> str:
    """Create a ring file with one new active key, and the folder for key files beside it.

    Args:
        path: The new file.
        key_id: Id of the key; by default the next id of the year with a random part, e.g. ``k26a-4f7c``.

    Returns:
        The id of the key.

    Raises:
        OutputExistsError: If the ring file or the key file exists already, or a folder is a file.
        FilePermissionsError: If every account can write in its folder, or this account cannot.
        StoppedError: If a folder or a file cannot be written.
    """
    file = Path(path)
    if not file.name:
        raise OutputExistsError(f"{file} is a folder")
    for folder in reversed(file.parents):  # parents=True would give the parents the mode of the umask
        files.make_folder(folder, 0o755)
    with lock_folder(file):
        if os.path.lexists(file):
            hint = f"nothing is overwritten; to add a key: sealpoint keys generate --keys {quote(str(file))}"
            raise OutputExistsError(f"{file} is there already", hint=hint)
        # The key file is written first: a crash leaves no entry without material.
        key_id, entry = _new_key(file, key_id, (), KeyState.ACTIVE)
        text = NEW_RING.format(active=f'active = "{key_id}"'.ljust(24)) + entry
        fresh = files.write_private(files.beside(file, "new"), text.encode())
        # A new ring contains no material, and agents of other accounts must be able to read it.
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
        key_id: Id of the key; by default the next id of the year with a random part, e.g. ``k26b-4f7c``.
        expires: When the key should no longer seal.
        owner: Who is responsible for the key, one line.

    Returns:
        The id of the key.

    Raises:
        DuplicateKeyError: If the id is used, even by a destroyed key.
        OutputExistsError: If its key file exists already, and is not from an interrupted command.
        RingFileError: If ``owner`` is not one line of text.
    """
    with lock_ring(path) as ring:
        key_id, text = _new_key(ring.file, key_id, ring.taken_ids, KeyState.STAGED, expires, owner)
        ring.replace(lambda tree, parse: add_key(tree, parse(text)))
        leftovers.remove_second_name(ring.file, key_id)
    return key_id


def add_index(path: str | PathLike[str] | None = None) -> str:
    """Add an index key with new material: for tokens and pseudonyms, and never rotated.

    Args:
        path: The ring file.

    Returns:
        The id of the key, ``index``.

    Raises:
        DuplicateKeyError: If the ring has an index key, or another key of this id.
        OutputExistsError: If its key file exists already, and is not from an interrupted command.
    """
    with lock_ring(path) as ring:
        taken = [entry.id for entry in ring.entries]
        leftovers.remove_second_names(ring.file, taken)
        if ring.parsed.index_source is not None or INDEX in taken:
            hint = "an index key is never replaced: no token could be found under another one"
            raise DuplicateKeyError(f"{ring.file} has an index key already", hint=hint)
        check = check_value(leftovers.make_material(ring.file, INDEX))
        text = index_text(INDEX, now_in_seconds(), check)
        ring.replace(lambda tree, parse: tree.update(index=parse(text)["index"]))
        leftovers.remove_second_name(ring.file, INDEX)
    return INDEX


def _new_key(
    file: Path,
    key_id: str | None,
    taken: Sequence[str],
    state: KeyState,
    expires: datetime | None = None,
    owner: str | None = None,
) -> tuple[str, str]:
    """Create the material of a key; return its id and the text of its entry."""
    now = now_in_seconds()
    leftovers.remove_second_names(file, taken)
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
    path: str | PathLike[str] | None, key_id: str, require: Callable[[RingFile, Key], object] | None = None
) -> str | None:
    """Make a key active; the previously active key becomes decrypt-only.

    Args:
        path: The ring file.
        key_id: The key.
        require: A further check, as in all other transitions, but with the loaded key.

    Returns:
        The id of the previously active key: ``key_id`` itself if it was active, ``None`` if no key was.

    Raises:
        KeyTransitionError: If the key's state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        before = next((one.id for one in ring.entries if one.state is KeyState.ACTIVE), None)
        if before == key_id:
            return key_id
        entry.require_transition(COMMANDS[KeyState.ACTIVE])
        key = ring.parsed.load_key(key_id)  # without its material the ring would not load
        if require is not None:
            require(ring.parsed, key)
        now = now_in_seconds()
        ring.replace(lambda tree, _: _promote(tree, key_id, before, now))
    return before


def disable_key(path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None) -> None:
    """Disable a decrypt-only or compromised key. A disabled key is not changed.

    Raises:
        KeyTransitionError: If its state does not allow it.
    """
    _change_state(path, key_id, KeyState.DISABLED, require)


def enable_key(path: str | PathLike[str] | None, key_id: str) -> None:
    """Let a disabled key open again: as compromised if it was compromised, otherwise as decrypt-only.

    A key that opens is not changed.

    Raises:
        KeyTransitionError: If its state does not allow it.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """
    _change_state(path, key_id, KeyState.DECRYPT_ONLY, lambda ring, entry: ring.load_key(entry.id))


def compromise_key(
    path: str | PathLike[str] | None, key_id: str, require: Precondition | None = None
) -> None:
    """Mark a key as compromised: it opens, and never seals again.

    A compromised key is not changed.

    Raises:
        KeyTransitionError: If its state does not allow it: for an active key, promote another one first.
    """
    _change_state(path, key_id, KeyState.COMPROMISED, require)


def check_ring(path: str | PathLike[str] | None = None) -> dict[str, KeyRingError | None]:
    """Load the material of each key that is not destroyed, and compare it with its check value.

    Args:
        path: The ring file.

    Returns:
        The problem by key id; ``None`` for a key whose material is available and correct.
    """
    ring = RingFile(find_ring_file(path))
    found: dict[str, KeyRingError | None] = {}
    for entry in ring.entries:
        if entry.state is not KeyState.DESTROYED:
            try:
                ring.load_key(entry.id)
                found[entry.id] = None
            except KeyRingError as error:
                found[entry.id] = error
    return found


def check_index(path: str | PathLike[str] | None = None) -> KeyRingError | None:
    """Load the material of the index key, if there is one, and compare it with its check value.

    Args:
        path: The ring file.

    Returns:
        The problem, if it is not available or not correct.
    """
    material = RingFile(find_ring_file(path)).make_index()
    try:
        if material is not None:
            material.load()
    except KeyRingError as error:
        return error
    return None


# --- changes of the ring's tree ------------------------------------------------


def _change_state(
    path: str | PathLike[str] | None, key_id: str, state: KeyState, require: Precondition | None
) -> None:
    with lock_ring(path) as ring:
        entry = require_entry(ring.entries, key_id)
        if entry.state is state:
            return
        entry.require_transition(COMMANDS[state])
        if require is not None:
            require(ring.parsed, entry)
        now = now_in_seconds()
        ring.replace(lambda tree, _: _set_state(find_key(tree, key_id), state, now))


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
    key = find_key(tree, key_id)
    tree["active"] = key_id
    key["state"] = KeyState.ACTIVE.value
    key.setdefault("activated", now)
    key.pop("retired", None)
    if before is not None:
        find_key(tree, before).update(state=KeyState.DECRYPT_ONLY.value, retired=now)
