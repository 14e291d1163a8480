"""`verify` names checkpoints of which writes are missing, in any order of the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from sealpoint.admin.databases.postgres.rows import PostgresRows
from sealpoint.admin.databases.sqlite.rows import SqliteRows
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Failure
from sealpoint.errors import WritesLostError
from sealpoint.seal.rows import MARK
from tests.sealed.scene import NEW, at, checkpoint_id
from tests.support.databases.bound import cipher_of, sealed_file, sealed_schema
from tests.support.servers.postgres import schema, server

THREAD: Final = "t"


def fill(saver: Any) -> None:
    """Two checkpoints of a delta graph, and calls of all kinds."""
    for number in (1, 2):
        checkpoint: Any = {**empty_checkpoint(), "v": NEW, "id": checkpoint_id(number)}
        parent = at(THREAD, "", checkpoint_id(number - 1) if number > 1 else None)
        stored = saver.put(parent, checkpoint, {"step": number, MARK: {"log": (1, 1)}}, {})
        saver.put_writes(stored, [("log", ["a"]), ("note", 1)], "first")
        for call in (
            [(INTERRUPT, "?")],
            [(RESUME, ["r"])],
            [(RESUME, ["r"]), ("log", ["b"])],
            [("log", ["c"]), ("note", 2)],
        ):
            saver.put_writes(stored, call, "second")


class Place:
    """A database: what is found in it, and how writes of it are deleted."""

    def __init__(self, kind: str, place: str) -> None:
        self.is_file, self.place = kind == "sqlite", place

    def delete(self, condition: str) -> None:
        """Delete writes."""
        table, connect = (
            ("writes", sqlite3.connect) if self.is_file else ("checkpoint_writes", psycopg.connect)
        )
        with closing(connect(self.place)) as connection:
            assert connection.execute(f"DELETE FROM {table} WHERE {condition}").rowcount
            connection.commit()

    def found(self) -> list[tuple[str, str]]:
        """The errors, each with the checkpoint."""
        store = SqliteRows(Path(self.place)) if self.is_file else PostgresRows(self.place)
        with closing(store):
            run = Verification(store, cipher_of(), require_bound=True)
            failures = [event for event in run.events() if isinstance(event, Failure)]
        return [(type(each.error).__name__, each.place["checkpoint_id"]) for each in failures]

    def saver(self) -> AbstractContextManager[Any]:
        return sealed_file(Path(self.place)) if self.is_file else sealed_schema(self.place)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database in which nothing is missing."""
    with ExitStack() as stack:
        is_file = request.param == "sqlite"
        place = str(tmp_path / "x.db") if is_file else stack.enter_context(schema(server(request.config)))
        made = Place(request.param, place)
        with made.saver() as saver:
            fill(saver)
        assert made.found() == []
        yield made


C1, C2 = checkpoint_id(1), checkpoint_id(2)


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (f"checkpoint_id = '{C2}' AND task_id = 'first' AND idx = 1", [C2]),
        (f"checkpoint_id = '{C2}' AND task_id = 'second' AND idx = -4", [C2]),
        (f"checkpoint_id = '{C2}' AND task_id = 'first'", []),  # the node runs again
        (f"checkpoint_id = '{C1}' AND task_id = 'first'", [C1]),
        (f"checkpoint_id = '{C1}'", [C1]),
        (f"checkpoint_id = '{C1}' AND idx = 1", [C1]),
        ("idx = 1 AND task_id = 'first'", [C1, C2]),
    ],
)
def test_writes_deleted(place: Place, gone: str, expected: list[str]) -> None:
    place.delete(gone)
    assert place.found() == [(WritesLostError.__name__, checkpoint) for checkpoint in expected]
