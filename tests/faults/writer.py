"""Processes that write checkpoints: alone until they are killed, or many at the same moment.

    python writer.py ACT

Each line on standard input is a round: the path of a database, and names. For each name a
process is forked that does ACT under it; all begin at the same moment. When they are gone, a
line with their exit statuses follows on standard output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from sealpoint.base import empty_checkpoint
from sealpoint.sqlite import SqliteSaver

WRITES = [(f"channel{number}", "x" * 300) for number in range(20)]
CROWD_STEPS = 40


def at(thread_id: str, checkpoint_id: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


def step(saver: SqliteSaver, name: str, number: int) -> Any:
    """Put one checkpoint into the thread ``name``."""
    checkpoint_id = f"{number:06}"
    values = {"n": number, "text": "x" * 3000}
    parent = f"{number - 1:06}" if number else None
    return saver.put(
        at(name, parent), {**empty_checkpoint(), "id": checkpoint_id, "channel_values": values}, {}, {}
    )


def say(*words: object) -> None:
    """Write a line in one piece, past every buffer."""
    os.write(1, " ".join(map(str, words)).encode() + b"\n")


def forever(path: str, name: str) -> None:
    """Put and write without end; say what was acknowledged, as soon as it was."""
    say("pid", os.getpid(), name)
    with SqliteSaver.from_conn_string(path) as saver:
        number = 0
        while True:
            config = step(saver, name, number)
            say("put", name, number)
            saver.put_writes(config, WRITES, "task")
            say("wrote", name, number)
            number += 1


def crowd(path: str, name: str) -> None:
    """Put into a thread of one's own, and write on a checkpoint that all the others write on too."""
    with SqliteSaver.from_conn_string(path) as saver:
        for number in range(CROWD_STEPS):
            step(saver, name, number)
            saver.put_writes(at("shared", "0"), [("n", number)], f"{name} {number}")
            latest = saver.get(at(name))
            if latest is None or latest["id"] != f"{number:06}":
                raise AssertionError("what was put last is not the latest")


def once(path: str, name: str) -> None:
    """Open a database that may be new, or in an older form, and put one checkpoint and a write."""
    with SqliteSaver.from_conn_string(path) as saver:
        saver.put_writes(step(saver, name, 0), WRITES, "task", "path")


ACTS: dict[str, Callable[[str, str], None]] = {"forever": forever, "crowd": crowd, "once": once}


def fork(act: Callable[[str, str], None], path: str, name: str, gate: tuple[int, int]) -> int:
    """Start a process that does ``act`` as soon as nobody holds the gate; return its id."""
    pid = os.fork()
    if pid:
        return pid
    os.close(gate[1])
    os.read(gate[0], 1)
    act(path, name)
    os._exit(0)


def main(act: Callable[[str, str], None]) -> None:
    for line in sys.stdin:
        path, *names = line.split()
        gate = os.pipe()
        pids = [fork(act, path, name, gate) for name in names]
        for end in gate:
            os.close(end)
        say("gone", *(os.waitpid(pid, 0)[1] for pid in pids))


if __name__ == "__main__":
    main(ACTS[sys.argv[1]])
