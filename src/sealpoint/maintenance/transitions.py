"""Transitions of keys, refused while rows of a database require the old state."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from sealpoint.crypto import Key, KeyState
from sealpoint.crypto.tag import is_under
from sealpoint.databases.rows import RowStore
from sealpoint.errors import HeldError, KeyInUseError, UnrelatedDatabaseError
from sealpoint.keys import destroy, edit
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK, RingEntry
from sealpoint.keys.ids import LEGACY
from sealpoint.keys.ringfile import RingFile
from sealpoint.maintenance.ringcheck import require_opening


def promote_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
) -> str | None:
    """Make a key active, unless a database prevents it. See `edit.promote_key`.

    Args:
        path: The ring file, as in all other transitions.
        key_id: The key.
        stores: The databases to examine.
        listed: The databases that the ring file lists, if all of these are among ``stores``.

    Returns:
        The id of the key that was active before.

    Raises:
        KeyTransitionError: If the key's state does not allow it.
        KeyInUseError: If a database has rows under a key of the ring that is neither of the two.
            Not raised if no key was active, so that sealing can be resumed.
        WrongRingError: If a database has rows under the key's id that the key does not open.
        HeldError: If the ring file lists other databases than ``listed``.
        KeyRingError: Another of its subclasses, if the key's material is not available.
    """

    # Called while the ring file is locked: no other command changes a state between check and transition.
    def require(ring: RingFile, key: Key) -> None:
        _require_listed(ring, listed)
        before = next((one.id for one in ring.entries if one.state is KeyState.ACTIVE), None)
        older = [one for one in ring.entries if one.id not in (before, key_id)] if before else []
        require_unused(older, stores, f"cannot promote {key_id!r}")
        require_opening(key, stores)

    return edit.promote_key(path, key_id, require)


def disable_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
) -> None:
    """Disable a key, unless a database has rows under it. See `edit.disable_key`.

    Args:
        path: The ring file.
        key_id: The key.
        stores: The databases that must have no rows under it.
        listed: The databases that the ring file lists, if all of these were examined.

    Raises:
        KeyTransitionError: If its state does not allow it.
        KeyInUseError: If a database has rows under it.
        HeldError: If the ring file lists other databases than ``listed``.
    """

    def require(ring: RingFile, entry: RingEntry) -> None:
        _require_listed(ring, listed)
        require_unused([entry], stores, f"cannot disable {key_id!r}")

    edit.disable_key(path, key_id, require)


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
    allow_unrelated: bool = False,
    leave_material: bool = False,
) -> Path | None:
    """Destroy a key, unless a database prevents it. See `sealpoint.keys.destroy.destroy_key`.

    Args:
        path: The ring file.
        key_id: The key.
        stores: The databases to examine. The ring records if there is none.
        listed: The databases that the ring file lists, if all of these are among ``stores``. If ``None``,
            and the ring file lists some, the ring records that they were not examined.
        allow_unrelated: Accept a database that has no value under any key of the ring. The ring records it.
        leave_material: Do not look at the key file, and record that the material is left.

    Returns:
        The file that was removed, if there was one.

    Raises:
        KeyTransitionError: If the key's state does not allow it, or its file is not known to be its own.
        FileLinkError: If the file has links.
        KeyInUseError, UnrelatedDatabaseError: If a database has rows under it, or under no key of the ring.
        HeldError: If the ring file lists other databases than ``listed``.
        StoppedError: If the file cannot be removed.
    """

    def require(ring: RingFile, entry: RingEntry) -> Sequence[str]:
        _require_listed(ring, listed)
        require_unused([entry], stores, f"cannot destroy {key_id!r}")
        is_waived = not stores or (listed is None and bool(ring.databases))
        waived = [DATABASE_CHECK] if is_waived else []
        if not allow_unrelated:
            require_related(ring.entries, stores, f"cannot destroy {key_id!r}")
        elif not all(is_related(store, ring.entries) for store in stores):
            waived.append(RELATION_CHECK)
        return waived

    return destroy.destroy_key(path, key_id, require, leave_material=leave_material)


def _require_listed(ring: RingFile, listed: Sequence[str] | None) -> None:
    """Refuse a transition if the ring file was changed after its databases were opened."""
    if listed is not None and tuple(listed) != ring.databases:
        hint = "check the change, then run the same command again"
        raise HeldError(f"the [[database]] entries of {ring.origin.path} were changed meanwhile", hint=hint)


def count_rows(store: RowStore, entry: RingEntry) -> int:
    """Return how many values of a store are under a key.

    Raises:
        RowError: If a column of the store has too many different tags to count.
    """
    return sum(count.rows for count in store.count() if _is_under(count.tag, entry))


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
