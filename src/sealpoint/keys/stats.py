"""Statistics of a process: reloads of its ring file, and requests to the sources of its keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final


class Tally:
    """Counters, each identified by a kind and a name.

    A counter is incremented by a call of `next`, which is atomic, so the numbers are exact without a lock. A
    forked process continues with the numbers of its parent.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], count[int]] = {}

    def counter(self, kind: str, name: str) -> count[int]:
        """Return the counter of a kind and a name; each call of `next` on the counter adds one."""
        return self._counters.setdefault((kind, name), count())

    def add(self, kind: str, name: str) -> None:
        """Add one to the counter of a kind and a name."""
        next(self.counter(kind, name))

    def read(self, *kinds: str) -> dict[str, int]:
        """Return, by name, the sum of the counters of these kinds; names with the sum 0 are omitted."""
        shown: dict[str, int] = {}
        for (kind, name), counter in sorted(self._counters.copy().items()):
            number = int(repr(counter)[len("count(") : -1])  # other ways to read the count would increase it
            if number and kind in kinds:
                shown[name] = shown.get(name, 0) + number
        return shown


@dataclass(frozen=True, slots=True)
class RingStats:
    """The ring in use, and how often its file was read.

    Attributes:
        active_id: Id of the active key; ``None`` if no key is active.
        active_created: When the active key was created, if the ring file records it.
        read_at: When the ring in use was read, or, before the first reload, when the cipher was created.
        reloads: Number of reloads that put a changed ring into use.
        refused: Number of failed reloads, by class of the error of the ring file or of a key source.
        error: Class of the error of the last reload; ``None`` if it succeeded, or before the first reload.
    """

    active_id: str | None
    active_created: datetime | None
    read_at: datetime
    reloads: int
    refused: Mapping[str, int]
    error: str | None


class Reloads:
    """Records reloads of a ring file and their errors. One thread at a time writes; any thread may read."""

    def __init__(self) -> None:
        self.read_at = datetime.now(UTC)
        self.reloads = 0
        self.error: str | None = None
        self.refused = Counter[str]()  # by class of the error

    def succeed(self) -> None:
        """Record that a reload put a changed ring into use."""
        self.read_at, self.error = datetime.now(UTC), None
        self.reloads += 1

    def fail(self, error: BaseException) -> None:
        """Record that a reload failed with ``error``."""
        self.error = type(error).__name__
        self.refused[self.error] += 1


@dataclass(frozen=True, slots=True)
class SourceStats:
    """How often this process asked slow sources for key material: wrappers, and commands that print a key.

    Attributes:
        reads: Number of requests to these sources; repeated attempts of a request count once.
        failed: Number of requests that failed to provide a key, by class of the error.
    """

    reads: int
    failed: Mapping[str, int]


READ: Final = "read"
FAILED: Final = "failed"

tally: Final = Tally()  # of this process: a source is read once for all ciphers that use its key


def source_stats() -> SourceStats:
    """Return the numbers of requests of this process so far.

    Example:
        >>> from sealpoint.keys.stats import source_stats
        >>> source_stats()
        SourceStats(reads=..., failed={...})
    """
    return SourceStats(tally.read(READ).get("", 0), tally.read(FAILED))
