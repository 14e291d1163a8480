"""Checkpoint ids: later ones sort after earlier ones, whoever makes them."""

from __future__ import annotations

import itertools
import time
from functools import reduce
from operator import and_, or_

import pytest

from sealpoint.base import checkpoint as id_module
from sealpoint.base import uuid6
from tests.support.runs.interleave import Second, call_with_a_break


@pytest.mark.parametrize("tick", [None, 0, -1000], ids=["runs", "stands still", "is set back"])
def test_later_ids_sort_after_earlier_ones(monkeypatch: pytest.MonkeyPatch, tick: int | None) -> None:
    """Whatever the clock does. As text too: that is how SQLite finds the latest."""
    if tick is not None:
        times = itertools.count(time.time_ns(), tick)
        monkeypatch.setattr(time, "time_ns", lambda: next(times))
    ids = [uuid6(clock_seq=step) for step in (5, -2, 0, 3, -1) * 200]
    monkeypatch.undo()
    assert ids == sorted(ids)
    assert [*map(str, ids)] == sorted({*map(str, ids)})
    assert {each.version for each in ids} == {6}


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


def test_node_and_sequence_are_random_in_every_bit() -> None:
    made = [uuid6() for _ in range(200)]
    assert reduce(or_, (one.node for one in made)) == 2**48 - 1
    assert reduce(or_, (one.clock_seq for one in made)) == 2**14 - 1
    assert reduce(and_, (one.node for one in made)) == reduce(and_, (one.clock_seq for one in made)) == 0
