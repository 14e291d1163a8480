"""Pace: a clock of the tests' own says when a run would wait, and where it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Event, Events, Progress
from sealpoint.errors import HaltedError, IntegrityError
from sealpoint.maintenance import pace as pace_module
from sealpoint.maintenance.pace import Pace, Stop


class Clock:
    """Time that passes only while somebody waits, and a signal that is set at a moment of it."""

    def __init__(self, set_at: float = float("inf")) -> None:
        self.now = 0.0
        self._set_at = set_at

    def is_set(self) -> bool:
        return self.now >= self._set_at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now = max(self.now, min(self.now + timeout, self._set_at))
        return self.is_set()


def make_pace(
    clock: Clock, *, rows_per_second: float | None = None, max_seconds: float | None = None
) -> Pace:
    return Pace(clock, rows_per_second=rows_per_second, max_seconds=max_seconds)


@pytest.fixture(autouse=True)
def clock() -> Iterable[Clock]:
    """What the module takes for the time."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace_module, "monotonic", lambda: clock.now)
        yield clock


def progress(rows: int) -> Progress:
    """A batch, after which so many rows have been changed in all, one of them by another writer."""
    return Progress("checkpoints", 0, 1000, max(0, rows - 1), min(1, rows), rows, 0.0)


def run(events: Iterable[Event], closed: list[str]) -> Events:
    """A run that notes its end."""
    try:
        yield from events
    finally:
        closed.append("closed")


@given(sizes=st.lists(st.integers(0, 50), max_size=9), rate=st.floats(0.5, 1e6))
def test_no_more_rows_than_the_rate_allows(sizes: list[int], rate: float) -> None:
    """After each batch, all rows together have taken their time, and no more than that."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace_module, "monotonic", lambda: clock.now)
        pace = make_pace(clock, rows_per_second=rate)
        done = list(accumulate(sizes))
        for before, _ in zip([0, *done], pace.limit(run(map(progress, done), [])), strict=False):
            assert clock.now == pytest.approx(before / rate)
    assert clock.now == pytest.approx(sum(sizes) / rate)
    assert not pace.stopped


def test_without_a_rate_nobody_waits(clock: Clock) -> None:
    assert len(list(make_pace(clock).limit(run(map(progress, range(9)), [])))) == 9
    assert clock.now == 0.0


def test_it_waits_no_longer_than_the_time_that_is_left(clock: Clock) -> None:
    closed: list[str] = []
    pace = make_pace(clock, rows_per_second=1, max_seconds=2.5)
    assert list(pace.limit(run([progress(2), progress(900), progress(901)], closed))) == [
        progress(2),
        progress(900),
    ]
    assert (clock.now, pace.stopped, pace.is_over, closed) == (2.5, True, True, ["closed"])


def test_a_wait_ends_when_it_is_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(set_at=0.25)
    monkeypatch.setattr(pace_module, "monotonic", lambda: clock.now)
    pace = make_pace(clock, rows_per_second=1)
    assert list(pace.limit(run([progress(10), progress(20)], []))) == [progress(10)]
    assert (clock.now, pace.stopped) == (0.25, True)


def test_a_run_that_came_to_its_end_was_not_stopped(clock: Clock) -> None:
    pace = make_pace(clock, max_seconds=10)
    assert len(list(pace.limit(run([progress(1)], [])))) == 1
    assert not pace.stopped


def test_a_run_ends_after_batches_only(clock: Clock) -> None:
    """What a batch met is told first: a failure comes before the progress of its batch."""
    failure = Failure("checkpoints", {}, "tag", IntegrityError("x"))
    pace = make_pace(clock, max_seconds=0)
    assert list(pace.limit(run([failure, failure, progress(1), failure], []))) == [
        failure,
        failure,
        progress(1),
    ]


def test_a_run_is_closed_with_its_consumer(clock: Clock) -> None:
    closed: list[str] = []
    events = make_pace(clock).limit(run(map(progress, range(9)), closed))
    next(iter(events))
    del events
    assert closed == ["closed"]


def test_stop_can_be_set_by_a_handler_whatever_it_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that comes while the main thread holds the lock of an event would wait for ever."""
    monkeypatch.undo()
    stops = [Stop()]

    def handle(number: int, frame: object) -> None:
        stop = stops[-1]  # another signal may come while this one is handled
        stop.set()
        assert stop.is_set()
        stops.append(Stop())

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        while len(stops) < 200:
            stops[-1].wait(0.0001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_stop_waits_until_it_is_set() -> None:
    stop = Stop()
    assert not stop.wait(0)
    threading.Timer(0.01, stop.set).start()
    assert stop.wait()
    assert stop.wait(1e9)


def test_a_statement_that_was_ended_is_the_end_of_the_run() -> None:
    """Its store asked whether the run is over; what was done before is passed on."""

    def halted() -> Events:
        yield progress(1)
        raise HaltedError("over")

    pace = make_pace(Clock())
    assert list(pace.limit(halted())) == [progress(1)]
    assert pace.stopped
