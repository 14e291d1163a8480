"""Workers: what they tell is added up, and what ends one of them is told when all have ended."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.databases.failures import Failure
from sealpoint.databases.rows import Batch, Event, Progress
from sealpoint.errors import IntegrityError, RingFileMissingError, StoppedError
from sealpoint.maintenance.options import Options
from sealpoint.maintenance.pace import Stop
from sealpoint.maintenance.workers import Assignment, _sum, run_in_processes
from tests.support.postgres import K1, blobs, contents, put_blobs, set_up
from tests.support.rings import states_text, write
from tests.support.sealed import make_cipher
from tests.support.server import schema, server

ROWS = 60


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only"))


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    """A database with values under k1."""
    with schema(server(pytestconfig)) as dsn:
        set_up(PostgresSaver, dsn)
        put_blobs(dsn, blobs(ROWS))
        yield dsn


def told(rows: int, moved: int, table: str = "t", lock_seconds: float = 0.0) -> Progress:
    return Progress(table, rows, 10, moved, 1, rows * 100, lock_seconds)


def failure(channel: str, number: int = 0) -> Failure:
    return Failure("t", {"channel": channel, "idx": number}, "tag", IntegrityError("x"))


def test_progress_of_all_is_added_up() -> None:
    """The newest of each counts; together they see no more than there is."""
    events: list[tuple[int, Event]] = [
        (0, told(2, 2)),
        (1, told(3, 1, lock_seconds=0.5)),
        (0, told(6, 5)),
        (1, told(9, 4)),
    ]
    assert list(_sum(iter(events))) == [
        Progress("t", 2, 10, 2, 1, 200, 0.0),
        Progress("t", 5, 10, 3, 2, 500, 0.5),
        Progress("t", 9, 10, 6, 2, 900, 0.0),
        Progress("t", 10, 10, 9, 2, 1500, 0.0),
    ]


def test_value_that_two_of_them_met_is_told_once() -> None:
    events = [(0, failure("a")), (1, failure("a")), (1, failure("b"))]
    assert list(_sum(iter(events))) == [events[0][1], events[2][1]]


def test_values_that_differ_in_little_are_both_told() -> None:
    """LangGraph numbers its own writes below zero, and hash() makes the same of -1 and -2."""
    events = [(0, failure("a", -1)), (1, failure("a", -2)), (1, failure("a", -1))]
    assert list(_sum(iter(events))) == [events[0][1], events[1][1]]


def test_assignment_names_keys_and_holds_none(ring: Path) -> None:
    """It crosses to other processes."""
    assignment = Assignment("postgresql:///agents", ring, "k2")
    assert pickle.loads(pickle.dumps(assignment)) == assignment
    assert b"k1.." not in pickle.dumps(assignment)


def test_two_of_them_move_all(url: str, ring: Path) -> None:
    before = {place: K1.open(*sealed).typed for place, sealed in contents(url).items()}
    *_, last = run_in_processes(Assignment(url, ring, "k2", options=Options(batch=Batch(rows=10))), 2, Stop())
    assert isinstance(last, Progress)
    assert (last.changed, last.raced) == (ROWS, 0)
    k2 = make_cipher("k2")
    assert {place: k2.open(*sealed).typed for place, sealed in contents(url).items()} == before


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


def test_what_ends_one_of_them_is_raised(url: str, tmp_path: Path) -> None:
    with pytest.raises(RingFileMissingError):
        list(run_in_processes(Assignment(url, tmp_path / "missing.toml", "k2"), 1, Stop()))


def test_workers_have_the_aim_of_the_run(url: str, ring: Path) -> None:
    """One that met another active key would undo what the others do."""
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
