"""The checkpoints of a database as they are compared with a thread store: each with a MAC of its content."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from sealpoint.base.coordinates import WRITE
from sealpoint.crypto import Opened, RingCipher
from sealpoint.databases.cells import Cell, Column, SecretOf, open_cell
from sealpoint.databases.rows import RowStore
from sealpoint.errors import SealpointError
from sealpoint.keys.key import KeyedHash
from sealpoint.maintenance.bound import BESIDE, Parts, take_apart
from sealpoint.maintenance.verify import pages
from sealpoint.sealed.body import digest_of
from sealpoint.sealed.heads import PURPOSE, UNBOUND_DIGEST, mac_of
from sealpoint.threads.store import Spot

UNBOUND: Final = b""
"""In place of the MAC of a checkpoint that is not bound to its row."""

UNOPENED: Final = b"?"
"""In place of the MAC of a checkpoint that does not open."""


class CheckpointRows:
    """Reads the checkpoints of a database.

    Attributes:
        database: The database.
        columns: Its columns with whole checkpoints.
        with_writes: The same, and those with writes.
        cipher: Opens values.
        secret_of: Gives the secrets of values that have one in their key.
    """

    def __init__(
        self,
        database: RowStore,
        cipher: RingCipher,
        *,
        allow_plaintext: bool = False,
        secret_of: SecretOf | None = None,
    ) -> None:
        """Prepare; the arguments are those of `verify`.

        Raises:
            KeyRingError: If the ring has no index key.
        """
        self.database = database
        self.columns: tuple[Column, ...] = tuple(
            column for column in database.columns if column.coordinates in BESIDE
        )
        self.with_writes = (
            *self.columns,
            *(column for column in database.columns if column.coordinates == WRITE),
        )
        self._keyed = KeyedHash(cipher.ring.index_key(PURPOSE))
        self.cipher, self._allow_plaintext, self.secret_of = cipher, allow_plaintext, secret_of

    def mac(self, spot: Spot, opened: Opened, parts: Parts) -> bytes:
        """Return the MAC of a checkpoint that was opened; `UNBOUND` if it is not bound to its row."""
        if parts.header is None:
            return UNBOUND
        return mac_of(self._keyed, spot, digest_of(parts.header.get("store"), *opened.typed))

    def adopted_mac(self, spot: Spot, mac: bytes) -> bytes:
        """Return what is recorded of a checkpoint in place of a MAC that may be `UNBOUND`."""
        return mac_of(self._keyed, spot, UNBOUND_DIGEST) if mac == UNBOUND else mac

    def find(self, wanted: Container[Spot]) -> dict[Spot, bytes]:
        """Return the MACs of those of some checkpoints that are there. Reads the whole database."""
        found = dict[Spot, bytes]()
        for column in self.columns:
            for page in pages(self.database, column):
                for cell in page.cells:
                    spot = spot_of(cell.where.names)
                    if spot is not None and spot in wanted:
                        found[spot] = self._mac_of(spot, cell)
        for spot in self.readable():
            if spot in wanted:
                found.setdefault(spot, UNBOUND)
        return found

    def readable(self) -> Iterator[Spot]:
        """Yield the checkpoints that are readable in their rows, and sealed in no column."""
        for record in self.database.cleartext.records():
            spot = spot_of(record.place)
            if record.is_readable and spot is not None:
                yield spot

    def _mac_of(self, spot: Spot, cell: Cell) -> bytes:
        try:
            opened = open_cell(
                self.cipher, cell, allow_plaintext=self._allow_plaintext, secret_of=self.secret_of
            )
            return self.mac(spot, opened, take_apart(cell, opened))
        except SealpointError:  # it was named when all values were read
            return UNOPENED


def spot_of(names: Mapping[str, Any]) -> Spot | None:
    """Return the row that columns name; ``None`` if it is not the row of a checkpoint that savers find."""
    parts = [names.get(field) for field in Spot._fields]
    if len(names) != len(parts) or any(type(part) is not str for part in parts):
        return None
    return Spot(*map(str, parts))
