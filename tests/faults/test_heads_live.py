"""Many at once beside a thread store, on the same threads: no false alarm, and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiosqlite
import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from sealpoint.langgraph import SealedSaver
from tests.faults import headwork
from tests.faults.headwork import ASYNC, HOUR, SYNC, Worker, at, number_of, process, sealed
from tests.graphs.openers import CONNECTION
from tests.graphs.savers import SEALED
from tests.support.databases.threads import thread_store
from tests.support.servers.postgres import schema, server

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


@pytest.mark.broad(every=2)
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
    assert (
        min(done[what] for what in ("latest", "by id", "interrupt", "list", "beside deletions", "delete")) > 0
    )
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


class Delayed(AsyncSqliteSaver):
    """Stores a checkpoint when its gate is opened."""

    gates: dict[str, asyncio.Event]

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        await self.gates[checkpoint["id"]].wait()
        return await super().aput(config, checkpoint, metadata, new_versions)


@pytest.mark.parametrize("steps", [40, pytest.param(2_000, marks=pytest.mark.soak)])
def test_puts_that_complete_in_another_order(tmp_path: Path, steps: int) -> None:
    """As with ``durability="async"``: all are under way at once, and read meanwhile."""
    ids = [headwork.id_by(0) for _ in range(steps)]
    order = random.Random(17).sample(ids, steps)

    async def main() -> None:
        path = str(tmp_path / "x.db")
        async with aiosqlite.connect(path) as connection:
            inner = Delayed(connection)
            inner.gates = {each: asyncio.Event() for each in ids}
            with thread_store(path) as threads:
                saver: Any = SealedSaver(inner, serde=SEALED, threads=threads, allow_shared_role=True)
                puts = {
                    each: asyncio.create_task(saver.aput(at("t"), *headwork.document(each, number)))
                    for number, each in enumerate(ids)
                }
                stored: set[str] = set()
                for first, second in batched(order):
                    for each in (first, second):
                        inner.gates[each].set()
                    await saver.aget_tuple(at("t"))
                    await asyncio.gather(puts[first], puts[second])
                    stored |= {first, second}
                    latest = await saver.aget_tuple(at("t"))
                    assert key(latest)[1] == max(stored)
                assert [key(each)[1] async for each in saver.alist(at("t"))] == sorted(ids, reverse=True)

    asyncio.run(main())


def batched(values: list[str]) -> Iterator[tuple[str, str]]:
    return zip(values[::2], values[1::2], strict=True)
