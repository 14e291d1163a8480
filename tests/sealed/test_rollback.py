"""Beside a thread store, rows that are deleted, put back, or replaced by older ones are noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.errors import RolledBackError, RowError, SealpointError, WritesLostError
from sealpoint.langgraph import SealedSaver, SqliteSaver
from tests.graphs.savers import SEALED
from tests.sealed.moves import found, of
from tests.sealed.raw import KEYS, Raw, Row
from tests.sealed.reading import content, delta
from tests.sealed.savers import HEADS
from tests.sealed.scene import (
    ALICE,
    BOB,
    C1,
    C2,
    C3,
    CHILD,
    DELTA,
    LENGTHS,
    PLACES,
    ROOT,
    Place,
    at,
    checkpoint_id,
    put_one,
)
from tests.sealed.scenes import DATABASES, Scene, postgres_scene, sqlite_scene
from tests.support.databases.threads import thread_store
from tests.support.servers.postgres import schema, server

LAST: Final = Place(ALICE, ROOT, C3)
CHECKPOINTS: Final = sum(LENGTHS.values())
OF_BOB: Final = LENGTHS[BOB, ROOT]
Read = Callable[[Any], Any]


@pytest.fixture(params=DATABASES)
def scene(request: pytest.FixtureRequest, scenes: Any) -> Iterator[Scene]:
    """A filled database, which is as before afterwards: for what only an attacker changes."""
    scene = scenes(request.param, HEADS)
    with scene.raw.undone():
        yield scene


@pytest.fixture(params=DATABASES)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A filled database of the test's own: for what the saver changes too, and the store remembers."""
    with ExitStack() as stack:
        yield stack.enter_context(
            sqlite_scene(tmp_path / "x.db", HEADS)
            if request.param == "sqlite"
            else postgres_scene(stack.enter_context(schema(server(request.config))), HEADS)
        )


def delete(db: Raw, table: str, where: Row) -> None:
    for row in found(db, table, where):
        db.delete(table, row)


def rows_of(db: Raw, thread: str) -> dict[str, list[Row]]:
    return {table: db.rows(table, thread_id=thread) for table in KEYS if table in db.tables}


def put_back(db: Raw, rows: dict[str, list[Row]]) -> None:
    for table, each in rows.items():
        for row in each:
            db.put(table, row)


def ids(saver: Any, config: Any, **named: Any) -> list[str]:
    return [each.config["configurable"]["checkpoint_id"] for each in saver.list(config, **named)]


LISTINGS: Final[dict[str, Read]] = {
    "list": lambda saver: ids(saver, at(ALICE)),
    "list of all namespaces": lambda saver: ids(saver, at(ALICE, None)),
    "list with a filter": lambda saver: ids(saver, at(ALICE), filter={"source": "input"}),
    "copy": lambda saver: saver.copy_thread(ALICE, "copy"),
}


def refused(scene: Scene, reads: dict[str, Read], want: str) -> None:
    """Check that each read names the checkpoint that the store remembers."""
    for how, read in reads.items():
        with pytest.raises(RolledBackError) as caught:
            read(scene.saver())
        assert (caught.value.thread_id, caught.value.want) == (ALICE, want), how


@pytest.mark.claim("h2")
def test_the_newest_checkpoint_deleted(scene: Scene) -> None:
    delete(scene.raw, "checkpoints", of(ALICE, ROOT, C3))
    one: dict[str, Read] = {
        "latest": lambda saver: saver.get_tuple(at(ALICE)),
        "by id": lambda saver: saver.get_tuple(LAST.config),
        "list by id": lambda saver: ids(saver, LAST.config),
        "the first of a list": lambda saver: ids(saver, at(ALICE), limit=1),
        "delta history": lambda saver: delta(saver, LAST),
    }
    refused(scene, LISTINGS | one, C3)
    assert content(scene.saver().get_tuple(at(BOB))) == scene.truth.tuples[Place(BOB, ROOT, C3)]


@pytest.mark.claim("h3")
def test_an_inner_checkpoint_deleted(scene: Scene) -> None:
    delete(scene.raw, "checkpoints", of(ALICE, ROOT, C2))
    refused(scene, LISTINGS | {"delta history": lambda saver: delta(saver, LAST)}, C2)
    assert content(scene.saver().get_tuple(at(ALICE))) == scene.truth.tuples[LAST]


@pytest.mark.claim("h4")
def test_a_thread_deleted(scene: Scene) -> None:
    for table in rows_of(scene.raw, scene.raw.threads[ALICE]):
        delete(scene.raw, table, {"thread_id": ALICE})
    refused(scene, {"latest": lambda saver: saver.get_tuple(at(ALICE)), "list": LISTINGS["list"]}, C3)
    assert len(ids(scene.saver(), at(BOB))) == OF_BOB


