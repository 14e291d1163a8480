"""Writes the vectors of the next release: what it stores. Run it by hand, never in a test.

    python -m tests.vectors.write

It writes to the folder ``unreleased``, which gets the release's name with it, and changes no file that is
there: what a release stored, every later one opens.
`whole` is made as an operator makes it, by the commands and by agents: a ring with key files and a wrapped
key, a database of LangGraph with checkpoints and items, a cache, a thread store with a pin, a ledger with an
erasure. `postgres.json` has the rows that agents store in Postgres, `threads.sql` the tables of a thread
store there.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import chdir, closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypedDict

import psycopg
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command, interrupt
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from sealpoint.admin.cli.app import run as program
from sealpoint.langgraph import EncryptedSerializer, SealedCache, SealedSaver, SealedStore
from sealpoint.threads import PostgresThreadStore, SqliteThreadStore
from sealpoint.threads.pgstatements import CREATE, UPGRADE
from tests.support.servers.postgres import started

FOLDER: Final = Path(__file__).parent
SCHEMAS: Final = FOLDER.parents[1] / "src" / "sealpoint" / "schemas"
THREAD: Final = "visit-1"
ERASED: Final = "visit-2"
ITEM: Final = (("users", "ada"), "allergy", {"allergy": "penicillin", "since": 2019, "user": "ada"})
CACHED: Final = ((("node", "look"), "key-1"), {"found": [1, 2.5, None, "é"]})
POSTGRES_TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
THREAD_TABLES: Final = ("store", "identities", "adopted", "heads", "specials")

RING: Final = """
[threads]
store = "threads.db"

[ledger]
dir = "ledger"
origin = "example.org/agents"
signer = { file = "ledger.key" }

[[wrapper]]
id = "copy"
kind = "command"
wrap = ["cat"]
unwrap = ["cat"]

