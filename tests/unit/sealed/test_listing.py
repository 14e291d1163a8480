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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
Pair = tuple[BaseCheckpointSaver[Any], SealedSaver]

VALUES = st.sampled_from(
    ["a", "b", "1", 1, 1.0, 2, 0, True, False, None, {"x": 1}, {"x": 1, "y": [1]}, [1, "a"], [1]]
)
METADATA = st.fixed_dictionaries(
    {"step": st.integers(-1, 2), "source": st.sampled_from(["input", "loop"]), "parents": st.just({})},
    optional={"user": VALUES, "tenant": VALUES, "other": VALUES},
)
FILTERS = st.dictionaries(
    st.sampled_from(["step", "source", "user", "tenant", "other", "none"]), VALUES, max_size=2
)
PUTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), METADATA), max_size=12)
IDS = [f"1f000000-0000-6000-8000-00000000000{number}" for number in range(10)]
THREADS = [("t1", ""), ("t2", ""), ("t1", "child:1")]


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


@pytest.fixture(params=[{}, {"indexed_metadata": ["user"], "pseudonyms": True, "plain_metadata": ["tenant"]}])
def pair(make: Make, request: pytest.FixtureRequest) -> Pair:
    """A bare saver, and the same kind wrapped."""
    return make()[0], SealedSaver(make()[0], serde=SERDE, **request.param)


def _fill(pair: Pair, puts: list[tuple[int, int, dict[str, Any]]]) -> None:
    for saver in pair:
        for thread_id in ("t1", "t2"):
            saver.delete_thread(thread_id)
        for thread, number, metadata in puts:
            thread_id, ns = THREADS[thread]
            checkpoint = empty_checkpoint()
            checkpoint["id"] = IDS[number]
            config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
            saver.put(config, checkpoint, metadata, {})  # type: ignore[arg-type]


def _listed(saver: BaseCheckpointSaver[Any], *arguments: Any, **options: Any) -> list[Any]:
    return [
        (tuple(sorted(found.config["configurable"].items())), found.metadata)
        for found in saver.list(*arguments, **options)
    ]


def _id(item: Any) -> Any:
    return dict(item[0])["checkpoint_id"]


def _sorted(found: list[Any]) -> list[Any]:
    """Without the order among checkpoints of one id, which no saver promises."""
    return sorted(found, key=lambda item: (_id(item), str(item[0])), reverse=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    puts=PUTS,
    wanted=FILTERS,
    where=st.sampled_from([None, *THREADS, ("t1", None), ("nobody", "")]),
    before=st.none() | st.integers(0, 9),
    limit=st.none() | st.integers(1, 4),
)
def test_a_listing_is_that_of_the_bare_saver(
    pair: Pair,
    kind: str,
    puts: list[Any],
    wanted: dict[str, Any],
    where: tuple[str, str | None] | None,
    before: int | None,
    limit: int | None,
) -> None:
    if kind in {"sqlite", "ours"} and any(isinstance(value, dict | list) for value in wanted.values()):
        wanted = {key: value for key, value in wanted.items() if not isinstance(value, dict | list)}
    _fill(pair, puts)
    config: Any = None
    if where is not None:
        thread_id, ns = where
        config = {"configurable": {"thread_id": thread_id} | ({} if ns is None else {"checkpoint_ns": ns})}
    older: Any = None if before is None else {"configurable": {"checkpoint_id": IDS[before]}}
    bare, sealed = (_listed(saver, config, filter=wanted, before=older) for saver in pair)
    assert _sorted(sealed) == _sorted(bare)
    if limit is not None:
        some = _listed(pair[1], config, filter=wanted, before=older, limit=limit)
        # Which of several checkpoints of one id comes first is not promised.
        assert [_id(item) for item in some] == [_id(item) for item in sealed[:limit]]
        assert all(item in sealed for item in some)


@pytest.mark.parametrize("kind", ["sqlite"])
def test_pages_do_not_divide_checkpoints_of_one_id(make: Make) -> None:
    """Copies of a thread have the same ids: a page that begins below an id would lose some."""
    saver = SealedSaver(make()[0], serde=SERDE)
    for number in range(300):
        for thread in range(2 if number % 50 else 40):
            checkpoint = {**empty_checkpoint(), "id": f"1f000000-0000-6000-8000-{number:012}"}
            config: Any = {"configurable": {"thread_id": f"t{thread}", "checkpoint_ns": ""}}
            saver.put(config, checkpoint, {"step": number, "user": f"u{number % 7}"}, {})  # type: ignore[arg-type, typeddict-unknown-key]
    everything = [*saver.list(None)]
    assert len(everything) == 6 * 40 + 294 * 2
    some = [found for found in everything if found.metadata["user"] == "u3"]  # type: ignore[typeddict-item]
    assert len([*saver.list(None, filter={"user": "u3"})]) == len(some)
    assert len([*saver.list(None, filter={"user": "u3"}, limit=50)]) == 50


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
