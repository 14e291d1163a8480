"""`verify` names checkpoints of which writes are missing, in any order of the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from sealpoint.databases.failures import Failure
from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.databases.sqlite.rows import SqliteRows
from sealpoint.errors import WritesLostError
from sealpoint.maintenance.verification import Verification
from sealpoint.sealed.made import MARK
from tests.sealed.scene import NEW, at, checkpoint_id
from tests.support.bound import cipher_of, sealed_file, sealed_schema
from tests.support.server import schema, server

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
    """A database: what is found in it, and statements on it."""

    def __init__(self, kind: str, place: str) -> None:
        self.kind, self.place = kind, place
        self.table = "writes" if kind == "sqlite" else "checkpoint_writes"

    def run(self, condition: str) -> None:
        statement = f"DELETE FROM {self.table} WHERE {condition}"
        connect: Any = sqlite3.connect if self.kind == "sqlite" else psycopg.connect
        with closing(connect(self.place)) as connection:
            assert connection.execute(statement).rowcount
            connection.commit()

    def found(self) -> list[tuple[str, str]]:
        """The errors, each with the checkpoint."""
        store = SqliteRows(Path(self.place)) if self.kind == "sqlite" else PostgresRows(self.place)
        with closing(store):
            run = Verification(store, cipher_of(), require_bound=True)
            failures = [event for event in run.events() if isinstance(event, Failure)]
        return [(type(each.error).__name__, each.place["checkpoint_id"]) for each in failures]


@contextmanager
def filled(kind: str, config: Any, folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        place = str(folder / "x.db") if kind == "sqlite" else stack.enter_context(schema(server(config)))
        opening: Any = sealed_file(Path(place)) if kind == "sqlite" else sealed_schema(place)
        with opening as saver:
            fill(saver)
        yield Place(kind, place)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with filled(request.param, request.config, tmp_path) as made:
        yield made


C1, C2 = checkpoint_id(1), checkpoint_id(2)


def test_nothing_is_missing(place: Place) -> None:
    assert place.found() == []


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
    place.run(gone)
    assert place.found() == [(WritesLostError.__name__, checkpoint) for checkpoint in expected]


def test_halves_of_two_results(place: Place) -> None:
    """The second result of a node, and one write of the first in the place of its own."""
    connect: Any = sqlite3.connect if place.kind == "sqlite" else psycopg.connect
    with closing(connect(place.place)) as connection:
        statement = f"SELECT * FROM {place.table} WHERE task_id = 'first' AND checkpoint_id = '{C2}'"
        earlier = connection.execute(f"{statement} AND idx = 1").fetchone()
    place.run(f"task_id = 'first' AND checkpoint_id = '{C2}'")
    opening: Any = sealed_file(Path(place.place)) if place.kind == "sqlite" else sealed_schema(place.place)
    with opening as saver:
        saver.put_writes(at(THREAD, "", C2), [("log", ["x"]), ("note", 3)], "first")
    assert place.found() == []
    place.run(f"task_id = 'first' AND checkpoint_id = '{C2}' AND idx = 1")
    mark = "?" if place.kind == "sqlite" else "%s"
    with closing(connect(place.place)) as connection:
        values = ", ".join([mark] * len(earlier))
        connection.execute(f"INSERT INTO {place.table} VALUES ({values})", earlier)
        connection.commit()
    assert place.found() == [(WritesLostError.__name__, C2)]


def test_a_value_that_does_not_open_is_named_once(place: Place) -> None:
    statement = f"UPDATE {place.table} SET task_path = task_path"
    connect: Any = sqlite3.connect if place.kind == "sqlite" else psycopg.connect
    value = "value" if place.kind == "sqlite" else "blob"
    broken = "x'00'" if place.kind == "sqlite" else "'\\x00'"
    with closing(connect(place.place)) as connection:
        connection.execute(f"{statement}, {value} = {broken} WHERE task_id = 'first' AND idx = 1")
        connection.commit()
    assert [error for error, _ in place.found()] == ["BlobError", "BlobError"]


def test_a_deleted_checkpoint_needs_no_writes(place: Place) -> None:
    """Its child has no parent then, which is counted as such."""
    place.run(f"checkpoint_id = '{C1}'")
    connect: Any = sqlite3.connect if place.kind == "sqlite" else psycopg.connect
    with closing(connect(place.place)) as connection:
        connection.execute(f"DELETE FROM checkpoints WHERE checkpoint_id = '{C1}'")
        connection.commit()
    assert place.found() == []
