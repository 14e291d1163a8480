"""Databases as LangGraph's own saver writes them, and rows as a stranger may put into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint import EncryptedSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.admin.databases.sqlite.rows import SqliteRows

K1: Final = bytes(range(32))
RING: Final = KeyRing([Key("k1", K1, KeyState.ACTIVE)])
GOLDEN: Final = Path(__file__).parents[2] / "compat" / "golden"
SECRET: Final = "Kumquat-4711"
"""What stands in the values, and must not be shown."""


def cipher() -> RingCipher:
    """What opens the values that `write` seals."""
    return RingCipher(RING)


def write(
    path: Path,
    threads: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    sealed: bool = False,
    configurable: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint and a write for each thread, with LangGraph's saver."""
    values = {"t1": {"messages": [HumanMessage(SECRET)]}} if threads is None else threads
    with SqliteSaver.from_conn_string(str(path)) as saver:
        if sealed:
            saver.serde = EncryptedSerializer.from_key(K1)
        saver.setup()
        for thread, channels in values.items():
            at: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", **(configurable or {})}}
            checkpoint: Any = {**empty_checkpoint(), "channel_values": dict(channels)}
            saved = saver.put(at, checkpoint, {"source": "input", "step": -1, "parents": {}}, {})
            saver.put_writes(saved, [("answer", SECRET)], "task")
    return path


def insert(
    path: Path, rows: Iterable[tuple[Any, Any]], metadata: Any = b"{}", thread: str = "forged"
) -> None:
    """Insert checkpoints with any tag and any bytes, past every saver."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO checkpoints VALUES (?, 'forged', ?, NULL, ?, ?, ?)",
            ((thread, f"{number:08}", tag, blob, metadata) for number, (tag, blob) in enumerate(rows)),
        )


@contextmanager
def rows_of(path: Path) -> Iterator[SqliteRows]:
    """The row store of a file."""
    with closing(SqliteRows(path)) as store:
        yield store
