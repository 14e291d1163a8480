"""A filter by an indexed key finds what it finds without the wrapper, whatever the type of its value."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import EncryptedSerializer, SealedSaver
from sealpoint.langgraph import SqliteSaver as OurSqliteSaver
from tests.support.rebinding import rebound, visible
from tests.support.server import schema, server

CIPHER: Final = RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)], index=bytes(range(32))))
SERDE: Final = EncryptedSerializer(CIPHER)


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


VALUES: Final[dict[str, Any]] = {
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
    for name, value in VALUES.items():
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


@pytest.fixture(params=["sqlite", "ours", "postgres", "memory"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[tuple[Any, str]]]:
    """Two empty savers of one kind, and where their databases are."""
    with ExitStack() as stack:

        def make(number: int) -> tuple[Any, str]:
            if request.param == "memory":
                return InMemorySaver(), ""
            if request.param == "postgres":
                dsn = stack.enter_context(schema(server(request.config)))
                saver = stack.enter_context(PostgresSaver.from_conn_string(dsn))
                saver.setup()
                return saver, dsn
            path = tmp_path / f"{number}.db"
            opened = stack.enter_context(closing(sqlite3.connect(path, check_same_thread=False)))
            return (SqliteSaver if request.param == "sqlite" else OurSqliteSaver)(opened), str(path)

        yield [make(number) for number in range(2)]


@pytest.mark.parametrize("through_config", [False, True], ids=["metadata", "config"])
@pytest.mark.parametrize("rebinds", [False, True], ids=["put", "rebind"])
def test_an_indexed_key_finds_what_the_bare_saver_finds(
    places: list[tuple[Any, str]], rebinds: bool, through_config: bool
) -> None:
    """For each value, among all values; tokens made by ``put``, or later by ``rebind --index``."""
    (bare, _), (inner, place) = places
    if rebinds and not place:
        pytest.skip("a saver in memory is never rebound")
    put_all(bare, through_config=through_config)
    indexed = SealedSaver(inner, serde=SERDE, indexed_metadata=("key",))
    put_all(SealedSaver(inner, serde=SERDE) if rebinds else indexed, through_config=through_config)
    if rebinds:
        rebound(Path(place) if place.endswith(".db") else place, CIPHER, visible=visible(indexed=("key",)))
    stored = {each.config["configurable"]["thread_id"] for each in bare.list(None)}
    assert stored
    for value in VALUES.values():
        if (expected := found(bare, value)) is not None:
            assert [name for name in found(indexed, value) or () if name in stored] == expected, repr(value)[
                :50
            ]
