"""A database compared with its thread store: what is found, what is not, and what agents change meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from sealpoint.admin.databases.rows import RowStore
from sealpoint.admin.maintenance import heads as heads_module
from sealpoint.admin.maintenance.calls import CheckpointRows
from sealpoint.admin.maintenance.heads import Adoption, Difference, HeadCheck
from sealpoint.admin.maintenance.verify import Verification
from sealpoint.admin.results.events import Failure
from sealpoint.admin.results.reasons import Reason
from sealpoint.base import empty_checkpoint
from sealpoint.errors import DeletedCheckpointError, EarlierWriteError, RolledBackError, WritesLostError
from sealpoint.langgraph import SealedSaver
from sealpoint.seal.heads import Head, Kind
from sealpoint.seal.places import Spot
from sealpoint.threads.sqlite import MemoryThreadStore
from tests.support.databases.bound import cipher_of, sealed_file, sealed_schema
from tests.support.databases.postgres import set_up
from tests.support.servers.postgres import schema, server


def make(checkpoint_id: str) -> Any:
    return {**empty_checkpoint(), "id": checkpoint_id}


@dataclass
class Scene:
    """A database with a saver, and its thread store."""

    saver: Callable[..., AbstractContextManager[SealedSaver]]
    rows: Callable[[], RowStore]
    connect: Callable[[], Any]
    store: MemoryThreadStore
    tables: tuple[str, ...] = ("checkpoints",)
    writes: str = "writes"

    def put(self, thread_id: str, *ids: str, step: int = 0, **options: Any) -> None:
        """Store checkpoints, each a child of the one before."""
        with self.saver(threads=self.store, **options) as saver:
            parent: dict[str, str] = {}
            for checkpoint_id in ids:
                config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **parent}}
                saver.put(config, make(checkpoint_id), {"step": step}, {})
                parent = {"checkpoint_id": checkpoint_id}

    def delete(self, thread_id: str) -> None:
        with self.saver(threads=self.store) as saver:
            saver.delete_thread(thread_id)

    def sql(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    def keep(self) -> None:
        """Remember the rows of checkpoints for `put_back`."""
        self.sql(*(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}" for table in self.tables))

    def put_back(self) -> None:
        """Make the rows of checkpoints what they were."""
        for table in self.tables:
            self.sql(f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM kept_{table}")

    @property
    def damage(self) -> str:
        """A statement after which no checkpoint opens."""
        if len(self.tables) == 1:
            return "UPDATE checkpoints SET checkpoint = x'00'"
        return "UPDATE checkpoints SET metadata = jsonb_set(metadata, '{__sealpoint__,value}', '\"AAAA\"')"

    def compare(self, store: Any = None) -> tuple[list[Failure], HeadCheck]:
        cipher = cipher_of()
        with closing(self.rows()) as database:
            rows = CheckpointRows(database, cipher)
            check = HeadCheck(rows, store or self.store)
            run = Verification(database, cipher, observer=check, columns=rows.with_writes)
            events = [*run.events()]
        return [event for event in events if isinstance(event, Failure)], check


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no deletion: nothing is deleted meanwhile."""
    monkeypatch.setattr(heads_module, "DELETION_SECONDS", 0)


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    store = MemoryThreadStore()
    if request.param == "sqlite":
        from sealpoint.admin.databases.sqlite.rows import SqliteRows

        path = tmp_path / "app.db"
        with sealed_file(path) as saver:
            saver.setup()
        yield Scene(
            lambda **options: sealed_file(path, **options),
            lambda: SqliteRows(path, writable=True),
            lambda: sqlite3.connect(path),
            store,
        )
        return
    from sealpoint.admin.databases.postgres.rows import PostgresRows

    with schema(server(request.config)) as url:
        set_up(PostgresSaver, url)
        yield Scene(
            lambda **options: sealed_schema(url, **options),
            lambda: PostgresRows(url, writable=True),
            lambda: psycopg.connect(url),
            store,
            ("checkpoints", "checkpoint_blobs"),
            "checkpoint_writes",
        )


def named(failures: list[Failure]) -> list[tuple[str, str]]:
    return [(type(failure.error).__name__, failure.place["checkpoint_id"]) for failure in failures]


# --- what is found --------------------------------------------------------------------------------


def test_an_earlier_state_is_named(scene: Scene) -> None:
    scene.put("t", "1")
    scene.keep()
    scene.put("t", "1", step=5)
    assert scene.compare()[0] == []
    scene.put_back()
    failures, check = scene.compare()
    assert named(failures) == [("RolledBackError", "1")]
    assert "earlier state" in str(failures[0].error)
    assert check.found == {Difference.EARLIER: 1}