[[database]]
path = "state.db"
"""


class Visit(TypedDict):
    """State of the graph: text, a number, and a value with a type of its own."""

    text: str
    amount: float
    items: list[Any]


def look(state: Visit) -> Any:
    return {"amount": state["amount"] + 0.5, "items": [*state["items"], {"é": b"\0\xff"}]}


def ask(state: Visit) -> Any:
    return {"text": interrupt({"question": "go on?"})}


def graph_of(saver: Any) -> Any:
    """A graph that computes, asks, and ends with the answer."""
    graph: Any = StateGraph(Visit).add_node("look", look).add_node("ask", ask)
    return graph.add_edge(START, "look").add_edge("look", "ask").compile(checkpointer=saver)


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}, "metadata": {"tenant": "blue", "place": "zoo"}}


def store_thread(saver: Any, thread: str, *, is_answered: bool = True) -> None:
    graph = graph_of(saver)
    graph.invoke({"text": "größer 😀", "amount": 1.5, "items": []}, at(thread))
    if is_answered:
        graph.invoke(Command(resume="yes"), at(thread))


def seal_saver(saver: Any, threads: Any, ring: Path = Path("keys.toml")) -> SealedSaver:
    """A saver with the options that have a format."""
    serde = EncryptedSerializer.from_key_file(ring)
    return SealedSaver(
        saver,
        serde=serde,
        threads=threads,
        pseudonyms=True,
        plain_metadata=("place",),
        indexed_metadata=("tenant",),
    )


def seal_store(connection: sqlite3.Connection, ring: Path = Path("keys.toml")) -> SealedStore:
    """A store of items with the options that have a format."""
    serde = EncryptedSerializer.from_key_file(ring)
    return SealedStore(
        SqliteStore(connection),
        serde=serde,
        pseudonyms=True,
        plain_fields=("since",),
        indexed_fields=("user",),
    )


def run(*words: str) -> None:
    if code := program([*words]):
        raise SystemExit(f"sealpoint {' '.join(words)} ended with {code}")


def write_whole() -> None:
    """Make everything in the current folder."""
    ring = Path("keys.toml")
    for words in ("keys init k1", "keys generate --index"):
        run(*words.split(), "--keys", "keys.toml")
    with ring.open("a", encoding="utf-8") as file:
        file.write(RING)
    in_ring: Callable[..., None] = lambda *words: run(*words, "--keys", "keys.toml")  # noqa: E731
    in_ring("ledger", "init")
    with closing(SqliteThreadStore("threads.db", create=True)) as threads:
        for thread, answered in ((ERASED, True), (THREAD, False)):
            with closing(sqlite3.connect("state.db", check_same_thread=False)) as connection:
                store_thread(seal_saver(SqliteSaver(connection), threads), thread, is_answered=answered)
        for words in ("keys generate k2 --wrap-with copy", "keys promote k2"):
            in_ring(*words.split())
        with closing(sqlite3.connect("state.db", check_same_thread=False)) as connection:
            graph_of(seal_saver(SqliteSaver(connection), threads)).invoke(Command(resume="yes"), at(THREAD))
    with closing(sqlite3.connect("state.db", isolation_level=None)) as connection:
        store = seal_store(connection)
        store.setup()
        store.put(*ITEM)
    with closing(sqlite3.connect("state.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    cache: Any = SqliteCache(path="cache.db")
    SealedCache(cache, serde=EncryptedSerializer.from_key_file(ring)).set({CACHED[0]: (CACHED[1], None)})
    cache._conn.execute("PRAGMA journal_mode = DELETE")
    cache._conn.close()
    in_ring("erase", "state.db", "--thread", ERASED, "--reason", "ticket 17", "--due", "30", "--apply")
    in_ring("heads", "seal", "--pin", "threads.pin")
    in_ring("verify", "state.db", "--pin", "threads.pin")
    shutil.copy("ledger/checkpoint", "ledger.pin")
    with closing(sqlite3.connect("threads.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    for leftover in [*Path().glob("*-shm"), *Path().glob("*-wal"), *Path().glob("*-lock")]:
        leftover.unlink()


def rows_of(connection: psycopg.Connection[Any], schema: str, tables: tuple[str, ...]) -> dict[str, Any]:
    """All rows of tables, as JSON of the server has them."""
    found = {}
    for table in tables:
        rows = connection.execute(f'SELECT to_jsonb(each) AS row FROM "{schema}".{table} AS each')
        found[table] = sorted((row["row"] for row in rows), key=json.dumps)
    return found


def write_postgres(ring: Path) -> dict[str, Any]:
    """Store a thread in Postgres; return the rows of the saver and of the thread store."""
    connect = partial(psycopg.Connection[Any].connect, autocommit=True, row_factory=dict_row)
    with started() as dsn, connect(dsn) as owner:
        owner.execute("CREATE SCHEMA agents; CREATE ROLE threads LOGIN")
        owner.execute("GRANT CREATE ON DATABASE postgres TO threads")
        threads = PostgresThreadStore(make_conninfo(dsn, user="threads"), schema="threads", create=True)
        with (
            closing(threads),
            connect(dsn, options="-c search_path=agents", prepare_threshold=0) as connection,
        ):
            saver = PostgresSaver(connection)
            saver.setup()
            sealed = SealedSaver(
                saver, serde=EncryptedSerializer.from_key_file(ring), threads=threads, allow_shared_role=True
            )
            store_thread(sealed, THREAD)
        return rows_of(owner, "agents", POSTGRES_TABLES) | {
            f"threads.{name}": rows for name, rows in rows_of(owner, "threads", THREAD_TABLES).items()
        }


def digests_of(folder: Path) -> str:
    """The lines of `sha256sum`, in a folder, for all of its files."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files)


def main() -> None:
    """Write what is missing of the next release, and the digests of all."""
    folder = FOLDER / "unreleased"
    if not (whole := folder / "whole").exists():
        with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
            write_whole()
            rows = write_postgres(Path("keys.toml").resolve())
            shutil.copytree(temporary, whole)
        (folder / "postgres.json").write_text(
            json.dumps(rows, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
        tables = ";\n".join((*CREATE, *UPGRADE))
        (folder / "threads.sql").write_text(f"{tables}\n", encoding="utf-8")
    for schema in SCHEMAS.glob("*.json"):
        if not (folder / schema.name).exists():
            shutil.copy(schema, folder)
    (FOLDER / f"{folder.name}.sha256").write_text(digests_of(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
