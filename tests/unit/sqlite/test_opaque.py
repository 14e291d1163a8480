"""Checkpoints that a wrapping saver's serializer hands on undecoded: passed on, and not judged here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sealpoint.base import empty_checkpoint
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, RowError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
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


class Decoding(Carrier):
    """Decodes what it reads."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return {**SERDE.loads_typed(data), "id": "another"}


@pytest.mark.parametrize("serde", [Lying(), Decoding()], ids=["no carrier", "decoded"])
def test_all_else_is_checked_as_before(saver: SqliteSaver, serde: Any) -> None:
    """A value does not become opaque by its type: only a carrier says that one is."""
    place: Any = put(saver, 0)
    checking = SqliteSaver(saver.conn, serde=serde)
    saver.conn.execute("DELETE FROM writes")
    with pytest.raises(RowError, match="does not hold the checkpoint"):
        checking.get_tuple(place)
    with pytest.raises(RowError, match="does not hold the checkpoint"):
        list(checking.list(None))
