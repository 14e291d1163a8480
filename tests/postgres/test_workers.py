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

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.maintenance.postgres_rows import PostgresRows
from sealpoint.maintenance.rotate import outstanding, rotate
from sealpoint.maintenance.rows import Batch, Selection
from tests.postgres.databases import K2, blobs, opened, put_blobs, reseal, rewrite_all, saver_at
from tests.postgres.processes import (
    FORKS,
    WRITES_OF_A_STEP,
    lost_at_the_end,
    rotate_until,
    rotate_when_told,
    write,
)

Open = Callable[[], PostgresRows]
WRITES = int(os.environ.get("SEALPOINT_POSTGRES_WRITES", "480"))
KILLS = int(os.environ.get("SEALPOINT_POSTGRES_KILLS", "10"))
WORKERS = 3
WRITERS = {"sync 1": False, "sync 2": False, "async 1": True, "async 2": True}


@pytest.mark.timeout(240 + WRITES / 10)
def test_no_write_is_lost_while_workers_rotate(open_store: Open, url: str, tmp_path: Path) -> None:
    """Four savers write under the old key all the time, in part over what the workers have just sealed."""
    put_blobs(url, blobs(300))
    end, steps = tmp_path / "end", WRITES // len(WRITERS) // WRITES_OF_A_STEP
    with ProcessPoolExecutor(WORKERS + len(WRITERS), mp_context=FORKS) as pool:
        writers = [pool.submit(write, url, name, steps, awaited) for name, awaited in WRITERS.items()]
        workers = [pool.submit(rotate_until, url, end, 20) for _ in range(WORKERS)]
        lost = [writer.result() for writer in writers]
        end.touch()
        done = [worker.result() for worker in workers]
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
