"""Checkpoints, configs and plain SQL for the tests of ``sealpoint.sqlite``."""

from __future__ import annotations

import sqlite3
from typing import Any

from sealpoint.base import Checkpoint, RunnableConfig, empty_checkpoint
from sealpoint.sqlite import SqliteSaver


def at(thread_id: Any = "t", checkpoint_id: str | None = None, *, ns: str = "") -> RunnableConfig:
    """A config that names a thread, and a checkpoint in it if ``checkpoint_id`` is given."""
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {
        "configurable": configurable
        if checkpoint_id is None
        else {**configurable, "checkpoint_id": checkpoint_id}
    }


def make(checkpoint_id: str, **values: Any) -> Checkpoint:
    """A checkpoint with an id of its own and channel values."""
    return {
        **empty_checkpoint(),
        "id": checkpoint_id,
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
    }


def put_chain(saver: SqliteSaver, *ids: str, thread_id: str = "t", ns: str = "", run_id: str = "run") -> None:
    """Put checkpoints, each on top of the one before, and one write on top of each."""
    config = at(thread_id, ns=ns)
    for step, checkpoint_id in enumerate(ids):
        config = saver.put(config, make(checkpoint_id, n=step), {"step": step, "run_id": run_id}, {})
        saver.put_writes(config, [("n", step)], "task")


def ids_in(saver: SqliteSaver, config: RunnableConfig | None = None, **arguments: Any) -> list[str]:
    """Ids of a listing, in its order."""
    return [found.checkpoint["id"] for found in saver.list(config, **arguments)]


def dump(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """All rows of both tables, past the saver."""
    checkpoints = connection.execute("SELECT * FROM main.checkpoints ORDER BY 1, 2, 3").fetchall()
    return checkpoints + connection.execute("SELECT * FROM main.writes ORDER BY 1, 2, 3, 4, 6").fetchall()
