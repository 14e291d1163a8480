"""Pseudonyms in two processes: one of them deletes a thread from before pseudonyms, and begins it anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.langgraph import SealedSaver
from sealpoint.seal.tokens import PSEUDONYM
from sealpoint.threads.sqlite import MemoryThreadStore
from tests.graphs.savers import SEALED
from tests.sealed.savers import BARE, SAVERS, Open, Sync
from tests.sealed.scene import at

NAMES: Final = [name for name in SAVERS if "pool" not in name and "pipeline" not in name]
PRUNING: Final = [name for name in NAMES if "Postgres" in name or "LangGraph" not in name]
DELETES: Final[dict[str, Callable[[Any], object]]] = {
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "prune": lambda saver: saver.prune(["t"], strategy="delete"),
}
WAYS: Final = [
    pytest.param(name, how, id=f"{name}-{how}")
    for name in NAMES
    for how in DELETES
    if how == "delete_thread" or name in PRUNING
]


@pytest.fixture(params=[False, True], ids=["alone", "thread store"])
def process(request: pytest.FixtureRequest, open_: Open) -> Callable[..., Any]:
    """Opens savers on one database, each with the memory of a process of its own."""
    made: dict[str, tuple[Sync, Any]] = {}

    def process(name: str, **options: Any) -> Any:
        if name not in made:
            made[name] = open_(name, BARE), MemoryThreadStore() if request.param else None
        bare, threads = made[name]
        saver: Any = SealedSaver(bare.saver, serde=SEALED, threads=threads, **options)
        return Sync(saver, bare.runner, awaited=bare.awaited)

    return process


def put(saver: Any, id_: str, parent: str | None = None) -> Any:
    return saver.put(at("t", "", parent), {**empty_checkpoint(), "id": id_}, {"step": 1}, {})


def ids(saver: Any) -> list[str]:
    return [found.config["configurable"]["checkpoint_id"] for found in saver.list(at("t"))]


def columns(saver: Any) -> set[str]:
    """What stands for threads in the database."""
    inner = Sync(saver.saver.inner, saver.runner, awaited=saver.awaited)
    return {found.config["configurable"]["thread_id"] for found in inner.list(None)}


@pytest.mark.parametrize(("name", "how"), WAYS)
def test_a_thread_that_another_process_begins_anew_has_one_history(
    process: Callable[..., Any], name: str, how: str
) -> None:
    put(process(name), "1")
    one, other = (process(name, pseudonyms=True) for _ in range(2))
    assert ids(one) == ids(other) == ["1"]
    DELETES[how](one)
    put(one, "2")
    assert other.get_tuple(at("t")).checkpoint["id"] == "2"
    assert ids(other) == ["2"]
    put(other, "3", "2")
    other.put_writes(at("t", "", "3"), [("a", 1)], "task")
    for saver in (one, other, process(name, pseudonyms=True)):
        assert ids(saver) == ["3", "2"]
        assert saver.get_tuple(at("t")).pending_writes == [("task", "a", 1)]
    (column,) = columns(one)
    assert PSEUDONYM.match(column)


@pytest.mark.parametrize("deletes", ["one", "other"])
@pytest.mark.parametrize(("name", "how"), WAYS)
def test_a_deleted_thread_is_begun_anew_under_a_pseudonym(
    process: Callable[..., Any], name: str, how: str, deletes: str
) -> None:
    """By a process that remembers the readable id: it has deleted the thread itself, or another has."""
    put(process(name), "1")
    one, other = (process(name, pseudonyms=True) for _ in range(2))
    assert ids(one) == ids(other) == ["1"]
    DELETES[how](one if deletes == "one" else other)
    assert one.get_tuple(at("t")) is None
    put(one, "2")
    (column,) = columns(one)
    assert PSEUDONYM.match(column)
    assert ids(other) == ["2"]


@pytest.mark.parametrize(("name", "how"), WAYS)
def test_a_deletion_removes_both_histories(process: Callable[..., Any], name: str, how: str) -> None:
    """Else the one that a process without pseudonyms began would come back with the deletion of the other."""
    saver, without = process(name, pseudonyms=True), process(name)
    put(saver, "1")
    put(without, "2")
    assert len(columns(saver)) == 2
    DELETES[how](saver)
    assert not columns(saver)
    assert saver.get_tuple(at("t")) is None


@pytest.mark.parametrize(("name", "how"), WAYS)
def test_a_deletion_removes_writes_without_a_checkpoint(
    process: Callable[..., Any], name: str, how: str
) -> None:
    """Of a process that did not know yet that the thread was deleted."""
    put(process(name), "1")
    late = process(name)
    saver = process(name, pseudonyms=True)
    DELETES[how](saver)
    late.put_writes(at("t", "", "1"), [("a", 1)], "task")
    DELETES[how](saver)
    put(process(name), "1")
    assert process(name).get_tuple(at("t")).pending_writes == []


@pytest.mark.parametrize("name", [name for name in NAMES if "Async" in name])
def test_what_is_stored_while_a_history_begins_anew_goes_under_its_id(
    process: Callable[..., Any], name: str
) -> None:
    """By a process that remembers the readable id: LangGraph stores writes beside the checkpoint."""
    put(process(name), "1")
    one, other = (process(name, pseudonyms=True) for _ in range(2))
    assert ids(one) == ids(other) == ["1"]
    one.delete_thread("t")

    async def both() -> None:
        checkpoint: Any = {**empty_checkpoint(), "id": "2"}
        await asyncio.gather(
            other.saver.aput(at("t"), checkpoint, {"step": 1}, {}),
            other.saver.aput_writes(at("t", "", "2"), [("a", 1)], "task"),
        )

    other.runner.run(both())
    for saver in (one, other):
        assert saver.get_tuple(at("t")).pending_writes == [("task", "a", 1)]


@pytest.mark.parametrize("name", NAMES)
def test_a_thread_of_before_goes_on_under_its_id(process: Callable[..., Any], name: str) -> None:
    put(process(name), "1")
    one, other = (process(name, pseudonyms=True) for _ in range(2))
    for number, saver in enumerate([one, other, one]):
        put(saver, str(number + 2), str(number + 1))
    assert ids(one) == ids(other) == ["4", "3", "2", "1"]
    assert columns(one) == {"t"}
