"""Threads of checkpoints to measure on, filled through a saver's own methods."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import Saver


def checkpoint(number: int, values: dict[str, Any]) -> Any:
    """Make a checkpoint whose id sorts by ``number``."""
    return {
        "v": 4,
        "id": f"1f000000-0000-6000-8000-{number:012x}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number:032}.0"),
        "versions_seen": {},
        "updated_channels": None,
    }


def config(thread: str, **more: str) -> Any:
    """Name a thread, and more if wanted."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def fill(saver: Saver, thread: str, length: int, values: dict[str, Any], write: Any, *, writes: int) -> None:
    """Store a chain of checkpoints, with pending writes on top of each."""
    place = config(thread)
    for number in range(length):
        made = checkpoint(number, values)
        place = saver.put(place, made, {"source": "loop", "step": number}, made["channel_versions"])
        saver.put_writes(place, [("log", write)] * writes, f"task-{number}")
