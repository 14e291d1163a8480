"""The file of one key, which a command is about to remove."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sealpoint.errors import KeyRingError, KeyTransitionError
from sealpoint.errors.maintenance import stopped_by
from sealpoint.keys.change import LockedRing
from sealpoint.keys.files import fsync_path, read_private
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.key import check_value
from sealpoint.keys.material import parse_material
from sealpoint.keys.sources import FileSource
from sealpoint.keys.state import KeyState


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


def holds_key(file: Path, suite: str | None, check: str | None) -> bool:
    """Whether a file is known to hold a key: it may have been replaced. Its check value decides."""
    with suppress(KeyRingError):
        raw = read_private(file)
        material = raw if suite == LEGACY else parse_material(raw, str(file))
        return check == check_value(material)
    return False


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
