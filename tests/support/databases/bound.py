"""Databases that real graphs wrote through `SealedSaver`, on SQLite and Postgres."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import psycopg
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from sealpoint.crypto import KeyRing, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from tests.support.databases.sealed import make_ring

INDEX: Final = b"index".ljust(32, b".")
SECRET: Final = "Kumquat-4711"
"""Stands in each state, in metadata, and in what an interrupt carries."""

PLAIN: Final[dict[str, Any]] = {}
PRIVATE: Final[dict[str, Any]] = {"pseudonyms": True, "indexed_metadata": ("user_id",)}
"""Options of `SealedSaver`: none, and those that replace what is readable."""


def ring_of(active: str, *others: str) -> KeyRing:
    """A ring as `make_ring` makes it, with an index key."""
    return KeyRing(make_ring(active, *others).keys, index=INDEX)


def cipher_of(active: str = "k2", *others: str) -> RingCipher:
    return RingCipher(ring_of(active, *others))


@contextmanager
def sealed_file(path: Path, key_id: str = "k2", **options: Any) -> Iterator[SealedSaver]:
    """A saver around LangGraph's on a file."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield SealedSaver(Theirs(connection), serde=EncryptedSerializer(cipher_of(key_id)), **options)


@contextmanager
def sealed_schema(url: str, key_id: str = "k2", **options: Any) -> Iterator[SealedSaver]:
    """A saver around LangGraph's on a schema of Postgres."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as connection:
        inner: Any = PostgresSaver(connection)
        inner.setup()
        yield SealedSaver(
            inner, serde=EncryptedSerializer(cipher_of(key_id)), allow_shared_role=True, **options
        )


# --- a graph --------------------------------------------------------------------------------------


def _extend(so_far: list[str] | None, updates: list[list[str]]) -> list[str]:
    return [*(so_far or []), *(line for update in updates for line in update)]


class State(TypedDict, total=False):
    """Channels that Postgres stores inline, in rows, and as deltas."""

    name: str
    number: int
    nothing: None
    lines: Annotated[list[str], operator.add]
    log: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=3)]


def _work(state: State) -> Any:
    step = state.get("number", 0) + 1
    return {"name": SECRET, "number": step, "nothing": None, "lines": [f"{SECRET} {step}"], "log": [SECRET]}


def _ask(_: State) -> Any:
    return {"lines": [interrupt({"question": SECRET})]}


def _graph(saver: Any) -> Any:
    inside: Any = StateGraph(State)
    inside.add_node("ask", _ask)
    inside.add_edge(START, "ask")
    graph: Any = StateGraph(State)
    graph.add_node("work", _work)
    graph.add_node("inner", inside.compile())
    graph.add_edge(START, "work")
    graph.add_edge("work", "inner")
    return graph.compile(checkpointer=saver)


def play(saver: Any, thread_id: str = "t", runs: int = 3) -> None:
    """Run a graph with a subgraph that stops each time: its last writes are pending."""
    configurable = {"thread_id": thread_id, "user_id": f"zoe {SECRET}"}
    config: Any = {"configurable": configurable, "metadata": {"team": SECRET}}
    graph = _graph(saver)
    for run in range(runs):
        graph.invoke({"lines": [f"{SECRET} input {run}"], "log": [SECRET]}, config)


_TABLES: Final = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
_files: Final = dict[str, bytes]()
_rows: Final = dict[str, dict[str, bytes]]()


def write_file(path: Path, thread_id: str = "t", key_id: str = "k2", **options: Any) -> None:
    """Let a graph write a thread into a SQLite file; a second new file is a copy of the first."""
    arguments, is_new = repr((thread_id, key_id, options)), not path.exists()
    if is_new and (copied := _files.get(arguments)):
        path.write_bytes(copied)
        return
    with sealed_file(path, key_id, **options) as saver:
        play(saver, thread_id)
    if is_new:
        _files[arguments] = path.read_bytes()


def write_schema(url: str, thread_id: str = "t", key_id: str = "k2", **options: Any) -> None:
    """Let a graph write a thread into a schema of Postgres; a second time, copy the rows of the first."""
    arguments = repr((thread_id, key_id, options))
    with sealed_schema(url, key_id, **options) as saver, psycopg.connect(url) as connection:
        if rows := _rows.get(arguments):
            for table, copied in rows.items():
                with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                    copy.write(copied)
            return
        others = [thread for (thread,) in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")]
        play(saver, thread_id)
        for table in _TABLES:
            query = SQL("COPY (SELECT * FROM {} WHERE thread_id <> ALL({})) TO STDOUT")
            with connection.cursor().copy(query.format(Identifier(table), others)) as copy:
                _rows.setdefault(arguments, {})[table] = b"".join(copy)
