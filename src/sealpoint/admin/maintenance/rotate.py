"""Rotation: resealing every value of a database under the active key, while agents run.

A pass visits the values that are not under the active key. The next pass finds values that agents have
written meanwhile. Tags are the only record of progress, so a run may end at any point and be repeated. The
run ends where the caller stops iterating: no lock depends on the caller, as each batch commits separately.

Two environments may have different keys with the same id. If a database has values under both, neither ring
opens all of them. So before any change, a sample of values is opened to check that the ring is the right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sealpoint.admin.databases.cells import Cell, Column, Opener, Selection
from sealpoint.admin.databases.rows import Change, Rewritten, RowStore, TagCount, failure
from sealpoint.admin.results.events import Event, Events, Failure, Failures, Progress, foreign_keys
from sealpoint.admin.results.jobs import BATCH, FIRST_ROWS, MAX_LOCK_SECONDS, Batch
from sealpoint.admin.results.tags import Kind, classify
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import IntegrityError, SealpointError, WrongRingError
from sealpoint.keys.ring import KeyRing
from sealpoint.seal.keys import Key
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

# Number of values of a column to open as a test of each key.
SAMPLE_ROWS: Final = 20


def require_own_ring(store: RowStore, ring: KeyRing, *, seals_unsealed: bool = False) -> bool:
    """Open some rows under each key of a ring, and return whether any row opens.

    Some rows may be damaged or forged, so one row that opens is enough for a key. The ring is refused if
    no key opens a row, or if only other keys do and over `MAX_DAMAGED` rows of the active key fail. With
    ``seals_unsealed``, the ring is also refused if all rows are under key ids that it does not have.
    """
    classified = (classify(count.tag) for count in store.count(damage=[]))
    named = {tag.key_id for kind, tag in classified if kind is Kind.SEALED and tag}
    known = {key.id for key in ring.keys}
    found = try_keys(store, RingCipher(ring, follow=False), known & named)
    if suspects := foreign_keys(found, ring.active_id):
        key_id = ring.active_id if ring.active_id in suspects else suspects[0]
        raise WrongRingError(
            f"{store.name} has rows under {key_id!r}, but no sampled row opens with the ring's key"
        )
    if seals_unsealed and named and not named & known:
        raise WrongRingError(f"all rows of {store.name} are under keys that the ring does not have")
    return None in found.values()


def try_keys(store: RowStore, cipher: RingCipher, key_ids: Collection[str]) -> dict[str, int | None]:
    """Return the results of `try_rows` by key id, for those keys that are in the ring and may open values."""
    usable = [key.id for key in cipher.ring.keys if key.state.opens and key.id in key_ids]
    return {key_id: try_rows(store, cipher, key_id) for key_id in usable}


def try_rows(store: RowStore, cipher: RingCipher, key_id: str) -> int | None:
    """Open rows under a key, up to `SAMPLE_ROWS` of each column, until one opens.

    Returns ``None`` if a row opens; otherwise the number of rows that failed authentication.
    """
    unopened = 0
    for column in store.columns:
        under = Selection(with_key=key_id, plaintext=False, legacy=False)
        for cell in store.read(column, None, under, Batch(rows=SAMPLE_ROWS)).cells:
            try:
                Opener(cipher).open(cell)
            except IntegrityError:
                unopened += 1
            except SealpointError:  # an error of the row, not of the key
                continue
            else:
                return None
    return unopened


def require_opening(key: Key, stores: Sequence[RowStore]) -> None:
    """Refuse to promote a key if rows under its id do not open: another host may have a key of this id."""
    cipher = RingCipher(KeyRing([key]), follow=False)
    for store in stores:
        if try_rows(store, cipher, key.id):
            raise WrongRingError(
                f"cannot promote {key.id!r}: {store.name} has rows under this id, but no sampled row opens",
                hint="another host has a different key with this id: copy one ring to both, or make a key",
            )


# Limit the passes: agents with the old ring could keep a run busy forever. The next run continues.
MAX_PASSES: Final = 8

BeforeChange = Callable[[Cell], None]  # called with each cell before it is resealed


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
    compress: bool | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Events:
    """Reseal every value in place under the ring's active key. Nothing is deserialized.

    Values that do not open are reported and not changed. Call this within `RowStore.hold`, or in a worker of
    a process that does.

    Args:
        store: A database, opened as writable.
        cipher: Opens values, and seals values under the active key of its ring.
        allow_plaintext: Also seal unsealed values; otherwise they are skipped.
        allow_legacy: Also reseal values under LANGGRAPH_AES_KEY; otherwise they are skipped.
        batch: Maximum rows and bytes to change in one transaction.
        max_lock_seconds: Make batches smaller after a batch that locked rows for more seconds than this.
        before_change: Called with each value, as a cell, before the value is changed.
        check_keys: First check that the ring is the right one, see `require_own_ring`.
        compress: If true, compress resealed values; if false, decompress them; ``None`` keeps each as it is.
        limits: Limits for decoding unauthenticated values.

    Yields:
        Progress after each batch; one failure for each value that does not open.

    Raises:
        NoActiveKeyError: If the ring has no active key. Nothing has been changed.
        WrongRingError: If the database is sealed under other keys. Nothing has been changed.
        LockedError: On Postgres, if other sessions keep rows locked. All other rows have been changed.
        StoppedError: If the disk is full or the database is not available. The run can be repeated.

    Example:
        >>> from contextlib import closing
        >>> from sealpoint import KeyRing, RingCipher
        >>> from sealpoint.admin.maintenance import SqliteRows
        >>> from sealpoint.admin.maintenance.rotate import rotate
        >>> cipher = RingCipher(KeyRing.load("keys.toml"))
        >>> with closing(SqliteRows("agent.db", writable=True)) as store, store.hold():
        ...     events = list(rotate(store, cipher))
        >>> sum(event.changed for event in events)  # all values are under the active key
        0
    """
    cipher = RingCipher(cipher.ring, cipher.suite, follow=False)  # the active key stays the same during a run
    key_id = cipher.ring.require_active().id
    if check_keys:
        require_own_ring(store, cipher.ring, seals_unsealed=allow_plaintext or allow_legacy)
    selection = Selection(without_key=key_id, plaintext=allow_plaintext, legacy=allow_legacy)
    opener = Opener(cipher, allow_plaintext, compress, limits)

    def change(cell: Cell) -> tuple[str, bytes] | None:
        # An unsealed item is skipped: an unwrapped store would return sealed bytes as its value.
        return None if cell.is_plain_item else opener.reseal(cell)

    return Run(store, batch, max_lock_seconds).events(change, selection, before_change)


def outstanding(store: RowStore, key_id: str) -> list[TagCount]:
    """Count the values that are not under ``key_id``, by column and tag; an empty list after a rotation."""
    selection = Selection(without_key=key_id)
    return [count for count in store.count() if selection.takes(count.tag)]


class Run:
    """One run over a database: its counts, and the state that all its passes share."""

    def __init__(self, store: RowStore, batch: Batch, max_lock_seconds: float) -> None:
        self._changed = self._raced = self._size = 0
        self._kinds = Counter[Kind]()
        self._store, self._batch, self._max_lock_seconds = store, batch, max_lock_seconds
        self._rows = 1  # size of the next batch; each column begins with small batches
        self._failures = Failures(may_repeat=True)
        self._new_failures: list[Failure] = []

    def events(
        self,
        change: Change,
        selection: Selection,
        before_change: BeforeChange | None = None,
        columns: Sequence[Column] | None = None,
    ) -> Events:
        """Call ``change`` with every selected value, pass after pass, until a pass changes nothing.

        A `SealpointError` from ``change`` is a failure of that value only. By default, visits all columns.
        """
        columns = self._store.columns if columns is None else columns
        labels = {column.label for column in columns}
        change_one = partial(self._change_one, change, selection, before_change)
        damage: list[SealpointError] = []
        for _ in range(MAX_PASSES):
            # Damaged metadata is reported by the pass itself, after the other values.
            counts = self._store.count(damage)
            total = sum(
                count.rows for count in counts if count.table in labels and selection.takes(count.tag)
            )
            before = self._changed + self._raced
            if total:
                yield from self._one_pass(columns, total, change_one, selection)
            # A raced value needs another pass: the other writer may also have used an old key.
            if self._changed + self._raced == before:
                break
        if damage:
            raise damage[0]

    def _one_pass(
        self, columns: Sequence[Column], total: int, change: Change, selection: Selection
    ) -> Iterator[Event]:
        seen = 0
        for column in columns:
            done: Rewritten | None = None
            self._rows = min(self._batch.rows, FIRST_ROWS)
            while done is None or done.last is not None:
                batch = replace(self._batch, rows=self._rows)
                after = None if done is None else done.last
                done = self._store.rewrite(column, after, change, selection, batch)
                seen += done.seen
                self._changed += done.changed
                self._raced += done.raced
                self._size += done.size_bytes
                self._adapt(done)
                yield from self._new_failures
                self._new_failures.clear()
                yield Progress(
                    column.label,
                    seen,
                    total,
                    self._changed,
                    self._raced,
                    self._size,
                    done.lock_seconds,
                    self._kinds[Kind.PLAINTEXT],
                    self._kinds[Kind.LEGACY],
                )

    def _change_one(
        self, change: Change, selection: Selection, before_change: BeforeChange | None, cell: Cell
    ) -> tuple[Any, ...] | None:
        try:
            changed = change(cell)
        except SealpointError as error:
            failed = failure(cell, error)
            if self._failures.add(failed):  # later passes meet the same failure again
                self._new_failures.append(failed)
            return None
        if changed is not None:
            if before_change is not None:  # only now: a refused value is not changed
                before_change(cell)
            if selection.plaintext or selection.legacy:
                self._kinds[classify(cell.tag)[0]] += 1
        return changed

    def _adapt(self, done: Rewritten) -> None:
        """Halve the rows per batch, or more, if writers waited too long; let batches grow again later."""
        if done.lock_seconds > self._max_lock_seconds:
            part = min(0.5, self._max_lock_seconds / done.lock_seconds)
            # The limit in bytes may have ended the batch, so shrink from its actual number of rows.
            self._rows = max(1, int(min(self._rows, done.seen) * part))
        # Grow only below half of the limit, so that the size does not oscillate.
        elif done.lock_seconds < self._max_lock_seconds / 2:
            self._rows = min(self._batch.rows, self._rows * 2)
