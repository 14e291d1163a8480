"""What a process knows of its ring and of the sources of its keys, as numbers and names for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Final


class Tally:
    """Counters by kind and name.

    Counting is a call of `next`, which is atomic, so the numbers are exact without a lock. A process that
    was forked continues with the numbers of its parent.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], count[int]] = {}

    def counter(self, kind: str, name: str) -> count[int]:
        """Return the counter of a kind and a name; each `next` of it adds one."""
        return self._counters.setdefault((kind, name), count())

    def add(self, kind: str, name: str) -> None:
        """Add one to the counter of a kind and a name."""
        next(self.counter(kind, name))

    def read(self, *kinds: str) -> dict[str, int]:
        """Return the sum of the counts of some kinds, by name; names that were not counted are omitted."""
        shown: dict[str, int] = {}
        for (kind, name), counter in sorted(self._counters.copy().items()):
            number = int(repr(counter)[len("count(") : -1])  # any other read adds one
            if number and kind in kinds:
                shown[name] = shown.get(name, 0) + number
        return shown


@dataclass(frozen=True, slots=True)
class RingStats:
    """The ring in use, and how often its file was read.

    Attributes:
        active_id: Id of the active key; ``None`` if no key is active.
        active_created: When the active key was created, if the ring says so.
        read_at: When the ring in use was read; for a ring that is not reloaded, when the cipher was made.
        reloads: How often the changed file was read, and its ring used.
        refused: How often the file or a source of its keys was refused, by class of the error.
        error: Class of the error of the last attempt; ``None`` if it succeeded, or there was none.
    """

    active_id: str | None
    active_created: datetime | None
    read_at: datetime
    reloads: int
    refused: Mapping[str, int]
    error: str | None


class Reloads:
    """Records what became of a ring file. One thread at a time writes; any thread may read."""

    def __init__(self) -> None:
        self.read_at = datetime.now(UTC)
        self.reloads = 0
        self.error: str | None = None
        self.refused = Counter[str]()  # by class of the error

    def succeed(self) -> None:
        """Record that the ring in use is a new one."""
        self.read_at, self.error = datetime.now(UTC), None
        self.reloads += 1

    def fail(self, error: BaseException) -> None:
        """Record that the file was refused."""
        self.error = type(error).__name__
        self.refused[self.error] += 1


@dataclass(frozen=True, slots=True)
class SourceStats:
    """How often this process asked slow sources for key material: wrappers, and commands that print a key.

    Attributes:
        reads: How often one was asked; repeated attempts of one call count once.
        failed: How often one did not provide its key, by class of the error.
    """

    reads: int
    failed: Mapping[str, int]


READ: Final = "read"
FAILED: Final = "failed"

tally: Final = Tally()  # of this process: a source is read once for all ciphers that use its key


def source_stats() -> SourceStats:
    """Return the counts of this process.

    Example:
        >>> from sealpoint.keys.stats import source_stats
        >>> source_stats()
        SourceStats(reads=..., failed={...})
    """
    return SourceStats(tally.read(READ).get("", 0), tally.read(FAILED))
