"""What `put` takes, `get_tuple` gives back as the bare saver gives it, or as it was; or `put` raises.

A batch of values is drawn at once, and is the channels of one checkpoint of each saver, so a value costs a
tenth of a write and a read of each. One that a serializer refuses is put alone, and `put` raises; what it
warns of is left out.
"""

from __future__ import annotations

import logging
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer as Theirs
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import BaseModel

from sealpoint.errors import UnreadableTypeError, UnsupportedTypeError
from sealpoint.langgraph import EncryptedSerializer, JsonPlusSerializer, SealedSaver
from sealpoint.serde import classes
from tests.support.runs.extent import by_extent
from tests.support.servers.postgres import schema, server
from tests.support.values import changing
from tests.support.values.strategies import equal

BATCH = 10
numbers = count()
MODES: dict[str, Any] = {"default": True, "strict": changing.ALLOWED}
Savers = dict[str, Callable[[Any], Any]]


@pytest.fixture(scope="module")
def savers(pytestconfig: pytest.Config) -> Iterator[Savers]:
    """What makes a saver of LangGraph with a serializer."""
    with ExitStack() as stack:

        def memory() -> sqlite3.Connection:
            return stack.enter_context(closing(sqlite3.connect(":memory:", check_same_thread=False)))

        dsn = stack.enter_context(schema(server(pytestconfig)))
        connection = stack.enter_context(PostgresSaver.from_conn_string(dsn)).conn
        PostgresSaver(connection).setup()
        yield {
            "memory": lambda serde: InMemorySaver(serde=serde),
            "sqlite": lambda serde: SqliteSaver(memory(), serde=serde),
            "postgres": lambda serde: PostgresSaver(connection, serde=serde),
        }


def through(saver: Any, values: list[Any]) -> list[Any]:
    """The values of a checkpoint that has been put and read."""
    thread = {"configurable": {"thread_id": str(next(numbers)), "checkpoint_ns": ""}}
    channels = {f"c{place}": value for place, value in enumerate(values)}
    versions = dict.fromkeys(channels, "1")
    checkpoint = {**empty_checkpoint(), "channel_values": channels, "channel_versions": versions}
    saver.put(thread, checkpoint, {}, versions)
    found = saver.get_tuple(thread).checkpoint["channel_values"]
    return [found[name] for name in channels]


class Said(logging.Handler):
    """Whether a serializer says of a value that it cannot be read back."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def takes(self, serde: Any, value: Any) -> bool | None:
        """Whether a value is written without a warning; ``None`` if it is refused."""
        classes._warned.clear()
        self.lines.clear()
        try:
            serde.dumps_typed(value)
        except (UnreadableTypeError, UnsupportedTypeError):
            return None
        return not any("cannot be read back" in line for line in self.lines)


@pytest.fixture
def said() -> Iterator[Said]:
    listener, logger, before = Said(), logging.getLogger("sealpoint.serde"), set(classes._warned)
    logger.addHandler(listener)
    logger.propagate = False
    yield listener
    logger.propagate = True
    logger.removeHandler(listener)
    classes._warned.clear()
    classes._warned.update(before)


def same(one: Any, other: Any) -> bool:
    """As `equal`, with what a model holds besides its fields."""
    if not equal(one, other):
        return False
    if isinstance(one, BaseModel):
        extra = [(each.__pydantic_extra__, each.__pydantic_private__) for each in (one, other)]
        return equal(*extra) and all(same(vars(one)[name], vars(other)[name]) for name in vars(one))
    return True


def again(value: Any) -> Any:
    """What the class itself makes of what is stored of a value; LangGraph cannot give it all of that.

    These differences stand in docs/serializer.md: roots, fields with aliases, enums whose values are tuples.
    """
    try:
        if isinstance(value, changing.Checked):
            return changing.Checked(**vars(value))
        if isinstance(value, BaseModel):
            return type(value).model_validate(value.model_dump(), by_alias=True, by_name=True)
    except ValueError:
        pass
    return value


def parts(value: Any) -> dict[Any, Any]:
    """What a value contains, by place."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return vars(value) if isinstance(value, BaseModel | changing.Plain | changing.Guarded) else {}


def fits(got: Any, theirs: Any, value: Any) -> bool:
    """Whether a value, or each of its parts, is as the bare saver gives it, as it was, or made again."""
    if same(got, theirs) or same(got, value) or same(got, again(value)):
        return True
    each = [*map(parts, (got, theirs, value))]
    return (
        type(got) in (type(theirs), type(value))
        and bool(each[0])
        and repr([*each[0]]) == repr([*each[1]]) == repr([*each[2]])
        and all(map(fits, *(part.values() for part in each)))
    )


@pytest.mark.parametrize(
    "drawn",
    [by_extent(1_000, 2_000), pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(7200)])],
)
def test_what_is_taken_is_read(drawn: int, savers: Savers, said: Said) -> None:
    counts = Counter[str]()
    opened = []
    for mode, allowed in MODES.items():
        inner = JsonPlusSerializer(allowed_msgpack_modules=allowed)
        serde = EncryptedSerializer.from_key(bytes(range(32)), serde=inner)
        bare = Theirs(allowed_msgpack_modules=allowed)
        opened += [
            (f"{kind}, {mode}", serde, SealedSaver(make(None), serde=serde), make(bare))
            for kind, make in savers.items()
        ]

    @settings(max_examples=drawn // BATCH, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(changing.values(), min_size=BATCH, max_size=BATCH))
    def law(batch: list[Any]) -> None:
        takes: dict[int, list[bool | None]] = {}
        for name, serde, sealed, bare in opened:
            if id(serde) not in takes:
                takes[id(serde)] = [said.takes(serde, value) for value in batch]
            taken = [value for value, is_taken in zip(batch, takes[id(serde)], strict=True) if is_taken]
            counts[name] += len(taken)
            if None in takes[id(serde)]:
                with pytest.raises((UnreadableTypeError, UnsupportedTypeError)):
                    through(sealed, [batch[takes[id(serde)].index(None)]])
            read = zip(taken, through(sealed, taken), through(bare, taken), strict=True)
            for value, got, theirs in read:
                assert fits(got, theirs, value), name

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic warns of fields that are not of their type
        law()
    assert min(counts.values()) > drawn // 2, counts
