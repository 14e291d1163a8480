"""SealedSaver beside a thread store, and a database that changes or lies between any two statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.errors import RolledBackError, RowError
from sealpoint.langgraph import SqliteSaver
from sealpoint.seal.heads import Kind
from sealpoint.seal.tokens import PSEUDONYM
from sealpoint.threads.store import REPLACED
from tests.unit.sealed.test_heads import STEPS, THREAD, Killed, Scene, at, die, fill, latest, numbers, put

Edit = Callable[[list[Any]], list[Any]]
ALL: Final[Any] = {"configurable": {"thread_id": THREAD}}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield Scene(connection, SqliteSaver)


def id_of(found: Any) -> str:
    return str(found.config["configurable"]["checkpoint_id"])


def answers(scene: Scene, *edits: Edit) -> None:
    """Have the database change its first answers to ``list``; the last edit changes all later ones."""
    inner, left = scene.saver.inner, [*edits]
    honest = inner.list

    def answer(*arguments: Any, **options: Any) -> Iterator[Any]:
        edit = left.pop(0) if len(left) > 1 else left[0]
        return iter(edit([*honest(*arguments, **options)]))

    inner.list = answer


def same(found: list[Any]) -> list[Any]:
    return found


def without(*ids: str) -> Edit:
    return lambda found: [item for item in found if id_of(item) not in ids]


def backwards(found: list[Any]) -> list[Any]:
    return found[::-1]


# --- listings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"limit": 3}, {"filter": {"step": 4}, "limit": 1}])
def test_a_row_that_is_hidden_for_one_statement_is_listed(scene: Scene, options: Any) -> None:
    """It was there before the listing began: it must not be taken for one that was stored since."""
    ids = fill(scene.saver)
    want = numbers(scene.saver, **options)
    answers(scene, without(ids[4]), same)
    assert numbers(scene.saver, **options) == want


def test_a_row_that_is_hidden_is_missed_whatever_the_second_answer_is(scene: Scene) -> None:
    """A page that ends at a greater id shows nothing about the rows below it."""
    ids = fill(scene.saver, count=20)
    hidden = without(ids[15])
    answers(scene, hidden, lambda found: [*hidden(found), found[0]], hidden)
    with pytest.raises((RolledBackError, RowError)):
        numbers(scene.saver)


@pytest.mark.parametrize(
    ("options", "want"), [({"limit": 2}, [5, 4]), ({"limit": 1, "filter": {"source": "loop"}}, [5])]
)
def test_the_latest_are_listed_first_whatever_the_order(scene: Scene, options: Any, want: list[int]) -> None:
    fill(scene.saver)
    answers(scene, backwards)
    assert numbers(scene.saver, **options) == want
    assert numbers(scene.saver, ALL, **options) == want


def test_rows_of_an_earlier_page_take_no_place_of_others(scene: Scene) -> None:
    fill(scene.saver, count=70)
    first: list[Any] = []

    def remember(found: list[Any]) -> list[Any]:
        first.extend(found)
        return found

    answers(scene, remember, same, lambda found: [*first[:10], *found])
    assert numbers(scene.saver, limit=60) == [*range(69, 9, -1)]


def test_the_latest_beside_a_deleted_one_that_was_put_back(scene: Scene) -> None:
    fill(scene.saver)
    rows = scene.rows()
    scene.saver.delete_for_runs([f"run {STEPS - 1}"])
    scene.restore(rows)
    answers(scene, same, backwards)
    assert latest(scene.saver) == STEPS - 2


# --- the row of another namespace ----------------------------------------------------------------------


def test_a_config_without_a_namespace_names_the_root(scene: Scene) -> None:
    """An authentic checkpoint of a subgraph is not the latest of its thread."""
    fill(scene.saver, ns="child")
    fill(scene.saver)
    honest = scene.saver.inner.get_tuple
    scene.saver.inner.get_tuple = lambda config: honest(at(ns="child"))
    for read in (
        lambda: scene.saver.get_tuple(ALL),
        lambda: scene.saver.get_delta_channel_history(config=ALL, channels=["x"]),
    ):
        with pytest.raises(RowError, match="another checkpoint"):
            read()


# --- pseudonyms ----------------------------------------------------------------------------------------


def test_a_row_under_the_pseudonym_does_not_hide_a_thread(scene: Scene) -> None:
    """A thread that has its own id in the database; the row need not even open."""
    put(scene.wrap(pseudonyms=True, threads=None), 0)
    ((pseudonym, *_),) = scene.rows()
    scene.restore([])
    fill(scene.saver)
    saver = scene.wrap(pseudonyms=True)
    row = scene.rows()[0]
    scene.restore([*scene.rows(), (pseudonym, *row[1:])])
    assert latest(saver) == STEPS - 1
    scene.connection.execute("DELETE FROM checkpoints WHERE thread_id = ?", [pseudonym])
    scene.connection.commit()
    assert latest(saver) == STEPS - 1


def test_a_pseudonym_is_no_id(scene: Scene) -> None:
    """A caller who knows the pseudonym of another's thread neither writes nor deletes it."""
    saver = scene.wrap(pseudonyms=True)
    fill(saver)
    (pseudonym,) = {row[0] for row in scene.rows()}
    assert PSEUDONYM.match(pseudonym)
    put(saver, 9, at(thread=pseudonym))
    saver.delete_thread(pseudonym)
    assert numbers(saver) == [*reversed(range(STEPS))]
    assert saver.get_tuple(at(thread=pseudonym)) is None


