"""Golden databases, written once by LangGraph's SqliteSaver: they read back as long as there are releases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Send

from sealpoint import EncryptedSerializer, JsonPlusSerializer, Key, KeyRing, KeyState, RingCipher
from sealpoint.base import CheckpointTuple
from sealpoint.sqlite import SqliteSaver
from tests.compat.golden.write import AES_KEY, FOLDER, KEY, VALUES
from tests.support.databases.checkpoints import at

RING = KeyRing(
    [
        Key(id="k1", material=KEY, state=KeyState.ACTIVE),
        Key(id="langgraph", material=AES_KEY, state=KeyState.DECRYPT_ONLY, suite="aes"),
    ]
)
STRICT = JsonPlusSerializer(
    allowed_msgpack_modules=[
        ("langchain_core.messages.human", "HumanMessage"),
        ("langchain_core.messages.ai", "AIMessage"),
        ("langgraph.types", "Send"),
    ]
)
SEALED = EncryptedSerializer(RingCipher(RING), STRICT)
SERIALIZERS: dict[str, Any] = {"plain": STRICT, "older": STRICT, "sealed": SEALED, "langgraph-aes": SEALED}


@pytest.fixture(params=SERIALIZERS)
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def saver(name: str) -> Iterator[SqliteSaver]:
    """Nothing is written: neither to the file nor beside it."""
    with closing(sqlite3.connect(f"file:{FOLDER / name}.db?mode=ro&immutable=1", uri=True)) as connection:
        yield SqliteSaver(connection, serde=SERIALIZERS[name])


def found(saver: SqliteSaver, number: int, ns: str = "") -> CheckpointTuple:
    config = at("golden", f"1f0c0000-0000-6000-8000-{number:012}", ns=ns)
    result = saver.get_tuple(config)
    assert result is not None
    return result


def test_the_listing(saver: SqliteSaver) -> None:
    listed = [*saver.list(at("golden"))]
    assert [each.checkpoint["id"][-1] for each in listed] == ["3", "2", "1"]
    assert [each.metadata["step"] for each in listed] == [1, 0, -1]
    assert [
        (each.parent_config or at())["configurable"].get("checkpoint_id", "-")[-1] for each in listed
    ] == [*"11-"]
    assert len([*saver.list(None)]) == 4
    (forked,) = saver.list(None, filter={"source": "fork"})
    assert forked == listed[0]


def test_the_values(saver: SqliteSaver) -> None:
    first = found(saver, 1)
    values = first.checkpoint["channel_values"]
    assert values.keys() == VALUES.keys()
    for name, value in VALUES.items():
        assert values[name] == value, name
        assert type(values[name]) is type(value), name
    assert first.metadata == {"source": "input", "step": -1, "parents": {}, "user": "ann"}
    assert first.checkpoint["ts"] == "2026-01-02T03:04:01+00:00"
    assert first.checkpoint["channel_versions"] == dict.fromkeys(VALUES, f"{1:032}.0.5")


def test_the_writes_in_their_order(saver: SqliteSaver) -> None:
    """By path where the table has one; by task either way."""
    writes = found(saver, 1).pending_writes
    assert writes is not None
    assert writes[:3] == [
        ("task1", "__interrupt__", "go on?"),
        ("task1", "text", "a"),
        ("task2", "text", "b"),
    ]
    assert [(task, channel) for task, channel, _ in writes[3:]] == [("task2", "messages")]
    assert [type(message) for message in writes[3][2]] == [HumanMessage, AIMessage]


def test_messages_and_sends(saver: SqliteSaver) -> None:
    messages = found(saver, 2).checkpoint["channel_values"]["messages"]
    assert [(type(each), each.content, each.id) for each in messages] == [
        (HumanMessage, "pay 12 euros", "m1"),
        (AIMessage, "done", "m2"),
    ]
    assert found(saver, 3).checkpoint["channel_values"] == {"sends": [Send("node", {"n": 1})]}


def test_the_subgraph(saver: SqliteSaver) -> None:
    assert found(saver, 4, "sub:1").checkpoint["channel_values"] == {"text": "inner"}


def test_the_history_of_a_channel(saver: SqliteSaver) -> None:
    config = found(saver, 3).config
    history = saver.get_delta_channel_history(config=config, channels=["text", "absent"])
    assert history == {
        "text": {"seed": VALUES["text"], "writes": [("task1", "text", "a"), ("task2", "text", "b")]},
        "absent": {"writes": []},
    }
