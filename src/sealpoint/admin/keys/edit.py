"""Changes of a ring: create a ring file, add a key, change the state of a key.

The material of a new key is written to a file in ``keys.d``, or wrapped, before its entry is added. If a
command is killed in between, a key file without an entry remains. No command uses or overwrites this file; a
command that adds a key with the same id reports it.
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from itertools import count
from os import PathLike
from pathlib import Path
from shlex import quote
from string import ascii_lowercase
from typing import Any, Final

from sealpoint.admin.keys import files
from sealpoint.admin.keys.change import (
    NEW_RING,
    LockedRing,
    Precondition,
    entry_text,
    find_key,
    lock_folder,
    lock_ring,
    now_in_seconds,
)
from sealpoint.admin.keys.wrapping import wrap_material
from sealpoint.errors import FilePermissionsError, KeyIdError, KeyRingError, OutputError
from sealpoint.keys.entry import COMMANDS, RingEntry, require_entry, require_types
from sealpoint.keys.material import check_value
from sealpoint.keys.ringfile import INDEX, RingFile
from sealpoint.seal.keys import KEY_BYTES, Key, KeyState, require_key_id

KEY_FOLDER: Final = "keys.d"

Fields = dict[str, str | datetime | None]


def create_ring(path: str | PathLike[str], key_id: str | None = None) -> str:
    """Create a ring file with one new, active key, whose key file is in ``keys.d``; return the key id."""
    file = Path(path)
    if not file.name:
        raise OutputError(f"{file} is a folder")
    for folder in reversed(file.parents):  # parents=True would create parents with the umask's mode
        files.make_folder(folder, 0o755)
    with lock_folder(file):
        if os.path.lexists(file):
            hint = f"no file is overwritten; to add a key: sealpoint keys generate --keys {quote(str(file))}"
            raise OutputError(f"{file} already exists", hint=hint)
        now = now_in_seconds()
        key_id = _require_free(file, key_id, (), now)
        # The key file is written first, so that a crash leaves no entry without material.
        fields: Fields = {"state": KeyState.ACTIVE.value, "created": now, "activated": now}
        entry = _new_entry("key", key_id, fields, partial(_keep_in_file, file))
        text = NEW_RING.format(active=f'active = "{key_id}"'.ljust(24)) + entry
        fresh = files.write_private(file.with_name(f".{file.name}.new"), text.encode())
        # A new ring contains no material, and agents of other accounts must be able to read it.
        fresh.chmod(0o644)
        os.link(fresh, file)  # unlike rename, link never replaces a file
        fresh.unlink()
        files.fsync_path(file.parent)
    return key_id


def stage_key(
    path: str | PathLike[str] | None = None,
    key_id: str | None = None,
    wrapper_id: str | None = None,
    *,
    expires: datetime | None = None,
    **lines: str | None,
) -> str:
    """Add a staged key with new material; return its id.

    The material is written to a key file; with a wrapper, it is wrapped instead, and never written to a file.
    ``lines`` are fields of `LINES`.
    """
    with lock_ring(path) as ring:
        now = now_in_seconds()
        key_id = _require_free(ring.file, key_id, ring.taken_ids, now)
        require_types({name: text for name, text in lines.items() if text is not None}, f"key {key_id!r}")
        fields: Fields = dict(state=KeyState.STAGED.value, created=now, expires=expires, **lines)
        _add(ring, "key", key_id, fields, wrapper_id)
    return key_id


def add_index(path: str | PathLike[str] | None = None, wrapper_id: str | None = None) -> str:
    """Add an index key for tokens and pseudonyms, with new material. An index key is never rotated."""
    with lock_ring(path) as ring:
        if ring.parsed.index is not None or INDEX in ring.taken_ids:
            hint = "an index key is never replaced: existing tokens could not be found under a new key"
            raise KeyIdError(f"{ring.file} already has an index key", hint=hint)
        _add(ring, "index", INDEX, {"created": now_in_seconds()}, wrapper_id)
    return INDEX


def _add(ring: LockedRing, table: str, key_id: str, fields: Fields, wrapper_id: str | None) -> None:
    in_file = partial(_keep_in_file, ring.file)
    sink = in_file if wrapper_id is None else partial(wrap_material, ring, wrapper_id)
    text = _new_entry(table, key_id, fields, sink)

    def change(tree: Any, parse: Callable[[str], Any]) -> None:
        if wrapper_id is not None:
            tree.setdefault("name", ring.name)
        entries = parse(text)[table]
        if table in tree:
            tree[table].append(entries[0])
        else:
            tree[table] = entries

    ring.replace(change)


def _new_entry(table: str, key_id: str, fields: Fields, keep: Callable[[str, bytes], str]) -> str:
    # ``keep`` writes the material to a key file, or wraps it, and returns the ``source`` line.
    material = os.urandom(KEY_BYTES)
    source = keep(key_id, material)
    return entry_text(table, {"id": key_id, **fields, "check": check_value(material)}, source)


def key_file(ring: Path, key_id: str) -> Path:
    """Return the path of the key file for a new key of the ring file ``ring``."""
    return ring.parent / KEY_FOLDER / f"{key_id}.key"


def _keep_in_file(ring: Path, key_id: str, material: bytes) -> str:
    file = key_file(ring, key_id)
    files.make_folder(file.parent, 0o700)
    if file.parent.is_symlink():
        raise FilePermissionsError(f"{file.parent} is a symbolic link", hint="replace it by a real folder")
    files.require_unshared(file.parent)
    _require_absent(file)
    ignored = file.with_name(".gitignore")
    # Before the key file, so that `git add -A` never adds it. A killed command leaves .gitignore empty.
    if not (os.path.lexists(ignored) and ignored.lstat().st_size):
        files.write_private(ignored, b"*\n")
    # No temporary name: the material would stay on the disk as long as one of its names.
    files.write_private(file, base64.b64encode(material) + b"\n", replaces=False)
    files.fsync_path(file.parent)
    # The folder for key files may be new, so fsync the ring's folder, which contains its name.
    files.fsync_path(ring.parent)
    return f'source = {{ file = "{KEY_FOLDER}/{key_id}.key" }}'


def _require_absent(file: Path) -> None:
    if os.path.lexists(file):
        hint = (
            "choose another id, or remove the file if no ring names it: a killed command may have left it;"
            " key files are never overwritten"
        )
        raise OutputError(f"{file} already exists", hint=hint)


def _require_free(ring: Path, key_id: str | None, taken: Collection[str], now: datetime) -> str:
    if key_id is None:
        return free_id(ring, taken, now.year)
    if require_key_id(key_id) in taken:
        raise KeyIdError(f"{ring} already has a key {key_id!r}")
    _require_absent(key_file(ring, key_id))
    return key_id


def free_id(ring: Path, taken: Collection[str], year: int) -> str:
    """Return an unused id for a new key, such as ``k26a-4f7c``: year, counter and a random part.

    The random part makes ids differ between rings, so no row of one ring names a key of another ring.
    """
    for number in count(1):
        stem = f"k{year % 100:02}{_letters(number)}"
        if any(key_id == stem or key_id.startswith(f"{stem}-") for key_id in taken):
            continue
        key_id = f"{stem}-{secrets.token_hex(2)}"
        if not any(os.path.lexists(key_file(ring, name)) for name in (stem, key_id)):
            break
    return key_id


def _letters(number: int) -> str:
    """Return a counter as letters: 1 is a, 26 is z, 27 is aa, 28 is ab."""
    front, place = divmod(number - 1, 26)
    return (_letters(front) if front else "") + ascii_lowercase[place]


def promote_key(
    path: str | PathLike[str] | None, key_id: str, require: Callable[[RingFile, Key], object] | None = None
) -> str | None:
    """Make a key active; the previously active key becomes decrypt-only. Return the id of the previous key.

    ``require`` is called with the ring file and the loaded key, and raises to refuse the change.
    """

    def require_material(ring: RingFile, entry: RingEntry) -> None:
        key = ring.load_key(entry.id)  # without its material the ring could not be loaded
        if require is not None:
            require(ring, key)

    return change_state(path, key_id, KeyState.ACTIVE, require_material)


def change_state(
    path: str | PathLike[str] | None, key_id: str, state: KeyState, require: Precondition | None = None
) -> str | None:
    """Change the state of a key; return the id of the key that was active before, or ``None``.

    A disabled key that is enabled becomes compromised if it was ever compromised, otherwise decrypt-only.
    """
    with lock_ring(path) as ring:
        entry, before = require_entry(ring.entries, key_id), ring.parsed.active_id
        if entry.state is not state:
            entry.require_transition(COMMANDS[state])
            if state is KeyState.DECRYPT_ONLY:
                ring.parsed.load_key(key_id)
            if require is not None:
                require(ring.parsed, entry)
            now = now_in_seconds()
            ring.replace(lambda tree, _: _set_state(tree, key_id, state, before, now))
        return before


def _set_state(tree: Any, key_id: str, state: KeyState, before: str | None, now: datetime) -> None:
    key = find_key(tree, key_id)
    if state is KeyState.ACTIVE:
        tree["active"] = key_id
        key.setdefault("activated", now)
        key.pop("retired", None)
        if before is not None:
            find_key(tree, before).update(state=KeyState.DECRYPT_ONLY.value, retired=now)
    else:
        if KeyState.COMPROMISED in (state, KeyState(key["state"])):
            key.setdefault("compromised", now)  # kept while the key is disabled
        if state is KeyState.DISABLED:
            key["disabled"] = now
        else:
            key.pop("disabled", None)
        if state is KeyState.DECRYPT_ONLY and "compromised" in key:
            state = KeyState.COMPROMISED
    key["state"] = state.value


def check_ring(
    path: str | PathLike[str] | None = None,
) -> tuple[dict[str, KeyRingError | None], KeyRingError | None]:
    """Load the material of each key that is not destroyed, and of the index key, and compare check values.

    Returns the error of each key by its id, and the error of the index key; ``None`` for no error.
    """
    ring = RingFile(path)
    ids = [entry.id for entry in ring.entries if entry.state is not KeyState.DESTROYED]
    found = {key_id: _find_problem(partial(ring.load_key, key_id)) for key_id in ids}
    return found, None if ring.index is None else _find_problem(ring.index)


def _find_problem(load: Callable[[], object]) -> KeyRingError | None:
    try:
        load()
    except KeyRingError as error:
        return error
    return None
