"""Plays a script of `graphs` on a saver of `savers`, and writes down all that it makes."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.store.base import Item
from langgraph.types import PregelTask, StateSnapshot
from pydantic import BaseModel

from tests.graphs.graphs import SCRIPTS, THREAD, Call, Script, call
from tests.graphs.savers import ENTRIES, Stored, opened, stored

Transcript = list[tuple[str, Any]]
Elsewhere = Callable[..., Any]
"""Runs a function with its arguments in another process, and waits."""

RUNS: Final = {"invoke", "stream"}
AT_THE_END: Final = (
    call("get_state", THREAD, subgraphs=True),
    call("get_state_history", THREAD, limit=25),
)
"""What is compared besides the outcomes of the script: the last state, and the last checkpoints."""


def play(
    script: str,
    saver: str,
    place: str,
    sealed: bool,
    elsewhere: Elsewhere | None = None,
    durability: str | None = None,
) -> tuple[Transcript, Stored]:
    """Play a script to its end; return the outcome of every call, and what is stored then.

    With a ``durability`` every run has it, and not LangGraph's default.
    """
    transcript: Transcript = []
    with opened(saver, place, sealed=sealed) as (checkpointer, runner):
        lines = SCRIPTS[script]()
        graph = next(lines)(checkpointer)
        outcome: Any = None
        while asked := next_call(lines, outcome):
            if durability and asked.method in RUNS:
                asked = dataclasses.replace(asked, named={**asked.named, "durability": durability})
            try:
                if asked.elsewhere and ENTRIES[saver].kind != "memory":
                    away = elsewhere or (lambda function, *arguments: function(*arguments))
                    outcome = away(perform_afresh, script, saver, place, sealed, asked)
                else:
                    outcome = perform(graph, asked, saver, runner)
            except RuntimeError as error:  # what a node raises
                outcome = error
            transcript.append((asked.method, plain(outcome)))
        for last in AT_THE_END:
            transcript.append((last.method, plain(perform(graph, last, saver, runner))))
        return transcript, stored(saver, checkpointer, place)


def next_call(lines: Script, outcome: Any) -> Call | None:
    """Tell the script how the last call ended; None when it is at its end."""
    try:
        following: Call = lines.throw(outcome) if isinstance(outcome, RuntimeError) else lines.send(outcome)
    except StopIteration:
        return None
    return following


def perform(graph: Any, asked: Call, saver: str, runner: asyncio.Runner) -> Any:
    """Make a call, awaited or not; streams are read to their end."""
    entry, named = ENTRIES[saver], asked.named
    if not entry.keeps_history and asked.method in RUNS:
        # Else a shallow saver stores a checkpoint while the writes upon it arrive, and may delete them.
        named = {**named, "durability": "sync"}
    if entry.awaited:
        return runner.run(awaited(getattr(graph, "a" + asked.method)(*asked.arguments, **named)))
    outcome = getattr(graph, asked.method)(*asked.arguments, **named)
    return list(outcome) if isinstance(outcome, Iterator) else outcome


async def awaited(outcome: Any) -> Any:
    return [each async for each in outcome] if isinstance(outcome, AsyncIterator) else await outcome


def perform_afresh(script: str, saver: str, place: str, sealed: bool, asked: Call) -> Any:
    """Make one call on a graph and a saver of its own: what another process does."""
    with opened(saver, place, sealed=sealed) as (checkpointer, runner):
        graph = next(SCRIPTS[script]())(checkpointer)
        return plain(perform(graph, asked, saver, runner))


# --- what is compared -----------------------------------------------------------------------------

_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")


def plain(value: Any) -> Any:
    """A value by its type and parts, without ids and times, which differ from run to run."""
    match value:
        case str():
            return _ID.sub("<id>", value)
        case dt.datetime():
            return "<time>"
        case BaseException():
            return type(value).__name__, str(value)
        case dict():
            return {plain(name): plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
    if parts := dict(named_parts(value)):
        left_out = _LEFT_OUT if isinstance(value, _HAVE_IDS) else set()
        return type(value).__name__, {
            name: plain(part) for name, part in parts.items() if name not in left_out
        }
    return tuple(plain(part) for part in value) if isinstance(value, tuple) else value


def named_parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of the parts of a model, dataclass, named tuple or store item; of others none."""
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, Item):
        return ((name, getattr(value, name)) for name in ("namespace", "key", "value"))
    if hasattr(value, "_asdict"):
        return cast("dict[str, Any]", value._asdict()).items()
    if dataclasses.is_dataclass(value):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return ()


_HAVE_IDS: Final = (StateSnapshot, PregelTask, BaseMessage)  # a message may get its id while it is written
_LEFT_OUT: Final = {"config", "parent_config", "created_at", "id"}
