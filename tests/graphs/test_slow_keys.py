"""A slow service of keys delays no event loop: agents go on while a changed ring waits for it."""

from __future__ import annotations

import asyncio
import sys
import threading
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from operator import add
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from sealpoint import EncryptedSerializer
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher, Tag, cipher
from sealpoint.errors import KeyDisabledError
from sealpoint.keys.watch import LOOK_SECONDS
from sealpoint.keys.wrap.command import format_bound
from sealpoint.keys.wrap.wrapper import WrapContext
from tests.support.keys.rings import material_of, replace, write
from tests.support.keys.wrappers import Service, fake_service, wrapped_text

VALUE = "msgpack", b"\xa5value"
CONFIG: Any = {"configurable": {"thread_id": "1"}}


class State(TypedDict):
    steps: Annotated[list[str], add]


async def step(state: State) -> dict[str, list[str]]:
    return {"steps": ["done"]}


def sealed_under(key_id: str) -> tuple[str, bytes]:
    return RingCipher(KeyRing([Key(key_id, material_of(key_id), KeyState.ACTIVE)])).seal(*VALUE)


@asynccontextmanager
async def agent(serde: EncryptedSerializer, path: Path) -> AsyncIterator[Any]:
    """A compiled graph on LangGraph's own async saver."""
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        saver.serde = serde
        builder = StateGraph(State)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        yield builder.compile(checkpointer=saver)


def wait_until_loaded() -> None:
    """Until no thread loads a key any more."""
    while threads := [one for one in threading.enumerate() if one.name.startswith("sealpoint-")]:
        threads[0].join()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with fake_service(monkeypatch) as found:
        yield found


@pytest.mark.parametrize("state", ["staged", "decrypt-only"])
def test_agent_goes_on_while_a_service_is_asked(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The service answers only after the agent has run: a loop that waited for it would never get there."""
    now = [1000.0]
    monkeypatch.setattr(cipher, "monotonic", lambda: now[0])
    file = write(tmp_path / "keys.toml", wrapped_text(k1="active", k2="decrypt-only"))
    later = wrapped_text(k1="active", k2="disabled", k3=state)
    serde = EncryptedSerializer.from_key_file(file)
    wait_until_loaded()

    async def run() -> None:
        async with agent(serde, tmp_path / "state.db") as graph:
            await graph.ainvoke({"steps": []}, CONFIG)
            service.gate.clear()
            replace(file, later)
            now[0] += LOOK_SECONDS
            result = await graph.ainvoke({"steps": []}, CONFIG)
            assert result["steps"] == ["done", "done"]
            with pytest.raises(KeyDisabledError):
                serde.loads_typed(sealed_under("k2"))
            assert (await graph.aget_state(CONFIG)).values == result
            assert not service.gate.is_set()
            service.gate.set()
            assert serde.loads_typed(sealed_under("k3")) == "value"

    asyncio.run(run())


SLOW = """
import sys, time
time.sleep(5)
sys.stdout.buffer.write(sys.stdin.buffer.read())
"""
"""A program that wraps and unwraps by doing nothing, for five seconds."""


@pytest.mark.soak
def test_no_tick_is_late_by_a_quarter_of_a_second(tmp_path: Path) -> None:
    """With a source that takes five seconds, and the clock; a machine that does nothing else is assumed."""

    def text(**states: str) -> str:
        table = f"kind = 'command'\nwrap = ['cat']\nunwrap = ['{sys.executable}', '-c', '''{SLOW}''']\n"
        lines = ["version = 1", "name = 'agents'", "active = 'k1'", "[[wrapper]]\nid = 'w'", table]
        for key_id, state in states.items():
            blob = b64encode(format_bound(material_of(key_id), WrapContext("agents", key_id))).decode()
            source = f"source = {{ wrapped = '{blob}', by = 'w' }}"
            lines += ["[[key]]", f"id = '{key_id}'", f"state = '{state}'", source]
        return "\n".join([*lines, ""])

    file = write(tmp_path / "keys.toml", text(k1="active", k2="decrypt-only"))
    serde = EncryptedSerializer.from_key_file(file)
    wait_until_loaded()
    late = [0.0]

    async def tick() -> None:
        while True:
            before = monotonic()
            await asyncio.sleep(0.01)
            late[0] = max(late[0], monotonic() - before - 0.01)

    async def run() -> None:
        async with agent(serde, tmp_path / "state.db") as graph:
            await graph.ainvoke({"steps": []}, CONFIG)
            ticks = asyncio.create_task(tick())
            replace(file, text(k1="active", k2="disabled", k3="staged"))
            end, disabled = monotonic() + LOOK_SECONDS + 7, False
            while monotonic() < end:
                await graph.ainvoke({"steps": []}, CONFIG)
                try:
                    serde.loads_typed(sealed_under("k2"))
                except KeyDisabledError:
                    disabled = True
            assert disabled
            assert serde.loads_typed(sealed_under("k3")) == "value"
            ticks.cancel()

    asyncio.run(run())
    assert late[0] < 0.25


def test_saver_keeps_the_serializer(tmp_path: Path, service: Service) -> None:
    """What the tests above rely on: the saver seals with the ring."""
    file = write(tmp_path / "keys.toml", wrapped_text(k1="active"))
    serde = EncryptedSerializer.from_key_file(file)

    async def run() -> set[str | None]:
        async with agent(serde, tmp_path / "state.db") as graph:
            await graph.ainvoke({"steps": []}, CONFIG)
            async with graph.checkpointer.conn.execute("SELECT type FROM checkpoints") as rows:
                return {Tag.parse(row[0]).key_id async for row in rows}

    assert asyncio.run(run()) == {"k1"}