def test_a_namespace_deleted(scene: Scene) -> None:
    delete(scene.raw, "checkpoints", of(ALICE, CHILD))
    with pytest.raises(RolledBackError):
        scene.saver().get_tuple(at(ALICE, CHILD))
    with pytest.raises(RolledBackError):
        ids(scene.saver(), at(ALICE, None))
    assert content(scene.saver().get_tuple(at(ALICE))) == scene.truth.tuples[LAST]


@pytest.mark.claim("h1")
def test_the_parent_set_to_null(scene: Scene) -> None:
    """As pruning does it, but the parent was not deleted: delta histories would end there."""
    row = scene.raw.row(
        "checkpoints", thread_id=scene.raw.threads[ALICE], checkpoint_ns=ROOT, checkpoint_id=C3
    )
    scene.raw.put("checkpoints", {**row, "parent_checkpoint_id": None})
    reads: list[Read] = [
        lambda saver: saver.get_tuple(at(ALICE)),
        lambda saver: saver.get_tuple(LAST.config),
        lambda saver: delta(saver, LAST),
        lambda saver: ids(saver, None),
        *LISTINGS.values(),
    ]
    for read in reads:
        with pytest.raises(RowError, match="lost its parent"):
            read(scene.saver())


@pytest.mark.claim("h8")
def test_special_writes_deleted(scene: Scene) -> None:
    """The store remembers that there must be some; of results it does not."""
    for gone in (of(ALICE, ROOT, C3), of(ALICE, ROOT, C3, task_id="task-2")):
        with scene.raw.undone():
            delete(scene.raw, "writes", gone)
            for read in (
                lambda: scene.saver().get_tuple(at(ALICE)),
                lambda: scene.saver().get_tuple(LAST.config),
                lambda: ids(scene.saver(), at(ALICE)),
                lambda: ids(scene.saver(), None),
            ):
                with pytest.raises(WritesLostError):
                    read()


def test_a_result_at_the_tip_is_not_covered(scene: Scene) -> None:
    """Without all of it a node runs again; docs/threat-model.md says so."""
    delete(scene.raw, "writes", of(ALICE, ROOT, C3, task_id="task-1"))
    read = content(scene.saver().get_tuple(at(ALICE)))
    assert len(read["writes"]) == len(scene.truth.tuples[LAST]["writes"]) - 3


def test_an_older_value_of_the_same_row(own: Scene) -> None:
    """A checkpoint that was put again under its id, and then the first content put back."""
    before = rows_of(own.raw, own.raw.threads[ALICE])["checkpoints"]
    put_one(own.saver(), LAST, 3, "again")
    assert content(own.saver().get_tuple(at(ALICE)))["metadata"] != own.truth.tuples[LAST]["metadata"]
    put_back(own.raw, {"checkpoints": before})
    one: dict[str, Read] = {
        "latest": lambda saver: saver.get_tuple(at(ALICE)),
        "by id": lambda saver: saver.get_tuple(LAST.config),
        "all threads": lambda saver: ids(saver, None),
        "filter of all threads": lambda saver: ids(saver, None, filter={"step": 2}),
        "filter": lambda saver: ids(saver, at(ALICE), filter={"step": 2}),
        "delta history": lambda saver: delta(saver, LAST),
        "copy": LISTINGS["copy"],
    }
    refused(own, one, C3)
    for at_other in (at(BOB), at(ALICE, CHILD), at(ALICE, ROOT, C2)):
        assert own.saver().get_tuple(at_other) is not None


def test_an_older_value_of_an_ancestor(own: Scene) -> None:
    place = Place(ALICE, ROOT, C2)
    before = own.raw.row(
        "checkpoints", thread_id=own.raw.threads[ALICE], checkpoint_ns=ROOT, checkpoint_id=C2
    )
    put_one(own.saver(), place, 2, "again")
    delta(own.saver(), LAST)
    own.raw.put("checkpoints", before)
    refused(own, {"delta history": lambda saver: delta(saver, LAST), "list": LISTINGS["list"]}, C2)


def nothing_of_alice(saver: Any) -> None:
    """Check that no way of reading returns a checkpoint of the thread."""
    for place in PLACES:
        if place.thread == ALICE:
            assert saver.get_tuple(place.config) is None
            assert ids(saver, place.config) == []
            assert not any(history["writes"] or "seed" in history for history in delta(saver, place).values())
    for config in (at(ALICE), at(ALICE, CHILD)):
        assert saver.get_tuple(config) is None
        assert ids(saver, config) == ids(saver, config, limit=1) == []
        assert saver.get_delta_channel_history(config=config, channels=DELTA).keys() == {*DELTA}
    assert ids(saver, at(ALICE, None)) == ids(saver, None, filter={"user_id": "user alice"}) == []
    assert len(ids(saver, None)) == len(ids(saver, None, filter={"user_id": "user bob"})) == OF_BOB
    assert ids(saver, None, limit=1) == ids(saver, at(BOB), limit=1)


