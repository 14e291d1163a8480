"""Options of a rotation job, in one object that is also sent to worker processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from sealpoint.databases.rows import BATCH, Batch
from sealpoint.maintenance.rotate import MAX_LOCK_SECONDS


class Check(StrEnum):
    """How many of the rotated values are opened again at the end."""

    ALL = "all"
    SAMPLE = "sample"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a job does.

    Attributes:
        allow_plaintext: Also seal values that are not sealed.
        allow_legacy: Also reseal values under LANGGRAPH_AES_KEY.
        batch: Maximum size of a transaction.
        max_lock_seconds: Make batches smaller if writers wait longer than this for one.
        rows_per_second: How many rows to change a second, at most.
        max_seconds: Stop after this time.
        workers: Number of processes; more than one only for Postgres.
        check: Which values to open again at the end.
        scrub: Remove old contents from a SQLite file, and search it for them.
        check_keys: Open some rows first, to refuse the ring of another environment.
    """

    allow_plaintext: bool = False
    allow_legacy: bool = False
    batch: Batch = BATCH
    max_lock_seconds: float = MAX_LOCK_SECONDS
    rows_per_second: float | None = None
    max_seconds: float | None = None
    workers: int = 1
    check: Check = Check.ALL
    scrub: bool = False
    check_keys: bool = True

    @property
    def paced_batch(self) -> Batch:
        """The batch, with no more rows than one second may change."""
        if self.rows_per_second is None:
            return self.batch
        return replace(self.batch, rows=min(self.batch.rows, max(1, int(self.rows_per_second))))
