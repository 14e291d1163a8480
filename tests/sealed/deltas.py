"""A graph whose state is made of writes, and an attacker who edits them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from sealpoint.langgraph import SealedSaver
from sealpoint.threads import MemoryThreadStore
from tests.graphs.savers import SEALED
from tests.sealed.raw import Row
from tests.sealed.savers import HEADS
from tests.sealed.scenes import postgres_scene, sqlite_scene
from tests.support.servers.postgres import schema, server

KINDS: Final = ("sqlite", "postgres", "memory")
KEY: Final = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx")


class InMemory:
    """The writes of LangGraph's saver in memory, as rows."""

    def __init__(self, saver: InMemorySaver) -> None:
        self._writes = saver.writes

    def rows(self, table: str, **where: Any) -> list[Row]:
        assert table == "writes"
        found = [
            dict(zip(KEY, (*place, *key), strict=True)) | {"channel": value[1], "_value": value}
            for place, writes in self._writes.items()
            for key, value in writes.items()
        ]
        return [row for row in found if where.items() <= row.items()]

    def delete(self, table: str, row: Row) -> None:
        assert table == "writes"
        thread_id, ns, checkpoint_id, task_id, idx = (row[name] for name in KEY)
        self._writes[thread_id, ns, checkpoint_id].pop((task_id, idx), None)

    def put(self, table: str, row: Row) -> None:
        self.delete(table, row)
        thread_id, ns, checkpoint_id, task_id, idx = (row[name] for name in KEY)
        self._writes[thread_id, ns, checkpoint_id][task_id, idx] = row["_value"]


class Database:
    """An empty database of a kind.

    Attributes:
        raw: Its rows.
        saver: A saver on it that has read nothing yet.
    """

    def __init__(self, raw: Any, saver: Any) -> None:
        self.raw, self.saver = raw, saver

    def delete(self, rows: list[Row]) -> None:
        assert rows
        for row in rows:
            self.raw.delete("writes", row)

    def put(self, rows: list[Row]) -> None:
        for row in rows:
            self.raw.put("writes", row)


@contextmanager
def database(kind: str, config: Any, folder: Path, *, beside: bool) -> Iterator[Database]:
    """Make a database; ``beside`` a thread store or without one."""
    form = HEADS if beside else "sealed"
    with ExitStack() as stack:
        if kind == "memory":
            bare, threads = InMemorySaver(), MemoryThreadStore() if beside else None
            yield Database(InMemory(bare), lambda: SealedSaver(bare, serde=SEALED, threads=threads))
            return
        scene = stack.enter_context(
            sqlite_scene(folder / "x.db", form)
            if kind == "sqlite"
            else postgres_scene(stack.enter_context(schema(server(config))), form)
        )
        yield Database(scene.raw, scene.saver)


def extend(state: list[str], writes: Any) -> list[str]:
    return [*state, *(line for lines in writes for line in lines)]


class Rules(TypedDict):
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=50)]
    turn: Annotated[int, operator.add]


def rules() -> Any:
    """A graph that fans out once, and whose log is never stored in full."""
    graph: Any = StateGraph(Rules)
    graph.add_node("ask", lambda _: {"log": ["asked"], "turn": 1})
    graph.add_node("each", lambda rule: {"log": [f"policy {rule}"]})
    graph.add_node("end", lambda _: {"log": ["done"], "turn": 1})
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda _: [Send("each", rule) for rule in (1, 2)], ["each"])
    graph.add_edge("each", "end")
    return graph
