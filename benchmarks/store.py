"""SealedStore on SQLite and Postgres, against the same store alone; and what a filter holds in memory.

Items have 360 bytes of JSON. ``searchable`` has a plain field, an indexed field and pseudonyms. The filter
is by the indexed field; without it, SealedStore opens and compares all items of the namespace.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import psycopg
from langgraph.store.base import GetOp, PutOp
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from psycopg import sql
from psycopg.rows import dict_row

from benchmarks import sealed
from benchmarks.harness import Case, Options
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedStore

BARE: Final = "bare"
SEALED: Final = "SealedStore"
SEARCHABLE: Final = "searchable"
PEERS: Final[dict[str, dict[str, Any]]] = {
    SEALED: {},
    SEARCHABLE: {"plain_fields": ["kind"], "indexed_fields": ["user"], "pseudonyms": True},
}
RING: Final = KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)], index=bytes(range(32, 64)))

USERS: Final = 4
FEW: Final = 40
MANY: Final = 100
LENGTHS: Final = (10_000, 100_000)
QUICK_LENGTHS: Final = (3_000, 10_000)
ALL: Final = "all, as stored"

Call = Callable[[], object]


def cases(options: Options) -> Iterator[Case]:
    """SQLite in seconds of the processor; Postgres in seconds of a clock, because the server works too."""
    with ExitStack() as stack:
        opened = {
            peer: stack.enter_context(_sqlite(options.folder / f"{peer}.db")) for peer in (BARE, *PEERS)
        }
        yield from _cases("SQLite", opened, process_time)
    with ExitStack() as stack:
        dsn = stack.enter_context(sealed.server(options))
        if dsn is not None:
            opened = {peer: stack.enter_context(_postgres(dsn, peer)) for peer in (BARE, *PEERS)}
            yield from _cases("Postgres", opened, perf_counter)
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    paths = {length: _filled(options.folder / f"{length}.db", length) for length in lengths}
    peers = {f"{length:,}": partial(_peak, path) for length, path in paths.items()}
    peers[ALL] = partial(float, paths[lengths[-1]].stat().st_size)
    yield Case(f"memory of a filter over {lengths[-1]:,}", peers, ALL, rounds=1, unit="bytes")


def _cases(kind: str, opened: Mapping[str, Any], clock: Callable[[], float]) -> Iterator[Case]:
    stores = {peer: _wrapped(store, peer) for peer, store in opened.items()}
    for store in stores.values():
        store.batch([PutOp(("few",), f"key-{number}", item(number)) for number in range(FEW)])
    acts: dict[str, tuple[Callable[[Any], Call], int]] = {
        "put": (_put, 20),
        "get": (lambda store: lambda: store.get(("few",), "key-7"), 20),
        "search of 10": (lambda store: lambda: store.search(("few",), limit=10), 10),
        f"filter, 10 of {FEW}": (lambda store: partial(_filter, store), 10),
        f"batch of {MANY} puts": (_puts, 1),
        f"batch of {MANY} gets": (_gets, 1),
    }
    for name, (act, loops) in acts.items():
        yield sealed.case(f"{kind}, {name}", stores, act, clock, loops, 21, BARE)


def item(number: int) -> dict[str, Any]:
    """Return a value of 360 bytes of JSON."""
    text = f"what the agent knows of the user, memory {number:06}: " + "prefers aisle seats, no nuts; " * 8
    return {"kind": "fact", "user": f"user {number % USERS}", "text": text[:270], "rank": number % 100}


def _wrapped(store: Any, peer: str) -> Any:
    if peer == BARE:
        return store
    return SealedStore(store, serde=EncryptedSerializer(RingCipher(RING)), **PEERS[peer])


def _filter(store: Any) -> None:
    if len(store.search(("few",), filter={"user": "user 1"}, limit=FEW)) != FEW // USERS:
        raise SystemExit("error: the filter did not find what was stored")


def _put(store: Any) -> Call:
    numbers = count()
    return lambda: store.put(("put",), f"key-{next(numbers) % 1000}", item(1))


def _puts(store: Any) -> Call:
    ops = [PutOp(("many",), f"key-{number}", item(number)) for number in range(MANY)]
    return lambda: store.batch(ops)


def _gets(store: Any) -> Call:
    ops = [GetOp(("many",), f"key-{number}") for number in range(MANY)]
    return lambda: store.batch(ops)


@contextmanager
def _sqlite(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        store = SqliteStore(connection)
        store.setup()
        yield store


@contextmanager
def _postgres(dsn: str, peer: str) -> Iterator[Any]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        name = sql.Identifier(f"store_{peer}")
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
        connection.execute(sql.SQL("SET search_path = {}").format(name))
        connection.execute("SET synchronous_commit = off")
        store = PostgresStore(connection)
        store.setup()
        yield store


def _filled(path: Path, length: int) -> Path:
    with _sqlite(path) as store:
        wrapped = _wrapped(store, SEALED)
        for first in range(0, length, 1_000):
            wrapped.batch(
                [PutOp(("all",), f"key-{number}", item(number)) for number in range(first, first + 1_000)]
            )
        store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def peak(path: Path) -> int:
    """Return the peak of what Python allocates for a filter that opens all items, and finds ten."""
    import tracemalloc

    with _sqlite(path) as store:
        wrapped = _wrapped(store, SEALED)
        wrapped.search(("all",), filter={"rank": 7}, limit=1)
        tracemalloc.start()
        if len(wrapped.search(("all",), filter={"text": item(500)["text"]}, limit=10)) != 1:
            raise SystemExit("error: the filter did not find what was stored")
        return tracemalloc.get_traced_memory()[1]


def _peak(path: Path) -> float:
    command = [sys.executable, "-c", _SCRIPT, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


_SCRIPT: Final = """
import sys
from pathlib import Path
from benchmarks.store import peak

print(peak(Path(sys.argv[1])))
"""
