"""ReplayState beside LangGraph's: the same calls to the saver, and the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph._internal._replay import ReplayState as TheirReplayState

from sealpoint.base import BaseCheckpointSaver
from sealpoint.replay import ReplayState
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import at, put_chain


class Recorder(BaseCheckpointSaver[int]):
    """Remembers what it is asked, and answers with the number of the question."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty
        self.calls: list[Any] = []

    def _answer(self, *call: Any) -> Any:
        self.calls.append(call)
        return None if self.empty else len(self.calls)

    def get_tuple(self, config: Any) -> Any:
        return self._answer("get_tuple", config)

    def list(self, config: Any, **named: Any) -> Iterator[Any]:
        answer = self._answer("list", config, named)
        return iter([] if self.empty else [answer, "a second one"])

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **named: Any) -> AsyncIterator[Any]:
        for answer in self.list(config, **named):
            yield answer


def replay(state: Any, saver: Recorder, namespaces: list[str]) -> list[Any]:
    """Ask for a checkpoint in each namespace."""
    return [state.get_checkpoint(ns, saver, at(ns=ns)) for ns in namespaces]


async def areplay(state: Any, saver: Recorder, namespaces: list[str]) -> list[Any]:
    return [await state.aget_checkpoint(ns, saver, at(ns=ns)) for ns in namespaces]


parts = st.text(st.sampled_from("ab:|"), max_size=6)


@pytest.mark.parametrize("empty", [False, True])
@given(namespaces=st.lists(parts, max_size=12))
def test_the_saver_is_asked_the_same(empty: bool, namespaces: list[str]) -> None:
    mine, other, mine_async = (Recorder(empty=empty) for _ in range(3))
    expected = replay(TheirReplayState("cid"), other, namespaces)
    assert replay(ReplayState("cid"), mine, namespaces) == expected
    assert asyncio.run(areplay(ReplayState("cid"), mine_async, namespaces)) == expected
    assert mine.calls == mine_async.calls == other.calls


def test_a_subgraph_goes_back_once_and_then_on() -> None:
    """The first visit finds what is older than the replay's checkpoint, the next one the latest."""
    with SqliteSaver.from_conn_string(":memory:") as saver:
        put_chain(saver, "1", "3", "5", ns="sub:task")
        state = ReplayState("4")
        assert state.checkpoint_id == "4"
        first, second = (state.get_checkpoint(f"sub:{n}", saver, at(ns="sub:task")) for n in "12")
        assert first is not None
        assert second is not None
        assert (first.checkpoint["id"], second.checkpoint["id"]) == ("3", "5")
