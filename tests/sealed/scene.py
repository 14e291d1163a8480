"""What stands in the databases that are tampered with: two threads with the same ids and other contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS, _DeltaSnapshot

ALICE: Final = "alice"
BOB: Final = "bob"
MALLORY: Final = "mallory"
ROOT: Final = ""
CHILD: Final = "child:1"
PATH: Final = "~__pregel_pull, node"
DELTA: Final = ["log", "never"]

OLD: Final = 3
NEW: Final = 4
"""Versions of checkpoints: into an old one PostgresSaver puts what was sent from its parent."""

LENGTHS: Final = {(ALICE, ROOT): 3, (ALICE, CHILD): 2, (BOB, ROOT): 3}
"""How many checkpoints each namespace of each thread has."""


def checkpoint_id(step: int) -> str:
    """Id number ``step``; the same in every thread and namespace."""
    return f"1f0c0000-0000-6000-8000-{step:012}"


C1, C2, C3, C9 = map(checkpoint_id, (1, 2, 3, 9))


def version(step: int) -> str:
    return f"{step:032}.5"


@dataclass(frozen=True)
class Place:
    """Where a checkpoint stands, as callers name it."""

    thread: str
    ns: str
    id: str

    @property
    def config(self) -> Any:
        return at(self.thread, self.ns, self.id)


def at(thread: str, ns: str | None = ROOT, id_: str | None = None) -> Any:
    """A config; without ``ns`` it names all namespaces, without ``id_`` the latest checkpoint."""
    named = {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_}
    return {"configurable": {name: text for name, text in named.items() if text is not None}}


PLACES: Final = [
    Place(thread, ns, checkpoint_id(step))
    for (thread, ns), length in LENGTHS.items()
    for step in range(1, length + 1)
]


def document(place: Place, step: int, mark: str) -> tuple[Any, dict[str, str]]:
    """A checkpoint, and the versions of the channels that are new in it."""
    name = f"{place.thread} {place.ns} {mark}"
    values: dict[str, Any] = {
        "note": f"{name} note {step}",
        "count": 1000 * len(name) + step,
        "open": step % 2 == 1,
        "items": [name, "items", 1 if step < 3 else 3],
        "doc": {"of": name, "step": step},
    }
    new = {"note": step, "count": step, "open": step, "items": 1 if step < 3 else 3, "doc": step, "log": step}
    if step == 1:
        values["log"] = _DeltaSnapshot([f"{name} log 0"])
    versions = {channel: version(at_step) for channel, at_step in new.items()}
    checkpoint: Any = {
        **empty_checkpoint(),
        "v": OLD if place.ns == CHILD else NEW,
        "id": place.id,
        "ts": f"2026-01-0{step}T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"__input__": {}, "node": {"note": version(step)}},
        "updated_channels": sorted(new),
    }
    return checkpoint, {channel: text for channel, text in versions.items() if text == version(step)}


def metadata(place: Place, step: int, mark: str) -> Any:
    """Metadata whose step is 0, 1 and 2."""
    return {
        "source": "input" if step == 1 else "loop",
        "step": step - 1,
        "parents": {ROOT: checkpoint_id(step)} if place.ns else {},
        "run_id": f"run {place.thread} {step} {mark}",
        "user_id": f"user {place.thread}",
        "tenant": f"tenant {place.thread}",
        "score": 10 * step,
        "notes": {"of": [place.thread, place.ns, step, mark]},
    }


def writes(place: Place, step: int, mark: str) -> list[tuple[str, str, list[tuple[str, Any]]]]:
    """Task, path and writes: an ordinary task, one that was interrupted and resumed, one that failed."""
    name = f"{place.thread} {place.ns} {step} {mark}"
    return [
        ("task-1", PATH, [("log", [f"{name} log"]), ("note", f"{name} a"), ("note", f"{name} b")]),
        ("task-2", f"{PATH} 2", [(INTERRUPT, [{"ask": name}])]),
        ("task-2", f"{PATH} 2", [(RESUME, [f"{name} answer"])]),
        ("task-2", f"{PATH} 2", [(TASKS, {"send": name})]),
        ("task-3", f"{PATH} 3", [(ERROR, f"{name} failed"), ("log", [f"{name} more"])]),
    ]


def put_one(saver: Any, place: Place, step: int, mark: str = "") -> None:
    """Put a checkpoint on top of the one before it, and the writes upon it."""
    parent = at(place.thread, place.ns, checkpoint_id(step - 1) if step > 1 else None)
    checkpoint, new = document(place, step, mark)
    saver.put(parent, checkpoint, metadata(place, step, mark), new)
    for task_id, path, values in writes(place, step, mark):
        saver.put_writes(place.config, values, task_id, path)


def fill(saver: Any) -> None:
    """Put everything: `ALICE` first, so that her rows are known by then."""
    for place in PLACES:
        put_one(saver, place, int(place.id[-4:]))
