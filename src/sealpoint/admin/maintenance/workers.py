"""Several processes that share one run over a Postgres database, each with its own part of the rows."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from time import monotonic
from traceback import format_tb
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance.rotate import BeforeChange, rotate
from sealpoint.admin.results.events import WAITING, Event, Events, Failure, Failures, Progress
from sealpoint.admin.results.jobs import Options, Stop
from sealpoint.crypto.cipher import RingCipher
from sealpoint.errors import DatabaseMissingError, HaltedError, LockedError, SealpointError, StoppedError
from sealpoint.keys.ring import KeyRing

_UNLIMITED: Final = Options()


class Pace:
    """Limits the rate of a run, and ends the run where a later run can continue."""

    def __init__(self, stop: Stop, options: Options = _UNLIMITED, url: str = "") -> None:
        self.stopped = False
        self._stop, self._options, self._url = stop, options, url
        self._start = monotonic()
        self._deadline = None if options.max_seconds is None else self._start + options.max_seconds

    @property
    def is_over(self) -> bool:
        """Whether a stop was requested, or the time limit was reached."""
        return self._stop.is_set() or (self._deadline is not None and monotonic() >= self._deadline)

    def limit(self, events: Events) -> Events:
        """Yield the given events; after each batch, wait for the rate limit and the replicas, or end the run.

        If the store calls `is_over` during an SQL statement, the run can also end within the statement.
        """
        with closing(events), ExitStack() as stack:
            if (most := self._options.max_lag_bytes) is not None:
                from sealpoint.admin.databases.postgres.connection import Replicas

                replicas = stack.enter_context(closing(Replicas(self._url)))
                replicas.lag_bytes()  # fails before any row is changed
            try:
                for event in events:
                    yield event
                    if isinstance(event, Progress):
                        self._wait(event.changed + event.raced)
                        while most is not None and not self.is_over and replicas.lag_bytes() > most:
                            yield event._replace(table=WAITING)
                            self._stop.wait(_LOOK_SECONDS)
                        if self.is_over:
                            self.stopped = True
                            return
            except HaltedError:  # the store called `is_over` during a statement
                self.stopped = True

    def _wait(self, rows: int) -> None:
        if (rate := self._options.rows_per_second) is not None:
            due = self._start + rows / rate
            end = due if self._deadline is None else min(due, self._deadline)
            self._stop.wait(max(0.0, end - monotonic()))


if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Line: TypeAlias = Connection[Any, Any]
    Received: TypeAlias = Generator[tuple[int, Event], None, None]

# A `Stop` has no file descriptor to wait for, so it is polled between short waits.
_LOOK_SECONDS: Final = 0.1


def rotate_as(
    options: Options, store: RowStore, cipher: RingCipher, before_change: BeforeChange | None = None
) -> Events:
    """Rotate with the options of a job. The job has already tested the ring, so this function does not."""
    return rotate(
        store,
        cipher,
        allow_plaintext=options.allow_plaintext,
        allow_legacy=options.allow_legacy,
        batch=options.paced_batch,
        max_lock_seconds=options.max_lock_seconds,
        before_change=before_change,
        check_keys=False,
        compress=options.compress,
        limits=options.limits,
    )


def rotating(assignment: Assignment, cipher: RingCipher) -> Events:
    """Rotate the part of the rows that an assignment gives to a worker."""
    from sealpoint.admin.databases.postgres.rows import PostgresRows

    options = assignment.options
    with closing(PostgresRows(assignment.url, writable=True, shard=options.shard)) as store:
        yield from rotate_as(options, store, cipher)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a worker, which is sent to another process, and so contains no keys."""

    url: str
    ring: Path | None
    # Id of the active key when the run began; a worker that loads another active key ends.
    key_id: str
    suite: str = "cobblestone256"
    # Limits such as the rate are those of one worker.
    options: Options = field(default_factory=Options)
    # A module-level function, so that it can be pickled for another process.
    work: Work = rotating


Work: TypeAlias = Callable[[Assignment, RingCipher], Events]


def run_in_processes(assignment: Assignment, workers: int, stop: Stop) -> Events:
    """Run the work of an assignment in several processes, and add up their progress.

    Check the ring first (`require_own_ring`), and call this within `RowStore.hold`. The worker processes end
    when this process ends, even if it is killed.
    """
    with closing(_rounds(assignment, workers, stop)) as received:
        yield from _sum(received)


def _rounds(assignment: Assignment, workers: int, stop: Stop) -> Received:
    """Run all workers; if each found locked rows, run one worker: workers may lock each other's rows."""
    start = monotonic()
    try:
        return (yield from _round(assignment, range(workers), stop))
    except LockedError:
        if assignment.options.max_seconds is not None:
            left = max(0.0, assignment.options.max_seconds - (monotonic() - start))
            assignment = replace(assignment, options=replace(assignment.options, max_seconds=left))
    yield from _round(assignment, range(workers, workers + 1), stop)


