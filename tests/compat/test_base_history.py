"""The default ``get_delta_channel_history`` beside LangGraph's, over forks and gaps, sync and async."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint import base as theirs

from sealpoint import base as ours

Tuples = dict[str, Any]

CHANNELS = ("a", "b")


def at(checkpoint_id: object) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": str(checkpoint_id)}}


class OurStore(ours.BaseCheckpointSaver[int]):
    """A saver that only reads, from a table."""

    def __init__(self, tuples: Tuples) -> None:
        super().__init__()
        self.tuples = tuples

    def get_tuple(self, config: ours.RunnableConfig) -> Any:
        return self.tuples.get(config["configurable"]["checkpoint_id"])

    async def aget_tuple(self, config: ours.RunnableConfig) -> Any:
        return self.get_tuple(config)


class TheirStore(theirs.BaseCheckpointSaver[int]):
    """The same on LangGraph's base class."""

    def __init__(self, tuples: Tuples) -> None:
        super().__init__()
        self.tuples = tuples

    def get_tuple(self, config: Any) -> Any:
        return self.tuples.get(config["configurable"]["checkpoint_id"])

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)


writes = st.lists(
    st.tuples(st.sampled_from(["task1", "task2"]), st.sampled_from(CHANNELS), st.integers(0, 9)), max_size=4
)
nodes = st.tuples(
    st.integers(0, 3), st.dictionaries(st.sampled_from(CHANNELS), st.integers(0, 9)), st.none() | writes
)


@st.composite
def trees(draw: st.DrawFn) -> Tuples:
    """Checkpoints that each have an earlier one for a parent, or none, or one that is not there."""
    tuples = {}
    for number, (back, values, written) in enumerate(draw(st.lists(nodes, min_size=1, max_size=8))):
        parent = None if back == 3 else at(number - 1 - back)  # which may be one that is not there
        checkpoint: Any = {**ours.empty_checkpoint(), "id": str(number), "channel_values": values}
        tuples[str(number)] = theirs.CheckpointTuple(at(number), checkpoint, {}, parent, written)
    return tuples


@given(
    tuples=trees(),
    start=st.integers(0, 8),
    channels=st.lists(st.sampled_from([*CHANNELS, "absent"]), unique=True),
)
def test_histories_are_the_same(tuples: Tuples, start: int, channels: list[str]) -> None:
    mine, other = OurStore(tuples), TheirStore(tuples)
    asked: Any = {"config": at(start), "channels": channels}
    expected = other.get_delta_channel_history(**asked)
    assert mine.get_delta_channel_history(**asked) == expected
    assert asyncio.run(mine.aget_delta_channel_history(**asked)) == expected


def test_the_walk_ends_at_a_stored_value_and_takes_its_writes() -> None:
    """An example in full, so that the law above compares more than two empty results."""
    tuples: Tuples = {}
    for number in range(4):
        values = {"a": f"value {number}"} if number < 2 else {}
        checkpoint: Any = {**ours.empty_checkpoint(), "id": str(number), "channel_values": values}
        parent = at(number - 1) if number else None
        written = [("task", "a", f"write {number}"), ("task", "b", number), ("task", "b", -number)]
        tuples[str(number)] = theirs.CheckpointTuple(at(number), checkpoint, {}, parent, written)
    for store in (OurStore(tuples), TheirStore(tuples)):
        history = store.get_delta_channel_history(config=at(3), channels=["a", "b"])
        assert history == {
            "a": {"seed": "value 1", "writes": [("task", "a", "write 1"), ("task", "a", "write 2")]},
            "b": {"writes": [("task", "b", value) for value in (0, 0, 1, -1, 2, -2)]},
        }
