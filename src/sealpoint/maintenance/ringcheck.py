"""Whether a ring is the one that a database is sealed under, tried on a sample before anything is changed.

Two environments may have different keys under one id. What is sealed under the wrong one opens in neither.
"""

from __future__ import annotations

from typing import Final

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import IntegrityError, SealpointError, WrongRingError
from sealpoint.maintenance.rows import Batch, RowStore, Selection
from sealpoint.maintenance.status import Kind, classify
from sealpoint.maintenance.stored import open_stored

SAMPLE_ROWS: Final = 20
"""How many rows of a table are tried for each key."""


def require_own_ring(store: RowStore, ring: KeyRing, *, seals_unsealed: bool = False) -> None:
    """Open some rows under each key of a ring.

    Damaged and forged rows may be among them, so one that opens is enough for a key. If the active key
    opens none, or no key opens any, the ring is refused.

    Args:
        store: A database.
        ring: The keys that a run will use.
        seals_unsealed: Whether the run seals values that no key of the ring has sealed. Then rows that are
            all under ids that the ring does not have are a reason to refuse it, too.

    Raises:
        WrongRingError: If the rows are sealed under other keys than those of the ring.
    """
    named = _named_keys(store)
    known = {key.id for key in ring.keys}
    usable = [key.id for key in ring.keys if key.state.opens and key.id in named]
    cipher = RingCipher(ring, follow=False)
    found = {key_id: opens(store, cipher, key_id) for key_id in usable}
    refuted = [key_id for key_id in usable if found[key_id] is False]
    if refuted and (ring.active_id in refuted or True not in found.values()):
        key_id = ring.active_id if ring.active_id in refuted else refuted[0]
        raise WrongRingError(
            f"{store.name} has rows under {key_id!r}, and none of those tried opens with the key of this id"
        )
    if seals_unsealed and named and not named & known:
        raise WrongRingError(f"the ring has none of the keys that {store.name} has rows under")


def opens(store: RowStore, cipher: RingCipher, key_id: str) -> bool | None:
    """Return whether a row under a key opens; ``None`` if no row shows it."""
    refuted = False
    for table in store.tables:
        under = Selection(with_key=key_id, plaintext=False, legacy=False)
        for value in store.read(table, None, under, Batch(rows=SAMPLE_ROWS)).values:
            try:
                open_stored(cipher, value)
            except IntegrityError:
                refuted = True
            except SealpointError:  # of the row, whatever the key is
                continue
            else:
                return True
    return False if refuted else None


def _named_keys(store: RowStore) -> set[str]:
    """Return the ids that stand in the tags of sealed rows."""
    parsed = (classify(count.tag) for count in store.count())
    return {tag.key_id for kind, tag in parsed if kind is Kind.SEALED and tag and tag.key_id}
