"""Which moves a key's state allows, and which of them the rows that are under it still forbid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sealpoint.crypto import KeyState, Tag
from sealpoint.crypto.keyfile import RingEntry
from sealpoint.crypto.tag import LEGACY
from sealpoint.errors import KeyInUseError, KeyMoveError, TagError
from sealpoint.maintenance.rows import RowStore

MOVES: Final = {
    KeyState.STAGED: ("promote", "destroy"),
    KeyState.ACTIVE: (),
    KeyState.DECRYPT_ONLY: ("promote", "disable"),
    KeyState.DISABLED: ("enable", "destroy"),
    KeyState.DESTROYED: (),
}


def moves(entry: RingEntry) -> tuple[str, ...]:
    """Return the moves that a key's state allows; a key that only opens is never promoted."""
    return tuple(move for move in MOVES[entry.state] if move != "promote" or entry.suite != LEGACY)


def require_move(entry: RingEntry, move: str) -> None:
    """Raise `KeyMoveError` if a key's state does not allow a move."""
    if move in moves(entry):
        return
    allowed = " or ".join(moves(entry))
    hint = f"from there it can go by {allowed}" if allowed else "a destroyed key stays so"
    if entry.state is KeyState.ACTIVE:
        hint = "promote another key first: this one then only opens"
    kind = "is for LANGGRAPH_AES_KEY rows" if move == "promote" and entry.suite else f"is {entry.state.value}"
    raise KeyMoveError(f"cannot {move} {entry.id!r}: it {kind}", hint=hint)


def require_unused(entries: Sequence[RingEntry], stores: Sequence[RowStore], what: str) -> None:
    """Raise `KeyInUseError` if a store has rows under one of the keys; ``what`` says what cannot be done."""
    for store in stores:
        counts = store.count()
        for entry in entries:
            rows = sum(count.rows for count in counts if _is_under(count.tag, entry))
            if rows:
                raise KeyInUseError(f"{what}: {store.name} has {rows} rows under {entry.id!r}")


def _is_under(tag: Any, entry: RingEntry) -> bool:
    """Whether a tag names a key. Also for tags of later releases, which this one cannot parse."""
    if not isinstance(tag, str) or "+" not in tag:
        return False
    try:
        key_id = Tag.parse(tag).key_id
    except TagError:
        key_id = tag.rpartition(":")[2]
    return key_id is None if entry.suite == LEGACY else key_id == entry.id
