"""Transitions of keys, refused while rows of a database require the old state."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from sealpoint.crypto import KeyState
from sealpoint.crypto.tag import is_under
from sealpoint.databases.rows import RowStore
from sealpoint.errors import KeyInUseError, UnrelatedDatabaseError
from sealpoint.keys import destroy, edit
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK, RingEntry
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.ringfile import RingFile
from sealpoint.maintenance.ringcheck import require_opening


def promote_key(path: str | PathLike[str] | None, key_id: str, stores: Sequence[RowStore] = ()) -> str | None:
    """Make a key active, unless a database prevents it. See `edit.promote_key`.

    Returns:
        The id of the key that was active before.

    Raises:
        KeyTransitionError: If the key's state does not allow it.
        KeyInUseError: If a database has rows under a key of the ring that is neither of the two.
            Not raised if no key was active, so that sealing can be resumed.
        WrongRingError: If a database has rows under the key's id that the key does not open.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """

    # Called while the ring file is locked: no other command changes a state between check and transition.
    def require(ring: RingFile, entry: RingEntry) -> None:
        before = [one for one in ring.entries if one.state is KeyState.ACTIVE]
        older = [one for one in ring.entries if one not in (*before, entry)] if before else []
        require_unused(older, stores, f"cannot promote {key_id!r}")
        if stores:
            require_opening(ring.load_key(key_id), stores)

    return edit.promote_key(path, key_id, require)


def disable_key(path: str | PathLike[str] | None, key_id: str, stores: Sequence[RowStore] = ()) -> None:
    """Disable a key, unless a database has rows under it. See `edit.disable_key`.

    Raises:
        KeyTransitionError: If its state does not allow it.
        KeyInUseError: If a database has rows under it.
    """

    def require(_: RingFile, entry: RingEntry) -> None:
        require_unused([entry], stores, f"cannot disable {key_id!r}")

    edit.disable_key(path, key_id, require)


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    allow_unrelated: bool = False,
) -> Path | None:
    """Destroy a key, unless a database prevents it. See `sealpoint.keys.destroy.destroy_key`.

    With ``allow_unrelated`` a database is accepted that has no value under any key of the ring. The ring
    records that, and that no database was named.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, or it shares its file with another key.
        KeyInUseError, UnrelatedDatabaseError: If a database has rows under it, or under no key of the ring.
        StoppedError: If the file cannot be removed.
    """

    def require(ring: RingFile, entry: RingEntry) -> Sequence[str]:
        require_unused([entry], stores, f"cannot destroy {key_id!r}")
        if not stores:
            return [DATABASE_CHECK]
        if allow_unrelated:
            return [] if all(is_related(store, ring.entries) for store in stores) else [RELATION_CHECK]
        require_related(ring.entries, stores, f"cannot destroy {key_id!r}")
        return []

    return destroy.destroy_key(path, key_id, require)


def require_unused(entries: Sequence[RingEntry], stores: Sequence[RowStore], what: str) -> None:
    """Refuse a transition while a store has rows under one of the keys.

    Args:
        entries: The keys.
        stores: The databases to search.
        what: The refused transition, for the message.

    Raises:
        KeyInUseError: If a store has rows under one of the keys.
        RowError: If a column of a store has too many different tags to count.
    """
    for store in stores:
        counts = store.count()
        for entry in entries:
            rows = sum(count.rows for count in counts if _is_under(count.tag, entry))
            if rows:
                message = f"{what}: {store.name} has {rows} rows under {entry.id!r}"
                raise KeyInUseError(message, hint=_way_out(entry))


def is_related(store: RowStore, entries: Sequence[RingEntry]) -> bool:
    """Whether a store has a value under one of the keys. One without is no evidence that a key is unused."""
    return any(_is_under(count.tag, entry) for count in store.count() for entry in entries)


def require_related(entries: Sequence[RingEntry], stores: Sequence[RowStore], what: str) -> None:
    """Refuse a transition if a store has no value under any of the keys.

    Args:
        entries: The keys.
        stores: The databases to search.
        what: The refused transition, for the message.

    Raises:
        UnrelatedDatabaseError: If a store has no value under any of the keys.
        RowError: If a column of a store has too many different tags to count.
    """
    for store in stores:
        if not is_related(store, entries):
            raise UnrelatedDatabaseError(f"{what}: {store.name} has no value under any key of the ring")


def _way_out(entry: RingEntry) -> str:
    """Return a hint how to reseal or drop the rows under a key."""
    if entry.state is KeyState.DESTROYED:
        return "such rows open with no key any more: restore a backup, or delete them"
    rotate = "sealpoint rotate DB --apply" + (" --allow-legacy" if entry.suite == LEGACY else "")
    enable = "enable the key and " if entry.state is KeyState.DISABLED else ""
    return f"{enable}reseal the rows first: {rotate}"


def _is_under(tag: Any, entry: RingEntry) -> bool:
    """Whether a tag names a key. Also for tags of later releases, which this one cannot parse."""
    return is_under(tag, None if entry.suite == LEGACY else entry.id)
