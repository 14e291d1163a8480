"""The file of one key, which a command is about to remove."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sealpoint.errors import KeyRingError, KeyTransitionError
from sealpoint.errors.maintenance import stopped_by
from sealpoint.keys import leftovers
from sealpoint.keys.change import LockedRing
from sealpoint.keys.files import fsync_path, read_private
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import check_value
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import FileSource
from sealpoint.keys.state import KeyState
from sealpoint.keys.wrapped import WrappedSource


def own_file(ring: LockedRing, key_id: str, act: str) -> Path | None:
    """Return the file of a key or of the index key, if no other entry has the same file.

    Args:
        ring: The ring.
        key_id: The key.
        act: What is to be done with the key, for the message.

    Raises:
        KeyTransitionError: If another entry has the same file.
    """
    folder, own = ring.file.parent, None
    others = {
        repr(one.id): folder / str(one.location)
        for one in ring.entries
        if one.source == FileSource.kind and (one.state is not KeyState.DESTROYED or one.id == key_id)
    }
    if repr(key_id) in others:
        own = others.pop(repr(key_id))
    if isinstance(index := ring.parsed.index_source, FileSource):
        others["the [[index]]"] = folder / index.location
        if not any(one.id == key_id for one in ring.entries):
            own = others.pop("the [[index]]")
    for other, file in others.items():
        if own is not None and os.path.realpath(own) == os.path.realpath(file):
            raise KeyTransitionError(
                f"cannot {act} {key_id!r}: its file is also that of {other}",
                hint="give each of them a file of its own in the ring, then run the same command again",
            )
    return own


def require_own_key(file: Path, key_id: str, suite: str | None, check: str | None) -> None:
    """Refuse a file that may have been replaced since it was the key's. Its check value decides.

    Raises:
        KeyTransitionError: If the file is there, and is not known to hold the key.
    """
    if not os.path.lexists(file):
        return
    with suppress(KeyRingError):
        raw = read_private(file)
        material = raw if suite == LEGACY else parse_material(raw, str(file))
        if check == check_value(material):
            return
    hint = "remove it if it was the key's, otherwise move it away; then run the same command again"
    raise KeyTransitionError(f"{file} is not known to hold the key {key_id!r}", hint=hint)


def remove_left_file(ring: LockedRing, key_id: str) -> Path | None:
    """Remove the file of a wrapped key that `wrap_key` has left.

    Returns:
        The file, if it was there.

    Raises:
        KeyTransitionError: If it is not known to hold the key.
        StoppedError: If it cannot be removed.
    """
    loader = ring.parsed.require_loader(key_id)
    if not isinstance(loader.source, WrappedSource) or loader.source.left is None:
        return None
    file = ring.file.parent / loader.source.left
    is_there = os.path.lexists(file)
    require_own_key(file, key_id, loader.suite, loader.check)
    leftovers.remove_second_name(ring.file, key_id)
    remove_key_file(file, "the key is wrapped, and its file is still there: run the same command again")
    return file if is_there else None


def remove_key_file(file: Path, hint: str) -> None:
    """Remove a key file, and flush its folder to the disk. A file that is gone is no error.

    Raises:
        StoppedError: If it cannot be removed; ``hint`` says what to do.
    """
    try:
        with suppress(FileNotFoundError):  # perhaps with its folder
            file.unlink(missing_ok=True)
            fsync_path(file.parent)
    except OSError as error:
        raise stopped_by(error, f"{file} cannot be removed", hint) from None
