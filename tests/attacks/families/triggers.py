"""What a schema does when a saver writes, and tables in front of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.attacks.case import Case, Forge, Read, Reading, Scene
from tests.attacks.families.schemas import CHECKPOINTS, ENDLESS, KEY, TYPES, as_table, as_view
from tests.attacks.sides import opened
from tests.attacks.stores import IDS, apply, at, checkpoint, honest

WRITES: Final = "thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value"


def triggers() -> Iterator[Case]:
    """What a schema does when a saver writes: the rest of the file must be as without it."""
    acts: dict[str, Callable[[Any], Any]] = {
        "put": lambda saver: saver.put(
            at(), checkpoint("c9", n=9), {"source": "loop", "step": 9, "parents": {}}, {}
        ),
        "put_writes": lambda saver: saver.put_writes(at(checkpoint_id="c3"), [("n", 9)], "other"),
        "delete": lambda saver: saver.delete_thread("u"),
    }
    for label, script in (
        (
            "a trigger that copies",
            "CREATE TABLE loot (a); CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN INSERT "
            "INTO loot VALUES (new.checkpoint); DELETE FROM writes; END",
        ),
        (
            "a trigger that changes",
            "CREATE TRIGGER evil AFTER INSERT ON writes BEGIN UPDATE writes SET value = x'c0'; END",
        ),
        (
            "a trigger that deletes",
            "CREATE TRIGGER evil BEFORE DELETE ON checkpoints BEGIN DELETE FROM writes; END",
        ),
        (
            "a trigger that ignores",
            "CREATE TRIGGER evil BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(IGNORE); END; "
            "CREATE TRIGGER evil2 BEFORE INSERT ON writes BEGIN SELECT RAISE(IGNORE); END",
        ),
        (
            "a trigger that never ends",
            f"CREATE TRIGGER evil AFTER INSERT ON checkpoints BEGIN {ENDLESS}; END",
        ),
        (
            "a trigger in capitals",
            "CREATE TRIGGER evil AFTER INSERT ON CHECKPOINTS BEGIN DELETE FROM writes; END",
        ),
        (
            "a view with a trigger",
            as_view("SELECT * FROM old")
            + "; CREATE TRIGGER evil INSTEAD OF INSERT ON checkpoints BEGIN DELETE FROM writes; END",
        ),
        ("a key that ignores", as_table(f"{TYPES}, {KEY} ON CONFLICT IGNORE")),
        (
            "a unique index that replaces",
            "CREATE UNIQUE INDEX evil ON checkpoints (length(type)) WHERE checkpoint_id > 'c3'; "
            "CREATE UNIQUE INDEX evil2 ON writes (channel)  WHERE task_id = 'other'",
        ),
        ("an unknown function in an index", "CREATE INDEX evil ON checkpoints (length(type))"),
    ):
        for name, act in acts.items():
            yield Case("triggers", f"{label} [{name}]", _written(script, act))
    for table in ("checkpoints", "writes"):
        yield Case("triggers", f"a temporary {table} in front", _shadowed(table))


def _rows(saver: Any) -> list[Any]:
    rows: list[Any] = []
    for table, columns in (("checkpoints", CHECKPOINTS), ("writes", WRITES)):
        rows += saver.conn.execute(f"SELECT {columns} FROM main.{table} ORDER BY 1, 2, 3, 4, 5, 6").fetchall()
    return rows


def _written(script: str, act: Callable[[Any], Any]) -> Forge:
    """Compare what an act does to the forged file with what it does to an honest one."""

    def forge(scene: Scene) -> Read:
        path, serde, _ = honest(scene, _rows)
        with opened(scene.side, path, serde) as saver:
            act(saver)
            expected = _rows(saver)
        path.unlink()
        path, serde, _ = honest(scene, _rows)
        apply(script, path)

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                act(saver)
                found = _rows(saver)
            return Reading(found, found == expected)

        return read

    return forge


def _shadowed(table: str) -> Forge:
    def forge(scene: Scene) -> Read:
        path, serde, expected = honest(
            scene, lambda saver: [saver.get_tuple(at(checkpoint_id=name)) for name in IDS]
        )

        def read() -> Reading:
            with opened(scene.side, path, serde) as saver:
                connection: sqlite3.Connection = saver.conn
                connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM main.{table} WHERE 0")
                found = [saver.get_tuple(at(checkpoint_id=name)) for name in IDS]
            return Reading(found, found == expected)

        return read

    return forge


def families() -> Iterator[Case]:
    """All cases of this module."""
    yield from triggers()
