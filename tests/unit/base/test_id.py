"""Checkpoint ids: later ones sort after earlier ones, whoever makes them."""

from __future__ import annotations

import itertools
import pickle
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import count
from operator import and_, or_
from typing import Any

import pytest

from sealpoint.base import id as id_module
from sealpoint.base import uuid6
from sealpoint.base.id import UUID
from tests.support.interleave import Second, call_with_a_break


def test_ids_are_uuids_of_version_6() -> None:
    made = uuid6()
    assert isinstance(made, uuid.UUID)
    assert made.version == uuid.UUID(str(made)).version == 6
    assert made.variant == uuid.RFC_4122


def test_later_ids_sort_after_earlier_ones() -> None:
    """As text too: that is how SQLite finds the latest."""
    ids = [uuid6(clock_seq=step) for step in (5, -2, 0, 3, -1) * 200]
    assert ids == sorted(ids)
    assert [*map(str, ids)] == sorted({*map(str, ids)})


@pytest.mark.parametrize("tick", [0, -1000])
def test_later_ids_sort_after_earlier_ones_without_a_clock(
    monkeypatch: pytest.MonkeyPatch, tick: int
) -> None:
    """Where the clock stands still between two, or is set back."""
    times = count(time.time_ns(), tick)
    monkeypatch.setattr(time, "time_ns", lambda: next(times))
    ids = [uuid6(clock_seq=step) for step in (5, -2, 0, 3, -1)]
    monkeypatch.undo()
    assert ids == sorted(set(ids))


def test_ids_of_two_threads_differ_wherever_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still, and the second thread makes its id between any two steps of the first."""
    moment = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: moment)
    waited = 0
    for step in itertools.count():
        other = Second(lambda: uuid6(node=1, clock_seq=1))
        monkeypatch.setattr(id_module, "_lock", other.lock)
        made = call_with_a_break(lambda: uuid6(node=1, clock_seq=1), id_module.__file__, step, other.start)
        if not other.has_started:
            break
        other.join()
        assert made != other.result
        waited += other.waited
    assert step > waited > 0


def test_ids_of_many_threads_differ() -> None:
    with ThreadPoolExecutor(8) as threads:
        ids = [*threads.map(lambda _: uuid6(node=1, clock_seq=1), range(2000))]
    assert len(set(ids)) == len(ids)


def test_an_id_tells_its_time() -> None:
    before, made, after = time.time_ns(), uuid6(), time.time_ns()
    nanoseconds = (made.time - 0x01B21DD213814000) * 100
    assert before - 100 <= nanoseconds <= after + 10**9  # the clock may run ahead to stay unique


def test_node_and_sequence_are_kept_within_their_bits() -> None:
    made = uuid6(node=2**50 + 7, clock_seq=-2)
    assert made.node == 7
    assert made.clock_seq == 2**14 - 2


def test_node_and_sequence_are_random_in_every_bit() -> None:
    made = [uuid6() for _ in range(200)]
    assert reduce(or_, (one.node for one in made)) == 2**48 - 1
    assert reduce(or_, (one.clock_seq for one in made)) == 2**14 - 1
    assert reduce(and_, (one.node for one in made)) == reduce(and_, (one.clock_seq for one in made)) == 0


@pytest.mark.parametrize(
    "form",
    [{"int": 2**128, "version": 6}, {"int": -1, "version": 6}, {"int": 0, "version": 9}, {"hex": "0" * 31}],
    ids=str,
)
def test_a_form_that_is_malformed_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"out of range|illegal version|badly formed"):
        UUID(**form)
    with pytest.raises(ValueError, match="illegal version"):
        UUID("0" * 32, version=9)


def test_the_bounds_of_the_forms() -> None:
    assert UUID(int=2**128 - 1, version=8).version == 8
    assert UUID(int=0, version=6).int == 0x8000 << 48 | 6 << 76


@pytest.mark.parametrize("version", [6, 7, 8])
def test_the_time_of_a_known_id(version: int) -> None:
    """The test vectors of RFC 9562, appendix A and B: one moment in each version, in its own unit."""
    known = {
        6: UUID("1EC9414C-232A-6B00-B3C8-9F6BDECED846"),
        7: UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F"),
        8: UUID(int=0x017F22E279B0 << 80, version=8),
    }[version]
    moment = 1645557742000  # milliseconds
    expected = {6: moment * 10**4 + 0x01B21DD213814000, 7: moment, 8: moment * 10**6}
    assert known.version == version
    assert known.time == expected[version]


def test_an_id_survives_a_pickle() -> None:
    made = uuid6()
    assert pickle.loads(pickle.dumps(made)) == made
