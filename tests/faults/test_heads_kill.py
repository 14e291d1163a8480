"""``kill -9`` beside a thread store, at any moment: afterwards no false alarm, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from tests.faults.headwork import (
    at,
    document,
    forever,
    id_by,
    killed_at,
    number_of,
    pipe,
    process,
    sealed,
)
from tests.graphs.openers import CONNECTION
from tests.support.servers.postgres import schema, server

OURS: Final = "SqliteSaver"
POSTGRES: Final = "LangGraph PostgresSaver"
KINDS: Final = (OURS, "LangGraph SqliteSaver", POSTGRES)
METHODS: Final = {"put": 1, "prune": 2, "delete_thread": 1, "delete_for_runs": 2, "copy_thread": 3}
"""How often each writes to the store."""

LACKS: Final = {"LangGraph SqliteSaver": {"prune", "delete_for_runs"}, POSTGRES: {"delete_for_runs"}}
POINTS: Final = [
    (method, number, after)
    for method, writes in METHODS.items()
    for number, after in product(range(writes), (False, True))
]
"""Before and after every write: 18 for a saver that has all methods."""

ROWS: Final = 3
SOAK_ROUNDS: Final = 40
"""How often each point is tried on each saver."""

Saver = Any


@pytest.fixture
def place(kind: str, pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if kind != POSTGRES:
        yield str(tmp_path / "x.db")
        return
    with schema(server(pytestconfig)) as dsn:
        with psycopg.connect(dsn, **CONNECTION) as connection:
            PostgresSaver(connection).setup()
        yield dsn


@pytest.fixture
def saver(kind: str, place: str) -> Iterator[Saver]:
    """A saver beside its store that is open all the while, as that of another process."""
    with sealed(kind, place) as opened:
        yield opened


def ids(saver: Saver, thread: str) -> list[str]:
    return [found.config["configurable"]["checkpoint_id"] for found in saver.list(at(thread))]


def goes_on(saver: Saver, thread: str) -> None:
    """Check that the next put is stored, recorded and read."""
    checkpoint_id = id_by(0)
    saver.put(at(thread), *document(checkpoint_id, 77))
    found = saver.get_tuple(at(thread))
    assert number_of(found) == 77
    assert ids(saver, thread)[0] == checkpoint_id


def kill_and_look(kind: str, place: str, saver: Saver, thread: str, point: tuple[str, int, bool]) -> None:
    """Store some checkpoints, let a process be killed at a point, and check what there is then."""
    method, number, after = point
    before = [id_by(0) for _ in range(ROWS)]
    for step, checkpoint_id in enumerate(before):
        saver.put(at(thread), *document(checkpoint_id, step))
    before.reverse()
    new = id_by(0)
    arguments: dict[str, Any] = {
        "put": (at(thread), *document(new, ROWS)),
        "prune": ([thread],),
        "delete_thread": (thread,),
        "delete_for_runs": ([f"run {checkpoint_id}" for checkpoint_id in before[:2]],),
        "copy_thread": (thread, f"{thread} copy"),
    }
    killed = process(killed_at, kind, place, number, after, method, arguments[method])
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    left = ids(saver, thread)
    states: dict[str, list[list[str]]] = {
        "put": [[new, *before]],  # the row is stored, recorded or not
        "prune": [before, before[:1]],
        "delete_thread": [[]],
        "delete_for_runs": [before, before[2:]],
        "copy_thread": [before],
    }
    if (method, number, after) == ("delete_thread", 0, False):
        assert left == before
    else:
        assert left in states[method]
    latest = saver.get_tuple(at(thread))
    assert (latest is None) == (not left)
    copied = ids(saver, f"{thread} copy")
    assert copied == before[len(before) - len(copied) :]
    if method != "put":  # the same again comes to its end
        getattr(saver, method)(*arguments[method])
        ends = {
            "prune": before[:1],
            "delete_thread": [],
            "delete_for_runs": before[2:],
            "copy_thread": before,
        }
        assert ids(saver, thread) == ends[method]
        assert method != "copy_thread" or ids(saver, f"{thread} copy") == before
    goes_on(saver, thread)


def cases() -> Iterator[Any]:
    for kind in KINDS:
        for point in POINTS:
            if point[0] in LACKS.get(kind, ()):
                continue
            daily = kind == OURS or (kind == POSTGRES and point[0] in ("put", "delete_thread"))
            marks = [] if daily else [pytest.mark.soak]
            yield pytest.param(kind, point, 1, marks=marks)
            yield pytest.param(kind, point, SOAK_ROUNDS, marks=[pytest.mark.soak])


@pytest.mark.broad(every=4)
@pytest.mark.parametrize(("kind", "point", "rounds"), [*cases()])
def test_killed_before_and_after_every_head(
    kind: str, place: str, saver: Saver, point: tuple[str, int, bool], rounds: int
) -> None:
    for number in range(rounds):
        kill_and_look(kind, place, saver, f"thread {number}", point)
    assert len([*saver.list(None)]) >= rounds


RANDOM_KILLS: Final = 10
SOAK_KILLS: Final = 1_000


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        (OURS, RANDOM_KILLS),
        *(
            pytest.param(kind, SOAK_KILLS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])
            for kind in KINDS
        ),
    ],
)
def test_killed_at_any_moment(kind: str, place: str, saver: Saver, kills: int) -> None:
    """A process puts, prunes and deletes without a pause, so that it is in the middle of one."""
    moments = random.Random(17)
    for number in range(kills):
        thread = f"thread {number}"
        heard = until_killed(kind, place, thread, moments)
        must, may_be_gone = required(heard)
        left = ids(saver, thread)
        assert may_be_gone or {*must} <= {*left}
        assert not left or left == sorted(left, reverse=True)
        if must and not may_be_gone:
            assert saver.get_tuple(at(thread)) is not None
            assert saver.get_tuple(at(thread, must[-1])) is not None
        goes_on(saver, thread)
    assert len([*saver.list(None)]) >= kills


def until_killed(kind: str, place: str, thread: str, moments: random.Random) -> list[tuple[str, str]]:
    """Kill a process at a moment after some messages; return all that it sent."""
    ours, theirs = pipe()
    running = process(forever, kind, place, thread, moments.randrange(1 << 30), theirs)
    theirs.close()
    heard = [ours.recv() for _ in range(moments.randrange(1, 12))]
    time.sleep(moments.uniform(0, 0.003))  # not to wait for anything: any moment will do
    os.kill(running.pid, signal.SIGKILL)
    running.join()
    assert running.exitcode == -signal.SIGKILL
    with ours:
        while True:
            try:
                heard.append(ours.recv())
            except EOFError:
                return heard


def required(heard: list[tuple[str, str]]) -> tuple[list[str], bool]:
    """Return the ids that must be there, and whether all may be gone by a deletion that was begun."""
    must: list[str] = []
    for what, checkpoint_id in heard:
        if what == "put":
            must.append(checkpoint_id)
        elif what == "prunes":
            must = must[-1:]
        elif what == "deleted":
            must = []
    return must, heard[-1][0] == "deletes"
