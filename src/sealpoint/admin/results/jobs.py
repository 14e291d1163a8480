"""Jobs are runs that change values: their options, the size of their batches, and the request to stop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from time import monotonic, sleep
from typing import Final

from sealpoint.admin.results.shards import Shard
from sealpoint.serde.limits import DEFAULT_LIMITS, Limits

# Rows in the first batch of a column: small, because the time for a row is not known yet.
FIRST_ROWS: Final = 64
# Python's sqlite3 raises "database is locked" after 5 s by default; a batch must stay far below that.
MAX_LOCK_SECONDS: Final = 0.1
_PAUSE_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Maximum size of a batch: the values that are read together, or changed in one transaction.

    Attributes:
        rows: Maximum number of values in a batch.
        size_bytes: Approximate maximum of bytes in a batch; one value is always read, regardless of its size.
    """

    rows: int = 1000
    size_bytes: int = 8 * 1024 * 1024


BATCH: Final = Batch()


class Check(StrEnum):
    """Which of the resealed values a job opens again at its end, to verify them."""

    ALL = "all"
    SAMPLE = "sample"
    NONE = "none"


class Compress(StrEnum):
    """How a job compresses the values that it reseals: with zstd, or not at all."""

    ZSTD = "zstd"
    NONE = "none"


# WAL bytes per row: an UPDATE may write whole pages of the table, of its two indexes, and of TOAST.
_WAL_OF_ROW: Final = 5 * 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a job, which is a run that changes values."""

    allow_plaintext: bool = False
    allow_legacy: bool = False
    batch: Batch = BATCH
    # Make batches smaller if a batch locks rows for longer than this.
    max_lock_seconds: float = MAX_LOCK_SECONDS
    # Maximum rows per second, of all workers together.
    rows_per_second: float | None = None
    max_seconds: float | None = None
    # Maximum bytes of WAL that replicas have not replayed; otherwise wait before the next batch.
    max_lag_bytes: int | None = None
    # Number of processes; more than one only for Postgres.
    workers: int = 1
    check: Check = Check.ALL
    scrub: bool = False
    # First open some rows as a test, to refuse the ring of another environment.
    check_keys: bool = True
    # Compress resealed values, or decompress them; None keeps each value as it is.
    compress: bool | None = None
    # Work on this range of threads only (Postgres).
    shard: Shard | None = None
    # Limits for decoding unauthenticated values.
    limits: Limits = DEFAULT_LIMITS

    @property
    def paced_batch(self) -> Batch:
        """The batch size, limited by the allowed rows per second and the WAL that replicas may lag behind."""
        rate, lag = self.rows_per_second or self.batch.rows, (self.max_lag_bytes or 2**63) // self.workers
        rows, size = min(self.batch.rows, int(rate), lag // _WAL_OF_ROW), min(self.batch.size_bytes, lag // 4)
        return replace(self.batch, rows=max(1, rows), size_bytes=max(1, size))


class Stop:
    """A request to stop, which a signal handler can set.

    Unlike threading.Event, this class uses no lock: the main thread may hold that lock when its signal
    handler calls `set`, which would then wait forever.
    """

    _is_set = False

    def set(self) -> None:
        """Request a stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether a stop was requested."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for ``timeout`` seconds, or until a stop is requested; return whether one was requested."""
        end = float("inf") if timeout is None else monotonic() + timeout
        while not self.is_set() and (left := end - monotonic()) > 0:
            # Short steps: after a signal handler returns, Python resumes an interrupted sleep (PEP 475).
            sleep(min(left, _PAUSE_LOOK_SECONDS))
        return self.is_set()
