"""Keys and members whose hash can be chosen: the time of a table of them is linear, or they are refused."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Any, Final
from uuid import UUID

import ormsgpack
import pytest

from sealpoint.errors import SerdeError
from sealpoint.serde import JsonPlusSerializer
from sealpoint.serde.inert import decode_inert
from sealpoint.serde.probing import DICT_BEHIND, SET_BEHIND, are_spread
from tests.support.runs.costs import lines_of
from tests.support.values.forge import named, pack

strict = JsonPlusSerializer(allowed_msgpack_modules=None)
permissive = JsonPlusSerializer()
SIZE: Final = 1 << 14


@cache
def chosen() -> tuple[int, ...]:
    """Numbers of which some fill one run of the cycle of a table, and the others are looked for along it."""
    at, slots = 0, dict[int, int]()
    while len(slots) < 6000:
        slots[at], at = len(slots), (5 * at + 1) % SIZE
    draw, found, starts = random.Random(1), dict[int, None](), [*slots]
    while len(found) < 1500:
        number = draw.choice(starts) + draw.randrange(1, 1 << 8) * SIZE
        at, perturb = number % SIZE, number
        while perturb and at in slots:
            perturb >>= 5
            at = (5 * at + perturb + 1) % SIZE
        if slots.get(at, 6000) < 3000:
            found[number] = None
    return *starts, *found


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers that take 10 probes in a set, where 4 are allowed: it is slow to find some for 128."""
    monkeypatch.setattr("sealpoint.serde.probing.MAX_PROBES", 4)
    return [number << 44 for number in range(6000)]


def mapping(keys: Any) -> bytes:
    return ormsgpack.packb(dict.fromkeys(keys), option=ormsgpack.OPT_NON_STR_KEYS)


def members(keys: Any, name: str = "set") -> bytes:
    return pack(named(0, "builtins", name, list(keys)))


def uuids(keys: Any) -> bytes:
    return members([named(0, "uuid", "UUID", UUID(int=key).hex) for key in keys])


def decimals(keys: Any) -> bytes:
    return members([named(0, "decimal", "Decimal", str(Decimal(key))) for key in keys])


MAPS: Final[dict[str, Callable[[Any], bytes]]] = {
    "map": mapping,
    "of floats": lambda keys: mapping(map(float, keys)),
    "within others": lambda keys: b"\x81\xa1a\x91\x91" + mapping(keys),
    "beside text": lambda keys: mapping([*keys, *map(str, range(100))]),
}
SETS: Final[dict[str, Callable[[Any], bytes]]] = {
    "set": members,
    "frozenset": lambda keys: members(keys, "frozenset"),
    "set of UUIDs": uuids,
    "set of decimals": decimals,
}
READS: Final[dict[str, Callable[[bytes], object]]] = {
    "strict": lambda data: strict.loads_typed(("msgpack", data)),
    "unsealed": lambda data: permissive.loads_unsealed("msgpack", data),
    "inert": lambda data: decode_inert("msgpack", data),
}


ORDINARY_ONES: Final = random.Random(2).sample(range(1 << 22), 7500)


@pytest.mark.parametrize("shape", MAPS)
@pytest.mark.parametrize("way", READS)
def test_chosen_keys_are_refused_and_ordinary_ones_are_read(way: str, shape: str) -> None:
    with pytest.raises(SerdeError, match="chosen to be slow to look up"):
        READS[way](MAPS[shape](chosen()))
    READS[way](MAPS[shape](ORDINARY_ONES))


@pytest.mark.parametrize("shape", SETS)
@pytest.mark.parametrize("way", ["strict", "unsealed"])
def test_chosen_members_are_refused_and_ordinary_ones_are_read(way: str, shape: str, low: list[int]) -> None:
    with pytest.raises(SerdeError, match="chosen to be slow to look up"):
        READS[way](SETS[shape](low))
    READS[way](SETS[shape](ORDINARY_ONES))


def test_a_set_of_a_legacy_row_is_refused(low: list[int]) -> None:
    row = {"lc": 2, "type": "constructor", "id": ["builtins", "set"], "args": [low]}
    with pytest.raises(SerdeError, match="chosen to be slow to look up"):
        strict.loads_typed(("json", json.dumps(row).encode()))


@pytest.mark.parametrize("shape", MAPS)
def test_chosen_keys_take_at_most_three_times_the_steps_of_ordinary_ones(shape: str) -> None:
    def refuse(data: bytes) -> None:
        with pytest.raises(SerdeError):
            strict.loads_typed(("msgpack", data))

    good, bad = MAPS[shape](ORDINARY_ONES), MAPS[shape](chosen())
    assert lines_of(lambda: refuse(bad)) <= 3 * lines_of(lambda: strict.loads_typed(("msgpack", good)))


