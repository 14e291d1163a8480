"""Sentinels: the sealed values that make each unwrapped reader of a Postgres checkpoint fail.

Every put names the sentinel of its thread and namespace, and the database keeps the first. So the same bytes
are given to it again, as long as the ring is the same: later puts would be sealed under another key.
"""

from __future__ import annotations

from typing import Final

from sealpoint.base.coordinates import VALUE
from sealpoint.crypto import RingCipher
from sealpoint.crypto.context import RowTemplate
from sealpoint.sealed.body import SENTINEL, SENTINEL_VERSION
from sealpoint.serde import EncryptedSerializer

KEPT: Final = 1024
"""How many sentinels are kept."""

_NAMES: Final = {"channel": SENTINEL, "version": SENTINEL_VERSION}
_row: Final = RowTemplate(dict(VALUE.kind) | _NAMES, ("thread_id", "checkpoint_ns")).row


class Sentinels:
    """Seals the sentinels of threads and namespaces, and keeps them."""

    def __init__(self, serde: EncryptedSerializer) -> None:
        """Make an object that keeps none."""
        self._serde = serde
        self._kept: tuple[object, dict[tuple[str, str], tuple[str, bytes]]] = (None, {})

    def sealed(self, thread_id: str, checkpoint_ns: str) -> tuple[str, bytes]:
        """Return the tag and the bytes of a sentinel.

        Args:
            thread_id: Its thread in the database.
            checkpoint_ns: Its namespace.

        Raises:
            SealpointError: What the serializer raises.
        """
        cipher = self._serde.cipher
        ring, kept = self._kept
        current = cipher.ring if isinstance(cipher, RingCipher) else None
        if current is not ring or len(kept) >= KEPT:
            kept = {}
            self._kept = current, kept  # replaced as a whole, which needs no lock
        found = kept.get((thread_id, checkpoint_ns))
        if found is None:
            row = _row(thread_id, checkpoint_ns)
            found = kept[thread_id, checkpoint_ns] = self._serde.seal(None, row=row)
        return found
