"""Random texts in every place that a user can put text, and the search for them in files."""

from __future__ import annotations

import operator
import secrets
import string
import struct
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.store.base import Item
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

_LETTERS: Final = string.ascii_letters + string.digits


def letters(length: int = 24) -> str:
    """Random letters and digits, which no compression makes shorter."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


class Canaries(dict[str, Any]):
    """A value for each place; made when the place is first named."""

    def text(self, name: str) -> str:
        value: str = self.setdefault(name, letters())
        return value

    def number(self, name: str) -> int:
        value: int = self.setdefault(name, secrets.randbits(61) | 1 << 61)
        return value

    def ratio(self, name: str) -> float:
        value: float = self.setdefault(name, secrets.randbits(52) / 7)
        return value

    def raw(self, name: str) -> bytes:
        value: bytes = self.setdefault(name, secrets.token_bytes(24))
        return value

    def uuid(self, name: str) -> uuid.UUID:
        value: uuid.UUID = self.setdefault(name, uuid.uuid4())
        return value


# --- the search ------------------------------------------------------------------------------------


def needles(value: Any) -> set[bytes]:
    """All forms in which a value may stand in a file."""
    if isinstance(value, uuid.UUID):
        return {form for part in (str(value), value.hex, value.bytes) for form in needles(part)}
    if isinstance(value, int):
        packed = {value.to_bytes(8, "big"), value.to_bytes(8, "little")}
        return {str(value).encode(), numeric(str(value)), *packed}
    if isinstance(value, float):
        packed = {struct.pack(">d", value), struct.pack("<d", value)}
        return {repr(value).encode(), numeric(repr(value)), *packed}
    data = value.encode() if isinstance(value, str) else value
    return {data, data.hex().encode(), data.hex().upper().encode(), *base64_forms(data)}


def numeric(text: str) -> bytes:
    """A decimal number as JSONB stores it: four digits in 16 bits."""
    whole, _, part = text.partition(".")
    digits = whole.zfill(-(-len(whole) // 4) * 4) + part.ljust(-(-len(part) // 4) * 4, "0")
    groups = [int(digits[at : at + 4]) for at in range(0, len(digits), 4)]
    return struct.pack(f"<{len(groups)}h", *groups)


def base64_forms(data: bytes) -> Iterator[bytes]:
    """What does not depend on the neighbours, in all three alignments and both alphabets."""
    for skipped in range(3):
        aligned = data[skipped:]
        aligned = aligned[: len(aligned) // 3 * 3]
        yield b64encode(aligned)
        yield urlsafe_b64encode(aligned)


def search(paths: Iterable[Path], canaries: Canaries) -> set[str]:
    """Names of the canaries that stand in any of the files."""
    forms = {name: needles(value) for name, value in canaries.items()}
    found: set[str] = set()
    for data in contents(paths):
        for name in forms.keys() - found:
            if any(form in data for form in forms[name]):
                found.add(name)
    return found


def contents(paths: Iterable[Path]) -> Iterator[bytes]:
    """What is in files, but for those that a server has removed meanwhile, as it does with caches."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.read_bytes()


def changed_since(folder: Path, began: float) -> list[Path]:
    """The files of a running server that have been written since a time."""
    found = list[Path]()
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if file.is_file() and file.stat().st_mtime >= began:
                found.append(file)
    return found


# --- a graph that stores them -------------------------------------------------------------------------


class Part(BaseModel):
    name: str


@dataclass
class Place:
    street: str


def extend(so_far: list[str] | None, updates: list[list[str]]) -> list[str]:
    return [*(so_far or []), *(line for update in updates for line in update)]


class Common(TypedDict):
    text: str
    empty: str
    long: str
    number: int
    ratio: float
    raw: bytes
    lines: Annotated[list[str], operator.add]
    fields: dict[str, str]
    nested: dict[str, Any]
    messages: Annotated[list[AnyMessage], add_messages]
    part: Part
    place: Place
    ident: uuid.UUID
    members: set[str]
    price: Decimal
    path: Path
    found: Item
    log: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=2)]


class Inner(TypedDict):
    below: str
    answer: str


