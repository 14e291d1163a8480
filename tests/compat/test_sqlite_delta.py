"""Histories of delta channels over forks: on one file, LangGraph's saver and ours find the same."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.base import DeltaChannelHistory
from sealpoint.sqlite import SqliteSaver
from tests.compat.agents import counter
from tests.support.databases.checkpoints import at, make

CHANNELS = ("a", "b", "c")

writes = st.tuples(
    st.sampled_from(["task1", "task2"]),
    st.sampled_from(["", "~p, b", "~p, a"]),
    st.lists(st.tuples(st.sampled_from(CHANNELS), st.integers(0, 9)), max_size=3),
)
nodes = st.tuples(
    st.integers(0, 30),  # how far back the parent lies; too far: there is none
    st.dictionaries(st.sampled_from(CHANNELS), st.integers(0, 9), max_size=1),
    st.lists(writes, max_size=2),
)
trees = st.lists(nodes, min_size=1, max_size=25)


def grow(saver: Any, tree: list[Any]) -> None:
    """Put a tree of checkpoints, with forks, and writes on top of each."""
    for number, (back, values, written) in enumerate(tree):
        parent = f"{number - 1 - back:02}" if back < number else None
        config = saver.put(at("t", parent), make(f"{number:02}", **values), {}, {})
        for task_id, task_path, pairs in written:
            saver.put_writes(config, pairs, task_id, task_path)


@given(
    tree=trees, start=st.none() | st.integers(0, 26), channels=st.sets(st.sampled_from([*CHANNELS, "absent"]))
)
def test_histories_over_forks_are_the_same(tree: list[Any], start: int | None, channels: set[str]) -> None:
    asked: Any = {"config": at("t", None if start is None else f"{start:02}"), "channels": sorted(channels)}
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        ours, theirs = SqliteSaver(connection), Theirs(connection)
        grow(theirs, tree)
        expected = theirs.get_delta_channel_history(**asked)
        assert ours.get_delta_channel_history(**asked) == expected
        assert asyncio.run(ours.aget_delta_channel_history(**asked)) == expected


def test_a_fork_sees_its_own_past_only() -> None:
    """0 - 1 - 2 and 0 - 3: an example in full, so that the law above compares more than empty results."""
    tree = [
        (99, {"a": 0}, [("task", "", [("a", 1)])]),
        (0, {}, [("task", "", [("a", 2), ("b", 3)])]),
        (0, {}, [("task", "", [("a", 4)])]),
        (2, {}, [("task", "", [("a", 5)])]),
    ]
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        grow(saver, tree)

        def history(checkpoint_id: str) -> dict[str, DeltaChannelHistory]:
            return dict(saver.get_delta_channel_history(config=at("t", checkpoint_id), channels=["a", "b"]))

        first = ("task", "a", 1)
        assert history("02") == {
            "a": {"seed": 0, "writes": [first, ("task", "a", 2)]},
            "b": {"writes": [("task", "b", 3)]},
        }
        assert history("03") == {"a": {"seed": 0, "writes": [first]}, "b": {"writes": []}}
        assert history("00") == {"a": {"writes": []}, "b": {"writes": []}}


def test_histories_of_a_forked_graph_are_the_same() -> None:
    """A thread with two delta channels, forked in the middle by an update of its state."""
    config: Any = {"configurable": {"thread_id": "t"}}
    asked = {"channels": ["items", "more", "n", "absent"]}
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        ours, theirs = SqliteSaver(connection), Theirs(connection)
        graph = counter(theirs, 7)
        graph.invoke({"n": 0, "items": ["start"]}, config)
        middle = [*graph.get_state_history(config)][3].config
        graph.invoke(None, graph.update_state(middle, {"items": ["forked"], "more": ["forked"]}))
        for found in [*theirs.list(None)]:
            expected = theirs.get_delta_channel_history(config=found.config, **asked)
            assert ours.get_delta_channel_history(config=found.config, **asked) == expected
            asked_thread: Any = {"config": config, **asked}
        assert ours.get_delta_channel_history(**asked_thread) == theirs.get_delta_channel_history(
            **asked_thread
        )
