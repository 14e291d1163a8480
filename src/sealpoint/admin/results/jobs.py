"""Jobs: what a run that changes values is asked to do, its batches, and how it is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from time import monotonic, sleep
from typing import Final

from sealpoint.admin.results.shards import Shard
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

# Rows of the first batch of a column, of which it is not known how long they take.
FIRST_ROWS: Final = 64
# Python's sqlite3 raises "database is locked" after 5 s by default; a batch is to stay far below that.
MAX_LOCK_SECONDS: Final = 0.1
_PAUSE_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Size of a read, or of a transaction.

    Attributes:
        rows: How many values, at most.
        size_bytes: About how many bytes; one value is read regardless of its size.
    """

    rows: int = 1000
    size_bytes: int = 8 * 1024 * 1024


BATCH: Final = Batch()


class Check(StrEnum):
    """How many of the rotated values are opened again at the end."""

    ALL = "all"
    SAMPLE = "sample"
    NONE = "none"


class Compress(StrEnum):
    """How values are resealed."""

    ZSTD = "zstd"
    NONE = "none"


# An UPDATE may write whole pages of the table, of its two indexes, and of TOAST.
_WAL_OF_ROW: Final = 5 * 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a job does."""

    allow_plaintext: bool = False
    allow_legacy: bool = False
    batch: Batch = BATCH
    # Batches become smaller if writers wait longer for one.
    max_lock_seconds: float = MAX_LOCK_SECONDS
    # At most; of all workers together.
    rows_per_second: float | None = None
    max_seconds: float | None = None
    # Of WAL that replicas have not replayed, before the next batch.
    max_lag_bytes: int | None = None
    # Processes; more than one only for Postgres.
    workers: int = 1
    check: Check = Check.ALL
    scrub: bool = False
    # Open some rows first, to refuse the ring of another environment.
    check_keys: bool = True
    # Compress what is resealed, or do not; None leaves each value as it is.
    compress: bool | None = None
    # Only this range of threads, for Postgres.
    shard: Shard | None = None
    # What a value may be that no key has authenticated.
    limits: Limits = DEFAULT_LIMITS

    @property
    def paced_batch(self) -> Batch:
        """The batch, with no more rows than one second may change, and no more WAL than replicas may lack."""
        rate, lag = self.rows_per_second or self.batch.rows, (self.max_lag_bytes or 2**63) // self.workers
        rows, size = min(self.batch.rows, int(rate), lag // _WAL_OF_ROW), min(self.batch.size_bytes, lag // 4)
        return replace(self.batch, rows=max(1, rows), size_bytes=max(1, size))


class Stop:
    """A request to stop, which a handler of a signal can set.

    A signal may interrupt the thread that reads it, so it takes no lock as an event would: that may deadlock.
    """

    _is_set = False

    def set(self) -> None:
        """Request a stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait so many seconds, or until it is set."""
        end = float("inf") if timeout is None else monotonic() + timeout
        while not self.is_set() and (left := end - monotonic()) > 0:
            # In short steps: after a signal handler returns, Python resumes an interrupted sleep (PEP 475).
            sleep(min(left, _PAUSE_LOOK_SECONDS))
        return self.is_set()
