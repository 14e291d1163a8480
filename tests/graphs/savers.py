"""The savers: how each is opened, and what its database then holds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from langgraph.checkpoint.memory import InMemorySaver as TheirMemory
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.postgres.shallow import AsyncShallowPostgresSaver, ShallowPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as TheirAsync

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import AsyncSqliteSaver, EncryptedSerializer, SealedSaver, SqliteSaver
from tests.graphs.openers import (
    Entry,
    on_aiosqlite,
    on_async_pipeline,
    on_async_pool,
    on_async_psycopg,
    on_pipeline,
    on_pool,
    on_psycopg,
    on_sqlite3,
    our_memory,
    ours_by_path,
    their_memory,
    wrapped,
)

RING: Final = KeyRing(
    [Key("k1", bytes(range(32)), KeyState.ACTIVE), Key("k2", bytes(range(64, 96)), KeyState.DECRYPT_ONLY)],
    index=bytes(range(32, 64)),
)
SEALED: Final = EncryptedSerializer(RingCipher(RING))
TAG: Final = "+cobblestone256@k1"
BOUND_TAG: Final = "+cobblestone256.row@k1"

SAVERS: Final = {
    "LangGraph SqliteSaver": Entry("file", on_sqlite3(Theirs)),
    "LangGraph AsyncSqliteSaver": Entry("file", on_aiosqlite(TheirAsync), awaited=True),
    "LangGraph InMemorySaver": Entry("memory", their_memory),
    "LangGraph InMemorySaver, awaited": Entry("memory", their_memory, awaited=True),
    "LangGraph PostgresSaver": Entry("postgres", on_psycopg(PostgresSaver)),
    "LangGraph AsyncPostgresSaver": Entry("postgres", on_async_psycopg(AsyncPostgresSaver), awaited=True),
    "LangGraph ShallowPostgresSaver": Entry(
        "postgres", on_psycopg(ShallowPostgresSaver), keeps_history=False
    ),
    "LangGraph AsyncShallowPostgresSaver": Entry(
        "postgres", on_async_psycopg(AsyncShallowPostgresSaver), awaited=True, keeps_history=False
    ),
    "SqliteSaver": Entry("file", on_sqlite3(SqliteSaver)),
    "SqliteSaver, awaited": Entry("file", on_sqlite3(SqliteSaver), awaited=True),
    "AsyncSqliteSaver": Entry("file", ours_by_path, awaited=True),
    "AsyncSqliteSaver, on aiosqlite": Entry("file", on_aiosqlite(AsyncSqliteSaver), awaited=True),
    "InMemorySaver": Entry("memory", our_memory),
    "InMemorySaver, awaited": Entry("memory", our_memory, awaited=True),
}

HIDING: Final[dict[str, Any]] = {"pseudonyms": True, "indexed_metadata": ("user", "score")}
WRAPPED: Final = {
    "SealedSaver, LangGraph SqliteSaver": Entry("file", wrapped(on_sqlite3(Theirs))),
    "SealedSaver, LangGraph AsyncSqliteSaver": Entry(
        "file", wrapped(on_aiosqlite(TheirAsync), **HIDING), awaited=True
    ),
    "SealedSaver, LangGraph InMemorySaver": Entry("memory", wrapped(their_memory)),
    "SealedSaver, LangGraph PostgresSaver": Entry("postgres", wrapped(on_psycopg(PostgresSaver), **HIDING)),
    "SealedSaver, LangGraph PostgresSaver, pool": Entry("postgres", wrapped(on_pool(PostgresSaver))),
    "SealedSaver, LangGraph PostgresSaver, pipeline": Entry("postgres", wrapped(on_pipeline(PostgresSaver))),
    "SealedSaver, LangGraph AsyncPostgresSaver": Entry(
        "postgres", wrapped(on_async_psycopg(AsyncPostgresSaver)), awaited=True
    ),
    "SealedSaver, LangGraph AsyncPostgresSaver, pool": Entry(
        "postgres", wrapped(on_async_pool(AsyncPostgresSaver), **HIDING), awaited=True
    ),
    "SealedSaver, LangGraph AsyncPostgresSaver, pipeline": Entry(
        "postgres", wrapped(on_async_pipeline(AsyncPostgresSaver)), awaited=True
    ),
    "SealedSaver, SqliteSaver": Entry("file", wrapped(on_sqlite3(SqliteSaver), **HIDING)),
    "SealedSaver, AsyncSqliteSaver": Entry("file", wrapped(ours_by_path), awaited=True),
    "SealedSaver, InMemorySaver": Entry("memory", wrapped(our_memory), awaited=True),
}
"""Savers within SealedSaver, with pseudonyms and an index or without."""

WITH_HEADS: Final[dict[str, Any]] = {"beside_a_store": True}
BESIDE: Final = {
    "beside a store, LangGraph SqliteSaver": Entry("file", wrapped(on_sqlite3(Theirs), **WITH_HEADS)),
    "beside a store, LangGraph AsyncSqliteSaver": Entry(
        "file", wrapped(on_aiosqlite(TheirAsync), **WITH_HEADS), awaited=True
    ),
    "beside a store, LangGraph InMemorySaver": Entry("memory", wrapped(their_memory, **WITH_HEADS)),
    "beside a store, LangGraph PostgresSaver": Entry(
        "postgres", wrapped(on_psycopg(PostgresSaver), **WITH_HEADS)
    ),
    "beside a store, LangGraph PostgresSaver, pipeline": Entry(
        "postgres", wrapped(on_pipeline(PostgresSaver), **WITH_HEADS)
    ),
    "beside a store, LangGraph AsyncPostgresSaver, pool": Entry(
        "postgres", wrapped(on_async_pool(AsyncPostgresSaver), **WITH_HEADS, **HIDING), awaited=True
    ),
    "beside a store, LangGraph AsyncPostgresSaver, pipeline": Entry(
        "postgres", wrapped(on_async_pipeline(AsyncPostgresSaver), **WITH_HEADS), awaited=True
    ),
    "beside a store, SqliteSaver": Entry("file", wrapped(on_sqlite3(SqliteSaver), **WITH_HEADS, **HIDING)),
    "beside a store, AsyncSqliteSaver": Entry("file", wrapped(ours_by_path, **WITH_HEADS), awaited=True),
    "beside a store, InMemorySaver": Entry("memory", wrapped(our_memory, **WITH_HEADS), awaited=True),
}
"""Savers within SealedSaver beside a thread store: a file, or another schema of the Postgres database."""

ENTRIES: Final = SAVERS | WRAPPED | BESIDE


@contextmanager
def opened(name: str, place: str, *, sealed: bool) -> Iterator[tuple[Any, asyncio.Runner]]:
    """A saver of the table, and the loop that it belongs to, which runs only while something is awaited."""
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        opening = ENTRIES[name].opener(place, SEALED if sealed else None)
        saver = runner.run(stack.enter_async_context(opening))
        try:
            yield saver, runner
        finally:
            runner.run(stack.aclose())


# --- what is stored -------------------------------------------------------------------------------

VALUES: Final = {
    "file": {"checkpoints": "checkpoint", "writes": "value"},
    "postgres": {"checkpoint_blobs": "blob", "checkpoint_writes": "blob"},
}
"""Where serialized values stand, beside a column ``type``: table and column."""


@dataclass(frozen=True)
class Stored:
    """What a saver has stored.

    Attributes:
        values: Type tag and bytes of each serialized value.
        dump: Every column of every row, one after the other; of a file also its bytes.
    """

    values: list[tuple[str, bytes | None]]
    dump: bytes

    @property
    def tags(self) -> Counter[str]:
        """How many values have which type. Channels without a value are marked, not serialized."""
        return Counter(tag for tag, blob in self.values if tag != "empty" or blob)


def stored(name: str, saver: Any, place: str) -> Stored:
    """Read a database, past the saver; the one in memory of LangGraph from its attributes."""
    kind = ENTRIES[name].kind
    if isinstance(saver, SealedSaver):
        saver = saver.inner
    if isinstance(saver, TheirMemory):
        found = [*pairs([saver.storage, saver.writes, saver.blobs])]
        return Stored(found, b"".join(blob or b"" for _, blob in found))
    if kind == "postgres":
        with psycopg.connect(place) as postgres:
            found = rows(postgres, "postgres")
            found_dump = dump(postgres, [*VALUES["postgres"], "checkpoints"])
        return Stored(found, found_dump)
    if kind == "memory":
        return Stored(rows(saver.conn, "file"), dump(saver.conn, VALUES["file"]))
    with closing(sqlite3.connect(place)) as file:
        found, found_dump = rows(file, "file"), dump(file, VALUES["file"])
    parts = Path(place).parent.glob(f"{Path(place).name}*")  # the log beside it too
    return Stored(found, found_dump + b"".join(part.read_bytes() for part in parts))


def rows(connection: Any, kind: str) -> list[tuple[str, bytes | None]]:
    return [
        row
        for table, column in VALUES[kind].items()
        for row in connection.execute(f"SELECT type, {column} FROM {table}").fetchall()
    ]


def dump(connection: Any, tables: Any) -> bytes:
    return b"\n".join(
        column if isinstance(column, bytes) else json.dumps(column, default=str).encode()
        for table in tables
        for row in connection.execute(f"SELECT * FROM {table}").fetchall()
        for column in row
    )


def pairs(value: Any) -> Iterator[tuple[str, bytes | None]]:
    """Every pair of text and bytes, however deep in mappings and sequences."""
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], bytes)
    ):
        yield (value[0], value[1])
    elif isinstance(value, dict):
        for member in value.values():
            yield from pairs(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from pairs(member)
