"""Forks in the middle of traffic: what a process has acknowledged is there, no child hangs, and none dies."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.faults import forker

WAIT_SECONDS: Final = 300
FORKS: Final = 40  # in the suite, and 2,000 in `make soak`


@pytest.mark.parametrize("ends_first", [False, True])
@pytest.mark.parametrize("forks", [FORKS // 2, pytest.param(1000, marks=pytest.mark.soak)])
def test_nothing_acknowledged_is_lost(forks: int, ends_first: bool, tmp_path: Path) -> None:
    for seed in range(max(1, forks // 100)):
        command = [sys.executable, "-W", "ignore", "-m", forker.__name__, tmp_path, seed]
        words = [*map(str, command), str(min(forks, 100)), str(int(ends_first))]
        subprocess.run(words, check=True, timeout=WAIT_SECONDS)
    said = settled(tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.glob("wrong.*")} == {}
    with closing(sqlite3.connect(tmp_path / "threads.db")) as connection:
        heads = {*connection.execute("SELECT thread_id, checkpoint_id FROM heads")}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert len({name for name, _ in said}) > forks
    assert said <= heads
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        rows = {*connection.execute("SELECT thread_id, checkpoint_id FROM checkpoints")}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    last = {max(each for each in said if each[0] == name) for name, _ in said if name.startswith("child")}
    assert {each for each in said if each[0].startswith("child")} - last <= rows  # one may be killed between


def settled(folder: Path) -> set[tuple[str, str]]:
    """Return what was said, when the children of a parent that has ended say no more."""
    before, found = {("", "")}, set[tuple[str, str]]()
    while found != before:
        before = found
        found = {
            (file.name.partition(".")[2], line)
            for file in folder.glob("said.*")
            for line in file.read_text().split()
        }
        time.sleep(0.3)
    return found