# --- deleting ------------------------------------------------------------------------------------------


def test_a_run_is_deleted_with_its_own_checkpoints_only(scene: Scene) -> None:
    """The database names others too, and drops them: that is not taken for the deletion."""
    ids = fill(scene.saver)
    honest = scene.saver.inner.list
    scene.saver.inner.list = lambda config, **options: honest(at())
    scene.then("delete_for_runs", lambda: scene.drop(ids[-1]))
    scene.saver.delete_for_runs(["run 0"])
    scene.saver.inner.list = honest
    with pytest.raises(RolledBackError) as caught:
        scene.saver.get_tuple(at())
    assert caught.value.want == ids[-1]


def test_an_interrupted_deletion_of_runs_is_no_rollback(scene: Scene) -> None:
    ids = fill(scene.saver)
    scene.then("delete_for_runs", die)
    with pytest.raises(Killed):
        scene.saver.delete_for_runs(["run 2"])
    assert numbers(scene.wrap()) == [5, 4, 3, 1, 0]
    assert scene.wrap().get_tuple(at(ids[2])) is None


def test_a_deleted_run_that_is_put_back_at_once_is_absent(scene: Scene) -> None:
    ids = fill(scene.saver)
    rows = scene.rows()
    scene.then("delete_for_runs", lambda: scene.restore(rows))
    scene.saver.delete_for_runs([f"run {STEPS - 1}"])
    assert latest(scene.saver) == STEPS - 2
    assert scene.saver.get_tuple(at(ids[-1])) is None


def test_a_thread_that_is_put_back_while_it_is_pruned_away_is_absent(scene: Scene) -> None:
    fill(scene.saver)
    rows = scene.rows()
    scene.then("prune", lambda: scene.restore(rows))
    scene.saver.prune([THREAD], strategy="delete")
    assert scene.saver.get_tuple(at()) is None
    assert numbers(scene.saver) == []


def test_prune_does_not_record_the_latest_as_deleted(scene: Scene) -> None:
    """It is to keep the latest: the database drops that, and keeps an earlier one."""
    ids = fill(scene.saver)
    scene.saver.inner.prune = lambda *_, **__: scene.drop(*ids[1:])
    with pytest.raises(RolledBackError) as caught:
        scene.saver.prune([THREAD])
    assert caught.value.want == ids[-1]
    with pytest.raises(RolledBackError):
        scene.saver.get_tuple(at())
    assert {head.spot.checkpoint_id for head in scene.store.heads() if head.kind is Kind.PUT} >= {ids[-1]}


@pytest.mark.claim("h18")
def test_the_latest_is_missed_after_an_interrupted_prune(scene: Scene) -> None:
    """Others may have gone, and are read as absent."""
    ids = fill(scene.saver)
    scene.saver.inner.prune = die
    with pytest.raises(Killed):
        scene.saver.prune([THREAD])
    scene.drop(ids[1])
    assert scene.saver.get_tuple(at(ids[1])) is None
    assert numbers(scene.saver) == [5, 4, 3, 2, 0]
    scene.drop(ids[-1])
    with pytest.raises(RolledBackError):
        scene.saver.get_tuple(at())


