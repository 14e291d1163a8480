"""A listing gives what the saver gives without the wrapper: filters, ``before``, ``limit`` and ties."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.langgraph import SqliteSaver as OurSqliteSaver
from tests.support.databases.rebinding import rebound, visible
from tests.support.servers.postgres import schema, server

RING = KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)], index=bytes(range(32)))
RING_CIPHER = RingCipher(RING, "xaes256gcm")
SERDE = EncryptedSerializer(RING_CIPHER)

IDS = [f"1f000000-0000-6000-8000-00000000000{number}" for number in range(10)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


Make = Callable[..., tuple[BaseCheckpointSaver[Any], str]]


@pytest.fixture
def make(kind: str, stack: ExitStack, pytestconfig: pytest.Config) -> Make:
    """Opens an empty saver, by default a file in memory; returns it, and where its database is."""

    def make(path: str = ":memory:") -> tuple[BaseCheckpointSaver[Any], str]:
        if kind == "memory":
            return InMemorySaver(), ""
        if kind == "postgres":
            dsn = stack.enter_context(schema(server(pytestconfig)))
            saver = stack.enter_context(PostgresSaver.from_conn_string(dsn))
            saver.setup()
            return saver, dsn
        opened = stack.enter_context(closing(sqlite3.connect(path, check_same_thread=False)))
        return (OurSqliteSaver if kind == "ours" else SqliteSaver)(opened), path

    return make


@pytest.fixture(params=["sqlite", "ours", "memory", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_saver_can_be_used_while_it_lists(make: Make) -> None:
    """LangGraph's SqliteSaver holds its lock while it lists: a call within would wait for ever."""
    saver = SealedSaver(make()[0], serde=SERDE)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for step in range(40):
        saver.put(config, empty_checkpoint(), {"step": step}, {})
    for found in saver.list(config):
        assert saver.get_tuple(found.config) == found
    with pytest.raises(ConfigError, match="before"):  # bare savers list nothing then, or everything
        list(saver.list(None, before={"configurable": {}}))


class _Counted(PostgresSaver):
    """Counts how often a single checkpoint is read."""

    reads = 0

    def get_tuple(self, config: Any) -> Any:
        self.reads += 1
        return super().get_tuple(config)


@pytest.mark.parametrize("limit", [None, 4])
def test_the_sends_of_old_checkpoints_are_read_with_their_page(
    limit: int | None, stack: ExitStack, pytestconfig: pytest.Config
) -> None:
    """They are among the writes to the parents, which stand in the page, but for the last checkpoints."""
    bare, inner = (
        stack.enter_context(kind.from_conn_string(stack.enter_context(schema(server(pytestconfig)))))
        for kind in (PostgresSaver, _Counted)
    )
    sealed = SealedSaver(inner, serde=SERDE)
    for saver in (bare, sealed):
        saver.setup()
        places: dict[int, Any] = {
            child: {"configurable": {"thread_id": "t1", "checkpoint_ns": "child:1" if child else ""}}
            for child in (0, 1)
        }
        for number, id_ in enumerate(IDS):
            versions = {"a": f"{number:032}.0"}
            made: Any = {**empty_checkpoint(), "v": 3, "ts": "", "id": id_, "channel_versions": versions}
            place = saver.put(places[number % 2], made, {"step": number}, {})
            saver.put_writes(place, [(TASKS, f"sent {number}"), ("other", number)], "task")
            places[number % 2] = place
    found = [*sealed.list(None, limit=limit)]
    assert [*map(tuple, found)] == [*map(tuple, bare.list(None, limit=limit))]
    assert found[0].checkpoint["channel_values"] == {TASKS: ["sent 7"]}
    # With a limit, the parents of the last checkpoints of both namespaces are not in the page.
    assert sealed.inner.reads == (0 if limit is None else 2)


# --- values of every type -------------------------------------------------------------------------------


class Text(str, Enum):  # noqa: UP042 -- a subclass of StrEnum formats itself in another way
    A = "a"


class Number(int, Enum):
    ONE = 1
    SEVEN = 7


class Level(IntEnum):
    SEVEN = 7


class Words(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


EQUAL: Final[dict[str, Any]] = {
    "text": "a",
    "str Enum": Text.A,
    "str subclass": Words("a"),
    "lone surrogate": "a\ud800",
    "lone surrogates alone": "\udfff\ud800",
    "empty": "",
    "text of a number": "7",
    "int": 7,
    "int Enum": Number.SEVEN,
    "int Enum of one": Number.ONE,
    "IntEnum": Level.SEVEN,
    "one": 1,
    "true": True,
    "integral float": 7.0,
    "float": 0.5,
    "numpy float": np.float64(0.5),
    "numpy integral float": np.float64(7.0),
    "numpy large float": np.float64(1e16),
    "1e16": 1e16,
    "10**16": 10**16,
    "1e23": 1e23,
    "10**23": 10**23,
    "int(1e23)": int(1e23),
    "2**53": 2**53,
    "2**53 + 1": 2**53 + 1,
    "float(2**53)": float(2**53),
    "-0.0": -0.0,
    "zero": 0,
    "tiny": 5e-324,
    "1e300": 1e300,
    "many digits": 10**5000,
}


def put_all(saver: Any, *, through_config: bool) -> None:
    for name, value in EQUAL.items():
        config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        metadata: Any = {"step": 1}
        (config["configurable"] if through_config else metadata)["key"] = value
        try:
            saver.put(config, {**empty_checkpoint(), "id": name}, metadata, {})
        except Exception:  # noqa: BLE001, S112 -- of any database: compared below by what is there
            continue


def found(saver: Any, value: Any) -> Any:
    """The threads that a filter finds; ``None`` if the saver refuses it."""
    try:
        return sorted(
            each.config["configurable"]["thread_id"] for each in saver.list(None, filter={"key": value})
        )
    except Exception:  # noqa: BLE001 -- of any database
        return None


@pytest.mark.parametrize("through_config", [False, True], ids=["metadata", "config"])
@pytest.mark.parametrize("way", ["sealed", "indexed", "rebound"])
def test_a_filter_finds_values_as_the_bare_saver_does(
    make: Make, tmp_path: Path, way: str, through_config: bool
) -> None:
    """For each value, among all values; by an indexed key with tokens made by ``put``, or by ``rebind``."""
    (bare, _), (inner, place) = make(), make(str(tmp_path / "x.db"))
    if way == "rebound" and not place:
        pytest.skip("a saver in memory is never rebound")
    put_all(bare, through_config=through_config)
    sealed = SealedSaver(inner, serde=SERDE)
    indexed = SealedSaver(inner, serde=SERDE, indexed_metadata=("key",))
    put_all(indexed if way == "indexed" else sealed, through_config=through_config)
    if way == "rebound":
        rebound(
            Path(place) if place.endswith(".db") else place, RING_CIPHER, visible=visible(indexed=("key",))
        )
    stored = {each.config["configurable"]["thread_id"] for each in bare.list(None)}
    assert stored
    for value in EQUAL.values():
        if (expected := found(bare, value)) is not None:
            names = found(sealed if way == "sealed" else indexed, value) or ()
            assert [name for name in names if name in stored] == expected, repr(value)[:50]
