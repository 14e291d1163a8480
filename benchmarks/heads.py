"""What a thread store adds to SealedSaver: on a SQLite file as it comes, and on a local Postgres."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final

from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from benchmarks import sealed
from benchmarks.chains import fill
from benchmarks.graph import SUPERSTEPS, graph_run
from benchmarks.harness import Case, Options
from benchmarks.payloads import payload
from benchmarks.peers import HEADS, KEY, WHOLE_XAES, Saver
from sealpoint import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore, ThreadStore

THREAD_LENGTH: Final = 100


def cases(options: Options) -> Iterator[Case]:
    """In seconds of a clock: a put waits for the disk, as LangGraph's savers do by default."""
    with ExitStack() as stack:
        store = stack.enter_context(
            closing(SqliteThreadStore(options.folder / "threads.sqlite", create=True, timeout=60))
        )
        yield from _cases("SQLite file", lambda name: stack.enter_context(_sqlite(options, name)), store)
    with ExitStack() as stack:
        dsn = stack.enter_context(sealed.server(options))
        if dsn is not None:
            threads = stack.enter_context(closing(PostgresThreadStore(dsn, create=True, timeout=60)))
            opened = partial(sealed.postgres, dsn, waits=True)
            yield from _cases("Postgres", lambda name: stack.enter_context(opened(name)), threads)


def _cases(kind: str, opened: Callable[[str], Saver], store: ThreadStore) -> Iterator[Case]:
    ring = KeyRing([Key(id="k1", material=KEY, state=KeyState.ACTIVE)], index=KEY[::-1])
    serde = EncryptedSerializer(
        RingCipher(ring, "xaes256gcm"), JsonPlusSerializer(allowed_msgpack_modules=True)
    )
    savers: dict[str, Saver] = {
        WHOLE_XAES: SealedSaver(opened("alone"), serde=serde),
        HEADS: SealedSaver(opened("heads"), serde=serde, threads=store, allow_shared_role=True),
    }
    small, state = payload("1 KB state"), payload("50 messages")
    for saver in savers.values():
        fill(saver, "long", THREAD_LENGTH, state, small, writes=3)
    make = partial(sealed.case, savers=savers, clock=perf_counter, reference=WHOLE_XAES)
    yield make(f"{kind}, get_tuple with heads", act=sealed.get_tuple, loops=10)
    yield make(f"{kind}, list(limit=100) with heads", act=sealed.listing, loops=1)
    yield make(f"{kind}, put with heads", act=sealed.put(small), loops=sealed.PUT_LOOPS)
    yield make(f"{kind}, graph of {SUPERSTEPS} supersteps with heads", act=graph_run, loops=1, rounds=15)


@contextmanager
def _sqlite(options: Options, name: str) -> Iterator[Any]:
    with closing(sqlite3.connect(options.folder / f"{name}.sqlite", check_same_thread=False)) as connection:
        saver = LangGraphSqliteSaver(connection)
        saver.setup()
        yield saver
