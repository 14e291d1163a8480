"""Rotation by several processes: beside LangGraph's savers that write on, and through ``kill -9``.

SEALPOINT_POSTGRES_WRITES and SEALPOINT_POSTGRES_KILLS say how much of it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.databases.cells import Selection
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch
from sealpoint.admin.maintenance import workers
from sealpoint.admin.maintenance.rotate import outstanding, rotate
from sealpoint.admin.maintenance.workers import Assignment, _raise_worst, run_in_processes
from sealpoint.admin.results.events import Event, Progress
from sealpoint.admin.results.exits import Exit, exit_code
from sealpoint.admin.results.jobs import Options, Stop
from sealpoint.errors import LockedError, SchemaError, StoppedError
from tests.postgres.processes import (
    FORKS,
    WRITES_OF_A_STEP,
    lost_at_the_end,
    rotate_until,
    rotate_when_told,
    write,
)
from tests.support.databases.postgres import K2, blobs, opened, put_blobs, reseal, rewrite_all, saver_at
from tests.support.keys.rings import states_text
from tests.support.keys.rings import write as write_ring

Open = Callable[[], PostgresRows]
WRITES = int(os.environ.get("SEALPOINT_POSTGRES_WRITES", "480"))
KILLS = int(os.environ.get("SEALPOINT_POSTGRES_KILLS", "10"))
WORKERS = 3
WRITERS = {"sync 1": False, "sync 2": False, "async 1": True, "async 2": True}


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return write_ring(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only"))


@pytest.mark.timeout(240 + WRITES / 10)
def test_no_write_is_lost_while_workers_rotate(open_store: Open, url: str, tmp_path: Path) -> None:
    """Four savers write under the old key all the time, in part over what the workers have just sealed."""
    put_blobs(url, blobs(300))
    end, steps = tmp_path / "end", WRITES // len(WRITERS) // WRITES_OF_A_STEP
    with ProcessPoolExecutor(WORKERS + len(WRITERS), mp_context=FORKS) as pool:
        writers = [pool.submit(write, url, name, steps, awaited) for name, awaited in WRITERS.items()]
        rotators = [pool.submit(rotate_until, url, end, 20) for _ in range(WORKERS)]
        lost = [writer.result() for writer in writers]
        end.touch()
        done = [rotator.result() for rotator in rotators]
    assert lost == [0, 0, 0, 0]
    store = open_store()
    [*rotate(store, K2)]  # what was written after the last pass
    assert outstanding(store, "k2") == []
    assert rewrite_all(store, reseal, Selection("k2")) == [0, 0, 0]
    assert sum(moved for moved, _ in done) > 300  # and so also what was written meanwhile
    # the blob and the write of each step, one write that was overwritten, and what was there before
    assert len(opened(url)) == len(WRITERS) * (2 * steps + 1) + 300
    with saver_at(PostgresSaver, url, K2) as saver:
        assert [lost_at_the_end(saver, name, steps) for name in WRITERS] == [0, 0, 0, 0]


@pytest.mark.costly
@pytest.mark.timeout(240 + KILLS)
def test_a_run_that_is_killed_is_done_again(open_store: Open, url: str) -> None:
    put_blobs(url, blobs(40 * KILLS, size=1000))
    values, moments = opened(url), random.Random(5)
    for _ in range(KILLS):
        talk, theirs = FORKS.Pipe()
        worker = FORKS.Process(target=rotate_when_told, args=(url, theirs, 10))
        worker.start()
        theirs.close()
        with talk:
            talk.send("begin")
            for _ in range(moments.randrange(3)):
                talk.recv()
                talk.send("begin")
            time.sleep(moments.uniform(0, 0.01))  # not to wait for anything: any moment of the batch will do
            worker.kill()
            worker.join()
        assert worker.exitcode == -signal.SIGKILL
        assert opened(url) == values
    store = open_store()
    left = sum(count.rows for count in outstanding(store, "k2"))
    assert 0 < left < len(values)  # they were killed in the middle
    while outstanding(store, "k2"):  # the server may still be about to let go of the last one's rows
        [*rotate(store, K2, batch=Batch(rows=10))]
    assert opened(url) == values


@pytest.mark.costly
def test_rows_that_stay_locked_end_a_run_of_workers(url: str, ring: Path) -> None:
    """When they have moved all others; what they had locked for each other does not count."""
    put_blobs(url, blobs(60))
    events = list[Event]()
    with psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version IN ('00000007', '00000031') FOR UPDATE")
        with pytest.raises(LockedError, match=r"^2 rows are locked"):
            events.extend(
                run_in_processes(
                    Assignment(url, ring, "k2", options=Options(batch=Batch(rows=10))), 2, Stop()
                )
            )
    assert max(event.changed for event in events if isinstance(event, Progress)) == 58


def test_what_was_locked_for_all_of_them_is_looked_at_once_more(
    url: str, ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one alone: each may have met what another one had locked."""
    put_blobs(url, blobs(60))
    with psycopg.connect(url) as writer:
        writer.execute("SELECT FROM checkpoint_blobs WHERE version = '00000007' FOR UPDATE")

        def judge(*ends: Any) -> None:
            try:
                _raise_worst(*ends)
            except LockedError:
                writer.commit()
                raise

        monkeypatch.setattr(workers, "_raise_worst", judge)
        *_, last = run_in_processes(Assignment(url, ring, "k2", options=Options(max_seconds=100)), 1, Stop())
    assert isinstance(last, Progress)
    assert last.changed == 60


def test_what_one_found_locked_and_another_did_not_is_done() -> None:
    _raise_worst([LockedError("x"), None], 0)


def test_the_worst_end_is_told() -> None:
    """A bug before an error, an error before a kill, a kill before rows that are locked."""
    ends = [LockedError("x"), None, SchemaError("x"), RuntimeError("ValueError")]
    with pytest.raises(RuntimeError, match=r"ValueError"):
        _raise_worst(ends, 1)
    with pytest.raises(SchemaError):
        _raise_worst(ends[:3], 1)
    with pytest.raises(StoppedError, match=r"1 of 2 workers were killed"):
        _raise_worst(ends[:2], 1)
    with pytest.raises(LockedError):
        _raise_worst(ends[:1], 0)


def test_a_bug_in_a_worker_is_told_as_one(url: str, ring: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By its kind and its place; its message, in which a value might stand, stays where it is."""
    put_blobs(url, blobs(3))
    assignment = Assignment(url, ring, "k2", options=Options(batch=cast(Any, "no batch")))
    with pytest.raises(RuntimeError, match=r"^a worker ended with AttributeError") as caught:
        [*run_in_processes(assignment, 2, Stop())]
    assert exit_code(caught.value) is Exit.BUG
    (note,) = caught.value.__notes__
    assert "workers.py" in note
    told = note + "".join(capfd.readouterr())
    assert "has no attribute" not in told
