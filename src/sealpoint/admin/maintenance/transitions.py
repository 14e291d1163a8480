"""Transitions of keys to other states, refused while a database has rows that need the old state."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from sealpoint.admin.keys import destroy, edit
from sealpoint.admin.results.tags import is_under
from sealpoint.errors import HeldError, KeyInUseError, MaintenanceError
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK, RingEntry
from sealpoint.keys.ringfile import RingFile
from sealpoint.seal.keys import LEGACY, Key, KeyState

if TYPE_CHECKING:
    from sealpoint.admin.databases.rows import RowStore, TagCount


def promote_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
) -> str | None:
    """Make a key active, unless a database has rows under older keys; return the previously active key.

    If no key was active, rows under other keys are accepted, so that sealing can be resumed. ``listed``:
    names of the databases in the ring file; ``None`` if ``stores`` does not include all.
    """

    # Called while the ring file is locked, so that no other command changes a state before the transition.
    def require(ring: RingFile, key: Key) -> None:
        from sealpoint.admin.maintenance.rotate import require_opening

        _require_listed(ring, listed)
        before = ring.active_id
        older = [one for one in ring.entries if one.id not in (before, key_id)] if before else []
        _require_unused(older, stores, f"cannot promote {key_id!r}")
        require_opening(key, stores)

    return edit.promote_key(path, key_id, require)


def disable_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
) -> None:
    """Disable a key, unless a database has rows under the key. A key that is already disabled stays so."""

    def require(ring: RingFile, entry: RingEntry) -> None:
        _require_listed(ring, listed)
        _require_unused([entry], stores, f"cannot disable {key_id!r}")

    edit.change_state(path, key_id, KeyState.DISABLED, require)


def destroy_key(
    path: str | PathLike[str] | None,
    key_id: str,
    stores: Sequence[RowStore] = (),
    *,
    listed: Sequence[str] | None = None,
    allow_unrelated: bool = False,
    leave_material: bool = False,
) -> Path | None:
    """Destroy a key, unless a database has rows under the key; return the removed key file, if any.

    The ring file records which check was waived: no database was examined, or not all databases in the ring
    file (``listed`` is ``None``), or a database without a value under any key of the ring was accepted.
    """

    def require(ring: RingFile, entry: RingEntry) -> Sequence[str]:
        _require_listed(ring, listed)
        _require_unused([entry], stores, f"cannot destroy {key_id!r}")
        unrelated = next((store for store in stores if not is_related(store, ring.entries)), None)
        if unrelated is not None and not allow_unrelated:
            raise MaintenanceError(
                f"cannot destroy {key_id!r}: {unrelated.name} has no value under any key of the ring",
                hint=(
                    "name the databases that were sealed under this ring; `sealpoint status DB`"
                    " shows the keys of a database. To accept this database: --allow-unrelated"
                ),
            )
        waived = {
            DATABASE_CHECK: not stores or (listed is None and bool(ring.databases)),
            RELATION_CHECK: unrelated is not None,
        }
        return [check for check, is_waived in waived.items() if is_waived]

    return destroy.destroy_key(path, key_id, require, leave_material=leave_material)


def _require_listed(ring: RingFile, listed: Sequence[str] | None) -> None:
    """Refuse a transition if the ring file's list of databases changed after the databases were opened."""
    if listed is not None and tuple(listed) != ring.databases:
        raise HeldError(
            f"the [[database]] entries of {ring.origin.path} were changed during this run",
            hint="check the change, then run the same command again",
        )


def _require_unused(entries: Sequence[RingEntry], stores: Sequence[RowStore], what: str) -> None:
    for store in stores:
        counts = store.count()
        for entry in entries:
            if rows := rows_under(counts, entry):
                raise KeyInUseError(
                    f"{what}: {store.name} has {rows} rows under {entry.id!r}",
                    hint=_way_out(entry, shlex.quote(store.name)),
                )


def is_related(store: RowStore, entries: Sequence[RingEntry]) -> bool:
    """Whether a database has a value under one of the keys. A database without one may be the wrong one."""
    counts = store.count()
    return any(rows_under(counts, entry) for entry in entries)


def _way_out(entry: RingEntry, database: str) -> str:
    if entry.state is KeyState.DESTROYED:
        return "no key opens these rows any more: restore a backup, or delete the rows"
    rotate = f"sealpoint rotate {database} --apply" + (" --allow-legacy" if entry.suite == LEGACY else "")
    enable = "enable the key and " if entry.state is KeyState.DISABLED else ""
    return f"{enable}reseal the rows first: {rotate}"


def rows_under(counts: Sequence[TagCount], entry: RingEntry) -> int:
    """Return the number of values under a key, including values with tags of later releases."""
    key_id = None if entry.suite == LEGACY else entry.id
    return sum(count.rows for count in counts if is_under(count.tag, key_id))