def build(saver: Any, mark: Canaries, failing: list[bool]) -> Any:
    """A graph with a channel and a node that are named by canaries."""
    named = mark.text("channel name")
    typed_dict: Any = TypedDict  # its fields are known only now
    state = typed_dict("State", {**Common.__annotations__, **Inner.__annotations__, named: str})

    def fill(_: Any) -> Any:
        return {
            "text": mark.text("text"),
            "long": letters(20_000) + mark.text("text in TOAST") + letters(20_000),
            "number": mark.number("number"),
            "ratio": mark.ratio("ratio"),
            "raw": secrets.token_bytes(20_000) + mark.raw("bytes"),
            "lines": [mark.text("list")],
            "fields": {mark.text("key of a dict"): mark.text("value of a dict")},
            "nested": {"a": [{"b": (mark.text("nested"), mark.number("nested number"))}]},
            "messages": [
                HumanMessage(mark.text("message"), id="h", additional_kwargs={"x": mark.text("keyword")}),
                AIMessage("", id="a", tool_calls=[call(mark)], name=mark.text("name of a message")),
            ],
            "part": Part(name=mark.text("pydantic")),
            "place": Place(mark.text("dataclass")),
            "ident": mark.uuid("uuid"),
            "members": {mark.text("set")},
            "price": Decimal(mark.number("decimal")),
            "path": Path("/") / mark.text("path"),
            "found": item(mark),
            "log": [mark.text("delta channel, first")],
            named: mark.text("channel with a name"),
        }

    def ask(_: Inner) -> Any:
        return {
            "answer": interrupt({"ask": mark.text("interrupt")}),
            "below": mark.text("subgraph"),
        }

    def fan_out(_: Any) -> Any:
        return [Send("work", {"part": mark.text("Send")})]

    def work(task: dict[str, Any]) -> Any:
        if failing[0]:
            raise RuntimeError(mark.text("error"))
        return {"lines": [task["part"]], "log": [mark.text("delta channel, later")]}

    inner: Any = StateGraph(Inner)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    graph: Any = StateGraph(state)
    graph.add_node(mark.text("node name"), fill)
    graph.add_node("below", inner.compile())
    graph.add_node("work", work)
    graph.add_edge(START, mark.text("node name"))
    graph.add_edge(mark.text("node name"), "below")
    graph.add_conditional_edges("below", fan_out, ["work"])
    graph.add_edge("work", END)
    return graph.compile(checkpointer=saver)


def call(mark: Canaries) -> Any:
    arguments = {"topic": mark.text("argument of a tool")}
    return {"name": mark.text("tool"), "args": arguments, "id": "c", "type": "tool_call"}


def item(mark: Canaries) -> Item:
    now: Any = "2026-01-01T00:00:00+00:00"
    key, value = mark.text("key of a store item"), {"text": mark.text("store item")}
    return Item(namespace=("notes",), key=key, value=value, created_at=now, updated_at=now)


def run(saver: Any, mark: Canaries, invoke: Callable[..., Any]) -> None:
    """Run the graph with an interrupt, an error and a state that is set by hand."""
    failing = [True]
    graph = build(saver, mark, failing)
    config: Any = {
        "configurable": {
            "thread_id": mark.text("thread id"),
            "user_id": mark.text("configurable, indexed"),
            "tenant": mark.text("configurable, plain"),
            mark.text("key of configurable"): mark.text("configurable"),
            "run_id": str(mark.uuid("run id")),
            "quota": mark.number("number of configurable"),
        },
        "metadata": {
            mark.text("key of metadata"): mark.text("metadata"),
            "score": mark.number("number of metadata, indexed"),
            "weight": mark.ratio("ratio of metadata"),
        },
        "run_name": mark.text("run name"),
        "tags": [mark.text("tag")],
    }
    invoke(graph, "invoke", {"lines": [mark.text("input")], "empty": ""}, config)
    try:
        invoke(graph, "invoke", Command(resume=mark.text("resume")), config)
    except RuntimeError:
        failing[0] = False
    invoke(graph, "invoke", None, config)
    invoke(graph, "update_state", config, {"text": mark.text("state set by hand")})
    put_directly(saver, mark, config)


def put_directly(saver: Any, mark: Canaries, config: Any) -> None:
    """Put metadata that no graph makes: nested, with text in its lists and keys."""
    found = saver.get_tuple(config)
    metadata = {
        **found.metadata,
        "writes": {"a": mark.text("writes in metadata")},
        "nested": {mark.text("key in nested metadata"): [mark.text("nested metadata")]},
        "list": [mark.text("list in metadata")],
    }
    checkpoint = {**found.checkpoint, "id": "1ffffffa-0000-6000-8000-000000000000"}
    saver.put(found.config, checkpoint, metadata, {})
