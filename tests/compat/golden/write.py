"""Writes the golden databases that are not beside it yet; run it by hand, never in a test.

    python -m tests.compat.golden.write

Each holds one thread, written by LangGraph's own SqliteSaver; those with its version in their
names hold a second one, of a graph that waits for an answer. What a release once wrote, every
later one reads: a golden database is never written anew.
"""

from __future__ import annotations

import datetime as dt
import decimal
import ipaddress
import pathlib
import re
import sqlite3
import uuid
import zoneinfo
from collections import deque
from contextlib import closing
from importlib.metadata import version
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer as TheirEncrypted
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as TheirJsonPlus
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Send, interrupt

from sealpoint import EncryptedSerializer

FOLDER: Final = pathlib.Path(__file__).parent
KEY: Final = bytes(range(32))
AES_KEY: Final = b"sixteen or 32 bytes of a secret!"

VALUES: Final[dict[str, Any]] = {
    "text": "größer 😀",
    "numbers": [0, -1, 2**63, 1.5],
    "nothing": None,
    "bytes": b"\x00\xff",
    "nested": {"list": [{"deep": True}]},
    "set": {7},
    "frozenset": frozenset({7}),
    "deque": deque([1, 2]),
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC),
    "date": dt.date(2026, 1, 2),
    "time": dt.time(3, 4, 5),
    "timedelta": dt.timedelta(days=1, seconds=2),
    "zone": zoneinfo.ZoneInfo("Europe/Berlin"),
    "uuid": uuid.UUID(int=5),
    "decimal": decimal.Decimal("1.50"),
    "path": pathlib.Path("/a/b"),
    "address": ipaddress.ip_address("192.0.2.1"),
    "pattern": re.compile("a+", re.IGNORECASE),
}
WAITING: Final[Any] = {"configurable": {"thread_id": "waiting"}}
MESSAGES: Final = [HumanMessage("pay 12 euros", id="m1"), AIMessage("done", id="m2")]

OLDER: Final = """
    CREATE TABLE older (
        thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
        task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT, value BLOB,
        PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
    INSERT INTO older
    SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value FROM writes;
    DROP TABLE writes;
    ALTER TABLE older RENAME TO writes"""


def checkpoint(number: int, **values: Any) -> Any:
    return {
        "v": 2,
        "id": f"1f0c0000-0000-6000-8000-{number:012}",
        "ts": f"2026-01-02T03:04:0{number}+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number:032}.0.5"),
        "versions_seen": {"node": {"text": f"{number:032}.0.5"}},
        "pending_sends": [],
        "updated_channels": sorted(values),
    }


def fill(saver: SqliteSaver) -> None:
    """Three checkpoints, the last a fork of the first; writes with paths, a special one, a subgraph's."""
    start: Any = {"configurable": {"thread_id": "golden", "checkpoint_ns": "", "user": "ann"}}
    first = saver.put(start, checkpoint(1, **VALUES), {"source": "input", "step": -1, "parents": {}}, {})
    saver.put_writes(first, [("text", "b"), ("messages", MESSAGES)], "task2", "~__pregel_pull, b")
    saver.put_writes(first, [("text", "a"), ("__interrupt__", "go on?")], "task1", "~__pregel_pull, a")
    saver.put(first, checkpoint(2, messages=MESSAGES), {"source": "loop", "step": 0}, {})
    saver.put(first, checkpoint(3, sends=[Send("node", {"n": 1})]), {"source": "fork", "step": 1}, {})
    sub: Any = {"configurable": {"thread_id": "golden", "checkpoint_ns": "sub:1"}}
    saver.put(sub, checkpoint(4, text="inner"), {"source": "loop", "step": 0, "parents": {"": "1"}}, {})


class Claim(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def ask(state: Claim) -> Any:
    return {"messages": [AIMessage(interrupt({"question": "go on?"}), id="m2")]}


def asking(checkpointer: Any) -> Any:
    """A graph that asks a question and ends with the answer as a message."""
    graph: Any = StateGraph(Claim)
    return graph.add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=checkpointer)


def write(name: str, serde: Any, *, older: bool = False, graph: bool = False) -> None:
    path = FOLDER / f"{name}.db"
    if path.exists():
        return  # golden databases stay as they are
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        if graph:
            connection.execute("PRAGMA page_size = 1024")
        fill(saver := SqliteSaver(connection, serde=serde))
        if graph:
            asking(saver).invoke({"messages": MESSAGES[:1]}, WAITING)
        if older:
            connection.executescript(OLDER)
        connection.execute(
            "PRAGMA journal_mode = DELETE"
        )  # one file, and readable where nothing can be written
        connection.execute("VACUUM")


if __name__ == "__main__":
    aes = TheirEncrypted.from_pycryptodome_aes(TheirJsonPlus(), key=AES_KEY)
    write("plain", None)
    write("older", None, older=True)
    write("sealed", EncryptedSerializer.from_key(KEY))
    write("langgraph-aes", aes)
    release = version("langgraph-checkpoint-sqlite")
    write(f"plain-{release}", None, graph=True)
    write(f"langgraph-aes-{release}", aes, graph=True)
