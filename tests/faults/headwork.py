"""Processes that write, read, prune and delete beside a thread store: many at once, or until they are killed.

Each process is forked by a server that has imported this module.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import psycopg
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.langgraph import SealedSaver, SqliteSaver
from sealpoint.threads import ThreadStore
from tests.graphs.openers import CONNECTION, NO_WAITING, Opener, on_aiosqlite, on_async_pool
from tests.graphs.savers import SEALED
from tests.support.databases.threads import thread_store

SYNC: Final = ("SqliteSaver", "LangGraph SqliteSaver", "LangGraph PostgresSaver")
ASYNC: Final[dict[str, Opener]] = {
    "LangGraph AsyncSqliteSaver": on_aiosqlite(AsyncSqliteSaver),
    "LangGraph AsyncPostgresSaver, pool": on_async_pool(AsyncPostgresSaver),
}
SHARED: Final = ("shared 0", "shared 1")
"""Threads that all processes write and read."""

OTHERS: Final = 4
"""How many threads at a time are pruned and deleted beside readers."""

HOUR: Final = 3600
TICKS: Final = 10_000_000
_GREGORIAN: Final = 0x01B21DD213814000
_START: Final = multiprocessing.get_context("forkserver")
_START.set_forkserver_preload([__name__])


def process(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a process."""
    started = _START.Process(target=work, args=arguments, daemon=True)
    started.start()
    return started


def pipe() -> tuple[Any, Any]:
    """Return the reading and the writing end of a pipe."""
    return _START.Pipe(duplex=False)


def at(thread: str, checkpoint_id: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


def id_by(clock: int) -> str:
    """Return an id as LangGraph makes them, by a clock that is so many seconds ahead."""
    ticks = time.time_ns() // 100 + _GREGORIAN + clock * TICKS
    high, low = ticks >> 12, ticks & 0xFFF
    return str(uuid.UUID(int=high << 80 | 6 << 76 | low << 64 | 2 << 62 | random.getrandbits(62)))


def document(checkpoint_id: str, number: int) -> tuple[Any, Any, Any]:
    """Return what is put: a checkpoint, its metadata and new versions."""
    version = f"{number + 1:032}.{random.getrandbits(50)}"
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": checkpoint_id,
        "channel_values": {"n": number, "text": "x" * 200},
        "channel_versions": {"n": version, "text": version},
    }
    metadata = {"source": "loop", "step": number, "run_id": f"run {checkpoint_id}"}
    return checkpoint, metadata, checkpoint["channel_versions"]


@contextmanager
def opened(kind: str, place: str) -> Iterator[Any]:
    """One of the sync savers, as it is."""
    if kind == "SqliteSaver":
        with SqliteSaver.from_conn_string(place) as ours:
            ours.setup()
            ours.conn.execute(NO_WAITING)
            yield ours
    elif kind == "LangGraph SqliteSaver":
        with closing(sqlite3.connect(place, check_same_thread=False, timeout=60)) as connection:
            connection.execute(NO_WAITING)
            theirs = Theirs(connection)
            theirs.setup()
            yield theirs
    else:
        with psycopg.connect(place, **CONNECTION) as postgres:
            yield PostgresSaver(postgres)


@contextmanager
def sealed(kind: str, place: str, make: Callable[[ThreadStore], Any] = lambda store: store) -> Iterator[Any]:
    """One of the sync savers, beside a store that ``make`` may wrap."""
    with opened(kind, place) as saver, thread_store(place) as store:
        yield SealedSaver(saver, serde=SEALED, threads=make(store), allow_shared_role=True)


# --- many at once -----------------------------------------------------------------------------------

Act = tuple[str, tuple[Any, ...], dict[str, Any]]
Acts = Generator[Act, Any, None]


