"""Which moves a key's state allows, and which of them the rows that are under it still forbid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sealpoint.crypto import KeyState, Tag
from sealpoint.crypto.suites import LEGACY
from sealpoint.databases.rows import RowStore
from sealpoint.errors import KeyInUseError, KeyMoveError, TagError, UnknownKeyError, UnrelatedDatabaseError
from sealpoint.keys.ringfile import RingEntry

_ENTERED_BY: Final = {
    KeyState.ACTIVE: "promote",
    KeyState.DECRYPT_ONLY: "enable",
    KeyState.DISABLED: "disable",
    KeyState.DESTROYED: "destroy",
}


def moves(entry: RingEntry) -> tuple[str, ...]:
    """Return the moves that a key's state allows; a key that only opens is never promoted."""
    if entry.state is KeyState.ACTIVE:  # it goes on by the promotion of another
        return ()
    found = (_ENTERED_BY[state] for state in entry.state.moves)
    return tuple(move for move in found if move != "promote" or entry.suite != LEGACY)


def require_entry(entries: Sequence[RingEntry], key_id: str) -> RingEntry:
    """Return the entry called ``key_id``.

    Raises:
        UnknownKeyError: If there is none.
    """
    for entry in entries:
        if entry.id == key_id:
            return entry
    hint = "to add a key: sealpoint keys generate ID"
    raise UnknownKeyError(key_id, tuple(entry.id for entry in entries), hint=hint)


def require_move(entry: RingEntry, move: str) -> None:
    """Raise `KeyMoveError` if a key's state does not allow a move."""
    if move in moves(entry):
        return
    allowed = " or ".join(moves(entry))
    hint = f"from there it can go by {allowed}" if allowed else "a destroyed key stays so"
    if entry.state is KeyState.ACTIVE:
        hint = "promote another key first: this one then only opens"
    if move == "enable" and entry.state.opens:
        hint = "it opens as it is: there is nothing to enable"
    kind = "is for LANGGRAPH_AES_KEY rows" if move == "promote" and entry.suite else f"is {entry.state.value}"
    raise KeyMoveError(f"cannot {move} {entry.id!r}: it {kind}", hint=hint)


def require_unused(entries: Sequence[RingEntry], stores: Sequence[RowStore], what: str) -> None:
    """Raise `KeyInUseError` if a store has rows under one of the keys; ``what`` says what cannot be done."""
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
    """Raise `UnrelatedDatabaseError` if a store has no value under any of the keys."""
    for store in stores:
        if not is_related(store, entries):
            raise UnrelatedDatabaseError(f"{what}: {store.name} has no value under any key of the ring")


def _way_out(entry: RingEntry) -> str:
    """Say how rows come away from under a key."""
    if entry.state is KeyState.DESTROYED:
        return "such rows open with no key any more: restore a backup, or delete them"
    rotate = "sealpoint rotate DB --apply" + (" --legacy" if entry.suite == LEGACY else "")
    enable = "enable the key and " if entry.state is KeyState.DISABLED else ""
    return f"{enable}seal the rows anew first: {rotate}"


def _is_under(tag: Any, entry: RingEntry) -> bool:
    """Whether a tag names a key. Also for tags of later releases, which this one cannot parse."""
    if not isinstance(tag, str) or "+" not in tag:
        return False
    try:
        key_id = Tag.parse(tag).key_id
    except TagError:
        key_id = tag.rpartition("@")[2]
    return key_id is None if entry.suite == LEGACY else key_id == entry.id
