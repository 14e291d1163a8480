"""Shards of one run that are killed and started again while savers write: nothing is lost."""

from __future__ import annotations

import random
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.bounds import find_bounds
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.shards import new_run
from tests.postgres.processes import FORKS, lost_at_the_end, rotate_range, write_until
from tests.postgres.test_commands import at as url_of
from tests.support.databases.postgres import K1, K2, contents, opened, put_blobs, saver_at
from tests.support.keys.rings import states_text, write

WRITERS = ("030 writer", "170 writer")  # in the middle of ranges
VALUES_OF_A_KILL = 60


@pytest.mark.costly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_killed_shards_are_run_again(
    url: str, tmp_path: Path, kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    table = "\n[ledger]\ndir = 'ledger'\norigin = 'x'\nsigner = { file = 'ledger.key' }\n"
    keys = str(write(tmp_path / "keys.toml", states_text(k2="active", k1="decrypt-only") + table))
    assert run(["ledger", "init", "--keys", keys]) == Exit.DONE
    value = K1.seal("msgpack", b"x" * 300)
    put_blobs(url, [(f"{n % 200:03}", "", "c", f"{n:08}", *value) for n in range(kills * VALUES_OF_A_KILL)])
    values, moments, this = opened(url), random.Random(7), new_run()
    with closing(PostgresRows(url)) as store:
        ends = [None, *find_bounds(store, 4), None]
    ranges = [
        [f"--run={this}"]
        + ([f"--threads-from={start}"] if start else [])
        + ([f"--threads-below={below}"] if below else [])
        for start, below in pairwise(ends)
    ]
    files = [tmp_path / f"{number}.json" for number in range(len(ranges))]

    def begin(number: int) -> BaseProcess:
        process = FORKS.Process(target=rotate_range, args=(url_of(url), keys, ranges[number], files[number]))
        process.start()
        return process

    def merge(given: list[Path]) -> int:
        vkey = str(tmp_path / "ledger" / "vkey")
        return run(["merge", *map(str, given), "--keys", keys, "--vkey", vkey])

    end, killed, done = tmp_path / "end", 0, set[int]()
    with ProcessPoolExecutor(len(WRITERS), mp_context=FORKS) as pool:
        writers = [pool.submit(write_until, url, name, end) for name in WRITERS]
        try:
            while killed < kills:
                number, other = moments.sample(range(len(ranges)), 2)
                done -= {number, other}
                running = {each: begin(each) for each in (number, other)}
                running[number].join(moments.uniform(0.05, 0.3))
                running[number].kill()
                for each, process in running.items():
                    process.join()
                    if process.exitcode == Exit.DONE:
                        done.add(each)
                killed += running[number].exitcode == -signal.SIGKILL
                if len(done) < len(ranges):
                    assert merge([file for file in files if file.exists()]) == Exit.FOUND
                assert merge([files[each] for each in done] or files[:1]) == (
                    Exit.DONE if len(done) == len(ranges) else Exit.FOUND
                )
            for number in range(len(ranges)):
                while number not in done:
                    process = begin(number)
                    process.join()
                    assert process.exitcode in (Exit.DONE, Exit.HELD, Exit.STOPPED)  # by one that was killed
                    done |= {number} if process.exitcode == Exit.DONE else set()
        finally:
            end.touch()
        steps = [writer.result() for writer in writers]
    assert merge(files) == Exit.DONE, capsys.readouterr()
    for number in range(len(files)):
        assert merge(files[:number] + files[number + 1 :]) == Exit.FOUND
    after = opened(url)
    assert {key: after[key] for key in values} == values
    assert len(after) == len(values) + sum(2 * each + 1 for each in steps)
    assert all(tag.endswith("@k2") for tag, _ in contents(url).values())
    with saver_at(PostgresSaver, url, K2) as saver:
        assert [lost_at_the_end(saver, name, each) for name, each in zip(WRITERS, steps, strict=True)] == [
            0,
            0,
        ]
