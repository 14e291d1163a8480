"""Two procedures beside a thread store, with their steps in every order: no false alarm.

A procedure is a generator of calls of the wrapped saver and of the store, each of which is atomic. So all
orders of the calls of two savers can be tried one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any, Final

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from sealpoint.base.saver import run
from sealpoint.errors import RolledBackError
from sealpoint.langgraph import SealedSaver, SqliteSaver
from sealpoint.sealed.reading import Listing, asking, get_tuple, histories
from sealpoint.sealed.steps import Steps, reply
from sealpoint.sealed.writing import copy_thread, delete_for_runs, delete_thread, prune, put
from sealpoint.threads import MemoryThreadStore
from tests.graphs.savers import SEALED

THREAD: Final = "t"
SOURCE: Final = "source"
DAILY: Final = 16
"""How many orders of a pair are tried every day, at most; in `make soak` all, or so many:"""
SOAK: Final = 5_000

Act = Callable[[SealedSaver], Steps[Any]]


def at(number: int | None = None, thread: str = THREAD) -> Any:
    named = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": named if number is None else {**named, "checkpoint_id": f"{number:04}"}}


def document(number: int, value: int) -> tuple[Any, Any, Any]:
    versions: Any = {"n": value + 1}
    checkpoint: Any = {
        **empty_checkpoint(),
        "id": f"{number:04}",
        "channel_values": {"n": value},
        "channel_versions": versions,
    }
    return checkpoint, {"step": number, "source": "loop", "run_id": f"run {number}"}, versions


# --- procedures ---------------------------------------------------------------------------------------


def of(procedure: Callable[..., Steps[Any]], *arguments: Any) -> Act:
    return lambda saver: procedure(saver._parts, *arguments)


def put_act(number: int, value: int) -> Act:
    return lambda saver: put(saver._parts, at(number - 1), *document(number, value))


def listing(parts: Any, config: Any, limit: int | None = None) -> Steps[Any]:
    listed = Listing(parts, (yield from asking(parts, config)), limit=limit)
    while listed.is_open:
        for row in (yield from listed.page()):
            yield from listed.take(row)


READERS: Final[dict[str, Act]] = {
    "latest": of(get_tuple, at()),
    "by id": of(get_tuple, at(3)),
    "list": of(listing, at()),
    "list, one": of(listing, at(), 1),
    "history": of(histories, at(2), ["n"]),
}
WRITERS: Final[dict[str, Act]] = {
    "put": put_act(4, 4),
    "put on a fork": put_act(2, 20),
    "put again": put_act(3, 30),
    "prune": of(prune, [THREAD], "keep_latest"),
    "delete runs": of(delete_for_runs, ["run 3", "run 1"]),
    "delete": of(delete_thread, THREAD),
    "copy": of(copy_thread, SOURCE, THREAD),
}


# --- orders -----------------------------------------------------------------------------------------


class Scene:
    """Two savers on one database, beside one store, as of two processes."""

    def __init__(self, inner: Any) -> None:
        store = MemoryThreadStore()
        self.savers = [SealedSaver(inner, serde=SEALED, threads=store) for _ in range(3)]
        for thread, number in product((THREAD, SOURCE), (1, 3)):
            self.savers[0].put(at(None, thread), *document(number, number))
        self.savers[0].put(at(1), *document(3, 3))

    def check(self) -> None:
        """Read all as a third process does."""
        [*self.savers[2].list(at())]
        self.savers[2].get_tuple(at())


def single(request: Any) -> Steps[Any]:
    return (yield request)


def play(one: Act, other: Act, order: list[int], again: Act | None = None) -> list[int]:
    """Do two procedures in an order: which has the next step, while both have one; the first by default.

    Returns:
        The order, as long as it was.
    """
    with SqliteSaver.from_conn_string(":memory:") as inner:
        scene = Scene(inner)
        running: dict[int, Steps[Any]] = {0: one(scene.savers[0]), 1: other(scene.savers[1])}
        replies, done = [None, None], list[int]()
        while running:
            if len(running) == 2:
                done.append(order[len(done)] if len(done) < len(order) else 0)
                which = done[-1]
            else:
                (which,) = running
            try:
                request = running[which].send(replies[which])
            except StopIteration:
                del running[which]
            else:
                replies[which] = run(single(request), partial(reply, scene.savers[which].inner))
        if again:
            run(again(scene.savers[1]), partial(reply, scene.savers[1].inner))
        scene.check()
    return done


def orders(one: Act, other: Act, most: int) -> tuple[int, list[str]]:
    """Try all orders, or some at random too if there are more; return how many, and which alarm."""
    alarms, tried, order = list[str](), 0, list[int]()
    moments = random.Random(most)
    while True:
        is_random = tried >= most // 2
        if is_random:
            order = [moments.randrange(2) for _ in range(60)]
        tried += 1
        try:
            order = play(one, other, order)
        except RolledBackError as error:
            alarms.append(f"{order}: {error}")
        order = following(order)
        if not order or tried == most:
            return tried, alarms


def following(order: list[int]) -> list[int]:
    """Return the next order; an empty one after the last."""
    while order and order[-1] == 1:
        order = order[:-1]
    return [*order[:-1], 1] if order else []


MOST: Final = [DAILY, pytest.param(SOAK, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]


@pytest.mark.broad
@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_beside_a_writer(reader: str, writer: str, most: int) -> None:
    tried, alarms = orders(READERS[reader], WRITERS[writer], most)
    assert tried > 1
    assert alarms == []


LIMITS: Final = {
    # The same id at once with two contents: one row is the last, and the other head.
    ("put", "put"),
    ("put on a fork", "put on a fork"),
    ("put again", "put again"),
    ("put again", "copy"),
    ("copy", "copy"),
    # A row that is stored again while it is looked for, whose new head comes between.
    ("put again", "prune"),
    ("put again", "delete runs"),
    ("prune", "copy"),
    ("delete runs", "copy"),
    # A head that is recorded after the deletion that its row was part of. Only the latest is not pruned.
    ("put on a fork", "prune"),
    ("put", "delete"),
    ("put on a fork", "delete"),
    ("put again", "delete"),
    ("delete", "copy"),
}
"""Pairs that may raise an alarm: LangGraph stores an id once, and a thread is deleted after its runs."""

PAIRS: Final = [*combinations_with_replacement(WRITERS, 2)]


@pytest.mark.broad
@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize(("one", "other"), [pair for pair in PAIRS if pair not in LIMITS])
def test_a_writer_beside_another(one: str, other: str, most: int) -> None:
    """Afterwards all is read."""
    tried, alarms = orders(WRITERS[one], WRITERS[other], most)
    assert tried > 1
    assert alarms == []


@pytest.mark.parametrize("other", ["delete", "put"])
def test_a_limit_is_resolved_by_doing_it_again(other: str) -> None:
    """A put whose head comes last, after the thread was deleted, or stored again under the same id."""
    order = [0, 0, 0, *[1] * 20]
    with pytest.raises(RolledBackError):
        play(WRITERS["put"], WRITERS[other], order)
    play(WRITERS["put"], WRITERS[other], order, again=WRITERS[other])
