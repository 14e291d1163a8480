"""Tally: how many values a cipher has sealed and opened, by key id."""

from __future__ import annotations

from itertools import count
from typing import Final

SEALED: Final = "sealed"
OPENED: Final = "opened"
OPENED_RETIRED: Final = "opened_retired"


class Tally:
    """Counters that outlive the ring whose keys they count.

    To count is to call `next`, one step in C that no other thread divides: exact without a lock.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], count[int]] = {}

    def counter(self, kind: str, key_id: str) -> count[int]:
        """Return the counter of a kind and a key; each `next` of it adds one."""
        return self._counters.setdefault((kind, key_id), count())

    def read(self) -> dict[str, dict[str, int]]:
        """Return what was counted, by kind and key id; keys that were not used are left out.

        A value that is opened under a retired key is counted as that alone, and shown as opened too.
        """
        shown: dict[str, dict[str, int]] = {SEALED: {}, OPENED: {}, OPENED_RETIRED: {}}
        for (kind, key_id), counter in sorted(self._counters.copy().items()):
            number = int(repr(counter)[len("count(") : -1])  # any other way to read it would add one
            names = (OPENED, kind) if kind == OPENED_RETIRED else (kind,)
            for name in names if number else ():
                shown[name][key_id] = shown[name].get(key_id, 0) + number
        return shown
