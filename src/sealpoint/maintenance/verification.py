"""A whole database verified: every value opens, and every row is one that a saver would read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sealpoint.crypto import Opened, RingCipher
from sealpoint.databases.cells import Cell, SecretOf
from sealpoint.databases.rows import Event, RowStore
from sealpoint.databases.sqlite.columns import CHECKPOINTS
from sealpoint.maintenance.records import Orphans, check_records, require_own_document
from sealpoint.maintenance.verify import verify


class Verification:
    """One run over a database, and what it has counted.

    Attributes:
        opened: How many sealed values opened under which key; ``aes`` stands for LANGGRAPH_AES_KEY.
        accepted: How many values were accepted although they are not sealed.
        orphans: Checkpoints whose parent is not there.
    """

    def __init__(
        self,
        store: RowStore,
        cipher: RingCipher,
        *,
        allow_plaintext: bool = False,
        secret_of: SecretOf | None = None,
    ) -> None:
        """Prepare a run; the arguments are those of `verify`."""
        self.opened = Counter[str]()
        self.accepted = 0
        self.orphans = Orphans(0, ())
        self._store = store
        self._values = verify(
            store, cipher, allow_plaintext=allow_plaintext, secret_of=secret_of, examine=self._examine
        )

    def events(self) -> Iterator[Event]:
        """Run: yield progress, and a failure for each value and row that a saver would refuse.

        Raises:
            DatabaseCorruptError: If the database is damaged; the values before the damage have been opened.
        """
        yield from self._values
        for found in check_records(self._store):
            if isinstance(found, Orphans):
                self.orphans = found
            else:
                yield found

    def counts(self) -> dict[str, Any]:
        """Return what was counted, as JSON."""
        return {
            "opened": [{"key": key, "values": values} for key, values in sorted(self.opened.items())],
            "accepted": self.accepted,
            "orphans": self.orphans.rows,
            "orphan_places": list(self.orphans.places),
        }

    def _examine(self, cell: Cell, opened: Opened) -> None:
        if cell.where.column == CHECKPOINTS:
            require_own_document(cell, opened)
        if opened.key_id is None:
            self.accepted += 1
        else:
            self.opened[opened.key_id] += 1