@pytest.mark.claim("h6")
def test_a_deleted_thread_put_back_counts_as_absent(own: Scene) -> None:
    """With its authentic bytes; and the thread can begin again."""
    before = rows_of(own.raw, own.raw.threads[ALICE])
    own.saver().delete_thread(ALICE)
    nothing_of_alice(own.saver())
    put_back(own.raw, before)
    nothing_of_alice(own.saver())
    put_one(own.saver(), Place(ALICE, ROOT, C2), 2, "anew")
    assert ids(own.saver(), at(ALICE)) == [C2]
    assert own.saver().get_tuple(at(ALICE)).config == at(ALICE, ROOT, C2)
    own.saver().copy_thread(ALICE, "copy")
    assert ids(own.saver(), at("copy")) == [C2]


def fill_without_delta(saver: Any) -> list[str]:
    """Store checkpoints of a thread that can be pruned, the latest first."""
    config = at("plain")
    for number in (1, 2, 3):
        checkpoint: Any = {**empty_checkpoint(), "id": checkpoint_id(number)}
        config = saver.put(config, checkpoint, {"step": number}, {})
    return [C3, C2, C1]


def test_a_pruned_checkpoint_put_back_counts_as_absent(pytestconfig: pytest.Config) -> None:
    """On Postgres: LangGraph's SqliteSaver does not prune, and ours has this test among those of heads."""
    with schema(server(pytestconfig)) as place, postgres_scene(place, HEADS) as own:
        assert ids(own.saver(), at("plain")) == []
        fill_without_delta(own.saver())
        before = rows_of(own.raw, "plain")
        own.saver().prune(["plain"])
        assert ids(own.saver(), at("plain")) == [C3]
        put_back(own.raw, {"checkpoints": before["checkpoints"]})
        assert ids(own.saver(), at("plain")) == [C3]
        assert own.saver().get_tuple(at("plain", ROOT, C1)) is None
        assert own.saver().get_tuple(at("plain")) is not None


def test_a_refused_prune_changes_nothing(pytestconfig: pytest.Config) -> None:
    """What is deleted afterwards is noticed as before."""
    with schema(server(pytestconfig)) as place, postgres_scene(place, HEADS) as own:
        with pytest.raises(NotImplementedError):
            own.saver().prune([ALICE])
        delete(own.raw, "checkpoints", of(ALICE, ROOT, C3))
        with pytest.raises(RolledBackError):
            own.saver().get_tuple(at(ALICE))


def test_a_refused_deletion_of_runs_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run_ids: Any) -> None:
        raise NotImplementedError

    path = str(tmp_path / "x.db")
    with SqliteSaver.from_conn_string(path) as inner, thread_store(path) as threads:
        saver = SealedSaver(inner, serde=SEALED, threads=threads, allow_shared_role=True)
        for number in (1, 2):
            checkpoint: Any = {**empty_checkpoint(), "id": checkpoint_id(number)}
            saver.put(at(ALICE), checkpoint, {"run_id": f"run {number}"}, {})
        monkeypatch.setattr(saver.inner, "delete_for_runs", refuse)
        with pytest.raises(NotImplementedError):
            saver.delete_for_runs(["run 1", "run 2"])
        inner.delete_for_runs(["run 2"])
        with pytest.raises(RolledBackError):
            saver.get_tuple(at(ALICE))


@pytest.mark.claim("h5")
def test_the_whole_database_put_back(own: Scene) -> None:
    """Both threads have gone on since."""
    before = {thread: rows_of(own.raw, own.raw.threads[thread]) for thread in (ALICE, BOB)}
    for thread in (ALICE, BOB):
        put_one(own.saver(), Place(thread, ROOT, "1f0c0000-0000-6000-8000-000000000004"), 4)
    for thread in (ALICE, BOB):
        for table in before[thread]:
            delete(own.raw, table, {"thread_id": thread})
        put_back(own.raw, before[thread])
        with pytest.raises(RolledBackError):
            own.saver().get_tuple(at(thread))
        with pytest.raises(RolledBackError):
            ids(own.saver(), at(thread))


def test_what_has_changed_its_place_is_refused_as_before(scene: Scene) -> None:
    """A store does not make an edited row acceptable."""
    row = scene.raw.row("checkpoints", thread_id=scene.raw.threads[BOB], checkpoint_ns=ROOT, checkpoint_id=C1)
    scene.raw.put("checkpoints", {**row, "thread_id": scene.raw.threads[ALICE]})
    with pytest.raises(SealpointError):
        ids(scene.saver(), at(ALICE))
