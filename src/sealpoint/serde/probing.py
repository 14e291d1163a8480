"""Counts the probes in hash tables of CPython for keys whose hash anyone can compute.

A number is its own hash. Keys with different hashes can be chosen so that the search for each key visits the
slots of all others: filling a dict with them takes quadratic time. This module simulates the search without
comparing keys, in a time that does not depend on the choice of keys.

From slot ``i`` a search goes to ``5 * i + perturb + 1``, where ``perturb`` is the hash, shifted right by 5
bits each time. A set first looks at the 9 slots behind ``i``. Source: "Keys" and "perturb" in the comments of
``Objects/dictobject.c``, and ``set_add_entry`` in ``Objects/setobject.c``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Final

from sealpoint.serde.limits import MAX_PROBES, MIN_PROBED

DICT_BEHIND: Final = 0
SET_BEHIND: Final = 9

_WORD: Final = 2**64 - 1


def are_spread(keys: Sequence[Hashable], slots: int, behind: int) -> bool:
    """Whether few probes are needed to insert keys into a hash table, at each size while the table grows.

    Args:
        keys: The keys, in the order of insertion. Keys without a computable hash may be among them.
        slots: Number of slots of the largest table, rounded up to a power of two.
        behind: Number of neighbouring slots probed after each slot: `DICT_BEHIND` or `SET_BEHIND`.
    """
    size = MIN_PROBED if len(keys) > MIN_PROBED else slots
    while size < slots:
        size *= 2
        count = size * 2 // 3  # more are never in a table
        if _probes_of(keys, size, count, behind) > MAX_PROBES * min(len(keys), count):
            return False
    return True


def _probes_of(keys: Sequence[Hashable], size: int, count: int, behind: int) -> int:
    """Return the number of probes of occupied slots, for all keys together."""
    table, mask, probes = bytearray(size), size - 1, 0
    # Once ``perturb`` is 0, all searches follow one path: from a slot to one further on, and how far that is.
    jumps = dict[int, tuple[int, int]]()
    for number in map(hash, islice(keys, count)):
        at = free = number & mask
        if table[at]:
            path: list[tuple[int, int]] = []
            perturb = number & _WORD
            while table[at]:
                if behind and at + behind < size and (free := table.find(0, at + 1, at + behind + 1)) > 0:
                    break
                if perturb:
                    perturb >>= 5
                    probes += 1
                    at = (5 * at + perturb + 1) & mask
                else:
                    path.append((at, probes))
                    at, distance = jumps.get(at) or ((5 * at + 1) & mask, 1)
                    probes += distance
            else:
                free = at
            # To ``at``, not to ``free`` behind it: the path from there is another one, and could be a circle.
            for start, before in path:
                jumps[start] = at, probes - before
        table[free] = 1
    return probes
