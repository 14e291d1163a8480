"""What no binding notices, and how much of it is seen nevertheless; docs/savers.md lists it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sealpoint.errors import RowError, SealpointError
from tests.sealed.moves import found, of
from tests.sealed.raw import KEYS, Raw, Row
from tests.sealed.reading import content, delta
from tests.sealed.scene import ALICE, BOB, C1, C2, C3, CHILD, ROOT, Place, at, put_one
from tests.sealed.scenes import DATABASES, Scene

LAST = Place(ALICE, ROOT, C3)


@pytest.fixture(params=DATABASES)
def scene(request: Any, scenes: Any) -> Iterator[Scene]:
    """A filled database, which is as before afterwards."""
    scene = scenes(request.param, "sealed")
    with scene.raw.undone():
        yield scene


def delete(db: Raw, table: str, where: Row) -> None:
    for row in found(db, table, where):
        db.delete(table, row)


def rows_of(db: Raw, thread: str) -> dict[str, list[Row]]:
    return {table: db.rows(table, thread_id=db.threads[thread]) for table in KEYS if table in db.tables}


@pytest.mark.claim("s8")
def test_the_newest_checkpoint_deleted(scene: Scene) -> None:
    """The one before it is the latest then."""
    delete(scene.raw, "checkpoints", of(ALICE, ROOT, C3))
    saver = scene.saver()
    assert content(saver.get_tuple(at(ALICE))) == scene.truth.tuples[Place(ALICE, ROOT, C2)]
    assert [each.config["configurable"]["checkpoint_id"] for each in saver.list(at(ALICE))] == [C2, C1]


@pytest.mark.claim("s9")
def test_an_inner_checkpoint_deleted(scene: Scene) -> None:
    """It is not listed, but a delta history that leads over it is refused."""
    delete(scene.raw, "checkpoints", of(ALICE, ROOT, C2))
    saver = scene.saver()
    assert [each.config["configurable"]["checkpoint_id"] for each in saver.list(at(ALICE))] == [C3, C1]
    assert content(saver.get_tuple(at(ALICE))) == scene.truth.tuples[LAST]
    with pytest.raises(RowError):
        delta(saver, LAST)


@pytest.mark.claim("s18")
def test_pending_writes_deleted(scene: Scene) -> None:
    """All of a checkpoint that has no child."""
    delete(scene.raw, "writes", of(ALICE, ROOT, C3))
    read = content(scene.saver().get_tuple(at(ALICE)))
    assert read == {**scene.truth.tuples[LAST], "writes": ["list"]}


@pytest.mark.claim("s14")
def test_one_task_deleted(scene: Scene) -> None:
    """The whole of what it has stored: as if it had not run."""
    delete(scene.raw, "writes", of(ALICE, ROOT, C3, task_id="task-1"))
    read = content(scene.saver().get_tuple(at(ALICE)))
    assert len(read["writes"]) == len(scene.truth.tuples[LAST]["writes"]) - 3


@pytest.mark.claim("s7")
def test_the_parent_set_to_null(scene: Scene) -> None:
    """As pruning does it: the checkpoint has no parent then, and delta histories end at it."""
    row = scene.raw.row(
        "checkpoints", thread_id=scene.raw.threads[ALICE], checkpoint_ns=ROOT, checkpoint_id=C3
    )
    scene.raw.put("checkpoints", {**row, "parent_checkpoint_id": None})
    saver = scene.saver()
    assert saver.get_tuple(at(ALICE)).parent_config is None
    assert not delta(saver, LAST)["log"]["writes"]


@pytest.mark.claim("s10")
def test_an_older_value_of_the_same_row(scene: Scene) -> None:
    """A checkpoint that is put again under its id, and then the first one put back."""
    before = rows_of(scene.raw, ALICE)
    put_one(scene.saver(), LAST, 3, "again")
    changed = scene.saver().get_tuple(at(ALICE))
    assert content(changed)["metadata"] != scene.truth.tuples[LAST]["metadata"]
    for row in before["checkpoints"]:
        scene.raw.put("checkpoints", row)
    assert content(scene.saver().get_tuple(at(ALICE)))["metadata"] == scene.truth.tuples[LAST]["metadata"]


@pytest.mark.claim("s11")
def test_a_deleted_thread_put_back(scene: Scene) -> None:
    before = rows_of(scene.raw, ALICE)
    scene.saver().delete_thread(ALICE)
    assert scene.saver().get_tuple(at(ALICE)) is None
    for table, rows in before.items():
        for row in rows:
            scene.raw.put(table, row)
    assert content(scene.saver().get_tuple(at(ALICE))) == scene.truth.tuples[LAST]


@pytest.mark.claim("s6")
def test_a_plain_key_edited_hides_a_row_from_a_search(scene: Scene) -> None:
    """A search finds less then. That the row was changed is noticed when it is read."""
    row = scene.raw.row(
        "checkpoints", thread_id=scene.raw.threads[ALICE], checkpoint_ns=ROOT, checkpoint_id=C3
    )
    scene.raw.put("checkpoints", {**row, "metadata": {**row["metadata"], "source": "fork"}})
    saver = scene.saver()
    looped = saver.list(at(ALICE), filter={"source": "loop"})
    assert [each.config["configurable"]["checkpoint_id"] for each in looped] == [C2]
    with pytest.raises(RowError):
        list(saver.list(at(ALICE), filter={"step": 2}))
    with pytest.raises(RowError):
        saver.get_tuple(at(ALICE))


@pytest.mark.claim("s25")
def test_one_refused_row_is_refused_in_a_listing_of_all_threads(scene: Scene) -> None:
    delete(scene.raw, "writes", of(BOB))
    row = scene.raw.row("checkpoints", thread_id=scene.raw.threads[BOB], checkpoint_ns=ROOT, checkpoint_id=C1)
    scene.raw.put("checkpoints", {**row, "checkpoint_id": C2})
    with pytest.raises(SealpointError):
        list(scene.saver().list(None))
    assert scene.saver().get_tuple(at(ALICE, CHILD)) is not None
