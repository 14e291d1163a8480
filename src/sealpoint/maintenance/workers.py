"""Several processes that share one rotation of a Postgres database: no two take the same row."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.errors import SealpointError, StoppedError
from sealpoint.maintenance.pace import Pace, Signal
from sealpoint.maintenance.rotate import MAX_LOCK_SECONDS, rotate
from sealpoint.maintenance.rows import BATCH, Batch, Event, Events, Failure, Progress

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Order:
    """What each worker does. It crosses to another process, so it names keys and holds none.

    Attributes:
        url: The database.
        ring: The ring file; each worker loads it for itself.
        suite: What to seal in.
        allow_plaintext: See `rotate`.
        allow_legacy: See `rotate`.
        batch: See `rotate`.
        max_lock_seconds: See `rotate`.
        rows_per_second: How fast each worker may go.
        max_seconds: How long it may take.
    """

    url: str
    ring: Path | None
    suite: str = "cobblestone256"
    allow_plaintext: bool = False
    allow_legacy: bool = False
    batch: Batch = BATCH
    max_lock_seconds: float = MAX_LOCK_SECONDS
    rows_per_second: float | None = None
    max_seconds: float | None = None


def rotate_in_processes(order: Order, workers: int, stop: Signal) -> Events:
    """Run `rotate` in several processes at once, and add up what they tell.

    Whoever runs this holds the store.

    Raises:
        StoppedError: If a worker was killed. What all of them did stands; the run can be repeated.
        SealpointError: What ended a worker, when the others have ended too.
    """
    context = multiprocessing.get_context("spawn")  # a forked connection or lock would be shared
    told: Any = context.Queue()
    halt = context.Event()
    processes = [
        context.Process(target=_work, args=(order, number, told, halt), daemon=True)
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        yield from _sum(_told(told, processes, lambda: halt.set() if stop.is_set() else None))
    finally:
        halt.set()
        _join(processes, told)


def _join(processes: Sequence[BaseProcess], told: Any) -> None:
    """Wait for all to end; one ends only when somebody has taken what it still had to tell."""
    for process in processes:
        while process.is_alive():
            with suppress(Empty):
                told.get(timeout=_LOOK_SECONDS / 10)
    told.close()


def _told(
    told: Any, processes: Sequence[BaseProcess], look: Callable[[], None]
) -> Iterator[tuple[int, Event]]:
    """Yield what workers tell until each has told its end; raise what ended one of them, at the end."""
    at_work, problem = set(range(len(processes))), None
    while at_work:
        look()
        try:
            number, what = told.get(timeout=_LOOK_SECONDS)
        except Empty:
            dead = {number for number in at_work if not processes[number].is_alive()}
            if dead and told.empty():
                at_work -= dead
                problem = problem or StoppedError(f"{len(dead)} of {len(processes)} workers were killed")
            continue
        if isinstance(what, Progress | Failure):
            yield number, what
        else:
            at_work.discard(number)
            problem = problem or what
    if problem is not None:
        raise problem


def _sum(told: Iterator[tuple[int, Event]]) -> Iterator[Event]:
    """Add up the progress of all workers; a value that does not open is told by one of them only."""
    latest: dict[int, Progress] = {}
    failed: set[int] = set()
    for number, event in told:
        if isinstance(event, Failure):
            mark = hash((event.table, *event.place.values()))
            if mark not in failed:
                failed.add(mark)
                yield event
            continue
        latest[number] = event
        sums = [sum(column) for column in zip(*(progress[1:6] for progress in latest.values()), strict=True)]
        rows, _, moved, raced, size = sums
        total = max(progress.total for progress in latest.values())
        yield Progress(event.table, min(rows, total), total, moved, raced, size, event.lock_seconds)


def _work(order: Order, number: int, told: Any, halt: Signal) -> None:
    """Do the work of one process, and tell how it ends: ``None``, or the error."""
    from sealpoint.maintenance.postgres_rows import PostgresRows

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is told, and tells us
    problem: SealpointError | None = None
    try:
        cipher = RingCipher(KeyRing.load(order.ring), order.suite, follow=False)
        pace = Pace(halt, rows_per_second=order.rows_per_second, max_seconds=order.max_seconds)
        with closing(PostgresRows(order.url, writable=True)) as store:
            run = rotate(
                store,
                cipher,
                allow_plaintext=order.allow_plaintext,
                allow_legacy=order.allow_legacy,
                batch=order.batch,
                max_lock_seconds=order.max_lock_seconds,
            )
            for event in pace.keep(run):
                told.put((number, event))
    except SealpointError as error:
        problem = error
    told.put((number, problem))