def test_what_a_key_has_authenticated_is_read_in_small_threads_too() -> None:
    found = list[Any]()
    before = threading.stack_size(1024 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: found.append(strict.loads_sealed("msgpack", mapping(chosen())))
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found == [dict.fromkeys(chosen())]


# --- the search is the one of CPython -------------------------------------------------------------


def naive(keys: Any, size: int, behind: int) -> float:
    """The slots that CPython looks at on the way to a free one, one after the other."""
    taken, steps, keys = set[int](), 0, [*islice(keys, size * 2 // 3)]
    for key in keys:
        perturb, at = hash(key) % 2**64, hash(key) % size
        while True:
            near = range(at, at + 1 + (behind if at + behind < size else 0))
            if free := [each for each in near if each not in taken]:
                taken.add(free[0])
                break
            perturb >>= 5
            at, steps = (5 * at + perturb + 1) % size, steps + 1
    return steps / len(keys)


@pytest.mark.parametrize("behind", [DICT_BEHIND, SET_BEHIND])
@pytest.mark.parametrize("more", [0, 3, 30, 100])
def test_the_bound_is_the_number_of_slots_that_are_looked_at(
    more: int, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on both sides of it, for a run of the cycle with few and with many that are looked for in it."""
    keys = [*chosen()[:3000], *chosen()[6000 : 6000 + more], *(key << 40 for key in range(3000))]
    monkeypatch.setattr("sealpoint.serde.probing.MIN_PROBED", SIZE // 4)
    steps = {size: naive(keys, size, behind) for size in (SIZE // 2, SIZE)}
    most = max(steps.values())
    for bound, passes in ((most + 1e-6, True), (most - 1e-3, False)):
        monkeypatch.setattr("sealpoint.serde.probing.MAX_PROBES", bound)
        assert are_spread(keys, SIZE, behind) is passes


@pytest.mark.parametrize("count", [1025, 5000, 19_661, 50_000, 78_644, 157_287])
def test_no_set_has_more_slots_than_are_looked_at(count: int) -> None:
    slots = (sys.getsizeof(set(range(count))) - sys.getsizeof(set())) // 16
    assert slots < 8 * count
    assert slots.bit_count() == 1


# --- ordinary numbers -----------------------------------------------------------------------------

COUNT: Final = 6_000
DRAW: Final = random.Random(3)
ORDINARY: Final[dict[str, list[Any]]] = {
    "sequential": [*range(COUNT)],
    "negative": [*range(-COUNT, 0)],
    "random": DRAW.sample(range(2**40), COUNT),
    "wide": [DRAW.getrandbits(63) for _ in range(COUNT)],
    "nanoseconds": [1_700_000_000_000_000_000 + 10**9 * n for n in range(COUNT)],
    "days": [1_500_000_000_000_000_000 + 86_400 * 10**9 * n for n in range(COUNT)],
    "milliseconds": [1_700_000_000_000 + DRAW.randrange(10**10) for _ in range(COUNT)],
    "seconds": [1.7e9 + n / 1000 for n in range(COUNT)],
    "floats": [DRAW.random() for _ in range(COUNT)],
    "squares": [n * n for n in range(COUNT)],
    "pairs": [(n % 200 - 100, n // 200) for n in range(COUNT)],
    "pairs of floats": [(n % 200 / 4, n // 200 / 4) for n in range(COUNT)],
    "snowflakes": [(1_288_834_974_657 + 37 * n << 22) | n % 32 << 12 for n in range(COUNT)],
    "powers": [2.0**n for n in range(-1074, 1024)],
    **{f"multiples of 2^{bits}": [n << bits for n in range(COUNT)] for bits in range(1, 50)},
    **{f"multiples of -2^{bits}": [-n << bits for n in range(COUNT)] for bits in range(1, 49, 6)},
    **{f"parts of 2^{bits}": [n / 2**bits for n in range(COUNT)] for bits in range(1, 60, 2)},
    **{f"multiples of {step}": [n * step for n in range(COUNT)] for step in (3, 5, 12, 1000, 4095, 10**9)},
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_numbers_pass(name: str) -> None:
    keys = ORDINARY[name]
    for order in (keys, random.Random(name).sample(keys, len(keys))):
        assert are_spread(order, len(keys) * 3 // 2, DICT_BEHIND)
        assert are_spread(order, len(keys) * 4, SET_BEHIND)


@pytest.mark.parametrize("seed", [65, 120, 125, 206, 230])
def test_no_search_goes_in_a_circle(seed: int) -> None:
    """Some orders of keys with few hashes once led from a slot behind one that was left to that one again."""
    keys = random.Random(seed).sample(ORDINARY["powers"], len(ORDINARY["powers"]))
    assert are_spread(keys, len(keys) * 4, SET_BEHIND)
