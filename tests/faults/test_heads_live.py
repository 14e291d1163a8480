"""Many at once beside a thread store, on the same threads: no false alarm, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from tests.faults import headwork
from tests.faults.headwork import ASYNC, HOUR, SYNC, Worker, at, number_of, process, sealed
from tests.graphs.openers import CONNECTION
from tests.support.server import schema, server

PROCESSES: Final = 4
THREADS: Final = 8
CLOCKS: Final = (0, HOUR, -HOUR, 0)
"""How many seconds the clocks of the processes are ahead."""

DAILY: Final = {"SqliteSaver", "LangGraph AsyncPostgresSaver, pool"}
STEPS: Final = 320
SOAK_STEPS: Final = 20_000


@pytest.fixture
def place(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Gives an empty database for a saver."""
    with ExitStack() as stack:

        def place(kind: str) -> str:
            if "Postgres" not in kind:
                return str(tmp_path / "x.db")
            dsn = stack.enter_context(schema(server(pytestconfig)))
            with psycopg.connect(dsn, **CONNECTION) as connection:
                PostgresSaver(connection).setup()
            return dsn

        yield place


def on_one(kind: str) -> str:
    """The sync saver that reads what another has written."""
    if kind in SYNC:
        return kind
    return "LangGraph PostgresSaver" if "Postgres" in kind else "LangGraph SqliteSaver"


def cases() -> Iterator[Any]:
    for kind in (*SYNC, *ASYNC):
        yield pytest.param(kind, STEPS, marks=[] if kind in DAILY else [pytest.mark.soak])
        yield pytest.param(kind, SOAK_STEPS, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.parametrize(("kind", "steps"), [*cases()])
def test_no_false_alarm(
    place: Callable[[str], str], kind: str, steps: int, record_property: Callable[[str, object], None]
) -> None:
    """4 processes of 8 threads write and read the same threads; a fifth prunes and deletes others."""
    where = place(kind)
    with sealed(on_one(kind), where):
        pass  # which makes the store
    each = steps // (PROCESSES * THREADS)
    crowds = [
        ([Worker(100 * number + place, each, clock) for place in range(THREADS)], False)
        for number, clock in enumerate(CLOCKS)
    ]
    crowds.append(([Worker(999, 4 * each, 0)], True))
    started = []
    for workers, removes in crowds:
        ours, theirs = headwork.pipe()
        started.append((process(headwork.crowd, kind, where, workers, removes, theirs), ours))
        theirs.close()
    done, stored = Counter[str](), dict[tuple[str, str], int]()
    for running, ours in started:
        for worker in ours.recv():
            assert worker.errors == []
            done += worker.done
            stored |= worker.stored
        running.join()
        assert running.exitcode == 0
    record_property("done", dict(done))
    assert done["put"] >= steps / 4
    assert min(done[what] for what in ("latest", "by id", "list", "beside deletions", "delete")) > 0
    with sealed(on_one(kind), where) as saver:
        found = {key(each): number_of(each) for each in saver.list(None)}
        assert {name: number for name, number in found.items() if name in stored} == stored
        for thread in {thread for thread, _ in found}:
            assert {key(each) for each in saver.list(at(thread))} == {
                name for name in found if name[0] == thread
            }
            assert saver.get_tuple(at(thread)) is not None


def key(found: Any) -> tuple[str, str]:
    named = found.config["configurable"]
    return named["thread_id"], named["checkpoint_id"]
