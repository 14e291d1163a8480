"""Erases a thread in processes that are killed at a step, and lets agents write meanwhile."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.cli.app import run
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.threads import SqliteThreadStore
from tests.faults.recorder import Fault
from tests.support.databases.erasing import Agents, talk

STEPS: Final = ((SqliteRows, "delete"), (PostgresRows, "delete"), (SqliteThreadStore, "delete_thread"))
"""What changes the database and the thread store; each is one transaction."""


def killed(words: list[str], at: int, seed: int) -> int:
    """Run a command in a process that is killed at a step: return its exit code, or 9."""
    child = os.fork()
    if child == 0:
        fault = Fault(at, random.Random(seed))
        for owner, name in STEPS:
            setattr(owner, name, fault.wrapped(name, getattr(owner, name)))
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os._exit(run(words))
        except BaseException as error:  # noqa: BLE001 -- of a fork, which must not return
            sys.__stderr__.write(f"{error!r}\n")  # type: ignore[union-attr]
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_until(agents: Agents, thread_id: str, stop: Path, said: Path) -> None:
    """Store checkpoints of a thread until a file is there, and write down the ids of all."""
    ids, rounds = list[str](), 0
    with agents.saver() as saver:
        while not stop.exists():
            rounds += 1
            ids += talk(saver, thread_id, str(rounds), steps=random.Random(rounds).randrange(1, 6))
            time.sleep(0.002)
    said.write_text(json.dumps(ids))


def process(work: Callable[..., None], *arguments: Any) -> Any:
    started = get_context("spawn").Process(target=work, args=arguments, daemon=True)
    started.start()
    return started