def test_a_row_beside_another_store_is_named(scene: Scene) -> None:
    scene.put("t", "1")
    scene.store, first = MemoryThreadStore(), scene.store
    scene.put("u", "1")
    failures, check = scene.compare()
    assert named(failures) == [("WrongThreadStoreError", "1")]
    assert failures[0].place["thread_id"] == "t"
    assert (check.found, check.not_recorded) == ({Difference.OTHER_STORE: 1}, 1)
    scene.store.adopt([], first.identities, 0, "moved")
    assert scene.compare()[0] == []


@pytest.mark.parametrize("checkpoint_id", ["1", "2"], ids=["newer content", "new row"])
def test_what_has_no_head_is_counted(scene: Scene, checkpoint_id: str) -> None:
    scene.put("t", "1")
    with scene.saver() as saver:
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(config, make(checkpoint_id), {"step": 9}, {})
    failures, check = scene.compare()
    assert (failures, check.recorded, check.not_recorded, [*check.reasons()]) == ([], 1, 1, [])


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("deleted", [False, True])
def test_a_row_that_does_not_open_is_there(scene: Scene, deleted: bool) -> None:
    """It is not missing; and if it was deleted, it was put back."""
    scene.put("t", "1")
    if deleted:
        scene.store.delete_thread("t")
    scene.sql(scene.damage)
    failures, check = scene.compare()
    assert len(failures) == 1 + deleted
    assert not isinstance(failures[0].error, RolledBackError | DeletedCheckpointError)
    assert (+check.found, check.not_recorded) == ({Difference.PUT_BACK: 1} if deleted else {}, 0)


@pytest.mark.parametrize("thread_id", ["\x1b[2J" + "x" * 3000, "'; DROP TABLE checkpoints; --\U0010ffff"])
def test_hostile_ids(scene: Scene, thread_id: str) -> None:
    scene.put(thread_id, "1", "2")
    assert scene.compare()[0] == []
    scene.sql("DELETE FROM checkpoints WHERE checkpoint_id = '1'")
    (failure,), _ = scene.compare()
    assert failure.place["thread_id"] == thread_id
    assert str(failure.error).isprintable()


def test_differences_are_looked_at_again_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "MAX_SUSPECTS", 2)
    monkeypatch.setattr(heads_module, "FIND", 1)
    scene.put("t", *"12345")
    scene.sql("DELETE FROM checkpoints WHERE checkpoint_id > '2'")
    assert [found for _, found in named(scene.compare()[0])] == ["3", "4", "5"]


# --- agents at the same time ----------------------------------------------------------------------


class Meanwhile:
    """A store beside which something happens when its heads are read."""

    def __init__(self, inner: MemoryThreadStore, happens: Callable[[], object]) -> None:
        self._inner, self._happens = inner, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def heads(self) -> Iterator[Head]:
        self._happens()
        return self._inner.heads()


@pytest.mark.parametrize(
    ("happens", "recorded"),
    [
        (lambda scene: scene.put("t", "2", "3"), 3),
        (lambda scene: scene.put("t", "1", step=5), 1),
        (lambda scene: scene.delete("t"), 1),
    ],
    ids=["stored", "stored again", "deleted"],
)
def test_what_agents_change_meanwhile_is_no_finding(
    scene: Scene, happens: Callable[[Scene], None], recorded: int
) -> None:
    scene.put("t", "1")
    failures, check = scene.compare(store=Meanwhile(scene.store, lambda: happens(scene)))
    assert (failures, +check.found, check.recorded, check.not_recorded) == ([], {}, recorded, 0)


def test_a_deletion_that_ends_while_it_is_looked_at_is_no_finding(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heads of a thread are deleted before its rows."""
    scene.put("t", "1")
    scene.store.delete_thread("t")
    monkeypatch.setattr("sealpoint.admin.maintenance.heads.time.sleep", lambda _: scene.delete("t"))
    failures, check = scene.compare()
    assert (failures, +check.found) == ([], {})


def test_a_head_that_changes_each_time_is_a_finding(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is passed by that was not seen to be there."""
    scene.put("t", "1")
    (head,) = scene.store.heads()
    scene.sql("DELETE FROM checkpoints")
    numbers = iter(range(100))
    find = CheckpointRows.find

    def change(self: CheckpointRows, wanted: Any) -> dict[Spot, bytes]:
        scene.store.append([head._replace(mac=next(numbers).to_bytes(16))])
        return find(self, wanted)

    monkeypatch.setattr(CheckpointRows, "find", change)
    failures, check = scene.compare()
    assert [type(failed.error) for failed in failures] == [RolledBackError]
    assert +check.found == {Difference.MISSING: 1}


# --- special writes -------------------------------------------------------------------------------

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}


