"""Tally: how many values a cipher has sealed and opened, by key id."""

from __future__ import annotations

from itertools import count
from typing import Final

SEALED: Final = "sealed"
OPENED: Final = "opened"
OPENED_RETIRED: Final = "opened_retired"


class Tally:
    """Counters by key id, kept when the ring changes.

    Counting is a call of `next`, which is atomic, so the numbers are exact without a lock.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], count[int]] = {}

    def counter(self, kind: str, key_id: str) -> count[int]:
        """Return the counter of a kind and a key; each `next` of it adds one."""
        return self._counters.setdefault((kind, key_id), count())

    def read(self) -> dict[str, dict[str, int]]:
        """Return the counts by kind and key id; keys that were not used are omitted.

        A value opened under a retired key is counted once, and returned under both kinds.
        """
        shown: dict[str, dict[str, int]] = {SEALED: {}, OPENED: {}, OPENED_RETIRED: {}}
        for (kind, key_id), counter in sorted(self._counters.copy().items()):
            number = int(repr(counter)[len("count(") : -1])  # any other read adds one
            names = (OPENED, kind) if kind == OPENED_RETIRED else (kind,)
            for name in names if number else ():
                shown[name][key_id] = shown[name].get(key_id, 0) + number
        return shown
