"""Rotation: every value of a database under the active key, while agents go on.

A pass walks over what is not under the active key yet. What slow writers left behind it the next
pass finds; the tag column is the only memory of what is done, so a run may end at any point and
begin again. The walk stops wherever its consumer stops asking: no lock waits for the consumer, because
the commit of a batch ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from sealpoint.crypto import RingCipher
from sealpoint.databases.cells import require_bytes, require_decodable
from sealpoint.databases.rows import (
    BATCH,
    Batch,
    Cell,
    Event,
    Events,
    Failure,
    Progress,
    Rewritten,
    RowStore,
    Selection,
    Table,
    TagCount,
    failure,
    mark,
)
from sealpoint.errors import KeyRingError, SealpointError
from sealpoint.keys.ids import LEGACY
from sealpoint.maintenance.ringcheck import require_own_ring

MAX_PASSES: Final = 8
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

    Values that do not open are reported and left as they are. Whoever runs this holds the store
    (`RowStore.hold`), or shares it among workers that do.

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
        LockedError: If others kept rows locked throughout, on Postgres. All other rows are done.
        StoppedError: If the disk is full or the database was not to be had. The run can be repeated.
    """
    cipher = RingCipher(cipher.ring, cipher.suite, follow=False)  # one run has one aim
    key_id = cipher.ring.require_active().id
    if check_keys:
        require_own_ring(store, cipher.ring, seals_unsealed=allow_plaintext or allow_legacy)
    selection = Selection(without_key=key_id, plaintext=allow_plaintext, legacy=allow_legacy)
    change = _Reseal(cipher, allow_plaintext=allow_plaintext, before_change=before_change)
    return rewrite_all(store, change, selection, batch, max_lock_seconds)


def outstanding(store: RowStore, key_id: str) -> list[TagCount]:
    """Return what is not under the key ``key_id``, by table and tag; empty after a whole rotation."""
    selection = Selection(without_key=key_id)
    return [count for count in store.count() if selection.takes(count.tag)]


class _Reseal:
    """Seals a value anew under the active key, with its own coordinates if it is bound to them.

    Sealed values are decoded without the check that all others must pass. So plaintext and LangGraph's
    own rows pass it here, because nothing has authenticated their type.
    """

    def __init__(
        self, cipher: RingCipher, *, allow_plaintext: bool, before_change: BeforeChange | None
    ) -> None:
        self._cipher = cipher
        self._allow_plaintext = allow_plaintext
        self._before_change = before_change

    def __call__(self, value: Cell) -> tuple[str, bytes]:
        require_bytes(value)
        tag = str(value.tag)
        if "+" not in tag:
            changed = self._cipher.reseal(value.tag, value.blob, allow_plaintext=self._allow_plaintext)
            require_decodable(value.tag, value.blob)
        elif tag.endswith(f"+{LEGACY}"):
            inner, data = self._cipher.open(value.tag, value.blob).typed
            require_decodable(inner, data)
            changed = self._cipher.seal(inner, data)
        else:
            changed = self._cipher.reseal(value.tag, value.blob, row=value.row)
        if self._before_change is not None:
            self._before_change(value)
        return changed


def rewrite_all(
    store: RowStore,
    change: Callable[[Cell], tuple[str, bytes]],
    selection: Selection,
    batch: Batch = BATCH,
    max_lock_seconds: float = MAX_LOCK_SECONDS,
) -> Events:
    """Hand every selected value to ``change``, pass after pass, until a pass finds nothing to do.

    A `SealpointError` of ``change`` is a failure of that value alone. See `rotate` for the rest.
    """
    run = _Run(store, change, selection, batch, max_lock_seconds)
    for _ in range(MAX_PASSES):
        total = sum(count.rows for count in store.count() if selection.takes(count.tag))
        before = run.changed + run.raced
        if total:
            yield from run.one_pass(total)
        if run.changed + run.raced == before:
            return


class _Run:
    """Counts of a run, and what its passes share."""

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
        self._rows = batch.rows
        self._max_lock_seconds = max_lock_seconds
        self._failures: list[Failure] = []
        self._reported: set[int] = set()

    def one_pass(self, total: int) -> Iterator[Event]:
        """Walk over all tables once; ``total`` values wait there."""
        seen = 0
        for table in self._store.tables:
            for done in self._batches(table):
                seen += done.seen
                yield from self._new_failures()
                yield Progress(
                    table.name, seen, total, self.changed, self.raced, self._size, done.lock_seconds
                )

    def _batches(self, table: Table) -> Iterator[Rewritten]:
        after: Any = None
        while True:
            batch = replace(self._batch, rows=self._rows)
            done = self._store.rewrite(table, after, self._try, self._selection, batch)
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
            self._rows = max(1, min(self._rows, done.seen) // 2)
        elif done.lock_seconds < self._max_lock_seconds / 2:
            self._rows = min(self._batch.rows, self._rows * 2)

    def _try(self, value: Cell) -> tuple[str, bytes] | None:
        try:
            return self._change(value)
        except SealpointError as error:
            self._failures.append(failure(value, error))
            return None

    def _new_failures(self) -> Iterator[Failure]:
        """Yield what failed in this batch and in no pass before."""
        failures, self._failures = self._failures, []
        for failed in failures:
            if mark(failed) not in self._reported:
                self._reported.add(mark(failed))
                yield failed


def lacks_keys(failure: Failure) -> bool:
    """Whether a value failed for want of a key: with another ring it would open."""
    return isinstance(failure.error, KeyRingError)
