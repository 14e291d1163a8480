"""The methods with an ``a`` in front do what those without do, also many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sealpoint.errors import ConfigError, ConfigKeyError
from sealpoint.sqlite import SqliteSaver
from tests.support.checkpoints import at, dump, ids_in, make, put_chain


@pytest.fixture
def filled(saver: SqliteSaver) -> SqliteSaver:
    put_chain(saver, *(f"{number:02}" for number in range(25)))
    put_chain(saver, "99", ns="sub", run_id="other")
    return saver


async def collect(saver: SqliteSaver, *arguments: Any, **named: Any) -> list[Any]:
    return [found async for found in saver.alist(*arguments, **named)]


def test_reading(filled: SqliteSaver) -> None:
    for config in (at(), at("t", "03"), at("nobody")):
        assert asyncio.run(filled.aget_tuple(config)) == filled.get_tuple(config)
        assert asyncio.run(filled.aget(config)) == filled.get(config)


@pytest.mark.parametrize(
    "named", [{}, {"limit": 0}, {"limit": 3}, {"before": at("t", "20")}, {"filter": {"step": 1}}], ids=str
)
def test_listing(filled: SqliteSaver, named: dict[str, Any]) -> None:
    """Also across the batches in which rows are fetched."""
    for config in (None, at()):
        assert asyncio.run(collect(filled, config, **named)) == [*filled.list(config, **named)]


def test_writing(saver: SqliteSaver) -> None:
    async def write() -> None:
        config = await saver.aput(at(), make("1", x=1), {"step": 1}, {})
        assert config == at("t", "1")
        await saver.aput_writes(config, [("x", 1)], "task", "path")

    asyncio.run(write())
    (found,) = saver.list(at())
    assert found.metadata == {"step": 1}
    assert found.pending_writes == [("task", "x", 1)]
    assert dump(saver.conn)[1][4] == "path"


def test_upkeep(filled: SqliteSaver) -> None:
    async def keep_up() -> None:
        await filled.acopy_thread("t", "copy")
        await filled.adelete_thread("t")
        await filled.adelete_for_runs(["other"])
        await filled.aprune(["copy"])

    asyncio.run(keep_up())
    assert [found.config for found in filled.list(None)] == [at("copy", "24")]
    asyncio.run(filled.aprune(["copy"], strategy="delete"))
    assert dump(filled.conn) == []


def test_histories(filled: SqliteSaver) -> None:
    asked: dict[str, Any] = {"config": at("t", "20"), "channels": ["n", "absent"]}
    history = asyncio.run(filled.aget_delta_channel_history(**asked))
    assert history == filled.get_delta_channel_history(**asked)


def test_refusals(filled: SqliteSaver) -> None:
    with pytest.raises(ConfigKeyError):
        asyncio.run(filled.aget_tuple({}))
    with pytest.raises(ConfigKeyError):
        asyncio.run(collect(filled, at(), before=at()))
    with pytest.raises(ConfigError):
        asyncio.run(filled.aprune(["t"], strategy="half"))


def test_many_tasks_at_once(saver: SqliteSaver) -> None:
    """Each writes a thread of its own and reads all the others meanwhile."""

    async def work(number: int) -> None:
        config = at(f"thread {number}")
        for step in range(5):
            config = await saver.aput(config, make(f"{step}", n=number), {"step": step}, {})
            await saver.aput_writes(config, [("n", number)], "task")
            assert len(await collect(saver, at(f"thread {number}"))) == step + 1
            await collect(saver, None, filter={"step": step})

    async def work_together() -> None:
        await asyncio.gather(*(work(number) for number in range(12)))

    asyncio.run(work_together())
    for number in range(12):
        found = [*saver.list(at(f"thread {number}"))]
        assert [each.pending_writes for each in found] == [[("task", "n", number)]] * 5


def test_put_inside_an_asynchronous_loop_works(filled: SqliteSaver) -> None:
    async def copy() -> None:
        async for found in filled.alist(at()):
            await filled.aput(found.config, make(f"{found.checkpoint['id']}-copy"), {}, {})

    asyncio.run(copy())
    assert len(ids_in(filled, at())) == 50
