"""The graphs, and what is done with each: a script is played on a plain saver and on a sealed one.

A script is a generator. Its first word is a function that compiles its graph with a saver;
all others are calls of that graph's methods, whose outcomes (or errors) it gets back. Whether
they are awaited, and on which saver, is not its concern.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore, Item
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

SECRET: Final = "the vault opens at 0417"
"""Part of every state, and of what interrupts, errors and `Send` carry."""

THREAD: Final[Any] = {"configurable": {"thread_id": "t"}, "recursion_limit": 1000}


@dataclass(frozen=True)
class Call:
    """A call of a method of the compiled graph.

    Attributes:
        elsewhere: Whether another process makes it, with a saver of its own on the same database.
    """

    method: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    elsewhere: bool = False


def call(method: str, *arguments: Any, **named: Any) -> Call:
    return Call(method, arguments, named)


Script = Generator[Any, Any, None]


def chain(state: Any, *nodes: Callable[..., Any]) -> Any:
    """A graph whose nodes follow each other."""
    graph: Any = StateGraph(state)
    names = [START, *(node.__name__ for node in nodes), END]
    for node in nodes:
        graph.add_node(node.__name__, node)
    for one, other in pairwise(names):
        graph.add_edge(one, other)
    return graph


# --- an agent with tools --------------------------------------------------------------------------


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@tool
def look_up(topic: str) -> str:
    """Look a topic up."""
    return f"{topic}: {SECRET}"


@tool
def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


def model(state: Chat) -> Any:
    """Answers as scripted: two tools at once, then one, then the end."""
    turn = sum(isinstance(message, AIMessage) for message in state["messages"])
    calls: list[list[Any]] = [
        [
            {"name": "look_up", "args": {"topic": "vault"}, "id": f"c{turn}a", "type": "tool_call"},
            {"name": "add", "args": {"one": 400, "other": 17}, "id": f"c{turn}b", "type": "tool_call"},
        ],
        [{"name": "look_up", "args": {"topic": SECRET}, "id": f"c{turn}a", "type": "tool_call"}],
        [],
    ]
    return {"messages": [AIMessage(f"turn {turn}", tool_calls=calls[turn % 3], id=f"a{turn}")]}


def agent_with_tools() -> Script:
    graph: Any = StateGraph(Chat)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([look_up, add]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    yield graph.compile
    yield call("invoke", {"messages": [HumanMessage(SECRET, id="h1")]}, THREAD)
    yield call("invoke", {"messages": [HumanMessage("again", id="h2")]}, THREAD)


# --- interrupt and resume -------------------------------------------------------------------------


class Order(TypedDict):
    lines: Annotated[list[str], operator.add]
    answers: dict[str, Any]


def draft(state: Order) -> Any:
    return {"lines": [f"draft {SECRET}"]}


def ask(state: Order) -> Any:
    first = interrupt({"pay?": SECRET})
    return {"answers": {"pay": first, "sure": interrupt({"sure?": [SECRET, first]})}}


def send(state: Order) -> Any:
    return {"lines": [f"sent {state['answers']}"]}


def resumed_elsewhere() -> Script:
    """Stops twice in one node; each answer is given by another process, the last look is taken here."""
    yield chain(Order, draft, ask, send).compile
    yield call("invoke", {"lines": ["order"]}, THREAD)
    for answer in ({"yes": SECRET}, True):
        yield Call("get_state", (THREAD,), {}, elsewhere=True)
        yield Call("invoke", (Command(resume=answer), THREAD), {}, elsewhere=True)


# --- subgraphs ------------------------------------------------------------------------------------


def shout(state: Order) -> Any:
    return {"lines": [line.upper() for line in state["lines"][-1:]]}


def subgraphs() -> Script:
    """Two levels down, with two interrupts at the bottom; a state is set there in between."""
    inner = chain(Order, ask, shout).compile()
    middle: Any = StateGraph(Order)
    middle.add_node("draft", draft)
    middle.add_node("inner", inner)
    middle.add_edge(START, "draft")
    middle.add_edge("draft", "inner")
    outer: Any = StateGraph(Order)
    outer.add_node("middle", middle.compile())
    outer.add_node("send", send)
    outer.add_edge(START, "middle")
    outer.add_edge("middle", "send")
    yield outer.compile
    yield call("stream", {"lines": ["order"]}, THREAD, stream_mode=["values", "updates"], subgraphs=True)
    below = (yield call("get_state", THREAD, subgraphs=True)).tasks[0].state
    namespace = below.tasks[0].state.config["configurable"]["checkpoint_ns"]
    bottom = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    yield call("update_state", bottom, {"lines": [f"set below {SECRET}"]})
    yield call("invoke", Command(resume={"first": SECRET}), THREAD)
    yield call("get_state_history", bottom)
    yield call("invoke", Command(resume="second"), THREAD)


# --- time travel ----------------------------------------------------------------------------------


class Walk(TypedDict):
    path: Annotated[list[str], operator.add]


def north(state: Walk) -> Any:
    return {"path": [f"north {SECRET}"]}


def east(state: Walk) -> Any:
    return {"path": [f"east {len(state['path'])}"]}


def south(state: Walk) -> Any:
    return {"path": ["south"]}


def time_travel() -> Script:
    """Replays from the middle, forks there by another state, and goes on from the fork."""
    yield chain(Walk, north, east, south).compile
    yield call("invoke", {"path": ["start"]}, THREAD)
    history = yield call("get_state_history", THREAD)
    middle = next(snapshot.config for snapshot in history if snapshot.next == ("east",))
    yield call("invoke", None, middle)
    forked = yield call("update_state", middle, {"path": [f"fork {SECRET}"]})
    yield call("get_state", forked)
    yield call("invoke", None, forked)
    yield call("get_state_history", THREAD, filter={"source": "fork"})
    yield call("get_state_history", THREAD, before=middle, limit=2)


# --- parallel branches and a crash ----------------------------------------------------------------


class Fan(TypedDict):
    done: Annotated[list[str], operator.add]
    ran: Annotated[list[Any], operator.add]


def crash_and_resume() -> Script:
    """Two of three branches end, the third raises once: only it runs again.

    One at a time, so that the two are written before the third raises.
    """
    ran: list[str] = []

    def fan_out(state: Fan) -> Any:
        return [Send("work", {"part": part, "of": SECRET}) for part in ("a", "b")] + [
            Send("work", {"part": "z"})
        ]

    def work(task: dict[str, Any]) -> Any:
        ran.append(task["part"])
        if task["part"] == "z" and ran.count("z") == 1:
            raise RuntimeError(f"lost {SECRET}")
        return {"done": [f"{task['part']} {SECRET}"]}

    def join(state: Fan) -> Any:
        return {"ran": [list(ran)]}  # part of the state, and so of what is compared

    graph: Any = StateGraph(Fan)
    graph.add_node("work", work)
    graph.add_node("join", join)
    graph.add_conditional_edges(START, fan_out, ["work"])
    graph.add_edge("work", "join")
    one_by_one = {**THREAD, "max_concurrency": 1}
    yield graph.compile
    try:
        yield call("invoke", {"done": []}, one_by_one)
    except RuntimeError:
        yield call("get_state", THREAD)
    final = yield call("invoke", None, one_by_one)
    assert final["ran"] == [["a", "b", "z", "z"]]


# --- delta channels -------------------------------------------------------------------------------


def extend(so_far: list[str] | None, updates: list[list[str]]) -> list[str]:
    return [*(so_far or []), *(line for update in updates for line in update)]


class Count(TypedDict):
    lines: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=60)]
    thirds: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=7)]
    n: int


def delta(steps: int) -> Script:
    """Counts, and goes on after a pause, in two channels that are stored in full every 60 or 7 updates."""

    def count(state: Count) -> Any:
        n = state.get("n", 0)
        return {"lines": [f"{n} {SECRET}"], "n": n + 1, **({"thirds": [f"{n}"]} if n % 3 else {})}

    graph: Any = StateGraph(Count)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    graph.add_conditional_edges("count", lambda state: "count" if state["n"] % (steps // 2) else END)
    yield graph.compile
    yield call("invoke", {"n": 0}, THREAD)
    final = yield call("invoke", {"lines": ["pause"]}, THREAD)
    assert len(final["lines"]) == steps + 1


# --- update_state and streaming -------------------------------------------------------------------


def states_set_by_hand() -> Script:
    """Before there is any, in place of a node, beside a stop, and to end the run."""
    graph = chain(Walk, north, east, south)
    yield partial(graph.compile, interrupt_before=["south"])
    yield call("update_state", THREAD, {"path": [f"from outside {SECRET}"]}, as_node="north")
    yield call("invoke", None, THREAD)
    yield call("update_state", THREAD, {"path": [f"beside {SECRET}"]})
    yield call("get_state", THREAD)
    yield call("invoke", None, THREAD)
    yield call("update_state", THREAD, None, as_node=END)


def streaming() -> Script:
    yield chain(Walk, north, east, south).compile
    yield call("stream", {"path": ["start"]}, THREAD, stream_mode="values")
    yield call("stream", {"path": [SECRET]}, THREAD, stream_mode="updates")
    yield call("stream", {"path": ["once more"]}, THREAD, stream_mode=["values", "updates"])


# --- kinds of state -------------------------------------------------------------------------------


class Part(BaseModel):
    name: str
    price: float = 1.5


@dataclass
class Place:
    street: str
    number: int = 7


class Basket(BaseModel):
    """A state that is a pydantic model, with models, dataclasses and both inside."""

    parts: Annotated[list[Part], operator.add] = []
    place: Place | None = None
    by_name: dict[str, Part] = {}


@dataclass
class Parcel:
    """A state that is a dataclass."""

    parts: Annotated[list[Part], operator.add] = field(default_factory=list)
    place: Place | None = None
    stamps: Annotated[list[Place], operator.add] = field(default_factory=list)


def pydantic_state() -> Script:
    def fill(state: Basket) -> Any:
        part = Part(name=SECRET)
        return {"parts": [part], "by_name": {"first": part}, "place": Place(SECRET)}

    def check(state: Basket) -> Any:
        assert state.place == Place(SECRET)
        return Basket(parts=[Part(name=state.place.street, price=interrupt(state.parts))])

    yield chain(Basket, fill, check).compile
    yield call("invoke", Basket(parts=[Part(name="given")]), THREAD)
    yield call("invoke", Command(resume=2.25), THREAD)


def dataclass_state() -> Script:
    def pack(state: Parcel) -> Any:
        return Parcel(parts=[Part(name=SECRET)], place=Place("pack", len(state.parts)))

    def stamp(state: Parcel) -> Any:
        assert state.place is not None
        return {"stamps": [Place(interrupt(state.place), state.place.number)]}

    yield chain(Parcel, pack, stamp).compile
    yield call("invoke", Parcel(parts=[Part(name="given")]), THREAD)
    yield call("invoke", Command(resume=SECRET), THREAD)


class Notes(TypedDict):
    found: Annotated[list[Item], operator.add]
    by_key: dict[str, Item]


def store_items() -> Script:
    def write(state: Notes, *, store: BaseStore) -> Any:
        for key in ("one", "two"):
            store.put(("notes",), key, {"text": f"{key} {SECRET}"})
        return {}

    def read(state: Notes, *, store: BaseStore) -> Any:
        items = [store.get(("notes",), key) for key in ("one", "two")]
        return {"found": items, "by_key": {item.key: item for item in items if item}}

    def look(state: Notes) -> Any:
        interrupt([item.value for item in state["found"]])
        return {"found": [state["by_key"]["one"]]}

    yield partial(chain(Notes, write, read, look).compile, store=InMemoryStore())
    yield call("invoke", {"found": []}, THREAD)
    final = yield call("invoke", Command(resume=True), THREAD)
    assert all(isinstance(item, Item) for item in final["found"])


class Kinds(TypedDict):
    text: str
    number: int
    ratio: float
    flag: bool
    nothing: None
    raw: bytes
    lines: list[str]
    fields: dict[str, str]


def kinds_of_values() -> Script:
    """One channel of each kind: on Postgres some never reach a serializer."""

    def fill(state: Kinds) -> Any:
        return Kinds(
            text=SECRET,
            number=417,
            ratio=4.17,
            flag=True,
            nothing=None,
            raw=SECRET.encode(),
            lines=[SECRET],
            fields={"text": SECRET},
        )

    yield chain(Kinds, fill).compile
    yield call("invoke", {"text": ""}, THREAD)


SCRIPTS: Final[dict[str, Callable[[], Script]]] = {
    "agent with tools": agent_with_tools,
    "resumed elsewhere": resumed_elsewhere,
    "subgraphs": subgraphs,
    "time travel": time_travel,
    "crash and resume": crash_and_resume,
    "delta 210": partial(delta, 210),
    "delta 30": partial(delta, 30),
    "states set by hand": states_set_by_hand,
    "streaming": streaming,
    "pydantic state": pydantic_state,
    "dataclass state": dataclass_state,
    "store items": store_items,
    "kinds of values": kinds_of_values,
}
