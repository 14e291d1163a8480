"""Whether a database is sealed under a ring, tried on a sample before any change.

Two environments may have different keys with the same id. Values sealed under the wrong one open in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sealpoint.crypto import Key, KeyRing, RingCipher
from sealpoint.crypto.tag import Kind, classify
from sealpoint.databases.cells import SecretOf, Selection, open_cell
from sealpoint.databases.rows import Batch, RowStore
from sealpoint.errors import IntegrityError, SealpointError, WrongRingError

SAMPLE_ROWS: Final = 20
"""How many values of a column are tried for each key."""

MAX_DAMAGED: Final = 3
"""How many rows under the active key may be damaged or forged, if other keys of the ring open theirs."""


def require_own_ring(
    store: RowStore, ring: KeyRing, *, seals_unsealed: bool = False, secret_of: SecretOf | None = None
) -> None:
    """Open some rows under each key of a ring.

    Damaged and forged rows may be among them, so one that opens is enough for a key. The ring is refused
    if no key opens any; also if another key does, but the active one opens none of more than `MAX_DAMAGED`.

    Args:
        store: A database.
        ring: The keys that a run will use.
        seals_unsealed: Whether the run seals values that no key of the ring has sealed. Then rows that are
            all under ids that the ring does not have are a reason to refuse it, too.
        secret_of: Gives the secrets of values that have one in their key; without it these are not tried.

    Raises:
        WrongRingError: If the rows are sealed under other keys than those of the ring.
    """
    classified = (classify(count.tag) for count in store.count(damage=[]))
    named = {tag.key_id for kind, tag in classified if kind is Kind.SEALED and tag}
    known = {key.id for key in ring.keys}
    usable = [key.id for key in ring.keys if key.state.opens and key.id in named]
    cipher = RingCipher(ring, follow=False)
    found = {key_id: try_rows(store, cipher, key_id, secret_of) for key_id in usable}
    refuted = [key_id for key_id in usable if found[key_id].is_refuted]
    suspects = refuted
    # A ring that opens some rows belongs to the database. Its active key must still be right, because
    # everything is sealed under it from now on.
    if any(tried.opens for tried in found.values()):
        suspects = [one for one in refuted if one == ring.active_id and found[one].unopened > MAX_DAMAGED]
    if suspects:
        key_id = ring.active_id if ring.active_id in suspects else suspects[0]
        raise WrongRingError(
            f"{store.name} has rows under {key_id!r}, and none of those tried opens with the key of this id"
        )
    if seals_unsealed and named and not named & known:
        raise WrongRingError(f"the ring has none of the keys that {store.name} has rows under")


class Tried(NamedTuple):
    """The result of opening some rows under a key.

    Attributes:
        opens: Whether one row opened.
        unopened: How many before it are not as they were sealed, or are under other material of this id.
    """

    opens: bool
    unopened: int

    @property
    def is_refuted(self) -> bool:
        """Whether rows were tried, and none opened."""
        return self.unopened > 0 and not self.opens


def try_rows(store: RowStore, cipher: RingCipher, key_id: str, secret_of: SecretOf | None = None) -> Tried:
    """Open rows under a key, up to `SAMPLE_ROWS` of each column, until one opens."""
    unopened = 0
    for column in store.columns:
        under = Selection(with_key=key_id, plaintext=False, legacy=False)
        for cell in store.read(column, None, under, Batch(rows=SAMPLE_ROWS)).cells:
            try:
                open_cell(cipher, cell, secret_of=secret_of)
            except IntegrityError:
                unopened += 1
            except SealpointError:  # an error of the row, independent of the key
                continue
            else:
                return Tried(opens=True, unopened=unopened)
    return Tried(opens=False, unopened=unopened)


def require_opening(key: Key, stores: Sequence[RowStore]) -> None:
    """Refuse to seal under a key if rows under its id were sealed with another one: a host made its own.

    Raises:
        WrongRingError: If a store has rows under its id, and it opens none of those tried.
    """
    cipher = RingCipher(KeyRing([key]), follow=False)
    for store in stores:
        if try_rows(store, cipher, key.id).is_refuted:
            raise WrongRingError(
                f"cannot promote {key.id!r}: {store.name} has rows under it, and none of those tried opens",
                hint="another host has another key of this id: give both the same ring, or make a new key",
            )
