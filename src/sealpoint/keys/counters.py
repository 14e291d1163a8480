"""Tally: how often each thing happened, by kind and name."""

from __future__ import annotations

from itertools import count


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