@dataclass
class Worker:
    """What one thread or task does, as a generator of calls.

    Attributes:
        clock: How many seconds its ids are ahead.
        done: How often it did what.
        stored: Number in each checkpoint that it stored, by thread and id.
        asked: Number in the last interrupt that it stored upon each.
        errors: What was raised.
    """

    seed: int
    steps: int
    clock: int
    done: Counter[str] = field(default_factory=Counter)
    stored: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: dict[tuple[str, str], int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def acts(self) -> Acts:
        """Put on forks, put again under the same id, and read in every way."""
        moments = random.Random(self.seed)
        ids: list[tuple[str, str]] = []
        for number in range(self.steps):
            thread = moments.choice(SHARED)
            choice = moments.random()
            if choice < 0.4 or not ids:
                fork = moments.choice(ids)[1] if ids and choice < 0.2 else None
                ids.append((thread, id_by(self.clock)))
                yield from self._put(*ids[-1], number, fork)
            elif choice < 0.45:  # a retry
                yield from self._put(*moments.choice(ids), number, None)
            elif choice < 0.5:
                yield from self._ask(*moments.choice(ids), number)
            elif choice < 0.65:
                found = yield "get_tuple", (at(thread),), {}
                self.done["latest"] += 1
                self._check(found is not None or all(each != thread for each, _ in ids), "no latest")
            elif choice < 0.75:
                own = moments.choice(ids)
                found = yield "get_tuple", (at(*own),), {}
                self.done["by id"] += 1
                self._check(found is not None and number_of(found) == self.stored[own], "not what was put")
                questions = [value for _, channel, value in found.pending_writes if channel == INTERRUPT]
                self._check(questions[-1:] == [*filter(None, [self.asked.get(own)])], "not what was asked")
            elif choice < 0.85:
                yield from self._other(f"other {moments.randrange(OTHERS)}", moments)
            else:
                yield from self._list(thread, moments, ids)

    def _put(self, thread: str, checkpoint_id: str, number: int, parent: str | None) -> Acts:
        yield "put", (at(thread, parent), *document(checkpoint_id, number)), {}
        self.stored[thread, checkpoint_id] = number
        self.done["put"] += 1

    def _ask(self, thread: str, checkpoint_id: str, number: int) -> Acts:
        """Store a result, and then an interrupt that replaces the one before it."""
        config = at(thread, checkpoint_id)
        yield "put_writes", (config, [("a", number), ("b", number)], f"task {number}"), {}
        yield "put_writes", (config, [(INTERRUPT, number)], "asks"), {}
        self.asked[thread, checkpoint_id] = number
        self.done["interrupt"] += 1

    def _list(self, thread: str, moments: random.Random, ids: list[tuple[str, str]]) -> Acts:
        own = moments.choice(ids)[1]
        options = moments.choice(
            [{"limit": 1}, {"limit": 5}, {"limit": 20}, {"before": at(thread, own), "limit": 9}]
        )
        if len(ids) < 20 or moments.random() < 0.01:
            options = {}  # all pages
        filters = {"filter": {"step": moments.randrange(20)}} if moments.random() < 0.2 else {}
        yield "list", (at(thread),), {**options, **filters}
        self.done["list"] += 1

    def _other(self, thread: str, moments: random.Random) -> Acts:
        """Read a thread that is pruned and deleted meanwhile."""
        if moments.random() < 0.5:
            yield "get_tuple", (at(thread),), {}
        else:
            yield "list", (at(thread),), {}
        self.done["beside deletions"] += 1

    def remove(self) -> Acts:
        """Store, prune, copy and delete threads, again and again."""
        moments = random.Random(self.seed)
        for number in range(self.steps // 4 + 1):
            thread = f"other {number % OTHERS}"
            for step in range(3):
                yield "put", (at(thread), *document(id_by(self.clock), step)), {}
            if moments.random() < 0.5:
                yield "prune", ([thread],), {}
                self.done["prune"] += 1
            if moments.random() < 0.3:
                yield "copy_thread", (thread, f"other {(number + 1) % OTHERS}"), {}
                self.done["copy"] += 1
            if moments.random() < 0.7:
                yield "delete_thread", (thread,), {}
                self.done["delete"] += 1

    def _check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.errors.append(what)


def number_of(found: Any) -> int:
    number: int = found.checkpoint["channel_values"]["n"]
    return number


def can(saver: Any, method: str) -> bool:
    """LangGraph's SqliteSaver does not prune, and its sync savers copy no threads; SealedSaver copies."""
    return method != "prune" or not isinstance(saver.inner, Theirs | AsyncSqliteSaver)


def perform(saver: Any, worker: Worker, acts: Acts) -> None:
    """Do all that a worker asks for; an error ends it."""
    outcome: Any = None
    try:
        while True:
            method, arguments, named = acts.send(outcome)
            if can(saver, method):
                found = getattr(saver, method)(*arguments, **named)
                outcome = [*found] if method == "list" else found
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 -- the test reports it
        worker.errors.append(f"{type(error).__name__}: {error}")


async def aperform(saver: Any, worker: Worker, acts: Acts) -> None:
    """Async version of `perform`."""
    outcome: Any = None
    try:
        while True:
            method, arguments, named = acts.send(outcome)
            if can(saver, method):
                found = getattr(saver, f"a{method}")(*arguments, **named)
                outcome = [each async for each in found] if method == "list" else await found
    except StopIteration:
        return
    except Exception as error:  # noqa: BLE001 -- the test reports it
        worker.errors.append(f"{type(error).__name__}: {error}")


def crowd(kind: str, place: str, workers: list[Worker], removes: bool, pipe: Any) -> None:
    """Let workers do their acts at the same time in this process, and send them back."""
    jobs = [(worker, worker.remove() if removes else worker.acts()) for worker in workers]
    if kind in ASYNC:
        asyncio.run(_acrowd(kind, place, jobs))
    else:
        with sealed(kind, place) as saver, ThreadPoolExecutor(len(jobs)) as threads:
            list(threads.map(lambda job: perform(saver, *job), jobs))
    pipe.send(workers)
    pipe.close()


async def _acrowd(kind: str, place: str, jobs: list[tuple[Worker, Acts]]) -> None:
    async with AsyncExitStack() as stack:
        store = stack.enter_context(thread_store(place))
        saver = await stack.enter_async_context(ASYNC[kind](place, None))
        if kind == "LangGraph AsyncSqliteSaver":
            await saver.conn.execute("PRAGMA busy_timeout = 60000")
        wrapped = SealedSaver(saver, serde=SEALED, threads=store, allow_shared_role=True)
        await asyncio.gather(*(aperform(wrapped, *job) for job in jobs))


# --- until they are killed ----------------------------------------------------------------------------


class Killing:
    """A store that kills its process at one of its writes."""

    def __init__(self, store: ThreadStore, number: int, after: bool) -> None:
        self._store, self._number, self._after = store, number, after
        self._writes = count()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._deadly(found) if name in ("append", "delete_thread") else found

    def _deadly(self, method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            is_last = next(self._writes) == self._number
            if is_last and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            method(*arguments)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

        return call


def killed_at(kind: str, place: str, number: int, after: bool, method: str, arguments: Any) -> None:
    """Call a method of a saver, and be killed before or after write ``number`` of the store."""
    with sealed(kind, place, lambda store: Killing(store, number, after)) as saver:
        getattr(saver, method)(*arguments)


def forever(kind: str, place: str, thread: str, seed: int, pipe: Any) -> None:
    """Put, prune and delete without a pause; send what was begun and what was done."""
    moments = random.Random(seed)
    with ExitStack() as stack:
        saver = stack.enter_context(sealed(kind, place))
        for number in count():
            choice = moments.random()
            if choice < 0.75 or not can(saver, "prune"):
                checkpoint_id = id_by(0)
                saver.put(at(thread), *document(checkpoint_id, number))
                pipe.send(("put", checkpoint_id))
            elif choice < 0.9:
                pipe.send(("prunes", ""))
                saver.prune([thread])
                pipe.send(("pruned", ""))
            else:
                pipe.send(("deletes", ""))
                saver.delete_thread(thread)
                pipe.send(("deleted", ""))
