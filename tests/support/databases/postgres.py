"""What stands in the databases of these tests: put there by SQL or by real savers, and looked at by SQL."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row

from sealpoint.admin.databases.cells import EVERYTHING, Cell, Column, Opener, Selection
from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.rows import Batch, Change
from sealpoint.admin.results.jobs import BATCH
from sealpoint.crypto import RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedStore
from tests.support.databases.sealed import make_cipher

K1: Final = make_cipher("k1")
K2: Final = make_cipher("k2", "k1")
EMPTY: Final = ("t", "", "unset", "0", "empty", None)
"""A channel without a value, as LangGraph stores it."""

Blob = tuple[str, str, str, str, str, bytes | None]
Contents = dict[tuple[Any, ...], tuple[Any, Any]]


def set_up(saver: Any, url: str) -> None:
    """Let a saver of LangGraph make its tables."""
    with saver_at(saver, url) as opened:
        opened.setup()


@contextmanager
def saver_at(saver: Any, url: str, cipher: RingCipher | None = None) -> Iterator[Any]:
    serde = None if cipher is None else EncryptedSerializer(cipher)
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the shallow saver
            opened = saver(connection, serde=serde)
        yield opened


@contextmanager
def store_at(url: str, cipher: RingCipher | None = None, index: Any = None, **options: Any) -> Iterator[Any]:
    """LangGraph's Store, sealed if there is a cipher."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        store = PostgresStore(connection, index=index)
        yield SealedStore(store, serde=EncryptedSerializer(cipher), **options) if cipher else store


def make_store(url: str, **options: Any) -> None:
    """Let LangGraph make the tables of its Store."""
    with store_at(url, **options) as store:
        store.setup()


def put_items(url: str, rows: Iterable[tuple[str, str, str]]) -> None:
    """Put items as they stand in the table: prefix, key and JSON."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s)", list(rows))


def items(url: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Every row of the table of items by its key: its value, and all other columns."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT prefix, key, value, to_jsonb(store) - 'value' FROM store")
        return {(prefix, key): tuple(found) for prefix, key, *found in rows}


def blobs(number: int, cipher: RingCipher = K1, size: int = 100) -> list[Blob]:
    """Sealed values of several threads and channels."""
    return [
        (
            f"thread {place % 3}",
            "",
            f"channel {place % 2}",
            f"{place:08}",
            *cipher.seal("msgpack", b"x" * size),
        )
        for place in range(number)
    ]


def put_blobs(url: str, rows: Iterable[Blob]) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            list(rows),
        )


def put_writes(url: str, rows: Iterable[tuple[str, int, str, str | None, bytes]]) -> None:
    """Put writes: task, number, channel, type and value."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO checkpoint_writes"
            " (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob)"
            " VALUES ('t', '', '1', %s, %s, %s, %s, %s)",
            list(rows),
        )


def contents(url: str) -> Contents:
    """Every row of the tables with values: table and key, then type and value."""
    found: Contents = {}
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for table in ("checkpoint_blobs", "checkpoint_writes"):
            for row in connection.execute(f"SELECT * FROM {table}"):
                tag, blob = row.pop("type"), row.pop("blob")
                row.pop("task_path", None)
                found[table, *row.values()] = tag, blob
    return found


def opened(url: str, cipher: RingCipher = K2) -> dict[tuple[Any, ...], tuple[str, bytes]]:
    """The inner type and the bytes of every sealed value."""
    return {
        place: cipher.open(tag, blob).typed
        for place, (tag, blob) in contents(url).items()
        if (tag, blob) != EMPTY[4:]
    }


def read_all(
    store: PostgresRows, table: Column, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> list[list[Cell]]:
    """All pages of a table."""
    pages, after = [], None
    while True:
        page = store.read(table, after, selection, batch)
        pages.append(list(page.cells))
        if page.last is None:
            return pages
        after = page.last


def rewrite_all(
    store: PostgresRows, change: Change, selection: Selection = EVERYTHING, batch: Batch = BATCH
) -> list[int]:
    """Rewrite all tables once; return how many values were moved, raced and seen."""
    sums = [0, 0, 0]
    for table in store.columns:
        after: Any = None
        while True:
            done = store.rewrite(table, after, change, selection, batch)
            sums = [sums[0] + done.changed, sums[1] + done.raced, sums[2] + done.seen]
            if done.last is None:
                break
            after = done.last
    return sums


def reseal(value: Cell) -> tuple[str, bytes]:
    return Opener(K2).reseal(value)


def end_session(url: str, pid: int) -> None:
    """Let the server end a session, as when it is shut down."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
