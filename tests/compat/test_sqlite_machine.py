"""The same operations on LangGraph's SqliteSaver and on ours: every answer and every row is the same."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from langgraph.checkpoint.sqlite import SqliteSaver as Theirs

from sealpoint.base import empty_checkpoint
from sealpoint.sqlite import SqliteSaver
from tests.support.databases.checkpoints import dump
from tests.support.runs.extent import by_extent

TS = "2026-01-02T03:04:05+00:00"

threads = st.sampled_from(["t", "t2", "T", "", 5])
namespaces = st.sampled_from(["", "sub", "sub:1|in:2"])
numbers = st.sampled_from(["1", "2", "20", "3", "4"])  # what ids begin with
channels = st.sampled_from(["a", "b", "__error__", "__interrupt__", "__resume__", "__scheduled__"])
tasks = st.sampled_from(["task1", "task2"])
paths = st.sampled_from(["", "~p, a", "~p, b"])
texts = st.text(max_size=3).filter(lambda text: text.isprintable())
leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, -1.0]) | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
keys = st.sampled_from(["step", "source", "user", "deep", "dash-ed"])
metadata = st.dictionaries(keys, values, max_size=3)
# LangGraph compares the text of JSON, and we its value: no difference for scalars that are not like JSON.
wanted = values.filter(lambda value: not isinstance(value, dict) and not str(value).startswith(("[", "{")))
filters = st.none() | st.dictionaries(keys | st.just("deep.x"), wanted, max_size=2)


def name(number: str, config: dict[str, Any]) -> str:
    """An id that no other place has: the order of two that are the same is anybody's."""
    configurable = config["configurable"]
    return f"{number} {configurable['thread_id']} {configurable.get('checkpoint_ns', '')}"


@st.composite
def configs(draw: st.DrawFn, *, whole: bool = False) -> dict[str, Any]:
    """A config that names a thread, and a namespace and a checkpoint if it is to be ``whole``."""
    configurable: dict[str, Any] = {"thread_id": draw(threads)}
    if whole or draw(st.booleans()):
        configurable["checkpoint_ns"] = draw(namespaces)
    config = {"configurable": configurable}
    if whole or draw(st.booleans()):
        configurable["checkpoint_id"] = name(draw(numbers), config) if draw(st.integers(0, 9)) else ""
    if draw(st.booleans()):
        configurable["user"] = draw(leaves)
    return config


class TwoSavers(RuleBasedStateMachine):
    """LangGraph's saver and ours, each on a database of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.connections = [sqlite3.connect(":memory:", check_same_thread=False) for _ in range(2)]
        self.ours: Any = SqliteSaver(self.connections[0])
        self.theirs: Any = Theirs(self.connections[1])

    def teardown(self) -> None:
        for connection in self.connections:
            connection.close()

    def both(self, method: str, *arguments: Any, **named: Any) -> None:
        """Call both and compare what they return."""
        results = [getattr(saver, method)(*arguments, **named) for saver in (self.ours, self.theirs)]
        if method == "list":
            results = [[*found] for found in results]
        assert results[0] == results[1]

    @initialize()
    def set_up(self) -> None:
        self.both("setup")

    @rule(
        config=configs(whole=True),
        number=numbers,
        values=st.dictionaries(channels | texts, values, max_size=3),
        metadata=metadata,
    )
    def put(self, config: Any, number: str, values: Any, metadata: Any) -> None:
        checkpoint_id = name(number, config)
        if config["configurable"]["checkpoint_id"] >= checkpoint_id:  # ours refuses circles of parents
            del config["configurable"]["checkpoint_id"]
        checkpoint = {**empty_checkpoint(), "ts": TS, "id": checkpoint_id, "channel_values": values}
        self.both("put", config, checkpoint, metadata, {})

    @rule(
        config=configs(whole=True),
        writes=st.lists(st.tuples(channels, values), max_size=4),
        task_id=tasks,
        task_path=paths,
    )
    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str) -> None:
        if config["configurable"]["checkpoint_id"]:  # ours refuses an empty one
            self.both("put_writes", config, writes, task_id, task_path)

    @rule(thread_id=threads)
    def delete_thread(self, thread_id: Any) -> None:
        self.both("delete_thread", thread_id)

    @rule(config=configs())
    def get_tuple(self, config: Any) -> None:
        self.both("get_tuple", config)
        self.both("get", config)

    @rule(
        config=st.none() | configs(),
        filter=filters,
        before=st.none() | configs(whole=True),
        limit=st.none() | st.integers(0, 4),
    )
    def list(self, config: Any, **named: Any) -> None:
        self.both("list", config, **named)

    @rule(config=configs(whole=True), channels=st.lists(channels, unique=True))
    def get_delta_channel_history(self, config: Any, channels: Any) -> None:
        self.both("get_delta_channel_history", config=config, channels=channels)

    @invariant()
    def rows_are_the_same(self) -> None:
        """To the byte: whoever reads the file next sees no difference."""
        if self.ours.is_setup:
            ours, theirs = map(dump, self.connections)
            assert ours == theirs


TestTwoSavers = TwoSavers.TestCase
TestTwoSavers.settings = settings(max_examples=by_extent(15, 40), stateful_step_count=25)
