"""Databases of agents from which threads are erased: real savers and stores of LangGraph, sealed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from psycopg.rows import dict_row

from sealpoint.base import empty_checkpoint
from sealpoint.base.checkpoint import create_checkpoint
from sealpoint.crypto import check_value
from sealpoint.langgraph import EncryptedSerializer, SealedSaver, SealedStore
from sealpoint.threads import SqliteThreadStore

STEPS: Final = 3
TABLES: Final = """
[ledger]
dir = "ledger"
origin = "example.org/agents"
signer = { file = "ledger.key" }
"""
OWNERS: Final = {
    "checkpoints": "thread_id",
    "writes": "thread_id",
    "checkpoint_writes": "thread_id",
    "checkpoint_blobs": "thread_id",
    "store": "prefix",
    "store_vectors": "prefix",
}


@dataclass(frozen=True)
class Agents:
    """Agents on a database.

    Attributes:
        database: As commands name it.
        pseudonyms: Whether pseudonyms stand for ids and labels.
        threads: Their thread store, if they have one.
    """

    database: str
    ring: Path
    pseudonyms: bool = False
    threads: Path | None = None

    @property
    def is_file(self) -> bool:
        return "://" not in self.database and "=" not in self.database

    @contextmanager
    def connected(self) -> Iterator[Any]:
        if self.is_file:
            with closing(sqlite3.connect(self.database, check_same_thread=False)) as connection:
                yield connection
        else:
            with psycopg.connect(
                self.database, autocommit=True, prepare_threshold=0, row_factory=dict_row
            ) as connection:
                yield connection

    @contextmanager
    def saver(self) -> Iterator[Any]:
        with self.connected() as connection, ExitStack() as stack:
            wrapped = SqliteSaver(connection) if self.is_file else PostgresSaver(connection)
            wrapped.setup()
            more: dict[str, Any] = {"pseudonyms": self.pseudonyms}
            if not self.is_file:
                more["allow_shared_role"] = True
            if self.threads is not None:
                more["threads"] = stack.enter_context(
                    closing(SqliteThreadStore(self.threads, create=not self.threads.exists()))
                )
            yield SealedSaver(wrapped, serde=EncryptedSerializer.from_key_file(self.ring), **more)

    @contextmanager
    def store(self) -> Iterator[Any]:
        with ExitStack() as stack:
            if self.is_file:
                wrapped: Any = stack.enter_context(SqliteStore.from_conn_string(self.database))
            else:
                wrapped = stack.enter_context(PostgresStore.from_conn_string(self.database))
            wrapped.setup()
            yield SealedStore(
                wrapped,
                serde=EncryptedSerializer.from_key_file(self.ring),
                pseudonyms=self.pseudonyms,
            )

    def talk(self, thread_id: str, *words: str, steps: int = STEPS, **more: Any) -> list[str]:
        """Let an agent store so many checkpoints, each with a write; return their ids."""
        with self.saver() as saver:
            return talk(saver, thread_id, *words, steps=steps, **more)

    def values(self, thread_id: str) -> list[Any]:
        """What the thread remembers, the newest first."""
        config: Any = {"configurable": {"thread_id": thread_id}}
        with self.saver() as saver:
            return [found.checkpoint["channel_values"].get("said") for found in saver.list(config)]

    def rows(self) -> Counter[tuple[str, str]]:
        """How many rows each thread and namespace has, by table."""
        found = Counter[tuple[str, str]]()
        with self.connected() as connection:
            for table, owner in OWNERS.items():
                try:
                    rows = connection.execute(f"SELECT {owner} AS name FROM {table}").fetchall()
                except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
                    continue
                for row in rows:
                    found[table, row["name"] if isinstance(row, dict) else row[0]] += 1
        return found

    def owners(self) -> set[str]:
        """The threads and namespaces that have a row."""
        return {name for _, name in self.rows()}


def talk(saver: Any, thread_id: str, *words: str, steps: int = STEPS, parent: str = "") -> list[str]:
    """Store checkpoints of a thread, each on the one before it; ``parent`` is the first one's."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    if parent:
        config["configurable"]["checkpoint_id"] = parent
    ids, checkpoint = list[str](), empty_checkpoint()
    for step in range(steps):
        text = " ".join([*words, thread_id, str(step)])
        version = f"{step + 1:032}.0"
        checkpoint = create_checkpoint({**checkpoint, "channel_versions": {"said": version}}, None, step)
        checkpoint = {**checkpoint, "channel_values": {"said": [text]}, "channel_versions": {"said": version}}
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {"said": version})
        saver.put_writes(config, [("said", text)], "task")
        ids.append(config["configurable"]["checkpoint_id"])
    return ids


def make_ring(folder: Path, *, ledger: bool = True, threads: Path | None = None) -> Path:
    """A ring file of k1 and k2 with an index key."""
    for name in ("k1", "k2", "index"):
        (folder / f"{name}.key").write_bytes(name.encode().ljust(32, b"."))
        (folder / f"{name}.key").chmod(0o600)
    text = 'version = 1\nactive = "k1"\n'
    for name, state in {"k1": "active", "k2": "staged"}.items():
        check = check_value(name.encode().ljust(32, b"."))
        text += f'[[key]]\nid = "{name}"\nstate = "{state}"\ncheck = "{check}"\n'
        text += f'source = {{ file = "{name}.key" }}\n'
    text += '[[index]]\nid = "index"\nsource = { file = "index.key" }\n'
    ring = folder / "keys.toml"
    text += TABLES if ledger else ""
    ring.write_text(text + (f'[threads]\nstore = "{threads.name}"\n' if threads else ""))
    ring.chmod(0o600)
    return ring
