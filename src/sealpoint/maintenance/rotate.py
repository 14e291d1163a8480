"""Rotation: every value of a database under the active key, while agents go on.

A pass walks over what is not under the active key yet. What slow writers add behind it is found by the
next pass. Tags are the only record of what is done, so a run may end at any point and begin again. It
ends wherever its consumer stops iterating: no lock waits for the consumer, because the commit of a
batch ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from sealpoint.crypto import RingCipher
from sealpoint.crypto.tag import is_legacy, is_sealed
from sealpoint.databases.cells import Cell, Column, Selection, open_cell, require_decodable
from sealpoint.databases.failures import Failure, Failures, failure
from sealpoint.databases.rows import BATCH, Batch, Event, Events, Progress, Rewritten, RowStore, TagCount
from sealpoint.errors import SealpointError
from sealpoint.maintenance.ringcheck import require_own_ring

# Agents with the old ring could keep a run busy without end. The next run does what is left.
MAX_PASSES: Final = 8
# Python's sqlite3 raises "database is locked" after 5 s by default; a batch is to stay far below that.
MAX_LOCK_SECONDS: Final = 0.1

BeforeChange = Callable[[Cell], None]
"""Called with each value that is about to be sealed anew, as it stood."""


def rotate(
    store: RowStore,
    cipher: RingCipher,
    *,
    allow_plaintext: bool = False,
    allow_legacy: bool = False,
    batch: Batch = BATCH,
    max_lock_seconds: float = MAX_LOCK_SECONDS,
    before_change: BeforeChange | None = None,
    check_keys: bool = True,
) -> Events:
    """Seal every value under the ring's active key, in place. Nothing is deserialized.

    Values that do not open are reported and left as they are. The caller holds the store
    (`RowStore.hold`), or is a worker of a process that does.

    Args:
        store: A database, writable.
        cipher: Opens what is there, and seals under its active key.
        allow_plaintext: Also seal values that are not sealed; else they are left.
        allow_legacy: Also seal values under LANGGRAPH_AES_KEY anew; else they are left.
        batch: How much to change in one transaction, at most.
        max_lock_seconds: Make batches smaller when writers had to wait longer than that for one.
        before_change: Called with each value before it is changed.
        check_keys: Open some rows under the keys of the ring first, see `require_own_ring`.

    Yields:
        Progress after each batch; a failure once for each value that does not open.

    Raises:
        NoActiveKeyError: If the ring has no active key. Nothing has been changed.
        WrongRingError: If the database is sealed under other keys. Nothing has been changed.
        LockedError: If other sessions kept rows locked throughout, on Postgres. All other rows are done.
        StoppedError: If the disk is full or the database is not available. The run can be repeated.
    """
    cipher = RingCipher(cipher.ring, cipher.suite, follow=False)  # one run has one active key
    key_id = cipher.ring.require_active().id
    if check_keys:
        require_own_ring(store, cipher.ring, seals_unsealed=allow_plaintext or allow_legacy)
    selection = Selection(without_key=key_id, plaintext=allow_plaintext, legacy=allow_legacy)
    change = _Reseal(cipher, allow_plaintext=allow_plaintext, before_change=before_change)
    return rewrite_all(store, change, selection, batch, max_lock_seconds)


def outstanding(store: RowStore, key_id: str) -> list[TagCount]:
    """Return what is not under the key ``key_id``, by column and tag; empty after a whole rotation."""
    selection = Selection(without_key=key_id)
    return [count for count in store.count() if selection.takes(count.tag)]


class _Reseal:
    """Seals a value anew under the active key, with its own coordinates if it is bound to them.

    Sealed values are decoded later without the check that all others must pass. Plaintext and LangGraph's
    own rows must pass it here, because nothing has authenticated their type.
    """

    def __init__(
        self, cipher: RingCipher, *, allow_plaintext: bool, before_change: BeforeChange | None
    ) -> None:
        self._cipher = cipher
        self._allow_plaintext = allow_plaintext
        self._before_change = before_change

    def __call__(self, cell: Cell) -> tuple[str, bytes]:
        inner, data = open_cell(self._cipher, cell, allow_plaintext=self._allow_plaintext)
        is_authentic = is_sealed(cell.tag) and not is_legacy(cell.tag)
        # `Cell.row` parses the tag, and the type of a plaintext value is not a tag.
        changed = self._cipher.seal(inner, data, row=cell.row if is_authentic else None)
        if not is_authentic:
            require_decodable(inner, data)
        # Last, so that it is not called with a value that is refused and stays as it is.
        if self._before_change is not None:
            self._before_change(cell)
        return changed


def rewrite_all(
    store: RowStore,
    change: Callable[[Cell], tuple[str, bytes]],
    selection: Selection,
    batch: Batch = BATCH,
    max_lock_seconds: float = MAX_LOCK_SECONDS,
) -> Events:
    """Pass every selected value to ``change``, pass after pass, until a pass finds nothing to do.

    A `SealpointError` of ``change`` is a failure of that value alone. See `rotate` for the rest.
    """
    run = _Run(store, change, selection, batch, max_lock_seconds)
    damage: list[SealpointError] = []
    for _ in range(MAX_PASSES):
        # Damaged metadata is met by the walk itself, once the other values are done.
        total = sum(count.rows for count in store.count(damage) if selection.takes(count.tag))
        before = run.changed + run.raced
        if total:
            yield from run.one_pass(total)
        # A raced value is not finished: what the other writer stored may be under an old key too.
        if run.changed + run.raced == before:
            break
    if damage:
        raise damage[0]


class _Run:
    """The counts of a run, and what its passes share."""

    def __init__(
        self,
        store: RowStore,
        change: Callable[[Cell], tuple[str, bytes]],
        selection: Selection,
        batch: Batch,
        max_lock_seconds: float,
    ) -> None:
        self.changed = self.raced = self._size = 0
        self._store = store
        self._change = change
        self._selection = selection
        self._batch = batch
        self._max_lock_seconds = max_lock_seconds
        self._rows = batch.rows
        self._failures = Failures(may_repeat=True)
        self._new_failures: list[Failure] = []

    def one_pass(self, total: int) -> Iterator[Event]:
        """Walk over all columns once; ``total`` values wait there."""
        seen = 0
        for column in self._store.columns:
            for done in self._batches(column):
                seen += done.seen
                yield from self._new_failures
                self._new_failures.clear()
                yield Progress(
                    column.label, seen, total, self.changed, self.raced, self._size, done.lock_seconds
                )

    def _batches(self, column: Column) -> Iterator[Rewritten]:
        after: Any = None
        while True:
            batch = replace(self._batch, rows=self._rows)
            done = self._store.rewrite(column, after, self._try, self._selection, batch)
            self.changed += done.changed
            self.raced += done.raced
            self._size += done.size_bytes
            self._adapt(done)
            yield done
            if done.last is None:
                return
            after = done.last

    def _adapt(self, done: Rewritten) -> None:
        """Halve batches that kept writers waiting too long; let them grow again when there is room."""
        if done.lock_seconds > self._max_lock_seconds:
            # The limit in bytes may have ended the batch: half of the limit in rows might not shrink it.
            self._rows = max(1, min(self._rows, done.seen) // 2)
        # Only below half of the limit, so that the size does not alternate around it.
        elif done.lock_seconds < self._max_lock_seconds / 2:
            self._rows = min(self._batch.rows, self._rows * 2)

    def _try(self, cell: Cell) -> tuple[str, bytes] | None:
        try:
            return self._change(cell)
        except SealpointError as error:
            failed = failure(cell, error)
            if self._failures.add(failed):  # later passes meet it again
                self._new_failures.append(failed)
            return None
