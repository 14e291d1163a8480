"""Many writers at once: eight threads on one saver, and four processes on one file.

Each step stores a checkpoint and two writes, and reads the checkpoint back. A step that
meets "database is locked" ends the run: nobody's figures hold then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Final, Self

from benchmarks.chains import checkpoint, config
from benchmarks.harness import Case, Options, Sampler
from benchmarks.payloads import payload
from benchmarks.peers import LG, LG_ENC, PLAIN, SEALED, SEALED_XAES, Saver, savers

THREADS: Final = 8
PROCESSES: Final = 4
STATES: Final = ("50 messages", "1 KB state")
STEPS: Final = 20
"""Steps of each writer in a sample."""

NAMES: Final = (LG, LG_ENC, PLAIN, SEALED, SEALED_XAES)


def cases(options: Options) -> Iterator[Case]:
    """Seconds for one step of any writer, so that half of it is twice the throughput."""
    for state in STATES:
        with ExitStack() as stack:
            folder = options.folder / f"threads {state}"
            folder.mkdir()
            opened = stack.enter_context(savers(folder, NAMES))
            pool = stack.enter_context(ThreadPoolExecutor(THREADS))
            peers: dict[str, Sampler] = {name: _threads(pool, saver, state) for name, saver in opened.items()}
            yield Case(f"{THREADS} threads, one saver, {state}", peers, LG, rounds=9)
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(options.folder, number)) for number in range(PROCESSES)]
        for state in STATES:
            peers = {name: partial(_processes, workers, name, state) for name in NAMES}
            yield Case(f"{PROCESSES} processes, one file, {state}", peers, LG, rounds=9)


def _writer(saver: Saver, thread: str, name: str) -> Callable[[], None]:
    """Return a function that takes some steps in a thread of its own, with the state called ``name``."""
    state = payload(name)
    writes = [("log", "done"), ("branch:to:next", None)]
    numbers = count()

    def work() -> None:
        place = config(thread)
        for _ in range(STEPS):
            number = next(numbers)
            place = saver.put(place, checkpoint(number, state), {"source": "loop", "step": number}, {})
            saver.put_writes(place, writes, f"task-{number}")
            if saver.get_tuple(place) is None:
                raise SystemExit("error: a checkpoint is gone")

    return work


def _threads(pool: ThreadPoolExecutor, saver: Saver, state: str) -> Sampler:
    writers = [_writer(saver, f"thread-{number}", state) for number in range(THREADS)]

    def sample() -> float:
        start = perf_counter()
        for future in [pool.submit(writer) for writer in writers]:
            future.result()
        return (perf_counter() - start) / (STEPS * THREADS)

    return sample


def _processes(workers: list[_Worker], name: str, state: str) -> float:
    start = perf_counter()
    for worker in workers:
        worker.pipe.send((name, state))
    for answer in [worker.pipe.recv() for worker in workers]:
        if answer:
            raise SystemExit(f"error: {name} with {PROCESSES} processes: {answer}")
    return (perf_counter() - start) / (STEPS * PROCESSES)


class _Worker:
    """A process with a connection of its own to the file of each peer."""

    def __init__(self, folder: Path, number: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, folder, number))

    def __enter__(self) -> Self:
        self._process.start()
        self.pipe.recv()
        return self

    def __exit__(self, *exception: object) -> None:
        self.pipe.send(None)
        self._process.join()


def _serve(pipe: Connection, folder: Path, number: int) -> None:
    with savers(folder, NAMES) as opened:
        writers = {
            (name, state): _writer(saver, f"process-{number} {state}", state)
            for name, saver in opened.items()
            for state in STATES
        }
        pipe.send("ready")
        while task := pipe.recv():
            try:
                writers[task]()
                pipe.send("")
            except sqlite3.OperationalError as error:
                pipe.send(str(error))
