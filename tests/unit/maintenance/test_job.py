"""A rotation job as a library: what it reports and what comes of it, its pace, and its workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance import workers as pace_module
from sealpoint.admin.maintenance.job import End, Job, Outcome, Phase
from sealpoint.admin.maintenance.workers import Assignment, Pace, _sum, run_in_processes
from sealpoint.admin.results.events import Event, Events, Failure, Progress
from sealpoint.admin.results.jobs import Check, Options, Stop
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import HaltedError, IntegrityError, RingFileMissingError, StoppedError, WrongRingError
from tests.support.databases.harm import flip
from tests.support.databases.postgres import blobs, contents, put_blobs, set_up
from tests.support.databases.sealed import VALUES, make_cipher, values_of
from tests.support.keys.rings import material_of, states_text
from tests.support.keys.rings import write as write_text
from tests.support.servers.postgres import schema, server


def run_job(path: Path, options: Options, cipher: RingCipher | None = None) -> tuple[Outcome, list[Any]]:
    """Run a job to the key k2; return its outcome and what it reported."""
    events: list[Any] = []
    with closing(SqliteRows(path, writable=True)) as store:
        job = Job(store, cipher or make_cipher("k2", "k1"), options)
        return job.run(Stop(), events.append), events


def test_phases_are_reported_in_order_with_their_progress(path: Path) -> None:
    outcome, events = run_job(path, Options(scrub=True))
    assert [event for event in events if isinstance(event, Phase)] == list(Phase)
    verifying = events.index(Phase.VERIFY)
    rotated = [event for event in events[:verifying] if isinstance(event, Progress)]
    assert rotated[-1].changed == outcome.changed == VALUES
    assert (outcome.end, outcome.problem, outcome.left, outcome.remaining) == (End.COMPLETE, None, 0, [])
    assert outcome.verified == VALUES
    assert outcome.scrubbed is not None
    assert outcome.scrubbed.found == ()
    assert outcome.longest_lock_seconds > 0


def test_failure_of_a_value_is_reported_once(path: Path) -> None:
    """The rotation meets it, and the verification meets it again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        flip(connection, values_of(path)[0])
    outcome, events = run_job(path, Options())
    assert len([event for event in events if isinstance(event, Failure)]) == 1
    assert (outcome.changed, outcome.left, outcome.verified) == (VALUES - 1, 1, VALUES - 1)
    assert outcome.pending == 1
    assert outcome.end is End.COMPLETE


def test_ring_of_another_environment_is_refused_unless_that_is_left_out(path: Path) -> None:
    keys = [Key("k2", material_of("k2"), KeyState.ACTIVE), Key("k1", bytes(32), KeyState.DECRYPT_ONLY)]
    other = RingCipher(KeyRing(keys))
    with pytest.raises(WrongRingError):
        run_job(path, Options(), other)
    outcome, events = run_job(path, Options(check_keys=False, check=Check.NONE), other)
    assert (outcome.changed, outcome.left) == (0, VALUES)
    assert len([event for event in events if isinstance(event, Failure)]) == VALUES


def test_a_batch_is_not_larger_than_the_rows_of_a_second() -> None:
    assert Options(rows_per_second=7.5, batch=Batch(rows=100)).paced_batch.rows == 7
    assert Options(rows_per_second=0.5).paced_batch.rows == 1
    assert Options().paced_batch == Batch()


class Clock(Stop):
    """Time that passes only while somebody waits, and a signal that is set at a moment of it."""

    now, set_at = 0.0, float("inf")

    def is_set(self) -> bool:
        return self.now >= self.set_at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now = max(self.now, min(self.now + timeout, self.set_at))
        return self.is_set()


