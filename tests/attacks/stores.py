"""Cases about databases: an honest file, what was done to it, and a reading."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.attacks.case import Case, Forge, Read, Reading, Scene
from tests.attacks.sides import Serializer, opened

IDS: Final = ("c1", "c2", "c3")

Query = Callable[[Any], Any]
Tamper = str | Callable[[Path], None]


def at(thread_id: Any = "t", **more: Any) -> dict[str, Any]:
    """Return a config."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **more}}


def checkpoint(checkpoint_id: str, **values: Any) -> dict[str, Any]:
    """Return a checkpoint with channel values."""
    return {
        "v": 4,
        "id": checkpoint_id,
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, "1"),
        "versions_seen": {},
        "updated_channels": None,
    }


def fill(saver: Any) -> None:
    """Write a chain of three checkpoints, each with two writes, and one of another thread."""
    config = at()
    for step, checkpoint_id in enumerate(IDS):
        metadata = {"source": "loop", "step": step, "parents": {}, "run_id": "r"}
        config = saver.put(config, checkpoint(checkpoint_id, n=step, text="x" * 40), metadata, {})
        saver.put_writes(config, [("n", step), ("text", ["y", step])], "task")
    saver.put(at("u"), checkpoint("d1", n=9), {"source": "input", "step": 9, "parents": {}}, {})


QUERIES: Final[dict[str, Query]] = {
    "latest": lambda saver: saver.get_tuple(at()),
    "list": lambda saver: list(saver.list(None)),
    "history": lambda saver: saver.get_delta_channel_history(
        config=at(checkpoint_id="c3"), channels=["n", "m"]
    ),
}


def cases(
    family: str,
    name: str,
    tamper: Tamper,
    *,
    queries: str = "latest list",
    sealed: bool = False,
    harmless: bool = False,
) -> Iterator[Case]:
    """Make one case a query. What it gives must be what it gave before the file was tampered with.

    Args:
        family: Family of the cases.
        name: What is done to the file.
        tamper: SQL, or what to do with the path.
        queries: Names of `QUERIES`, between spaces.
        sealed: Whether the values are sealed.
        harmless: Whether any other result is good, too: the attack is on time and memory alone.
    """
    for query in queries.split():
        label = f"{name} [{query}{', sealed' if sealed else ''}]"
        yield Case(family, label, _forge(tamper, QUERIES[query], sealed, harmless))


def _forge(tamper: Tamper, query: Query, sealed: bool, harmless: bool) -> Forge:
    def forge(scene: Scene) -> Read:
        path, serde, expected = honest(scene, query, sealed)
        apply(tamper, path)

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                value = query(saver)
            return Reading(value, harmless or value == expected)

        return read

    return forge


def honest(scene: Scene, query: Query, sealed: bool = False) -> tuple[Path, Serializer, Any]:
    """Write an honest file; return its path, the serializer, and what a query gives."""
    path = scene.directory / "checkpoints.db"
    serde = scene.side.sealing() if sealed else scene.side.strict()
    with opened(scene.side, path, serde) as saver:
        saver.conn.execute("PRAGMA synchronous = OFF")
        fill(saver)
        expected = query(saver)
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path, serde, expected


def apply(tamper: Tamper, path: Path) -> None:
    """Do to a file what is to be done."""
    if callable(tamper):
        tamper(path)
        return
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(tamper)
        connection.commit()


def blob_of(scene: Scene, value: Any) -> tuple[str, bytes]:
    """Serialize as the side does, without sealing."""
    return scene.side.strict().dumps_typed(value)


def quoted(data: bytes) -> str:
    """Return a BLOB literal."""
    return f"x'{data.hex()}'"
