"""Checkpoints that a wrapping saver's serializer hands on undecoded: passed on, and not judged here."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, RowError
from sealpoint.serde import CarrierSerializer, EncryptedSerializer, JsonPlusSerializer
from sealpoint.sqlite import SqliteSaver

SERDE = EncryptedSerializer(RingCipher(KeyRing([Key("k1", bytes(32), KeyState.ACTIVE)])))


@dataclass(frozen=True)
class Sealed:
    """A value as it is stored."""

    tag: str
    blob: bytes


class Carrier:
    """Knows no key: what it writes another serializer has sealed, and what it reads it leaves sealed."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return SERDE.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return Sealed(*data)

    def is_opaque(self, value: object) -> bool:
        return type(value) is Sealed


class Lying(JsonPlusSerializer):
    """Decodes what it reads, and has no say in what is opaque."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return Sealed(*data)


@pytest.fixture
def saver() -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(":memory:", serde=Carrier()) as saver:
        yield saver


def put(saver: SqliteSaver, step: int, **metadata: Any) -> dict[str, Any]:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"step": step}
    parents = [saved.config["configurable"]["checkpoint_id"] for saved in saver.list(None, limit=1)]
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    if parents:
        config["configurable"]["checkpoint_id"] = parents[0]
    place: Any = saver.put(config, checkpoint, {"step": step, **metadata}, {})  # type: ignore[typeddict-item]
    saver.put_writes(place, [("log", step)], f"task-{step}")
    return place  # type: ignore[no-any-return]


def opened(sealed: Any) -> Any:
    assert type(sealed) is Sealed
    return SERDE.loads_typed((sealed.tag, sealed.blob))


def test_protocol() -> None:
    assert isinstance(Carrier(), CarrierSerializer)
    assert not isinstance(JsonPlusSerializer(), CarrierSerializer)
    assert not isinstance(SERDE, CarrierSerializer)


def test_tuple_and_list_hand_on_what_is_stored(saver: SqliteSaver) -> None:
    places: list[Any] = [put(saver, step) for step in range(3)]
    found = saver.get_tuple(places[1])
    assert found is not None
    assert opened(found.checkpoint)["channel_values"] == {"step": 1}
    assert [opened(value) for _, _, value in found.pending_writes or []] == [1]
    assert found.metadata["step"] == 1
    assert found.parent_config == places[0]
    listed = list(saver.list({"configurable": {"thread_id": "t"}}))
    assert [opened(saved.checkpoint)["channel_values"]["step"] for saved in listed] == [2, 1, 0]


def test_asynchronous_reads_do_the_same(saver: SqliteSaver) -> None:
    place: Any = put(saver, 0)

    async def read() -> Any:
        return await saver.aget_tuple(place), [saved async for saved in saver.alist(None)]

    found, listed = asyncio.run(read())
    assert opened(found.checkpoint) == opened(listed[0].checkpoint)


def test_delta_history_is_refused_and_not_empty(saver: SqliteSaver) -> None:
    """Without a look at the values no snapshot is met, and the history would be wrong without a word."""
    places: list[Any] = [put(saver, step) for step in range(3)]
    with pytest.raises(ConfigError, match="does not decode checkpoints") as caught:
        saver.get_delta_channel_history(config=places[2], channels=["log"])
    assert "wraps" in caught.value.hint
    assert saver.get_delta_channel_history(config=places[2], channels=[]) == {}


def test_pruning_deletes_nothing_that_may_be_needed(saver: SqliteSaver) -> None:
    for step in range(3):
        put(saver, step, counters_since_delta_snapshot={"log": step})
    saver.prune(["t"])
    assert len(list(saver.list(None))) == 3
    put(saver, 3)
    saver.prune(["t"])
    assert len(list(saver.list(None))) == 1


def test_other_serializers_are_checked_as_before() -> None:
    """A value does not become opaque by its type: only a carrier says that one is."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        place: Any = put(SqliteSaver(connection), 0)
        saver = SqliteSaver(connection, serde=Lying())
        with pytest.raises(RowError, match="does not hold the checkpoint"):
            saver.get_tuple(place)
        with pytest.raises(RowError, match="does not hold the checkpoint"):
            list(saver.list(None))


def test_what_a_carrier_has_decoded_is_checked() -> None:
    class Decoding(Carrier):
        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return {**SERDE.loads_typed(data), "id": "another"}

    with SqliteSaver.from_conn_string(":memory:", serde=Decoding()) as saver:
        place: Any = saver.put(
            {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {}
        )
        with pytest.raises(RowError, match="does not hold the checkpoint"):
            saver.get_tuple(place)