@pytest.fixture
def clock() -> Iterable[Clock]:
    """What the module takes for the time."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace_module, "monotonic", lambda: clock.now)
        yield clock


def progress(rows: int) -> Progress:
    """A batch, after which so many rows have been changed in all, one of them by another writer."""
    return Progress("checkpoints", 0, 1000, max(0, rows - 1), min(1, rows), rows, 0.0)


def noting(events: Iterable[Event], closed: list[str]) -> Events:
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
        pace = Pace(clock, Options(rows_per_second=rate))
        done = list(accumulate(sizes))
        for before, _ in zip([0, *done], pace.limit(noting(map(progress, done), [])), strict=False):
            assert clock.now == pytest.approx(before / rate)
    assert clock.now == pytest.approx(sum(sizes) / rate)
    assert not pace.stopped


def test_a_run_without_a_rate_comes_to_its_end(clock: Clock) -> None:
    pace, closed = Pace(clock, Options(max_seconds=10)), list[str]()
    events = pace.limit(noting(map(progress, range(9)), closed))
    assert (len(list(events)), clock.now, pace.stopped, closed) == (9, 0.0, False, ["closed"])
    events = pace.limit(noting(map(progress, range(9)), closed))
    next(iter(events))
    del events
    assert closed == ["closed"] * 2


FAILURE = Failure("checkpoints", {}, "tag", IntegrityError("x"))


@pytest.mark.parametrize(
    ("set_at", "options", "events", "passed", "end"),
    [
        (
            9.0,
            {"rows_per_second": 1, "max_seconds": 2.5},
            [progress(2), progress(900), progress(901)],
            2,
            2.5,
        ),
        (0.25, {"rows_per_second": 1}, [progress(10), progress(20)], 1, 0.25),
        (9.0, {"max_seconds": 0}, [FAILURE, FAILURE, progress(1), FAILURE], 3, 0.0),
    ],
    ids=["time is up", "asked to stop", "after a batch"],
)
def test_a_run_ends_early(
    clock: Clock, set_at: float, options: dict[str, Any], events: list[Event], passed: int, end: float
) -> None:
    """It waits no longer than it may, and a failure comes before the progress of its batch."""
    clock.set_at, closed = set_at, list[str]()
    pace = Pace(clock, Options(**options))
    assert list(pace.limit(noting(events, closed))) == events[:passed]
    assert (clock.now, pace.stopped, pace.is_over, closed) == (end, True, True, ["closed"])


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

    pace = Pace(Clock())
    assert list(pace.limit(halted())) == [progress(1)]
    assert pace.stopped


ROWS = 60


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return write_text(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only"))


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    """A database with values under k1."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(ROWS))
        yield dsn


def test_value_that_two_of_them_met_is_told_once() -> None:
    """LangGraph numbers its own writes below zero, and hash() makes the same of -1 and -2."""
    met = [(0, "a", -1), (1, "a", -1), (1, "a", -2), (1, "b", -1), (0, "a", -2)]
    events: list[tuple[int, Event]] = [
        (number, Failure("t", {"channel": channel, "idx": idx}, "tag", IntegrityError("x")))
        for number, channel, idx in met
    ]
    assert list(_sum(iter(events))) == [events[0][1], events[2][1], events[3][1]]


@pytest.mark.costly
def test_one_that_is_killed_ends_the_run(url: str, ring: Path) -> None:
    """When the others have ended too; what all of them did stands, and no row is lost."""
    others = {*multiprocessing.active_children()}  # of other tests
    events = run_in_processes(
        Assignment(url, ring, "k2", options=Options(batch=Batch(rows=1), rows_per_second=20)), 2, Stop()
    )
    next(events)  # one is at work for three seconds, and the other at most begins
    killed, *_ = {*multiprocessing.active_children()} - others
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(StoppedError, match="1 of 2 workers were killed"):
        list(events)
    k2 = make_cipher("k2", "k1")
    assert all(k2.open(*sealed).typed == ("msgpack", b"x" * 100) for sealed in contents(url).values())
    assert {*multiprocessing.active_children()} <= others


def test_what_ends_one_of_them_is_raised(url: str, ring: Path) -> None:
    """One that met another active key would undo what the others do."""
    with pytest.raises(RingFileMissingError):
        list(run_in_processes(Assignment(url, ring.with_name("missing.toml"), "k2"), 1, Stop()))
    with pytest.raises(StoppedError, match="active key was 'k9' when the run began"):
        list(run_in_processes(Assignment(url, ring, "k9"), 2, Stop()))
    assert {type_ for type_, _ in contents(url).values()} == {"msgpack+cobblestone256@k1"}


def test_they_end_with_who_started_them(url: str, ring: Path) -> None:
    """Also if that does not come to its end."""
    others = {*multiprocessing.active_children()}
    events = run_in_processes(
        Assignment(url, ring, "k2", options=Options(batch=Batch(rows=1), rows_per_second=5)), 2, Stop()
    )
    next(events)
    events.close()
    assert {*multiprocessing.active_children()} <= others
    assert 0 < sum(tag.endswith("k2") for tag, _ in contents(url).values()) < ROWS