def answer(scene: Scene, *answers: Any) -> list[list[Any]]:
    """Store a checkpoint with an error, and the answers of a task one by one; return the rows of each."""
    scene.put("t", "1")
    kept = []
    with scene.saver(threads=scene.store) as saver:
        saver.put_writes(CONFIG, [("__error__", "failed")], "fails")
        for given in answers:
            saver.put_writes(CONFIG, [("__resume__", given)], "asks")
            kept.append(rows_of(scene, "__resume__"))
    assert scene.compare()[0] == []
    return kept


def rows_of(scene: Scene, channel: str) -> list[Any]:
    with closing(scene.connect()) as connection:
        found = connection.execute(f"SELECT * FROM {scene.writes} WHERE channel = '{channel}'")
        return [tuple(row) for row in found.fetchall()]


def replace_rows(scene: Scene, channel: str, rows: list[Any]) -> None:
    mark = "?" if scene.writes == "writes" else "%s"
    with closing(scene.connect()) as connection:
        connection.execute(f"DELETE FROM {scene.writes} WHERE channel = '{channel}'")
        for row in rows:
            connection.execute(f"INSERT INTO {scene.writes} VALUES ({', '.join([mark] * len(row))})", row)
        connection.commit()


@pytest.mark.claim("h16")
def test_a_special_write_that_was_not_recorded(scene: Scene) -> None:
    """Its process ended before: it is newer than the last event."""
    answer(scene, "yes")
    with scene.saver() as saver:
        saver.put_writes(CONFIG, [("__resume__", "no")], "asks")
    assert scene.compare()[0] == []
    scene.sql("DELETE FROM checkpoints", f"DELETE FROM {scene.writes}")
    assert [type(each.error) for each in scene.compare()[0]] == [RolledBackError]  # one finding is enough


@pytest.mark.claim("h1")
def test_a_parent_set_to_null(scene: Scene) -> None:
    """As pruning does it, but the parent was not deleted. Savers refuse it, and so does `adopt`."""
    scene.put("t", "1", "2")
    scene.sql("UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE checkpoint_id = '2'")
    failures, check = scene.compare()
    assert named(failures) == [("ParentLostError", "2")]
    assert (check.found, [*check.reasons()]) == ({Difference.EARLIER: 1}, [Reason.HEADS_DIFFER])
    with closing(scene.rows()) as database:
        rows = CheckpointRows(database, cipher_of())
        run = Verification(database, cipher_of(), observer=Adoption(rows), columns=rows.with_writes)
        failures = [event for event in run.events() if isinstance(event, Failure)]
    assert named(failures) == [("ParentLostError", "2")]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_parent_that_was_pruned(scene: Scene, is_recorded: bool) -> None:
    scene.put("t", "1", "2")
    scene.sql(
        "UPDATE checkpoints SET parent_checkpoint_id = NULL",
        "DELETE FROM checkpoints WHERE checkpoint_id = '1'",
    )
    assert {*named(scene.compare()[0])} == {("RolledBackError", "1"), ("ParentLostError", "2")}
    if is_recorded:
        scene.store.append([Head(Spot("t", "", "1"), Kind.DELETED, b"")])
    else:
        adopt(scene)
    assert scene.compare()[0] == []


def adopt(scene: Scene) -> None:
    cipher = cipher_of()
    with closing(scene.rows()) as database:
        rows = CheckpointRows(database, cipher)
        adoption = Adoption(rows)
        run = Verification(database, cipher, observer=adoption, columns=rows.with_writes)
        assert not [event for event in run.events() if isinstance(event, Failure)]
        adoption.compare(scene.store)
        adoption.carry_out(scene.store, "restored")


def test_special_writes_adopted(scene: Scene) -> None:
    """What is there is the last one then; what was the last one before is an earlier one."""
    first, second = answer(scene, "yes", "no")
    for rows in (first, [], second):
        before = rows_of(scene, "__resume__")
        replace_rows(scene, "__resume__", rows)
        assert scene.compare()[0]
        adopt(scene)
        assert scene.compare()[0] == []
        replace_rows(scene, "__resume__", before)
        assert [*map(type, (each.error for each in scene.compare()[0]))] == [
            EarlierWriteError if before else WritesLostError
        ]
        replace_rows(scene, "__resume__", rows)
    last = scene.store.last_special()
    adopt(scene)
    assert scene.store.last_special() == last
    scene.store = MemoryThreadStore()  # which knows nothing yet
    adopt(scene)
    replace_rows(scene, "__resume__", [])
    assert [type(each.error) for each in scene.compare()[0]] == [WritesLostError]