def test_a_put_beside_a_prune_is_no_rollback(scene: Scene) -> None:
    """What was the latest when the prune began is pruned then, and may be missing before that is recorded."""
    ids = fill(scene.saver)
    prune = scene.saver.inner.prune
    seen: list[Any] = []

    def pruned(*arguments: Any, **options: Any) -> None:
        put(scene.wrap(), STEPS, at(ids[-1]))
        prune(*arguments, **options)
        scene.connection.execute(
            "UPDATE checkpoints SET parent_checkpoint_id = NULL"
        )  # as PostgresSaver does
        scene.connection.commit()
        seen.append(numbers(scene.wrap()))
        seen.append(scene.wrap().get_tuple(at(ids[-1])))
        seen.append(latest(scene.wrap()))

    scene.saver.inner.prune = pruned
    scene.saver.prune([THREAD])
    assert seen == [[STEPS], None, STEPS]
    assert numbers(scene.saver) == [STEPS]
    kinds = [head.kind for head in scene.store.heads()]
    assert sorted(kinds) == [Kind.PUT] + [Kind.DELETED] * STEPS


def test_a_deleted_row_that_is_put_back_is_no_later_one(scene: Scene) -> None:
    """After an interrupted prune the latest of then may be missing only if another has followed."""
    fill(scene.saver)
    rows = scene.rows()
    scene.saver.delete_for_runs([f"run {STEPS - 1}"])
    honest = scene.saver.inner.prune
    scene.saver.inner.prune = die
    with pytest.raises(Killed):
        scene.saver.prune([THREAD])
    scene.saver.inner.prune = honest
    scene.restore([rows[0], rows[-1]])
    for read in (lambda: numbers(scene.saver), lambda: latest(scene.saver)):
        with pytest.raises(RolledBackError):
            read()


# --- limits; docs/claims.md lists them --------------------------------------------------------------------


def test_more_contents_of_one_checkpoint_than_are_remembered(scene: Scene) -> None:
    """The first of them is taken for new."""
    checkpoint_id = put(scene.saver, 0)["configurable"]["checkpoint_id"]
    first = scene.rows()
    for number in range(1, REPLACED + 2):
        put(scene.saver, number, checkpoint_id=checkpoint_id)
    scene.restore(first)
    assert latest(scene.saver) == 0


@pytest.mark.claim("h19")
def test_a_namespace_of_a_subgraph_dropped_while_its_thread_is_pruned(scene: Scene) -> None:
    """Some savers delete it themselves: only the latest of the root must be kept."""
    fill(scene.saver)
    ids = fill(scene.saver, ns="child")
    scene.then("prune", lambda: scene.drop(*ids))
    scene.saver.prune([THREAD])
    assert scene.saver.get_tuple(at(ns="child")) is None
    assert latest(scene.saver) == STEPS - 1


@pytest.mark.claim("h17")
def test_a_row_put_back_while_its_thread_is_pruned(scene: Scene) -> None:
    """Savers keep more than the latest for delta channels, so it counts as kept. The latest is the same."""
    fill(scene.saver)
    rows = scene.rows()
    scene.then("prune", lambda: scene.restore(rows))
    scene.saver.prune([THREAD])
    assert numbers(scene.saver) == [*reversed(range(STEPS))]


# --- nothing is wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Theirs, SqliteSaver])
def test_listings_of_one_checkpoint_before_another(kind: Any) -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        scene = Scene(connection, kind)
        ids = fill(scene.saver)
        alone = scene.wrap(threads=None)
        for config in (at(ids[2]), at(ids[2] + "\0"), at("none")):
            for before in (ids[0], ids[2], ids[4]):
                options: Any = {"before": at(before)}
                assert numbers(scene.saver, config, **options) == numbers(alone, config, **options)
        if kind is Theirs:  # ours refuses it
            assert numbers(scene.saver, limit=-1) == numbers(alone, limit=-1)


def test_a_put_beside_the_deletion_of_its_thread(scene: Scene) -> None:
    """It is deleted too, and leaves no row that looks as if it had been put back."""
    fill(scene.saver)
    deleted = scene.saver.inner.delete_thread

    def delete(thread_id: str) -> None:
        deleted(thread_id)
        if not scene.rows():
            scene.saver.inner.delete_thread = deleted
            put(scene.wrap(), STEPS)

    scene.saver.inner.delete_thread = delete
    scene.saver.delete_thread(THREAD)
    assert scene.saver.get_tuple(at()) is None
    assert scene.rows() == []