def _round(assignment: Assignment, numbers: range, stop: Stop) -> Received:
    context = multiprocessing.get_context("spawn")  # fork would share connections and locks
    lines, processes = [], []
    # Signals of a terminal reach every process: workers block them, and the parent stops its workers.
    resource_tracker.ensure_running()  # not after blocking signals: starting the tracker unblocks them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        for _ in numbers:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(assignment, theirs), daemon=True)
            process.start()
            theirs.close()  # only the workers keep this end open, so it closes when they end
            lines.append(ours)
            processes.append(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield from _receive(dict(zip(lines, numbers, strict=True)), stop)
    except KeyboardInterrupt:  # second Ctrl-C: kill workers; the server rolls back their transactions
        for process in processes:
            process.kill()
        raise
    finally:
        _end(lines)
        for process in processes:
            process.join()


def _receive(lines: Mapping[Line, int], stop: Stop) -> Received:
    at_work: dict[Any, int] = dict(lines)
    ends: list[Exception | None] = []
    killed, asked = 0, False
    while at_work:
        if stop.is_set() and not asked:
            asked = True
            _halt(lines)
        ready: list[Any] = wait(at_work, _LOOK_SECONDS)
        for line in ready:
            try:
                what = line.recv()
            except (EOFError, OSError):
                killed += 1
                what = None
            if isinstance(what, Progress | Failure):
                yield at_work[line], what
            else:
                del at_work[line]
                ends.append(what)
    _raise_worst(ends, killed)


def _raise_worst(ends: Sequence[Exception | None], killed: int) -> None:
    """Raise the worst error of the workers: a bug first, then other errors, then a killed worker.

    Locked rows are an error only if all workers found some: another worker may have changed the locked rows.
    """
    bugs = [end for end in ends if end is not None and not isinstance(end, SealpointError)]
    locked = [end for end in ends if isinstance(end, LockedError)]
    others = [end for end in ends if isinstance(end, SealpointError) and end not in locked]
    if bugs:
        raise bugs[0]
    if others:
        raise others[0]
    if killed:
        raise StoppedError(f"{killed} of {len(ends)} workers were killed")
    if len(locked) == len(ends):
        raise locked[-1]


def _halt(lines: Iterable[Line]) -> None:
    for line in lines:
        with suppress(ConnectionError):  # the worker may have ended
            line.send(None)


def _end(lines: Sequence[Line]) -> None:
    """Wait until all workers end. Reads each pipe to its end, because a full pipe blocks its worker."""
    _halt(lines)
    for line in lines:
        with suppress(EOFError, OSError):
            while True:
                line.recv()
        line.close()


class _Halt(Stop):
    """Tells a worker process to stop: set by any message from the parent process, or when the parent ends."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def is_set(self) -> bool:
        return self._line.poll()


def _sum(received: Iterator[tuple[int, Event]]) -> Iterator[Event]:
    """Sum up the progress of all workers, and yield each failure once."""
    latest: dict[int, Progress] = {}
    failures = Failures(may_repeat=True)
    for number, event in received:
        if isinstance(event, Failure):
            if failures.add(event):
                yield event
            continue
        latest[number] = event
        columns = zip(*(progress[1:] for progress in latest.values()), strict=True)
        whole = Progress(event.table, *map(sum, columns))
        total = max(progress.total for progress in latest.values())
        # Several workers may see the same value that does not open, so the sum may exceed the number of rows.
        yield whole._replace(rows=min(whole.rows, total), total=total, lock_seconds=event.lock_seconds)


def _work(assignment: Assignment, line: Line) -> None:
    problem: Exception | None = None
    with suppress(ConnectionError):  # the parent process has ended
        try:
            options = assignment.options
            cipher = RingCipher(_load(assignment), assignment.suite, follow=False)
            pace = Pace(_Halt(line), options, assignment.url)
            for event in pace.limit(assignment.work(assignment, cipher)):
                line.send(event)
        except DatabaseMissingError as error:  # the parent could connect: a limit of connections
            problem = StoppedError(
                str(error), hint="use fewer workers: N take N + 1 connections, as a superuser twice as many"
            )
        except SealpointError as error:
            problem = error
        except MemoryError:
            problem = StoppedError("a worker ran out of memory", hint="fewer workers, or a smaller --batch")
        except Exception as error:  # noqa: BLE001 -- the end of a process, which reports it
            # Leave out the message, which may quote values.
            problem = RuntimeError(f"a worker ended with {type(error).__name__}")
            lines = "".join(format_tb(error.__traceback__))
            problem.add_note(f"raised in the worker at:\n{lines}")
        line.send(problem)


def _load(assignment: Assignment) -> KeyRing:
    ring = KeyRing.load(assignment.ring).load_material()
    if ring.active_id != assignment.key_id:
        raise StoppedError(
            f"the active key was {assignment.key_id!r} when the run began, and has changed since",
            hint="run the same command again",
        )
    return ring
