"""``kill -9`` in the middle of put and put_writes: what was acknowledged is there, and nothing by half."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from sealpoint.sqlite import SqliteSaver
from tests.faults.rounds import Rounds, rounds
from tests.faults.writer import WRITES, at
from tests.support.runs.extent import by_extent

KILLS = by_extent(60, 200)
AT_ONCE = 2


def kill_all(running: Rounds, names: list[str], moments: random.Random) -> list[tuple[str, ...]]:
    """Kill each process of a round at a moment of its own; return all that was acknowledged until then.

    A process puts and writes without a pause, so that whenever it is killed, it is in the middle of one.
    """
    heard: list[tuple[str, ...]] = []
    patience = {name: moments.randrange(1, 8) for name in names}  # acknowledgements until it is killed
    pids: dict[str, int] = {}
    while (words := running.hear())[0] != "gone":
        if words[0] == "pid":
            pids[words[2]] = int(words[1])
            continue
        heard.append(tuple(words))
        patience[words[1]] -= 1
        if patience[words[1]] == 0:
            time.sleep(moments.uniform(0, 0.002))  # not to wait for anything: any moment will do
            os.kill(pids[words[1]], signal.SIGKILL)
    assert words[1:] == [str(int(signal.SIGKILL))] * len(names)
    return heard


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path, moments = tmp_path / "x.db", random.Random(2)
    acknowledged: list[tuple[str, ...]] = []
    with rounds("forever") as running:
        for number in range(KILLS // AT_ONCE):
            names = [f"{number}-{place}" for place in range(AT_ONCE)]
            running.begin(path, *names)
            acknowledged += kill_all(running, names, moments)
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    seen = Counter(kind for kind, _, _ in acknowledged)
    assert seen["put"] >= KILLS
    assert seen["wrote"] >= KILLS / 2
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for kind, name, number_text in acknowledged:
            found = saver.get_tuple(at(name, f"{int(number_text):06}"))
            assert found is not None
            assert found.checkpoint["channel_values"]["n"] == int(number_text)
            assert kind == "put" or len(found.pending_writes or ()) == len(WRITES)
        for found in saver.list(None):
            assert len(found.pending_writes or ()) in (0, len(WRITES))
